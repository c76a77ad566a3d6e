//! What a command needs permission for, and what a permanent answer would cover.

use std::path::{Path, PathBuf};

use shell::{Always, Context, Form, Need, NeedKind, Verdict, needs, real, require_extra};

use crate::commands::place;

fn needs_of(command: &str) -> Vec<Need> {
    let roots = [PathBuf::from("/no/such/work")];
    let writable = ["/tmp", "/dev", "/home/user/.cargo"].map(PathBuf::from);
    needs(command, &place(&roots, &writable, &real))
}

/// What a command needs with something beyond the sandbox.
fn needs_with(command: &str, kind: NeedKind) -> Vec<Need> {
    let mut needs = needs_of(command);
    require_extra(&mut needs, command, kind, "it was requested");
    needs
}

/// Tells whether a command begins with these words.
fn begins(command: &str, words: &str) -> bool {
    command.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Rules for simple commands decide what a command gets beyond the sandbox, as they decide whether it runs.
// R: T2, T7
#[test]
fn extra_permission_is_needed_for_each_simple_command() {
    type Needs<'a> = &'a [(&'a str, Verdict, Option<Always>)];
    const EXACT: Option<Always> = Some(Always::Exact);
    let commits = Some(Always::StartingWith("git commit".to_owned()));
    let table: [(&str, Needs<'_>); 7] = [
        ("git commit -m x", &[("git commit -m x", Verdict::Ask, commits)]),
        ("cd sub && curl y", &[("cd sub", Verdict::Allow, EXACT), ("curl y", Verdict::Ask, EXACT)]),
        (
            "npm install; curl evil",
            &[("npm install", Verdict::Ask, EXACT), ("curl evil", Verdict::Ask, EXACT)],
        ),
        // No other command asks, so the read-only ones do.
        ("ls | wc -l", &[("ls", Verdict::Ask, EXACT), ("wc -l", Verdict::Ask, EXACT)]),
        ("curl $x", &[("curl $x", Verdict::Ask, None)]),
        ("a=(", &[("a=(", Verdict::Ask, None)]),
        ("> file", &[("> file", Verdict::Ask, None)]),
    ];
    for (command, expected) in table {
        let needs = needs_with(command, NeedKind::Network).into_iter();
        let needs = needs.filter(|need| need.kind == NeedKind::Network);
        let needs: Vec<_> = needs.map(|need| (need.subject, need.default, need.always)).collect();
        let needs: Vec<_> = needs
            .iter()
            .map(|(subject, verdict, always)| (subject.as_str(), *verdict, always.clone()))
            .collect();
        assert_eq!(needs, expected, "{command}");
    }
    // A rule that was saved for the whole text still matches, where that was one simple command.
    let need = needs_with("cargo  fetch", NeedKind::Network).pop().unwrap();
    assert_eq!(need.subject, "cargo fetch");
    let need = needs_with("a=(", NeedKind::Network).pop().unwrap();
    assert_eq!(need.form, Form::Unanalysed);
}

/// A rule for commits is about the repository here. Elsewhere in the project git may find another, with hooks.
// R: T2, T7
#[test]
fn git_in_another_directory_needs_a_separate_permission() {
    let directory = "/no/such/work/lib";
    let asks_again = |command: &str| {
        let needs = needs_with(command, NeedKind::Git);
        let is_extra = |need: &&Need| need.kind == NeedKind::Git && need.form != Form::Exact;
        let extra = needs.iter().filter(is_extra);
        extra.clone().all(|need| need.default == Verdict::Ask && need.always.is_none())
            && extra.count() > 0
    };
    for command in [
        format!("cd {directory} && git commit -m x"),
        format!("(cd {directory}; git commit -m x)"),
        format!("bash -c 'cd {directory}; git commit -m x'"),
        "cd $X && git commit -m x".to_owned(),
    ] {
        assert!(asks_again(&command), "{command}");
    }
    for command in ["git commit -m x", "cd /no/such/work && git commit -m x"] {
        assert!(!asks_again(command), "{command}");
    }
}

/// A command that hides what it runs is opaque, so that it does not bypass a rule that forbids.
// R: T2
#[test]
fn commands_hidden_in_variables_and_input_are_opaque() {
    let is_opaque = |command: &str| needs_of(command).iter().any(|need| need.is_opaque);
    for command in [
        "eval \"$X\"",
        "eval $X",
        "bash -c \"$X\"",
        "bash -c \"echo $X\"",
        "sudo bash -c \"$X\"",
        "/bin/bash -c \"$X\"",
        "\\bash -c \"$X\"",
        "sh -c '{rm,x}'",
        "sudo $X",
        "sudo -u bob \"$X\"",
        "env $X",
        "timeout 5 \"$X\"",
        "nohup r?",
        "find . -exec $X ;",
        "find . -exec sh -c \"$X\" ;",
        "ssh host \"$X\"",
        "trap \"$X\" EXIT",
        "poetry run $X",
        "source <(echo rm x)",
        "bash <(echo rm x)",
        "alias l=rm",
        "git $X",
        "git -P \"$X\" x",
        "git pus?",
        "npm --prefix x $X",
        "xargs⟨0⟩",
        "echo rm x | xargs -I% %",
        "echo rm x | xargs env",
        "echo rm x | xargs sudo -u bob",
        "echo x | xargs -I{} sh -c 'echo {}'",
        "echo rm x | parallel",
        "sh",
        "bash -x",
        "bash -o pipefail",
        "bash -s x",
        "echo 'rm x' | sh",
        "echo 'rm x' | sh -",
        "echo 'rm x' | /bin/sh",
        "echo 'rm x' | sudo sh",
        "echo 'rm x' | env -i sh",
        "echo 'rm x' | bash /dev/stdin",
        "echo 'rm x' | source /dev/stdin",
        "cat <<E | sh\nrm x\nE",
        "sh <<'E'\nrm x\nE",
        "{ sh; } <<'E'\nrm x\nE",
        "bash <<< 'rm x'",
        "bash < script",
        "(x=1) | sh",
        "python3 <<'E'\nprint()\nE",
        "python3.12 -u <<< x",
        "python3 -W ignore < x",
        "python3 -i x.py < y",
        "node < x.js",
        "node -r ./y < x.js",
        "perl -Mstrict < x",
        "php < x",
        "lua5.4 < x",
        "R --no-save < x",
        "Rscript - < x",
        "deno run - < x",
        "echo x | at now",
        "exec < x; sudo sh",
        "ls | tee >(sh)",
        "coproc sh",
        "sudo -s <<< 'rm x'",
        "su <<< 'rm x'",
        "ssh host <<< 'rm x'",
        "make -f - <<< 'a:; rm x'",
        "awk -f- <<< x",
        "psql <<< x",
        "xargs -a f sh",
        "find . -exec {} ;",
        "find . -exec env {} +",
        "npm exec $X",
        "git bisect run $X",
        "git -c alias.p=push p",
        "let 'a[$(rm x)]'",
        "printf -v 'a[$(rm x)]' y",
        "declare -i n='a[$(rm x)]'",
        "PS4='$(rm x)'; set -x; :",
        "env -S'rm x'",
        "env --split-string='rm x'",
        "make --eval='a:;rm x' a",
        "split --filter='rm x' y",
        "tar cf x y --checkpoint-action=exec='rm x'",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=push git p",
        "BASH_ENV=s.sh bash -c :",
        "EDITOR='rm x' git commit",
        "echo push | xargs git",
        "echo push | xargs -I% git %",
    ] {
        let command = command.replace("⟨0⟩", &format!("{} rm", " -0".repeat(300)));
        assert!(is_opaque(&command), "{command}");
    }
    for command in [
        "make",
        "FOO=bar make",
        "RUST_LOG=debug cargo test",
        "printf '%s' x",
        "ls | xargs git add",
        "pnpm --filter=web test",
        "sudo cat \"$f\"",
        "bash script.sh \"$x\"",
        "bash -x script.sh",
        "bash -lc 'make all'",
        "bash -o pipefail -c 'make all'",
        "npx eslint src/*.ts",
        "uv run pytest $x",
        "docker run -v \"$x:/w\" image",
        "find . -name \"$x\"",
        "find \"$x\" -type f",
        "find . -exec rm {} ;",
        "find . -name '*.rs' | xargs rm",
        "find . | xargs -I{} cp {} dir",
        "ls | xargs sudo rm",
        "python3 -c 'print()' < x",
        "python3 -m json.tool < x",
        "cat x | python3 -u x.py",
        "cat x | python3 x.py -i",
        "cat x | node -e 'x'",
        "cat x | node --eval=x",
        "cat x | perl -ne 'print'",
        "cat x | perl -Mstrict -e 'print'",
        "cat x | ruby -ne 'print'",
        "cat x | jq .",
        "cat x | awk '{print}' -",
        "cat x | make all",
        "mapfile -t lines < x",
        "npm install $x",
        "git rebase -x 'make all' main",
        "export A=b",
        "ruby --version",
        "git -C \"$x\" push",
        "cargo test $x",
        "make -j$(nproc) CC=$x all",
        "sudo apt install python3",
    ] {
        assert!(!is_opaque(command), "{command}");
    }
}

/// Options before a subcommand do not bypass a rule that forbids it.
// R: T2
#[test]
fn options_before_a_subcommand_do_not_bypass_a_deny() {
    for (forbidden, commands) in [
        (
            "git push",
            &[
                "git -C . push",
                "git --no-pager push x",
                "git -c a=b push",
                "git -C . -c a=b --git-dir x push",
                "/usr/bin/git -P push",
                "\\git -P push",
                "sudo git -C . push",
                "sudo /usr/bin/git -C . push",
                "env A=b git -P push",
                "git -C \"$x\" push",
                "bash -c 'git -P push'",
            ][..],
        ),
        ("npm publish", &["npm --prefix x publish"]),
        (
            "rm",
            &[
                "npm exec -- rm x",
                "yarn exec rm x",
                "git bisect run rm x",
                "git submodule foreach 'rm x'",
                "setpriv rm x",
                "sg g 'rm x'",
                "compgen -C 'rm x'",
                "\\sudo rm x",
                "bash -c 'r\\m x'",
            ],
        ),
        ("cargo publish", &["cargo +nightly publish", "cargo -q publish"]),
        ("docker rm", &["docker -H x rm y"]),
    ] {
        for command in commands {
            let mut needs = needs_of(command).into_iter();
            assert!(needs.any(|need| begins(&need.subject, forbidden)), "{command}");
        }
    }
}

/// A question for a command shows where its arguments lead.
// R: T2
#[test]
fn notes_show_where_links_in_arguments_lead() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path().canonicalize().unwrap();
    let (work, out) = (top.join("w"), top.join("out"));
    let at = |name: &str| work.join(name);
    std::fs::create_dir_all(&work).unwrap();
    std::fs::create_dir_all(&out).unwrap();
    for (link, target) in [
        ("innocent", out.join("real")),
        ("folder", out.clone()),
        ("nowhere", top.join("none")),
        ("near", at("a")),
    ] {
        std::os::unix::fs::symlink(target, at(link)).unwrap();
    }
    std::fs::write(at("a"), "x").unwrap();
    std::fs::write(out.join("real"), "x").unwrap();
    let roots = [work.clone()];
    let place = Context {
        cwd: &roots[0],
        roots: &roots,
        own: &[],
        home: Some(&roots[0]),
        is_sandboxed: true,
        writable: &[],
        real: &real,
        is_deceptive: engine::words::deceives,
    };
    let notes = |command: &str| -> Vec<String> {
        let asked = needs(command, &place).into_iter();
        asked.filter(|need| need.default == Verdict::Ask).flat_map(|need| need.notes).collect()
    };
    let is = |name: &str, place: PathBuf| format!("`{name}` is a link to {}", place.display());
    for (command, expected) in [
        ("cp a innocent", is("innocent", out.join("real"))),
        ("cat a | tee innocent", is("innocent", out.join("real"))),
        ("sed -i s/a/b/ innocent", is("innocent", out.join("real"))),
        ("mv a folder/", is("folder/", out.clone())),
        ("mv a folder/new/b", is("folder/new/b", out.join("new/b"))),
        ("cp -tfolder a", is("folder", out.clone())),
        ("cp --target-directory=folder a", is("folder", out.clone())),
        ("dd if=a of=innocent", is("innocent", out.join("real"))),
        ("touch ~/innocent", is("~/innocent", out.join("real"))),
        ("sudo touch near", is("near", at("a"))),
        ("bash -c 'touch near'", is("near", at("a"))),
        ("touch nowhere", "`nowhere` is a broken link".to_owned()),
    ] {
        assert_eq!(notes(command), [expected], "{command}");
    }
    for command in ["touch a new ../x ./a sub/../a", "tee /dev/stderr", "cat near", "make 'a b'"] {
        assert_eq!(notes(command), [""; 0], "{command}");
    }
}

/// The input of a program is not in its words, so no permanent answer covers them.
// R: T2
#[test]
fn program_with_input_gets_no_permanent_answer() {
    let is_saved = |command: &str| {
        let asked = needs_of(command).into_iter().filter(|need| need.default == Verdict::Ask);
        let always: Vec<Option<Always>> = asked.map(|need| need.always).collect();
        assert!(!always.is_empty(), "{command}");
        always.iter().all(Option::is_some)
    };
    for command in [
        "cat x | sh",
        "cat <<E | tee y\nx\nE",
        "psql <<'E'\nx\nE",
        "psql <<< x",
        "psql < x",
        "psql 0< x",
        "ls | xargs rm",
        "ls | (psql)",
        "ls | while true; do psql; done",
        "{ psql; } < x",
        "psql; ls | psql",
        "ls |& psql",
        "ls > >(psql)",
    ] {
        assert!(!is_saved(command), "{command}");
    }
    for command in [
        "psql",
        "psql > x",
        "psql 2>&1",
        "psql | cat",
        "cargo test | tail",
        "psql <&-",
        "psql < /dev/null",
    ] {
        assert!(is_saved(command), "{command}");
    }
}

/// What the sandbox refuses anyway is rejected without a question; if that is not certain, the user is asked.
// R: T2, T7
#[test]
fn write_that_the_sandbox_refuses_is_rejected() {
    let decision =
        |command: &str| needs_of(command).into_iter().map(|need| need.default).max().unwrap();
    for command in [
        "echo x > /opt/f",
        "echo x >> ~/f",
        "echo x > ../f",
        "make 2> /opt/log",
        "cd sub && echo x > /opt/f",
        "echo x > /home/user/.cargo-evil/f",
        "echo x > /home/user/.cargo/../f",
        "echo $(ls > /opt/f)",
        "bash -c 'ls > /opt/f'",
    ] {
        assert_eq!(decision(command), Verdict::Reject, "{command}");
    }
    // A redirection outside asks for its own path; permission to read there is not enough.
    let need = |command: &str, kind: NeedKind| {
        let need = needs_of(command).into_iter().find(|need| need.kind == kind)?;
        assert_eq!(need.always, Some(Always::Exact), "{command}");
        Some((need.default, need.subject))
    };
    let uncertain = "pushd sub; echo x > ../f";
    let there = |verdict: Verdict, path: &str| Some((verdict, path.to_owned()));
    assert_eq!(need(uncertain, NeedKind::WriteOutside), there(Verdict::Ask, "/no/such/f"));
    assert_eq!(need(uncertain, NeedKind::Outside), there(Verdict::Allow, "/no/such/f"));
    assert_eq!(need("echo x > /tmp/f", NeedKind::WriteOutside), None);
    assert_eq!(need("echo x > /tmp/f", NeedKind::Outside), there(Verdict::Ask, "/tmp/f"));
    for command in [
        "echo x > /tmp/f",
        "echo x > /dev/full",
        "echo x > ~/.cargo/f",
        "cat < /opt/f",
        "cd sub && echo x > ../f",
        "cd $x; echo x > ../f",
        "pushd sub; echo x > ../f",
        "eval \"$x\"; echo x > ../f",
        "echo x > $f",
        "echo x > /op*/f",
    ] {
        assert_eq!(decision(command), Verdict::Ask, "{command}");
    }
}

// R: T2
#[test]
fn permanent_answer_never_covers_the_whole_disk() {
    for command in
        ["ls /", "ls /etc", "cat /proc/1/environ", "ls ~", "cat ~/x", "find / -name x", "cat /x"]
    {
        for need in needs_of(command).into_iter().filter(|need| need.default != Verdict::Allow) {
            let Some(Always::Below(directory)) = need.always else { continue };
            for place in ["/home/user/.ssh/id_rsa", "/etc/shadow", "/root/.netrc"] {
                assert!(
                    !Path::new(place).starts_with(&directory),
                    "{command}: {}",
                    directory.display()
                );
            }
        }
    }
    // A command that reads was asked about because of one option, which says nothing about the others.
    let always = |command: &str| {
        let mut needs = needs_of(command).into_iter();
        needs.find(|need| need.kind == NeedKind::Run).unwrap().always
    };
    assert_eq!(always("find . -delete"), Some(Always::Exact));
    assert_eq!(always("git diff --output=x"), Some(Always::Exact));
    assert_eq!(always("cargo test -q"), Some(Always::StartingWith("cargo test".to_owned())));
}
