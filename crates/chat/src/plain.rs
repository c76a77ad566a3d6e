//! Runs the client without moving the cursor: for screen readers, and for terminals that cannot do more. The terminal edits the
//! line, everything is printed below what was there before, and no escape sequence is written but colours.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::app::{App, Command, Event, OpenHow};
use crate::keys::{Input, Key};
use crate::run::{ChatOptions, at, login_spec, save_history};
use crate::talk::Talk;
use crate::tty::Tty;

/// Lines that arrive faster than anybody types were pasted: they are one message.
const PASTED: Duration = Duration::from_millis(30);

/// How many bytes of lines wait to be taken together.
const MAX_PASTED: usize = 1024 * 1024;

pub(crate) struct Plain {
    pub(crate) options: ChatOptions,
    pub(crate) tty: Tty,
    pub(crate) app: App,
    pub(crate) talk: Talk,
    pub(crate) started: Instant,
    /// What was typed and not taken yet.
    typed: Vec<u8>,
    /// The mark of the input is the last that was printed.
    is_at_mark: bool,
    is_over: bool,
}

enum Wake {
    Bytes(io::Result<usize>),
    Typed,
    Talk(Event),
    Interrupted,
    Terminated,
}

impl Plain {
    pub(crate) fn new(options: ChatOptions, tty: Tty, app: App, talk: Talk) -> Plain {
        Plain {
            options,
            tty,
            app,
            talk,
            started: Instant::now(),
            typed: Vec::new(),
            is_at_mark: false,
            is_over: false,
        }
    }

    pub(crate) async fn run(mut self) -> io::Result<ExitCode> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut buffer = [0; 4096];
        let mut pasted_until = None;
        self.commands().await;
        self.print()?;
        while !self.is_over {
            let wake = tokio::select! {
                biased;
                _ = terminate.recv() => Wake::Terminated,
                _ = hangup.recv() => Wake::Terminated,
                _ = interrupt.recv() => Wake::Interrupted,
                read = self.tty.read(&mut buffer) => Wake::Bytes(read),
                () = at(pasted_until) => Wake::Typed,
                event = self.talk.next() => Wake::Talk(event),
            };
            match wake {
                Wake::Terminated | Wake::Bytes(Err(_)) => break,
                // Ctrl-D at the start of a line.
                Wake::Bytes(Ok(0)) => break,
                Wake::Bytes(Ok(count)) => {
                    self.typed.extend_from_slice(&buffer[..count]);
                    self.is_at_mark = false;
                    pasted_until = Some(Instant::now() + PASTED);
                    if self.typed.len() < MAX_PASTED {
                        continue;
                    }
                    self.take_typed().await?;
                }
                Wake::Typed => {
                    pasted_until = None;
                    self.take_typed().await?;
                }
                Wake::Interrupted => {
                    self.is_at_mark = true;
                    self.handle(Event::Input(Input::Key(Key::ctrl('c'))));
                }
                Wake::Talk(event) => self.handle(event),
            }
            self.commands().await;
            self.print()?;
        }
        if let Some(history) = self.app.history_with_draft() {
            save_history(&self.options, &history);
        }
        self.talk.end().await;
        Ok(ExitCode::SUCCESS)
    }

    fn handle(&mut self, event: Event) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.app.handle(event, now);
    }

    /// Takes the complete lines: as answers one by one, otherwise together as one message.
    async fn take_typed(&mut self) -> io::Result<()> {
        let Some(end) = self.typed.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let rest = self.typed.split_off(end + 1);
        let typed = std::mem::replace(&mut self.typed, rest);
        let typed = String::from_utf8_lossy(&typed).into_owned();
        let mut lines = typed.lines();
        while self.app.is_asking()
            && let Some(line) = lines.next()
        {
            self.handle(Event::Line(line.to_owned()));
            self.commands().await;
            self.print()?;
        }
        let message: Vec<&str> = lines.collect();
        if !message.is_empty() {
            self.handle(Event::Line(message.join("\n")));
        }
        Ok(())
    }

    /// Prints the finished lines, and the mark of the input if a prompt is wanted.
    fn print(&mut self) -> io::Result<()> {
        let size = self.tty.size();
        let lines = self.app.take_lines();
        let mut out = String::new();
        if !lines.is_empty() && std::mem::take(&mut self.is_at_mark) {
            out.push('\n');
        }
        for line in &lines {
            out.push_str(&line.to_ansi(self.options.level));
            out.push('\n');
        }
        if !self.is_at_mark && self.typed.is_empty() && self.app.is_ready() {
            out.push_str("> ");
            self.is_at_mark = true;
        }
        // A size that changed is used for what comes next.
        self.handle(Event::Resize(size.0, size.1));
        if out.is_empty() { Ok(()) } else { self.tty.write(&out) }
    }

    async fn commands(&mut self) {
        loop {
            let commands = self.app.take_commands();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Quit => self.is_over = true,
                    Command::SaveHistory(text) => save_history(&self.options, &text),
                    Command::Login(args, env) => self.log_in(args, env).await,
                    // They are for terminals that can do more.
                    Command::Suspend
                    | Command::Clear
                    | Command::Edit(_)
                    | Command::Bell(_)
                    | Command::Title(_) => {}
                    command => self.talk.run(command),
                }
            }
        }
    }

    async fn log_in(&mut self, args: Vec<String>, env: Vec<(String, String)>) {
        let spec = match login_spec(&self.options.talk, args, env) {
            Ok(spec) => spec,
            Err(text) => return self.handle(Event::Notice(text)),
        };
        match process::run_on_terminal(&spec).await {
            Ok(status) if status.success() => self.talk.run(Command::Open(OpenHow::New)),
            Ok(status) => self.handle(Event::Notice(format!("Logging in failed ({status})."))),
            Err(err) => self.handle(Event::Notice(format!("Cannot log in: {err}"))),
        }
    }
}
