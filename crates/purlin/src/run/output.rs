//! Where a run's output goes: answers to stdout, everything else to stderr.
//!
//! What goes to a terminal is stripped of control characters first, so an agent cannot drive the terminal.

use std::io::{self, IsTerminal, Write};

use wire::acp::schema;

use super::render::{Piece, Renderer, strip_controls};
use super::{last_line, words_of};

/// Nobody reads our output any more.
#[derive(Debug, PartialEq)]
pub(super) struct ReaderGone;

/// The two outputs, and what is known of the turn so far.
#[derive(Debug)]
pub(super) struct Output {
    json: bool,
    is_terminal: bool,
    /// The answer ends in the middle of a line.
    is_unfinished: bool,
    /// A terminal shows a line that was begun.
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

    /// Shows an update. One that cannot be read is left out: a newer agent may well have some.
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
        for piece in self.renderer.render(update) {
            match piece {
                Piece::Answer(text) => self.answer(&text)?,
                Piece::Thought(text) => self.thought(&text),
                Piece::Aside(text) => self.aside(&text),
                Piece::Output(text) => self.output_of_command(&text),
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
            schema::StopReason::MaxTokens => self.aside("The answer was cut: out of tokens."),
            schema::StopReason::MaxTurnRequests => {
                self.aside("The turn was cut: too many requests to the model.");
            }
            schema::StopReason::Refusal => self.aside("The agent refused."),
            schema::StopReason::Cancelled => self.aside("Cancelled."),
            _ => self.aside("The turn ended."),
        }
        Ok(())
    }

    /// Shows why there is no answer.
    pub(super) fn error(&mut self, err: &anyhow::Error) -> Result<(), ReaderGone> {
        if self.json {
            return self.answer(&format!("{}\n", last_line(Err(err))));
        }
        self.aside(&format!("purlin: {}", words_of(err)));
        Ok(())
    }

    /// Shows a line besides the answer.
    pub(super) fn aside(&mut self, text: &str) {
        self.break_line();
        write_stderr(&format!("{}\n", strip_controls(text)));
    }

    /// Shows what a command said: indented, and dimmed where that can be seen.
    fn output_of_command(&mut self, text: &str) {
        self.break_line();
        let (dim, plain) =
            if io::stderr().is_terminal() { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        for line in strip_controls(text).lines() {
            write_stderr(&format!("{dim}    {line}{plain}\n"));
        }
    }

    /// Takes note that the question on the terminal stands in a line that is not ended.
    pub(super) fn set_mid_line(&mut self, is_mid_line: bool) {
        self.is_mid_line = is_mid_line;
    }

    /// Tells whether a line on the terminal is not ended.
    pub(super) fn is_mid_line(&self) -> bool {
        self.is_mid_line
    }

    fn thought(&mut self, text: &str) {
        if !self.is_thinking {
            self.break_line();
        }
        // The renderer hands out thoughts only if stderr is a terminal, so it can be dimmed.
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
                    self.aside(&format!("purlin: the output cannot be written: {err}"));
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
    // There is nowhere left to tell that this failed.
    io::stderr().lock().write_all(text.as_bytes()).ok();
}
