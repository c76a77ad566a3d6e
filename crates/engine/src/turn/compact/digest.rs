//! What must survive a compaction, listed without a model: the open task, the files, the failures.

use std::sync::Arc;

use crate::words::{Message, SUMMARY_HEAD, ToolRequest, after_summary_head, trim, visible};

const LAST_MESSAGE: &str = "The user's last message";
const CHANGED: &str = "Files changed";
const READ: &str = "Files read";
const FAILURES: &str = "Failures";
const ASKED: &str = "What the user asked, in order";

/// How many files, failures and messages are listed.
const LISTED: usize = 40;
/// How many bytes of a call and of a result the model gets to summarise.
const CALL: usize = 300;
const RESULT: usize = 1_500;

/// The files of a call.
pub(super) enum Touched {
    /// It read these.
    Read(Vec<String>),
    /// It changed these.
    Changed(Vec<String>),
}

/// Writes the summary that replaces some messages: the text of the model, if there is one, and our own lists. `touched`
/// finds the files of a call.
pub(super) fn summary(
    dropped: &[Arc<Message>],
    written: Option<&str>,
    most: usize,
    touched: &dyn Fn(&ToolRequest) -> Option<Touched>,
) -> String {
    let facts = Facts::of(dropped, touched);
    let mut listed = String::new();
    facts.write(written.is_none(), most / 2, &mut listed);
    let body = match written {
        Some(text) => visible(text.trim()),
        None => previous(dropped).map(|text| text.trim().to_owned()).unwrap_or_default(),
    };
    let room = most.saturating_sub(listed.len() + SUMMARY_HEAD.len());
    format!("{SUMMARY_HEAD}\n\n{}\n{listed}", trim(&body, room, "the summary continues"))
}

/// Writes messages as text for the model that summarises them, in at most about `most` bytes.
pub(super) fn transcript(messages: &[Arc<Message>], most: usize) -> String {
    let mut text = String::new();
    for message in messages {
        match &**message {
            Message::User(prompt) => text.push_str(&format!("\n[user]\n{}\n", prompt.text())),
            Message::Agent { text: said, calls, .. } => {
                if !said.is_empty() {
                    text.push_str(&format!("\n[agent]\n{said}\n"));
                }
                for call in calls {
                    let input = cut(&call.input.to_string(), CALL);
                    text.push_str(&format!("\n[call] {} {input}\n", call.name));
                }
            }
            Message::ToolResult { text: result, failed, .. } => {
                let what = if *failed { "failed" } else { "result" };
                let result = trim(result, RESULT, "omitted");
                text.push_str(&format!("[{what}] {result}\n"));
            }
        }
    }
    trim(&text, most, "a part of the conversation is omitted here").into_owned()
}

/// Returns the text of an earlier summary.
fn previous(dropped: &[Arc<Message>]) -> Option<String> {
    let Message::User(prompt) = &**dropped.first()? else { return None };
    let text = prompt.text();
    let body = after_summary_head(&text)?;
    Some(body.split("\n### ").next().unwrap_or(body).to_owned())
}

/// What can be listed about messages without understanding them.
#[derive(Debug, Default)]
struct Facts {
    last_message: Option<String>,
    asked: Vec<String>,
    changed: Vec<String>,
    read: Vec<String>,
    failures: Vec<String>,
}

impl Facts {
    fn of(dropped: &[Arc<Message>], touched: &dyn Fn(&ToolRequest) -> Option<Touched>) -> Facts {
        let mut facts = Facts::default();
        let mut asked: Vec<&ToolRequest> = Vec::new();
        for message in dropped {
            match &**message {
                Message::User(prompt) => facts.take_user(&prompt.text()),
                Message::Agent { calls, .. } => asked.extend(calls),
                Message::ToolResult { id, text, failed } => {
                    let call = asked.iter().rev().find(|call| call.id == *id).copied();
                    let name = call.map_or("a tool", |call| call.name.as_str());
                    if *failed {
                        let line = cut(text.lines().next().unwrap_or_default(), 200);
                        note(&mut facts.failures, format!("{name}: {line}"));
                    } else if let Some(touched) = call.and_then(touched) {
                        facts.take_call(touched);
                    }
                }
            }
        }
        facts
    }

    fn take_user(&mut self, text: &str) {
        let Some(earlier) = after_summary_head(text) else {
            note(&mut self.asked, cut(text.lines().next().unwrap_or_default(), 200));
            self.last_message = Some(text.to_owned());
            return;
        };
        for part in earlier.split("\n### ").skip(1) {
            let (heading, body) = part.split_once('\n').unwrap_or((part, ""));
            let items =
                || body.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned);
            match heading {
                LAST_MESSAGE => self.last_message = Some(body.trim().to_owned()),
                CHANGED => self.changed.extend(items()),
                READ => self.read.extend(items()),
                FAILURES => self.failures.extend(items()),
                ASKED => self.asked.extend(items()),
                _ => {}
            }
        }
    }

    fn take_call(&mut self, touched: Touched) {
        match touched {
            Touched::Read(paths) => paths.into_iter().for_each(|path| note(&mut self.read, path)),
            Touched::Changed(paths) => {
                paths.into_iter().for_each(|path| note(&mut self.changed, path));
            }
        }
    }

    fn write(&self, with_asked: bool, most: usize, out: &mut String) {
        if let Some(last) = &self.last_message {
            let last = trim(last, most / 2, "the message continues");
            out.push_str(&format!("\n### {LAST_MESSAGE}\n{}\n", last.replace("\n### ", "\n#### ")));
        }
        let none = Vec::new();
        let asked = if with_asked { &self.asked } else { &none };
        let lists = [
            (ASKED, asked),
            (CHANGED, &self.changed),
            (READ, &self.read),
            (FAILURES, &self.failures),
        ];
        for (heading, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
            let mut list = format!("\n### {heading}\n");
            for item in &items[items.len().saturating_sub(LISTED)..] {
                list.push_str(&format!("- {}\n", visible(&item.replace('\n', " "))));
            }
            if out.len() + list.len() <= most {
                out.push_str(&list);
            }
        }
    }
}

/// Appends an item; one that was listed before moves to the end.
fn note(items: &mut Vec<String>, item: String) {
    items.retain(|known| *known != item);
    items.push(item);
}

fn cut(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::{Value, json};

    use super::*;
    use crate::words::{Block, Prompt, ToolCallId};

    fn user(text: &str) -> Arc<Message> {
        Arc::new(Message::User(Prompt::from(vec![Block::Text(text.to_owned())])))
    }

    fn call(name: &str, input: Value, result: &str, failed: bool) -> [Arc<Message>; 2] {
        let id = ToolCallId::new(format!("{name}{input}"));
        let calls =
            vec![ToolRequest { id: id.clone(), name: name.to_owned(), input: input.into() }];
        let (thoughts, text) = (Vec::new(), String::new());
        let asked = Message::Agent { thoughts, text, calls };
        [Arc::new(asked), Arc::new(Message::ToolResult { id, text: result.to_owned(), failed })]
    }

    fn touched(call: &ToolRequest) -> Option<Touched> {
        let paths = vec![call.input["filePath"].as_str()?.to_owned()];
        Some(if call.name == "read" { Touched::Read(paths) } else { Touched::Changed(paths) })
    }

    #[test]
    fn task_files_and_failures_survive_two_compactions_without_a_model() {
        let mut dropped = vec![user("Mend the parser.\nIt breaks on tabs.")];
        dropped.extend(call("read", json!({ "filePath": "src/parse.rs" }), "1\tfn", false));
        dropped.extend(call("edit", json!({ "filePath": "src/parse.rs" }), "no match\nx", true));
        dropped.extend(call("write", json!({ "filePath": "src/new.rs" }), "done", false));
        let first = summary(&dropped, None, 4_000, &touched);
        let mut again = vec![user(&first)];
        again.extend(call("write", json!({ "filePath": "b.rs" }), "done", false));
        let second = summary(&again, None, 4_000, &touched);
        expect![[r#"




            ### The user's last message
            Mend the parser.
            It breaks on tabs.

            ### What the user asked, in order
            - Mend the parser.

            ### Files changed
            - src/new.rs
            - b.rs

            ### Files read
            - src/parse.rs

            ### Failures
            - edit: no match
        "#]]
        .assert_eq(second.strip_prefix(SUMMARY_HEAD).unwrap());
        // The lists also stay when the model wrote a summary.
        let third = summary(&[user(&second)], Some("All is well."), 4_000, &touched);
        assert!(third.contains("All is well.\n") && third.contains("- src/new.rs"), "{third}");
        assert!(summary(&dropped, Some(&"word ".repeat(10_000)), 2_000, &touched).len() < 2_200);
    }
}
