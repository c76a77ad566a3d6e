//! Where a run's output goes: answers to stdout, everything else to stderr.
//!
//! On a terminal, or with `--color always`, answers are rendered as Markdown, and control characters are removed, so that an agent cannot control it.

use std::io::{self, IsTerminal, Write};

use chat::{ColorLevel, Line, Markdown, Style, clean};

use super::args::{Color, OutputFormat};
use super::render::OutputItem;
use super::spinner::Spinner;
use crate::env;

/// The widest text. Longer lines are hard to read.
const MAX_COLUMNS: usize = 110;

/// Our output was closed.
#[derive(Debug, PartialEq)]
pub(super) struct ReaderGone;

/// The two outputs.
#[derive(Debug)]
pub(super) struct Output {
    format: OutputFormat,
    /// Renders the answer, if stdout is a terminal or colours were asked for.
    markdown: Option<Markdown>,
    columns: usize,
    /// The colours of stdout and stderr.
    levels: (ColorLevel, ColorLevel),
    spinner: Option<Spinner>,
    /// The answer ends within a line.
    is_unfinished: bool,
    /// The terminal's cursor is within a line.
    is_mid_line: bool,
    /// That line is a thought.
    is_thinking: bool,
}

impl Output {
    pub(super) fn new(format: OutputFormat, color: Color) -> Output {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let columns = columns();
        let is_text = format == OutputFormat::Text;
        let is_rendered = is_text && (stdout.is_terminal() || color == Color::Always);
        let markdown = is_rendered.then(|| Markdown::new(columns));
        let spinner = (is_text && stderr.is_terminal() && env::can_move_cursor())
            .then(|| Spinner::new(columns));
        Output {
            format,
            markdown,
            columns,
            levels: (color.level(&stdout), color.level(&stderr)),
            spinner,
            is_unfinished: false,
            is_mid_line: false,
            is_thinking: false,
        }
    }

    /// Tells whether people read along.
    pub(super) fn has_spinner(&self) -> bool {
        self.spinner.is_some()
    }

    /// Prints an update as it is, if that is what was asked for.
    pub(super) fn raw_update(&mut self, update: &client::Update) -> Result<(), ReaderGone> {
        match self.format {
            OutputFormat::StreamJson => self.print(&format!("{}\n", update.raw())),
            OutputFormat::Text | OutputFormat::Json => Ok(()),
        }
    }

    /// Prints the object at the end, if that is what was asked for.
    pub(super) fn object(&mut self, object: &serde_json::Value) -> Result<(), ReaderGone> {
        match self.format {
            OutputFormat::Json | OutputFormat::StreamJson => self.print(&format!("{object}\n")),
            OutputFormat::Text => Ok(()),
        }
    }

    /// Shows what an update means to people.
    pub(super) fn show(&mut self, items: Vec<OutputItem>) -> Result<(), ReaderGone> {
        if self.format != OutputFormat::Text {
            return Ok(());
        }
        for item in items {
            match item {
                OutputItem::Answer(text) => self.answer(&text)?,
                OutputItem::Thought(text) => self.thought(&text),
                OutputItem::Aside(text) => self.aside(&text),
                OutputItem::Diff(lines) => self.lines(&lines),
                OutputItem::Output(lines) => {
                    let dim = |line: String| Line::of(format!("    {line}"), Style::DIM);
                    self.lines(&lines.into_iter().map(dim).collect::<Vec<_>>());
                }
            }
        }
        Ok(())
    }

    /// Ends the answer.
    pub(super) fn end(&mut self) -> Result<(), ReaderGone> {
        self.clear_spinner();
        self.flush_answer()?;
        if self.is_unfinished && (self.markdown.is_none()) {
            self.print("\n")?;
            self.is_mid_line = false;
        }
        self.break_line();
        Ok(())
    }

    /// Shows a line on stderr.
    pub(super) fn aside(&mut self, text: &str) {
        if self.format == OutputFormat::Text {
            self.message(text);
        }
    }

    /// Shows a line on stderr in every format: an error.
    pub(super) fn message(&mut self, text: &str) {
        self.break_line();
        write_stderr(&format!("{}\n", clean(text)));
    }

    /// Shows a dimmed line on stderr, if it is a terminal.
    pub(super) fn footnote(&mut self, text: &str) {
        if self.format == OutputFormat::Text && io::stderr().is_terminal() {
            self.lines(&[Line::of(clean(text), Style::DIM)]);
        }
    }

    /// Shows styled lines on stderr.
    fn lines(&mut self, lines: &[Line]) {
        self.break_line();
        for line in lines {
            write_stderr(&format!("{}\n", line.to_ansi(self.levels.1)));
        }
    }

    /// Returns lines with the colours of stderr, for the terminal that questions are asked on.
    pub(super) fn colored(&self, lines: &[Line]) -> String {
        lines.iter().map(|line| format!("    {}\n", line.to_ansi(self.levels.1))).collect()
    }

    /// Draws the next picture of the spinner.
    pub(super) fn tick(&mut self, activity: &str) {
        if !self.is_mid_line
            && let Some(spinner) = &mut self.spinner
        {
            spinner.draw(activity);
        }
    }

    /// Notes whether the terminal's cursor is within a line.
    pub(super) fn set_mid_line(&mut self, is_mid_line: bool) {
        self.clear_spinner();
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
        self.clear_spinner();
        // The renderer returns thoughts only if stderr is a terminal, so they can be dimmed.
        let parts = clean(text);
        for part in parts.split_inclusive('\n') {
            let line = Line::of(part.trim_end_matches('\n'), Style::DIM).to_ansi(self.levels.1);
            write_stderr(&line);
            if part.ends_with('\n') {
                write_stderr("\n");
            }
        }
        self.is_mid_line = !text.ends_with('\n');
        self.is_thinking = true;
    }

    fn answer(&mut self, text: &str) -> Result<(), ReaderGone> {
        if self.is_thinking {
            self.break_line();
        }
        self.is_unfinished = !text.ends_with('\n');
        let Some(markdown) = &mut self.markdown else { return self.print(text) };
        let lines = markdown.push(text);
        self.print_lines(&lines)
    }

    /// Shows the end of an answer that something else follows.
    fn flush_answer(&mut self) -> Result<(), ReaderGone> {
        let Some(markdown) = &mut self.markdown else { return Ok(()) };
        let lines = markdown.finish();
        *markdown = Markdown::new(self.columns);
        self.print_lines(&lines)
    }

    fn print_lines(&mut self, lines: &[Line]) -> Result<(), ReaderGone> {
        let text: String =
            lines.iter().map(|line| format!("{}\n", line.to_ansi(self.levels.0))).collect();
        if text.is_empty() { Ok(()) } else { self.print(&text) }
    }

    fn print(&mut self, text: &str) -> Result<(), ReaderGone> {
        self.clear_spinner();
        match write_stdout(text) {
            Ok(()) => Ok(()),
            Err(err) => {
                if err.kind() != io::ErrorKind::BrokenPipe {
                    write_stderr(&format!("purlin: cannot write the output: {err}\n"));
                }
                Err(ReaderGone)
            }
        }
    }

    fn clear_spinner(&mut self) {
        if let Some(spinner) = &mut self.spinner {
            spinner.clear();
        }
    }

    fn break_line(&mut self) {
        self.clear_spinner();
        // A closed output is noticed by what is printed next.
        self.flush_answer().ok();
        if self.is_mid_line {
            write_stderr("\n");
            self.is_mid_line = false;
        }
        self.is_thinking = false;
    }
}

#[cfg(unix)]
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns < 20 { 80 } else { columns.min(MAX_COLUMNS) }
}

#[cfg(not(unix))]
fn columns() -> usize {
    80
}

fn write_stdout(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

pub(super) fn write_stderr(text: &str) {
    // A failure cannot be reported anywhere.
    io::stderr().lock().write_all(text.as_bytes()).ok();
}
