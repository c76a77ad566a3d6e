//! Asking for permission on the controlling terminal.
//!
//! Shows exactly what would be done, with control characters escaped. Enter rejects, and without a terminal everything is
//! rejected. Reads `/dev/tty` instead of stdin, which may be a pipe.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};

use client::PermissionQuestion;
use client::host::reject;
use engine::words::visible;
use tokio::sync::mpsc;
use wire::acp::schema;

use super::Wake;
use super::output::Output;
use super::render::{diffs_of, input_of, texts_of};

/// Lines of a diff that are shown in a question.
const DIFF_LINES: usize = 400;

/// Asks one question at a time.
#[derive(Debug, Default)]
pub(super) struct Asker {
    terminal: Option<Terminal>,
    open: Option<PermissionQuestion>,
}

/// The controlling terminal.
#[derive(Debug)]
struct Terminal {
    writer: File,
    lines: mpsc::Receiver<String>,
}

impl Asker {
    /// Tells whether a question is open.
    pub(super) fn is_busy(&self) -> bool {
        self.open.is_some()
    }

    /// Asks a question, or rejects it without a terminal.
    pub(super) fn ask(&mut self, question: PermissionQuestion, output: &mut Output) {
        if self.terminal.is_none() {
            self.terminal = Terminal::open();
        }
        let call = output.renderer.call_with(question.request.tool_call.clone());
        let Some(terminal) = &mut self.terminal else {
            let title = visible(&call.title);
            for diff in diffs_of(&call, super::render::DIFF_LINES) {
                output.aside(&visible(&diff));
            }
            output.aside(&format!(
                "Rejected: {title}\nNo terminal to ask on. To approve all requests, use --allow."
            ));
            answer(question, None);
            return;
        };
        // Input from before the question does not answer it.
        while terminal.lines.try_recv().is_ok() {}
        output.aside("");
        terminal.write(&question_text(&call, &question.request.options));
        output.renderer.has_shown_diffs(&call);
        output.set_mid_line(true);
        self.open = Some(question);
    }

    /// Waits for input, or until the agent withdraws the question.
    pub(super) async fn next(&mut self) -> Wake {
        let (Some(terminal), Some(question)) = (&mut self.terminal, &mut self.open) else {
            return std::future::pending().await;
        };
        tokio::select! {
            line = terminal.lines.recv() => Wake::Answer(line),
            () = question.answer.closed() => Wake::Withdrawn,
        }
    }

    /// Handles input. Asks again if it is not one of the choices.
    pub(super) fn answer(&mut self, line: Option<String>, output: &mut Output) {
        let Some(question) = self.open.take() else { return };
        output.set_mid_line(false);
        match choice(line.as_deref(), question.request.options.len()) {
            Choice::Option(index) => answer(question, Some(index)),
            Choice::Reject => {
                output.aside("Rejected.");
                answer(question, None);
            }
            Choice::Unclear => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.write(&choose_text(question.request.options.len()));
                    output.set_mid_line(true);
                }
                self.open = Some(question);
            }
        }
    }

    /// Repeats the choices, if something was shown after the question.
    pub(super) fn remind(&mut self, output: &mut Output) {
        let (Some(question), Some(terminal)) = (&self.open, &mut self.terminal) else { return };
        if !output.is_mid_line() {
            terminal.write(&choose_text(question.request.options.len()));
            output.set_mid_line(true);
        }
    }

    /// Drops the open question, which answers it as cancelled.
    pub(super) fn withdraw(&mut self) {
        self.open = None;
    }
}

impl Terminal {
    fn open() -> Option<Terminal> {
        let open = || File::options().read(true).write(true).open("/dev/tty");
        let (reader, writer) = (open().ok()?, open().ok()?);
        // Full when someone types ahead: then the terminal buffers the rest.
        let (typed, lines) = mpsc::channel(4);
        // Not a thread of the runtime: the read may never end, and the program must not wait for it.
        std::thread::Builder::new()
            .name("tty".to_owned())
            .spawn(move || {
                for line in BufReader::new(reader).lines() {
                    let Ok(line) = line else { return };
                    if typed.blocking_send(line).is_err() {
                        return;
                    }
                }
            })
            .ok()?;
        Some(Terminal { writer, lines })
    }

    fn write(&mut self, text: &str) {
        if let Err(err) = self.writer.write_all(text.as_bytes()) {
            // A question that cannot be seen cannot be answered; Ctrl-C ends it.
            tracing::warn!(%err, "cannot show the question");
        }
    }
}

fn answer(question: PermissionQuestion, index: Option<usize>) {
    let chosen = index.and_then(|index| question.request.options.get(index));
    let outcome = match chosen {
        Some(option) => schema::RequestPermissionOutcome::Selected(
            schema::SelectedPermissionOutcome::new(option.option_id.clone()),
        ),
        None => reject(&question.request),
    };
    // Fails only if the agent withdrew the question meanwhile.
    question.answer.send(outcome).ok();
}

/// The user's input.
#[derive(Debug, PartialEq)]
enum Choice {
    Option(usize),
    Reject,
    Unclear,
}

fn choice(line: Option<&str>, options: usize) -> Choice {
    let Some(line) = line.map(str::trim).filter(|line| !line.is_empty()) else {
        return Choice::Reject;
    };
    match line.parse::<usize>() {
        Ok(number) if (1..=options).contains(&number) => Choice::Option(number - 1),
        _ => Choice::Unclear,
    }
}

fn question_text(call: &schema::ToolCall, options: &[schema::PermissionOption]) -> String {
    let mut parts = vec![format!("Allow \"{}\"?", call.title)];
    parts.extend(input_of(call).map(|input| indent(&input)));
    // What it needs permission for.
    parts.extend(texts_of(call).map(|text| indent(&text)));
    parts.extend(diffs_of(call, DIFF_LINES).iter().map(|diff| indent(diff)));
    let choices = options.iter().enumerate();
    parts.extend(choices.map(|(index, option)| format!("  {}) {}", index + 1, option.name)));
    format!("{}\n{}", visible(&parts.join("\n")), choose_text(options.len()))
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn choose_text(options: usize) -> String {
    format!("Choose 1 to {options}, or press Enter to reject: ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_listed_number_allows() {
        assert_eq!(choice(Some(" 2 \n"), 3), Choice::Option(1));
        assert_eq!(choice(Some(""), 3), Choice::Reject);
        assert_eq!(choice(None, 3), Choice::Reject);
        for unclear in ["0", "4", "yes", "-1"] {
            assert_eq!(choice(Some(unclear), 3), Choice::Unclear, "{unclear}");
        }
    }

    #[test]
    fn question_shows_exactly_what_would_be_done() {
        let call = serde_json::from_value(json!({
            "toolCallId": "t", "title": "Run a command",
            "rawInput": { "command": "rm -rf \u{1b}[8m/ \u{202e}x" },
            "content": [
                { "type": "content", "content": { "type": "text", "text": "Needs the network: to ask" } },
                { "type": "diff", "path": "/a", "oldText": "1\n", "newText": "2\n" },
            ],
        }))
        .unwrap();
        let options: Vec<schema::PermissionOption> = serde_json::from_value(json!([
            { "optionId": "y", "name": "Allow", "kind": "allow_once" },
            { "optionId": "n", "name": "Reject", "kind": "reject_once" },
        ]))
        .unwrap();
        assert_eq!(
            question_text(&call, &options),
            "Allow \"Run a command\"?\n\
             \u{20}   rm -rf \\u{1b}[8m/ \\u{202e}x\n\
             \u{20}   Needs the network: to ask\n\
             \u{20}   --- /a\n    +++ /a\n    @@ -1,1 +1,1 @@\n    -1\n    +2\n\
             \u{20} 1) Allow\n  2) Reject\n\
             Choose 1 to 2, or press Enter to reject: "
        );
    }
}
