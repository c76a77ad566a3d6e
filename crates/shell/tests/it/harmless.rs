//! Commands that are allowed as read-only run in a real bash, and must not change anything.
//!
//! These are the allowed commands of the corpus, and every letter as an option of every program that is listed as read-only. A
//! dangerous one could only reach files of a scratch directory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use shell::Verdict;
use tempfile::TempDir;

use crate::commands::{corpus, decide};

/// Read-only programs, as far as a minimal system has them.
const PROGRAMS: &str = "cat tac rev wc realpath readlink cksum sum comm expand unexpand ls nl md5sum sha256sum head tail cut \
    paste fold fmt column cmp join stat du df od strings base64 grep egrep hexdump xxd uniq sort shuf date hostname tree file \
    diff iconv tar zcat unzip find sed awk xargs \
    jq rg fd git";

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

struct Scratch {
    top: PathBuf,
    _removed_on_drop: TempDir,
}

impl Scratch {
    fn new() -> Scratch {
        let removed_on_drop = tempfile::tempdir().unwrap();
        let directory = removed_on_drop.path().to_owned();
        for sub in ["src", "tests", "home", ".github/workflows", "a"] {
            std::fs::create_dir_all(directory.join(sub)).unwrap();
        }
        let directory = directory.canonicalize().unwrap();
        for file in [
            "x",
            "b",
            "c",
            "a/b",
            "out",
            "src/main.rs",
            "README.md",
            "Cargo.toml",
            "package.json",
            "x.json",
        ] {
            std::fs::write(directory.join(file), "{\"b\": 1}\nalpha beta\nalpha beta\n").unwrap();
        }
        let scratch = Scratch { top: directory, _removed_on_drop: removed_on_drop };
        scratch.run("git init -q . && git -c user.name=u -c user.email=u@example.com commit -q --allow-empty -m m");
        scratch
    }

    /// Runs commands one after the other, each in its own subshell.
    fn run_all(&self, commands: &[String]) {
        let script: String = commands.iter().map(|command| format!("(\n{command}\n)\n")).collect();
        self.run(&script);
    }

    /// Runs a script without input, with a clean environment, for at most half a minute.
    #[expect(
        clippy::disallowed_methods,
        reason = "a real shell is what the rules are compared with"
    )]
    fn run(&self, script: &str) {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "30", "bash", "--noprofile", "--norc", "-c", script]);
        command.current_dir(&self.top).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", self.top.join("home")).env("GIT_OPTIONAL_LOCKS", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Many of them fail, as `sort -q` does; that is fine.
        command.status().unwrap();
    }

    /// Returns all names, with the contents of files.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.top.clone()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
                let path = entry.path();
                // Git caches there which files it checked; in the sandbox it cannot.
                if path.ends_with(".git/index") {
                    continue;
                }
                if entry.file_type().unwrap().is_dir() {
                    open.push(path.clone());
                }
                found.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
            }
        }
        found
    }

    /// Counts the processes whose working directory is here.
    fn processes(&self) -> usize {
        let stands_here = |entry: &std::fs::DirEntry| {
            std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&self.top))
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter(stands_here).count()
    }
}

fn commands() -> Vec<String> {
    let endless = |command: &String| {
        ["tail -f", "tail -F", "sleep"].iter().any(|word| command.contains(word))
    };
    let mut all: Vec<String> = corpus().into_iter().map(|(_, _, command)| command).collect();
    for program in PROGRAMS.split_whitespace() {
        for letter in LETTERS.chars() {
            all.push(format!("{program} -{letter} out x"));
            all.push(format!("{program} -{letter}out x b"));
        }
    }
    all.retain(|command| !endless(command) && decide(command, true) == Verdict::Allow);
    all
}

// R: T2
#[test]
fn allowed_commands_change_nothing() {
    let scratch = Scratch::new();
    let before = scratch.contents();
    let commands = commands();
    assert!(commands.len() > 1000, "{} commands", commands.len());
    for (index, some) in commands.chunks(100).enumerate() {
        std::thread::scope(|threads| {
            for part in some.chunks(25) {
                let scratch = &scratch;
                threads.spawn(move || scratch.run_all(part));
            }
        });
        if scratch.contents() != before {
            let guilty = some.iter().find(|command| changes(command));
            panic!("commands from {}: {guilty:?} changes something", index * 100);
        }
    }
    assert_eq!(scratch.processes(), 0);
    eprintln!("{} commands were run, and changed nothing", commands.len());
}

/// Tells whether a command changes something in a fresh directory.
fn changes(command: &str) -> bool {
    let scratch = Scratch::new();
    let before = scratch.contents();
    scratch.run(command);
    scratch.contents() != before
}

#[test]
fn command_that_writes_is_noticed() {
    let scratch = Scratch::new();
    let before = scratch.contents();
    scratch.run("sort -o out x");
    assert_ne!(scratch.contents(), before);
}
