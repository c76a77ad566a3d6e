//! A real terminal for the client: tmux, which also plays the person.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use crate::agent::{DEADLINE, wait_until};

/// A tmux server of its own, with one window.
pub(super) struct Terminal {
    pub(super) directory: tempfile::TempDir,
}

/// What runs in the terminal.
pub(super) struct Opening {
    /// The arguments of `purlin chat`.
    args: String,
    env: String,
    size: (u16, u16),
    /// Started by a shell with job control.
    is_in_shell: bool,
    files: Vec<(PathBuf, String)>,
}

impl Opening {
    /// The client with our agent and a scripted model.
    pub(super) fn script(script: &str) -> Opening {
        let args = "--model 'script:{home}/play.acp'".to_owned();
        Opening { args, ..Opening::args("") }.file("play.acp", script)
    }

    /// The client with these arguments. `{home}` is the user's home, which is empty.
    pub(super) fn args(args: &str) -> Opening {
        Opening {
            args: args.to_owned(),
            env: "TERM=tmux-256color".to_owned(),
            size: (80, 24),
            is_in_shell: false,
            files: Vec::new(),
        }
    }

    /// Sets variables, as words of `env`; the last one of a name is used.
    pub(super) fn env(mut self, words: &str) -> Opening {
        self.env = format!("{} {words}", self.env);
        self
    }

    /// Lets a shell with job control start the client.
    pub(super) fn in_shell(mut self) -> Opening {
        self.is_in_shell = true;
        self
    }

    /// Writes a file below the home.
    pub(super) fn file(mut self, path: &str, text: &str) -> Opening {
        self.files.push((path.into(), text.to_owned()));
        self
    }

    pub(super) fn start(self) -> Terminal {
        let terminal = Terminal { directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(terminal.path("project")).unwrap();
        for (path, text) in &self.files {
            let file = terminal.directory.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let home = terminal.directory.path().display().to_string();
        let with_home = |line: String| line.replace("{home}", &home);
        let client = with_home(format!("'{}' chat {}", env!("CARGO_BIN_EXE_purlin"), self.args));
        let shell = "PS1='shell> ' sh -i".to_owned();
        let program = if self.is_in_shell { &shell } else { &client };
        let env = &self.env;
        let line =
            format!("cd project && exec env -i PATH=\"$PATH\" HOME='{{home}}' {env} {program}");
        let line = with_home(line);
        let (columns, rows) = (self.size.0.to_string(), self.size.1.to_string());
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            &line,
            ";",
            "set-option",
            "-g",
            "remain-on-exit",
            "on",
        ]);
        if self.is_in_shell {
            terminal.shows("shell>");
            terminal.keys(&["-l", &client]);
            terminal.keys(&["Enter"]);
        }
        terminal
    }
}

impl Terminal {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "the terminal is not part of the program")]
    fn tmux_output(&self, args: &[&str]) -> Output {
        let mut command = std::process::Command::new("tmux");
        command.arg("-S").arg(self.path("tmux")).args(args);
        command.env_remove("TMUX").current_dir(self.directory.path()).output().unwrap()
    }

    pub(super) fn tmux(&self, args: &[&str]) -> String {
        let output = self.tmux_output(args);
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(super) fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a text, and Enter once it is visible.
    pub(super) fn send(&self, text: &str) {
        self.keys(&["-l", text]);
        self.shows(&format!("> {text}"));
        self.keys(&["Enter"]);
    }

    /// Answers a question. Keys are answers only once the question was visible for a moment.
    pub(super) fn answer(&self, question: &str, key: &str) {
        self.shows(question);
        std::thread::sleep(Duration::from_millis(700));
        self.keys(&[key]);
    }

    /// Returns the scrollback and the screen.
    pub(super) fn all(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-"])
    }

    pub(super) fn shows(&self, text: &str) {
        self.shows_where(text, |all| all.contains(text));
    }

    /// Waits until the terminal shows something; otherwise prints the last screen.
    pub(super) fn shows_where(&self, what: &str, is_shown: impl Fn(&str) -> bool) {
        let started = std::time::Instant::now();
        loop {
            let all = self.all();
            if is_shown(&all) {
                return;
            }
            assert!(started.elapsed() < DEADLINE, "never shown: {what}\n{all}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns whether the client has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{pane_dead}"]).trim() == "1"
    }

    /// Returns the processes whose command line names our home: the client and its agent.
    pub(super) fn processes(&self) -> Vec<(i32, String)> {
        processes_with(self.directory.path())
    }

    /// Waits for the process of our agent.
    pub(super) fn agent(&self) -> i32 {
        let mut agent = None;
        wait_until("the agent runs", DEADLINE, || {
            let all = self.processes();
            agent = all.iter().find(|(_, line)| line.contains("\0acp\0")).map(|(pid, _)| *pid);
            agent.is_some()
        });
        agent.unwrap()
    }
}

/// Returns the processes whose command line contains a path, without tmux, whose command line has the whole script of the window.
pub(super) fn processes_with(path: &Path) -> Vec<(i32, String)> {
    let path = path.to_str().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = String::from_utf8_lossy(&std::fs::read(entry.path().join("cmdline")).ok()?)
                .into_owned();
            let is_tmux = line.starts_with("tmux");
            (line.contains(path) && !is_tmux).then_some((pid, line))
        })
        .collect()
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux_output(&["kill-server"]);
    }
}
