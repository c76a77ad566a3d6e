//! What the rules call "only reads" is run by a real bash, and nothing may have changed afterwards.
//!
//! The commands are those of the corpus that need no question, and every letter as an option of every program that is
//! known to read. Dangerous ones among them can only reach files of a scratch folder.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use shell::Verdict;

use crate::commands::{corpus, decide};

/// Programs that are known to read, as far as a bare system has them.
const PROGRAMS: &str = "cat tac rev wc realpath readlink cksum sum comm expand unexpand ls nl md5sum sha256sum head tail cut \
    paste fold fmt column cmp join stat du df od strings base64 grep egrep hexdump xxd uniq sort shuf date hostname tree file \
    diff iconv tar zcat unzip find sed awk xargs \
    jq rg fd git";

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let folder = std::env::temp_dir().join(format!("tools-harmless-{}", std::process::id()));
        for sub in ["src", "tests", "home", ".github/workflows", "a"] {
            std::fs::create_dir_all(folder.join(sub)).unwrap();
        }
        let folder = folder.canonicalize().unwrap();
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
            std::fs::write(folder.join(file), "{\"b\": 1}\nalpha beta\nalpha beta\n").unwrap();
        }
        let scratch = Scratch(folder);
        scratch.run("git init -q . && git -c user.name=u -c user.email=u@example.com commit -q --allow-empty -m m");
        scratch
    }

    /// Runs commands one after the other, each in a shell of its own as far as it can change that.
    fn run_all(&self, commands: &[String]) {
        let script: String = commands.iter().map(|command| format!("(\n{command}\n)\n")).collect();
        self.run(&script);
    }

    /// Runs a script that has no input and a clean environment, for half a minute at most.
    #[expect(
        clippy::disallowed_methods,
        reason = "a real shell is what the rules are compared with"
    )]
    fn run(&self, script: &str) {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "30", "bash", "--noprofile", "--norc", "-c", script]);
        command.current_dir(&self.0).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", self.0.join("home")).env("GIT_OPTIONAL_LOCKS", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Many of them fail, as `sort -q` does: that is none of the rules' business.
        command.status().unwrap();
    }

    /// All names, with what is in the files.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.0.clone()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                // Git notes there which files it looked at; in the sandbox it cannot.
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

    /// Counts the processes that stand in the folder.
    fn processes(&self) -> usize {
        let stands_here = |entry: &std::fs::DirEntry| {
            std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&self.0))
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter(stands_here).count()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
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
fn what_needs_no_question_changes_nothing() {
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

/// Tells whether a command alone changes something, in a folder that nothing was done to.
fn changes(command: &str) -> bool {
    let scratch = Scratch::new();
    let before = scratch.contents();
    scratch.run(command);
    scratch.contents() != before
}

#[test]
fn a_command_that_writes_would_be_noticed() {
    let scratch = Scratch::new();
    let before = scratch.contents();
    scratch.run("sort -o out x");
    assert_ne!(scratch.contents(), before);
}
