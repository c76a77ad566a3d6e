//! The judge together with the user's rules: what a rule denies does not run behind a wrapper, and what a rule allows reads no secret.

use std::path::Path;
use std::sync::Arc;

use engine::permission::Decision;
use engine::permission::rules::{Rule, Source, decide};
use process::sandbox::{Level, Sandbox};
use tools::bash::{Bash, ExtraPermissions, Options};

fn rule(decision: Decision, pattern: &str) -> Rule {
    let (key, pattern) = ("bash".to_owned(), pattern.to_owned());
    Rule { key, pattern, decision, source: Source::User }
}

/// Returns what happens to a command in a directory, under these rules.
fn verdict(directory: &Path, command: &str, rules: &[Rule]) -> Decision {
    let options = Options {
        containers: None,
        directories: vec![directory.to_owned()],
        own: Arc::new([]),
        hidden: Arc::new([]),
        search: Arc::new([]),
        environment: Arc::new([]),
        outputs: None,
    };
    let sandbox = Sandbox::new(directory.join("no-helper"), directory.join("scratch"));
    let bash = Bash::new(Arc::new(sandbox), options);
    let needed = bash.requirements(directory, command, &ExtraPermissions::default(), Level::Full);
    // A command that cannot run at all is as good as rejected.
    let Ok(needed) = needed else { return Decision::Reject };
    let roots = [directory.to_owned()];
    let all = needed.iter().map(|one| decide(rules.iter(), &roots, &one.access).decision);
    all.max().unwrap_or(Decision::Ask)
}

/// Published in docs/internals/security.md.
// R: T2
#[test]
fn denied_program_runs_behind_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let lines = include_str!("data/denied.txt").lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    let mut ran = Vec::new();
    for way in lines {
        for (pattern, program) in [
            ("curl *", "curl"),
            ("rm *", "rm"),
            ("git push *", "git push"),
            ("terraform apply *", "terraform apply"),
        ] {
            let rules = [rule(Decision::Allow, "*"), rule(Decision::Reject, pattern)];
            let command = way.replace("{}", &format!("{program} x"));
            count += 1;
            if verdict(&directory, &command, &rules) == Decision::Allow {
                ran.push(command);
            }
        }
    }
    eprintln!("attempts: {count}");
    assert!(ran.is_empty(), "{} of {count} ran:\n{}", ran.len(), ran.join("\n"));
    let docs = include_str!("../../../../docs/internals/security.md");
    let published = format!("{count} ways to run a denied program");
    assert!(docs.contains(&published), "docs/internals/security.md does not say: {published}");
}

/// A rule for a git command that only reads does not allow what the repository's configuration would run.
// R: T2
#[test]
fn allowed_git_command_does_not_run_what_the_repository_says() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    for part in [".git/objects", ".git/refs"] {
        std::fs::create_dir_all(directory.join(part)).unwrap();
    }
    std::fs::write(directory.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let rules = [rule(Decision::Allow, "git status*"), rule(Decision::Allow, "git diff *")];
    for (config, expected) in [
        ("[core]\n\tbare = false\n", Decision::Allow),
        ("[filter \"x\"]\n\tclean = id\n", Decision::Ask),
        ("[core]\n\tfsmonitor = id\n", Decision::Ask),
        ("[diff \"x\"]\n\ttextconv = id\n", Decision::Ask),
        ("[include]\n\tpath = /x\n", Decision::Ask),
    ] {
        std::fs::write(directory.join(".git/config"), config).unwrap();
        for command in ["git status", "git status -s", "git diff", "git diff HEAD"] {
            assert_eq!(verdict(&directory, command, &rules), expected, "{command} with {config:?}");
        }
    }
}

/// A rule that allows a program does not allow it to read secrets, however their names are written.
// R: T2
#[test]
fn allowed_program_reads_no_secret_without_a_question() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    std::fs::create_dir_all(directory.join("sub")).unwrap();
    for file in [".env", "sub/.env", "plain.txt"] {
        std::fs::write(directory.join(file), "token").unwrap();
    }
    let rules = [rule(Decision::Allow, "cat *"), rule(Decision::Allow, "head *")];
    let hostile = [
        "cat .env",
        "cat ./.env",
        "cat \"$PWD/.env\"",
        "cat $PWD/.env",
        "cat $'.env'",
        "cat $'\\x2eenv'",
        "cat .e''nv",
        "cat .en?",
        "cat .*",
        "cat {.env,x}",
        "cat .e{nv,x}",
        "cat sub/../.env",
        "cat \"$(echo .env)\"",
        "cat `echo .env`",
        "cat ~+/.env",
        "for f in .env; do cat \"$f\"; done",
        "for f in .e*; do cat $f; done",
        "f=.env; cat $f",
        "f=.env; cat \"$f\"",
        "f=env; cat .$f",
        "cd sub && cat .env",
        "cat < .env",
        "cat plain.txt .env",
        "cat -- .env",
        "head -n1 .env",
        "head -n 1 plain.txt .env",
        "find . | xargs cat",
        "ls -A | xargs cat",
        "echo .env | xargs cat",
        "cat <<< \"$(cat .env)\"",
        "read f <<< .env; cat \"$f\"",
        "while read f; do cat \"$f\"; done < plain.txt",
        "set -- .env; cat \"$1\"",
        "cat \"${x:-.env}\"",
        "cat ${PWD}/.env",
        "cat \"$OLDPWD/.env\"",
        "cat /proc/self/cwd/.env",
        "cat .[e]nv",
    ];
    eprintln!("attempts: {}", hostile.len());
    for command in hostile {
        assert_ne!(verdict(&directory, command, &rules), Decision::Allow, "{command}");
    }
    for harmless in ["cat plain.txt", "head -n1 plain.txt", "cat 'plain.txt'"] {
        assert_eq!(verdict(&directory, harmless, &rules), Decision::Allow, "{harmless}");
    }
}
