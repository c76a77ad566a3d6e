//! Where a run's output goes: answers to stdout, everything else to stderr.
//!
//! Control characters are removed from what goes to a terminal, so that an agent cannot control it.

use std::io::{self, IsTerminal, Write};

use wire::acp::schema;

use super::render::{OutputItem, Renderer, strip_controls};
use super::{last_line, words_of};

/// Our output was closed.
#[derive(Debug, PartialEq)]
pub(super) struct ReaderGone;

/// The two outputs, and the state of the turn.
#[derive(Debug)]
pub(super) struct Output {
    json: bool,
    is_terminal: bool,
    /// The answer ends within a line.
    is_unfinished: bool,
    /// The terminal's cursor is within a line.
    is_mid_line: bool,
    /// That line is a thought.
    is_thinking: bool,
    pub(super) renderer: Renderer,
}

impl Output {
    pub(super) fn new(json: bool) -> Output {
        Output {
            json,
            is_terminal: io::stdout().is_terminal(),
            is_unfinished: false,
            is_mid_line: false,
            is_thinking: false,
            renderer: Renderer::new(io::stderr().is_terminal()),
        }
    }

    /// Shows an update. Unknown updates are skipped: a newer agent may send some.
    pub(super) fn update(&mut self, update: &client::Update) -> Result<(), ReaderGone> {
        if self.json {
            return self.answer(&format!("{}\n", update.raw()));
        }
        let update = match update.read() {
            Ok(notification) => notification.update,
            Err(err) => {
                tracing::debug!(%err, "an update is not shown");
                return Ok(());
            }
        };
        for item in self.renderer.render(update) {
            match item {
                OutputItem::Answer(text) => self.answer(&text)?,
                OutputItem::Thought(text) => self.thought(&text),
                OutputItem::Aside(text) => self.aside(&text),
                OutputItem::Output(text) => self.output_of_command(&text),
            }
        }
        Ok(())
    }

    /// Ends the output of a turn.
    pub(super) fn end(&mut self, reason: schema::StopReason) -> Result<(), ReaderGone> {
        if self.json {
            return self.answer(&format!("{}\n", last_line(Ok(reason))));
        }
        let is_broken_off = self.is_terminal && !self.is_mid_line;
        if self.is_unfinished && !is_broken_off {
            self.answer("\n")?;
        }
        match reason {
            schema::StopReason::EndTurn => {}
            schema::StopReason::MaxTokens => self.aside("Stopped: token limit reached."),
            schema::StopReason::MaxTurnRequests => {
                self.aside("Stopped: request limit of a turn reached.");
            }
            schema::StopReason::Refusal => self.aside("The agent refused."),
            schema::StopReason::Cancelled => self.aside("Cancelled."),
            _ => self.aside("The turn ended."),
        }
        Ok(())
    }

    /// Shows an error.
    pub(super) fn error(&mut self, err: &anyhow::Error) -> Result<(), ReaderGone> {
        if self.json {
            return self.answer(&format!("{}\n", last_line(Err(err))));
        }
        self.aside(&format!("purlin: {}", words_of(err)));
        Ok(())
    }

    /// Shows a line on stderr.
    pub(super) fn aside(&mut self, text: &str) {
        self.break_line();
        write_stderr(&format!("{}\n", strip_controls(text)));
    }

    /// Shows the output of a command: indented, and dimmed on a terminal.
    fn output_of_command(&mut self, text: &str) {
        self.break_line();
        let (dim, plain) =
            if io::stderr().is_terminal() { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        for line in strip_controls(text).lines() {
            write_stderr(&format!("{dim}    {line}{plain}\n"));
        }
    }

    /// Notes whether the terminal's cursor is within a line.
    pub(super) fn set_mid_line(&mut self, is_mid_line: bool) {
        self.is_mid_line = is_mid_line;
    }

    /// Tells whether the terminal's cursor is within a line.
    pub(super) fn is_mid_line(&self) -> bool {
        self.is_mid_line
    }

    fn thought(&mut self, text: &str) {
        if !self.is_thinking {
            self.break_line();
        }
        // The renderer returns thoughts only if stderr is a terminal, so they can be dimmed.
        write_stderr(&format!("\x1b[2m{}\x1b[0m", strip_controls(text)));
        self.is_mid_line = !text.ends_with('\n');
        self.is_thinking = true;
    }

    fn answer(&mut self, text: &str) -> Result<(), ReaderGone> {
        if self.is_thinking {
            self.break_line();
        }
        self.is_unfinished = !text.ends_with('\n');
        let written = if self.is_terminal {
            self.is_mid_line = !text.ends_with('\n');
            write_stdout(&strip_controls(text))
        } else {
            write_stdout(text)
        };
        match written {
            Ok(()) => Ok(()),
            Err(err) => {
                if err.kind() != io::ErrorKind::BrokenPipe {
                    self.aside(&format!("purlin: cannot write the output: {err}"));
                }
                Err(ReaderGone)
            }
        }
    }

    fn break_line(&mut self) {
        if self.is_mid_line {
            write_stderr("\n");
            self.is_mid_line = false;
        }
        self.is_thinking = false;
    }
}

fn write_stdout(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn write_stderr(text: &str) {
    // A failure cannot be reported anywhere.
    io::stderr().lock().write_all(text.as_bytes()).ok();
}
