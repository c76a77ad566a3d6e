//! What must outlive a compaction, written without a model: the open task, the files, the failures.

use std::sync::Arc;

use serde_json::Value;

use crate::turn::context::{self, SUMMARY_HEAD};
use crate::words::visible::visible;
use crate::words::{Message, ToolRequest};

const LAST_MESSAGE: &str = "The user's last message";
const CHANGED: &str = "Files changed";
const READ: &str = "Files read";
const FAILURES: &str = "Failures";
const ASKED: &str = "What the user asked, in order";

/// How many files, failures and messages are listed.
const LISTED: usize = 40;
/// How many bytes of a call and of a result the model is shown to summarise.
const CALL: usize = 300;
const RESULT: usize = 1_500;

/// Writes the summary that stands for some messages: what the model wrote, if it did, and what we list ourselves.
pub(super) fn summary(dropped: &[Arc<Message>], written: Option<&str>, most: usize) -> String {
    let facts = Facts::of(dropped);
    let mut listed = String::new();
    facts.write(written.is_none(), most / 2, &mut listed);
    let body = match written {
        Some(text) => visible(text.trim()),
        None => previous(dropped).map(|text| text.trim().to_owned()).unwrap_or_default(),
    };
    let room = most.saturating_sub(listed.len() + SUMMARY_HEAD.len());
    format!("{SUMMARY_HEAD}\n\n{}\n{listed}", context::trim(&body, room, "the summary goes on"))
}

/// Writes messages down for the model that summarises them, in at most about `most` bytes.
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
                let result = context::trim(result, RESULT, "left out");
                text.push_str(&format!("[{what}] {result}\n"));
            }
        }
    }
    context::trim(&text, most, "a part of the conversation is left out here").into_owned()
}

/// Returns what an earlier compaction left.
fn previous(dropped: &[Arc<Message>]) -> Option<String> {
    let Message::User(prompt) = &**dropped.first()? else { return None };
    let text = prompt.text();
    let body = text.strip_prefix(SUMMARY_HEAD)?;
    Some(body.split("\n### ").next().unwrap_or(body).to_owned())
}

/// What can be told of messages without understanding them.
#[derive(Debug, Default)]
struct Facts {
    last_message: Option<String>,
    asked: Vec<String>,
    changed: Vec<String>,
    read: Vec<String>,
    failures: Vec<String>,
}

impl Facts {
    fn of(dropped: &[Arc<Message>]) -> Facts {
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
                    } else if let Some(call) = call {
                        facts.take_call(call);
                    }
                }
            }
        }
        facts
    }

    fn take_user(&mut self, text: &str) {
        let Some(earlier) = text.strip_prefix(SUMMARY_HEAD) else {
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

    fn take_call(&mut self, call: &ToolRequest) {
        let paths = ["filePath", "file_path", "path", "file"];
        let path = paths.iter().find_map(|key| call.input[key].as_str());
        match (call.name.as_str(), path) {
            ("read", Some(path)) => note(&mut self.read, path.to_owned()),
            ("write" | "edit", Some(path)) => note(&mut self.changed, path.to_owned()),
            ("apply_patch", _) => {
                let patch =
                    call.input.as_object().and_then(|input| input.values().find_map(Value::as_str));
                let files = patch.unwrap_or_default().lines().filter_map(|line| {
                    Some(line.strip_prefix("*** ")?.split_once(" File: ")?.1.to_owned())
                });
                files.for_each(|file| note(&mut self.changed, file));
            }
            _ => {}
        }
    }

    fn write(&self, with_asked: bool, most: usize, out: &mut String) {
        if let Some(last) = &self.last_message {
            let last = context::trim(last, most / 2, "the message goes on");
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

/// Adds an item behind the others; what was noted before moves there.
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
    use serde_json::json;

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

    #[test]
    fn task_files_and_failures_outlive_two_compactions_without_a_model() {
        let mut dropped = vec![user("Mend the parser.\nIt breaks on tabs.")];
        dropped.extend(call("read", json!({ "filePath": "src/parse.rs" }), "1\tfn", false));
        dropped.extend(call("edit", json!({ "filePath": "src/parse.rs" }), "no match\nx", true));
        dropped.extend(call("write", json!({ "filePath": "src/new.rs" }), "done", false));
        let first = summary(&dropped, None, 4_000);
        let mut again = vec![user(&first)];
        let patch =
            json!({ "patchText": "*** Begin Patch\n*** Add File: b.rs\n+x\n*** End Patch" });
        again.extend(call("apply_patch", patch, "done", false));
        let second = summary(&again, None, 4_000);
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
        // With a model's words the lists stay.
        let third = summary(&[user(&second)], Some("All is well."), 4_000);
        assert!(third.contains("All is well.\n") && third.contains("- src/new.rs"), "{third}");
        assert!(summary(&dropped, Some(&"word ".repeat(10_000)), 2_000).len() < 2_200);
    }
}
