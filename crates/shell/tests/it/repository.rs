//! Untrusted repositories, made with a real git: whatever their configuration makes git run needs permission, and so does
//! printing tracked files with secrets.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use shell::{Context, Verdict, needs, real};
use tempfile::TempDir;

/// A repository, next to a file that a program from its configuration would create.
struct Repository {
    top: PathBuf,
    _removed_on_drop: TempDir,
}

impl Repository {
    fn new(init: &str) -> Repository {
        let removed_on_drop = tempfile::tempdir().unwrap();
        let top = removed_on_drop.path().to_owned();
        std::fs::create_dir_all(top.join("w/src")).unwrap();
        let repository =
            Repository { top: top.canonicalize().unwrap(), _removed_on_drop: removed_on_drop };
        repository.put("w/src/lib.rs", "fn one() {}\n");
        repository.git(&format!(
            "{init} && git config user.name u && git config user.email u@example.com && git add . && git commit -qm one"
        ));
        repository
    }

    fn put(&self, path: &str, text: &str) {
        std::fs::write(self.top.join(path), text).unwrap();
    }

    /// Runs a script in the repository.
    #[expect(clippy::disallowed_methods, reason = "a real git is what the rules are compared with")]
    fn git(&self, script: &str) {
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-c", script]).current_dir(self.top.join("w"));
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &self.top);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap();
    }

    /// Returns what a command asks for.
    fn asked(&self, command: &str) -> Vec<String> {
        let (cwd, roots) = (self.top.join("w"), [self.top.join("w")]);
        let at = Context {
            cwd: &cwd,
            roots: &roots,
            own: &[],
            home: None,
            is_sandboxed: true,
            writable: &[],
            real: &real,
            is_deceptive: engine::words::deceives,
        };
        let asked = needs(command, &at).into_iter().filter(|need| need.default == Verdict::Ask);
        asked.map(|need| format!("{:?} {}: {}", need.kind, need.subject, need.why)).collect()
    }
}

/// A configuration, and a command that runs a program from it. Only some of them run with every git; all must be asked for.
const HOSTILE: [(&str, &str); 17] = [
    ("[core]\n fsmonitor = PROGRAM", "git status"),
    ("[CORE] FsMonitor=PROGRAM", "git status --short"),
    ("[core]\n\tfsmonitor = \"PROGRAM\" # fine", "git diff"),
    ("[core]\n fsmonitor = \\\nPROGRAM", "git diff --stat"),
    ("[include]\n path = more", "git status"),
    ("[includeIf \"gitdir:**\"]\n path = more", "git status"),
    ("[extensions]\n worktreeConfig = true", "git status"),
    ("[diff]\n external = PROGRAM", "git diff"),
    ("[diff \"x\"]\n command = PROGRAM", "git diff"),
    ("[diff \"x\"]\n textconv = PROGRAM", "git log -p -1"),
    ("[diff \"x\"]\n textconv = PROGRAM", "git blame src/lib.rs"),
    ("[diff.x]\n textconv = PROGRAM", "git show"),
    ("[filter \"x\"]\n clean = PROGRAM", "git status"),
    ("[filter \"x\"]\n process = PROGRAM", "git diff"),
    ("[gpg]\n program = PROGRAM\n[log]\n showSignature = true", "git log"),
    ("[core]\n worktree = /etc", "git status"),
    ("[remote \"o\"]\n uploadpack = PROGRAM\n promisor = true", "git show"),
];

// R: T7
#[test]
fn programs_in_a_configuration_need_permission() {
    for (config, command) in &HOSTILE {
        let it = Repository::new("git init -q .");
        assert_eq!(it.asked(command), Vec::<String>::new(), "{command} without it");
        let program = it.top.join("program");
        it.put("program", &format!("#!/bin/sh\ntouch {}\ncat\n", it.top.join("ran").display()));
        it.git("chmod +x ../program; echo '*.rs diff=x filter=x' > .git/info/attributes; echo 'fn two() {}' > src/lib.rs");
        let config = config.replace("PROGRAM", &program.to_string_lossy());
        let more = format!("[core]\n fsmonitor = {}\n", program.display());
        it.put("w/.git/more", &more);
        it.put("w/.git/config.worktree", &more);
        let before = std::fs::read_to_string(it.top.join("w/.git/config")).unwrap();
        it.put("w/.git/config", &format!("{before}{config}\n"));
        assert_ne!(it.asked(command), Vec::<String>::new(), "{command} with {config}");
        // Some of them run with every git, which shows that the test is real.
        it.git(command);
        let is_sure =
            config.contains("onitor") || config.contains("diff") || config.contains("clean");
        assert!(!is_sure || it.top.join("ran").exists(), "{command} with {config} runs nothing");
    }
}

#[test]
fn nested_and_bare_repositories_are_checked() {
    let it = Repository::new("git init -q .");
    it.git("git init -q sub; cd sub; git -c user.name=u -c user.email=u commit -q --allow-empty -m x; cd ..; git add sub; git commit -qm sub");
    for harmless in ["git status", "git diff", "git log", "git branch -a"] {
        assert_eq!(it.asked(harmless), Vec::<String>::new(), "{harmless}");
    }
    it.git("git -C sub config core.fsmonitor /bin/true");
    assert!(it.asked("git status")[0].contains("core.fsmonitor"), "{:?}", it.asked("git status"));
    let bare = Repository::new("true");
    assert_eq!(bare.asked("git status"), Vec::<String>::new());
    bare.git("mkdir objects refs; echo 'ref: refs/heads/x' > HEAD; printf '[core]\\nbare = false\\nworktree = /\\n' > config");
    assert!(
        bare.asked("git status")[0].contains("core.worktree"),
        "{:?}",
        bare.asked("git status")
    );
}

/// If we and git may read a repository differently, the user is asked.
#[test]
fn repository_that_cannot_be_parsed_needs_permission() {
    let odd = [
        ("two-heads", "printf '[branch \"x\"] [core]\\nfsmonitor = /bin/true\\n' >> .git/config"),
        ("quoted", "printf '[branch \"a]\"] [core]\\nfsmonitor = /bin/true\\n' >> .git/config"),
        ("signed", "git config log.showSignature true"),
        ("junk-head", "echo junk > .git/HEAD"),
        ("commondir", "printf '\\377' > .git/commondir"),
        ("zero-commondir", "printf '.\\0z' > .git/commondir"),
        ("zero-file", "mv .git real; printf 'gitdir: real\\0zz' > .git"),
        ("refs-file", "rm -r .git/refs; echo > .git/refs; chmod +x .git/refs"),
        ("bytes", "touch $'\\377s'; git add .; git commit -qm bytes"),
    ];
    for (name, script) in odd {
        let it = Repository::new("git init -q .");
        it.git(script);
        assert_ne!(it.asked("git status"), Vec::<String>::new(), "{name}");
    }
}

/// What common programs write into a configuration is no reason to ask.
#[test]
fn common_configuration_needs_no_permission() {
    let it = Repository::new("git init -q .");
    it.git("git remote add origin https://example.com/x.git; git config branch.main.remote origin; git config pull.rebase true; git config core.autocrlf input; git config alias.st status; git config remote.origin.gh-resolved base");
    it.git("git worktree add -q ../other 2>/dev/null; git submodule init");
    for command in [
        "git status",
        "git log --oneline",
        "git diff",
        "git show --stat HEAD",
        "git blame src/lib.rs",
        "git reflog",
    ] {
        assert_eq!(it.asked(command), Vec::<String>::new(), "{command}");
    }
}

// R: T2
#[test]
fn printing_tracked_secrets_needs_permission() {
    for (name, init) in [
        ("tracked", "git init -q ."),
        ("tracked-v4", "git init -q . && git config index.version 4"),
        ("tracked-wide", "git init -q --object-format=sha256 ."),
    ] {
        let it = Repository::new(init);
        it.put("w/.env", "TOKEN=1\n");
        it.put("w/src/server.pem", "key\n");
        for harmless in ["git diff", "git show", "git grep TOKEN", "git log -p"] {
            assert_eq!(
                it.asked(harmless),
                Vec::<String>::new(),
                "{name}: {harmless}, not tracked yet"
            );
        }
        it.git("git add -f . && git commit -qm two");
        for command in [
            "git grep TOKEN",
            "git grep src",
            "git grep -e TOKEN",
            "git grep TOKEN HEAD",
            "git diff",
            "git diff HEAD~1",
            "git diff HEAD~1 --",
            "git diff src --",
            "git diff -- src :/",
            "git diff -- '*'",
            "git diff --stat -p",
            "git show",
            "git show --stat HEAD",
            "git show HEAD~1",
            "git log -p",
            "git log -1 -u",
            "git log --patch --stat",
            "git whatchanged -p",
            "git diff-tree -p HEAD",
            "git diff-index --patch HEAD",
            "git cat-file -p 0123456789",
            "git show 0123456789 -- src",
            "git diff 0123456789 src",
            "git grep -e . 0123abcd -- src",
            "git status -v",
            "git stash show -p",
            "git stash list -p",
            "git range-diff HEAD~1 HEAD HEAD",
            "git --no-pager diff",
        ] {
            let asked = it.asked(command);
            assert!(
                asked.iter().any(|asked| asked.starts_with("Read ") && asked.contains(".env")),
                "{name}: {command}: {asked:?}"
            );
        }
        for harmless in [
            "git status",
            "git log",
            "git log --oneline --stat -5",
            "git diff --stat",
            "git diff --name-only HEAD~1",
            "git diff -- src/lib.rs",
            "git diff HEAD src/lib.rs",
            "git log -p src/lib.rs",
            "git grep one -- src/lib.rs",
            "git blame src/lib.rs",
            "git ls-files",
            "git stash list",
            "git branch",
        ] {
            assert_eq!(it.asked(harmless), Vec::<String>::new(), "{name}: {harmless}");
        }
        let asked = it.asked("git diff -- src");
        assert!(asked.len() == 1 && asked[0].contains("src/server.pem"), "{asked:?}");
    }
}

#[test]
fn incomplete_index_needs_permission() {
    let it = Repository::new("git init -q .");
    it.git("git update-index --split-index");
    assert!(!it.asked("git diff").is_empty());
    it.git("git update-index --no-split-index");
    assert_eq!(it.asked("git diff"), Vec::<String>::new());
    let index = std::fs::read(it.top.join("w/.git/index")).unwrap();
    for length in [3, 11, 40, 80] {
        std::fs::write(it.top.join("w/.git/index"), &index[..length]).unwrap();
        assert!(!it.asked("git diff").is_empty(), "{length} bytes");
    }
}
