//! Asking for permission on the controlling terminal.
//!
//! Shows exactly what would be done, with control characters escaped. `y` allows, `a` always allows, `n` and Enter reject; without a
//! terminal everything is rejected. Reads `/dev/tty` instead of stdin, which may be a pipe.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};

use client::PermissionQuestion;
use client::host::reject;
use engine::words::visible;
use tokio::sync::mpsc;
use wire::acp::schema::{self, PermissionOptionKind as Kind};

use super::output::Output;
use super::render::{OutputItem, diffs_of, input_of, texts_of};
use super::turn::Wake;

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

    /// Asks a question about this call. Without a terminal it is rejected; then it returns true.
    pub(super) fn ask(
        &mut self,
        question: PermissionQuestion,
        call: &schema::ToolCall,
        is_own: bool,
        output: &mut Output,
    ) -> bool {
        if self.terminal.is_none() {
            self.terminal = Terminal::open();
        }
        let Some(terminal) = &mut self.terminal else {
            let diffs = diffs_of(call, super::render::DIFF_LINES);
            // A closed output is noticed by what is printed next.
            output.show(diffs.into_iter().map(OutputItem::Diff).collect()).ok();
            output.aside(&format!(
                "Rejected: {}\nNo terminal to ask on. To allow it, use --allow.",
                visible(&call.title)
            ));
            answer(question, None);
            return true;
        };
        // Input from before the question does not answer it.
        while terminal.lines.try_recv().is_ok() {}
        output.aside("");
        let diffs: Vec<_> = diffs_of(call, DIFF_LINES).concat();
        let diffs = output.colored(&diffs);
        terminal.write(&question_text(call, is_own, &diffs, &question.request.options));
        output.set_mid_line(true);
        self.open = Some(question);
        false
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

    /// Handles input. Asks again if it is not one of the choices. Returns the id of a call that was rejected.
    pub(super) fn answer(
        &mut self,
        line: Option<String>,
        output: &mut Output,
    ) -> Option<schema::ToolCallUpdate> {
        let question = self.open.take()?;
        output.set_mid_line(false);
        let chosen = match choice(line.as_deref(), &question.request.options) {
            Choice::Option(index) => Some(index),
            Choice::Reject => None,
            Choice::Unclear => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.write(&choose_text(&question.request.options));
                    output.set_mid_line(true);
                }
                self.open = Some(question);
                return None;
            }
        };
        let kind = chosen.and_then(|index| Some(question.request.options.get(index)?.kind));
        let is_allowed = matches!(kind, Some(Kind::AllowOnce | Kind::AllowAlways));
        let call = question.request.tool_call.clone();
        answer(question, chosen);
        if is_allowed {
            return None;
        }
        output.aside("Rejected.");
        Some(call)
    }

    /// Repeats the choices, if something was shown after the question.
    pub(super) fn remind(&mut self, output: &mut Output) {
        let (Some(question), Some(terminal)) = (&self.open, &mut self.terminal) else { return };
        if !output.is_mid_line() {
            terminal.write(&choose_text(&question.request.options));
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

fn choice(line: Option<&str>, options: &[schema::PermissionOption]) -> Choice {
    let Some(line) = line.map(str::trim).filter(|line| !line.is_empty()) else {
        return Choice::Reject;
    };
    let word = line.to_ascii_lowercase();
    let key = match &*word {
        "yes" => "y",
        "always" => "a",
        "no" => "n",
        other => other,
    };
    if let Some(index) = keys_of(options).iter().position(|known| known == key) {
        return Choice::Option(index);
    }
    match key.parse::<usize>() {
        Ok(number) if (1..=options.len()).contains(&number) => Choice::Option(number - 1),
        _ if key == "n" => Choice::Reject,
        _ => Choice::Unclear,
    }
}

/// Returns the key of each option: `y`, `a` and `n` for the first of their kind, numbers for the others.
fn keys_of(options: &[schema::PermissionOption]) -> Vec<String> {
    let letters = [(Kind::AllowOnce, "y"), (Kind::AllowAlways, "a"), (Kind::RejectOnce, "n")];
    let first = |kind: Kind| options.iter().position(|option| option.kind == kind);
    let key = |(index, option): (usize, &schema::PermissionOption)| {
        let letter = letters.iter().find(|(kind, _)| *kind == option.kind);
        match letter.filter(|(kind, _)| first(*kind) == Some(index)) {
            Some((_, letter)) => (*letter).to_owned(),
            None => (index + 1).to_string(),
        }
    };
    options.iter().enumerate().map(key).collect()
}

/// Returns the question. The diffs are formatted already. Our own agent does exactly what a diff shows; of others, the input is shown too.
fn question_text(
    call: &schema::ToolCall,
    is_own: bool,
    diffs: &str,
    options: &[schema::PermissionOption],
) -> String {
    let mut parts = vec![format!("Allow \"{}\"?", call.title)];
    let is_shown = |input: &String| *input == call.title || (is_own && !diffs.is_empty());
    parts.extend(input_of(call).filter(|input| !is_shown(input)).map(|input| indent(&input)));
    // What it needs permission for.
    parts.extend(texts_of(call).map(|text| indent(&text)));
    let choices = keys_of(options).into_iter().zip(options);
    let choices: String =
        choices.map(|(key, option)| format!("  {key}) {}\n", visible(&option.name))).collect();
    format!("{}\n{diffs}{choices}{}", visible(&parts.join("\n")), choose_text(options))
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn choose_text(options: &[schema::PermissionOption]) -> String {
    format!("Choose {}, or press Enter to reject: ", keys_of(options).join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn options() -> Vec<schema::PermissionOption> {
        serde_json::from_value(json!([
            { "optionId": "o", "name": "Allow", "kind": "allow_once" },
            { "optionId": "s", "name": "Allow in this session", "kind": "allow_always" },
            { "optionId": "p", "name": "Always allow", "kind": "allow_always" },
            { "optionId": "r", "name": "Reject", "kind": "reject_once" },
        ]))
        .unwrap()
    }

    #[test]
    fn only_a_key_or_a_number_of_the_list_allows() {
        let chosen = |line: &str| choice(Some(line), &options());
        for (line, index) in [("y", 0), (" YES \n", 0), ("a", 1), ("2", 1), ("3", 2), ("n", 3)] {
            assert_eq!(chosen(line), Choice::Option(index), "{line}");
        }
        assert_eq!(chosen(""), Choice::Reject);
        assert_eq!(choice(None, &options()), Choice::Reject);
        for unclear in ["0", "5", "ja", "-1", "yn"] {
            assert_eq!(chosen(unclear), Choice::Unclear, "{unclear}");
        }
        let without = &options()[2..3];
        assert_eq!(choice(Some("n"), without), Choice::Reject);
        assert_eq!(choice(Some("y"), without), Choice::Unclear);
    }

    #[test]
    fn question_shows_exactly_what_would_be_done() {
        let call = serde_json::from_value(json!({
            "toolCallId": "t", "title": "Run a command",
            "rawInput": { "command": "rm -rf \u{1b}[8m/ \u{202e}x" },
            "content": [
                { "type": "content", "content": { "type": "text", "text": "Needs the network: to ask" } },
            ],
        }))
        .unwrap();
        assert_eq!(
            question_text(&call, false, "    DIFF\n", &options()),
            "Allow \"Run a command\"?\n\
             \u{20}   rm -rf \\u{1b}[8m/ \\u{202e}x\n\
             \u{20}   Needs the network: to ask\n\
             \u{20}   DIFF\n\
             \u{20} y) Allow\n  a) Allow in this session\n  3) Always allow\n  n) Reject\n\
             Choose y, a, 3, n, or press Enter to reject: "
        );
        assert!(!question_text(&call, true, "    DIFF\n", &options()).contains("rm -rf"));
        assert!(question_text(&call, true, "", &options()).contains("rm -rf"));
    }
}
