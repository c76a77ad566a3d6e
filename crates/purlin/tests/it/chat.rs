//! The terminal client in a real terminal: tmux, which also plays the person.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::agent::{DEADLINE, wait_until};

/// A tmux server of its own, with one window.
struct Terminal {
    directory: tempfile::TempDir,
}

const SCRIPT: &str = r#"
model text "I will write **one** file.\n"
model tool write {"filePath":"a.txt","content":"new\n"}
model text "| a | b |\n|---|---|\n| 1 | 2 |\n\nThe file is written.\n"
model end
model text "Half of an ans"
model hang
model end
model text "Still here.\n"
"#;

impl Terminal {
    fn start(script: &str) -> Terminal {
        let terminal = Terminal { directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(terminal.path("project")).unwrap();
        std::fs::write(terminal.path("play.acp"), script).unwrap();
        let line = format!(
            "cd project && exec env -i PATH=\"$PATH\" TERM=tmux-256color HOME='{home}' '{program}' chat --model 'script:{script}'",
            home = terminal.directory.path().display(),
            program = env!("CARGO_BIN_EXE_purlin"),
            script = terminal.path("play.acp").display(),
        );
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &line]);
        terminal.shows("Build ·");
        terminal
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "the terminal is not part of the program")]
    fn tmux_output(&self, args: &[&str]) -> Output {
        let mut command = std::process::Command::new("tmux");
        command.arg("-S").arg(self.path("tmux")).args(args);
        command.env_remove("TMUX").current_dir(self.directory.path()).output().unwrap()
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = self.tmux_output(args);
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Returns the scrollback and the screen.
    fn all(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-"])
    }

    fn shows(&self, text: &str) {
        let mut last = String::new();
        wait_until(text, DEADLINE, || {
            last = self.all();
            last.contains(text)
        });
    }

    /// Returns the processes whose command line names our script: the client and its agent.
    fn processes(&self) -> Vec<(i32, String)> {
        processes_with(&self.path("play.acp"))
    }

    fn agent(&self) -> i32 {
        let mut agent = None;
        wait_until("the agent runs", DEADLINE, || {
            let all = self.processes();
            agent = all.iter().find(|(_, line)| line.contains("\0acp\0")).map(|(pid, _)| *pid);
            agent.is_some()
        });
        agent.unwrap()
    }
}

fn processes_with(script: &Path) -> Vec<(i32, String)> {
    let script = script.to_str().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = String::from_utf8_lossy(&std::fs::read(entry.path().join("cmdline")).ok()?)
                .into_owned();
            // Not tmux, whose command line has the whole script of the window.
            (line.contains(script) && !line.starts_with("tmux")).then_some((pid, line))
        })
        .collect()
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux_output(&["kill-server"]);
    }
}

// R: C1, C2
#[test]
fn conversation_in_a_real_terminal() {
    let terminal = Terminal::start(SCRIPT);
    terminal.tmux(&["set-buffer", "please\nwrite"]);
    terminal.tmux(&["paste-buffer", "-p"]);
    terminal.shows("  write");
    terminal.keys(&["Enter"]);
    terminal.shows("y Allow once");
    // FIXME: two resizes at once, there and back, erase lines above the question.
    terminal.tmux(&["resize-window", "-x", "90", "-y", "30"]);
    // Keys are answers only once the question was visible for a moment.
    std::thread::sleep(Duration::from_millis(700));
    terminal.keys(&["y"]);
    wait_until("the file is written", DEADLINE, || terminal.path("project/a.txt").exists());
    terminal.shows("The file is written.");
    terminal.shows("1 │ 2");
    let all = terminal.all();
    for once in [
        "> please",
        "I will write one file.",
        "✓ Write a.txt",
        "The file is written.",
        "Allow \"Write",
    ] {
        let expected = usize::from(once != "Allow \"Write");
        assert_eq!(all.matches(once).count(), expected, "{once}:\n{all}");
    }

    terminal.keys(&["go on", "Enter"]);
    terminal.shows("Half of an ans");
    terminal.keys(&["not sent"]);
    kill_process(Pid::from_raw(terminal.agent()).unwrap(), Signal::KILL).unwrap();
    terminal.shows("Continue the turn");
    terminal.keys(&["Down", "Enter"]);
    terminal.shows("> not sent");
    let all = terminal.all();
    assert_eq!(all.matches("Half of an ans").count(), 1, "{all}");
    assert_eq!(all.matches("SIGKILL").count(), 1, "{all}");
}

// R: C1
#[test]
fn closed_terminal_leaves_nothing_running() {
    let terminal = Terminal::start(SCRIPT);
    let script = terminal.path("play.acp");
    terminal.agent();
    assert_eq!(terminal.processes().len(), 2, "{:?}", terminal.processes());
    drop(terminal);
    wait_until("nothing is left", DEADLINE, || processes_with(&script).is_empty());
}

#[test]
fn killed_client_leaves_nothing_running() {
    let terminal = Terminal::start(SCRIPT);
    let agent = terminal.agent();
    let client = terminal.processes().into_iter().find(|(pid, _)| *pid != agent).unwrap().0;
    kill_process(Pid::from_raw(client).unwrap(), Signal::KILL).unwrap();
    wait_until("nothing is left", DEADLINE, || terminal.processes().is_empty());
}
