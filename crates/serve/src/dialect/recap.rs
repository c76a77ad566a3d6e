//! A recap: the history of a session as one list, for the dialect whose answers contain it.
//!
//! Made from the events that are shown. Contains the newest messages that fit one update; the updates contain all.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use engine::Event;
use engine::words::{SessionId, ToolCallId, ToolKind, ToolStatus};
use serde_json::Value;
use wire::acp::dialect::Dialect;

use super::printer::NotePrinter;
use crate::bridge::update;

/// The messages and changes of a session that were shown.
#[derive(Debug, Default)]
pub(crate) struct Recap {
    /// The most bytes of messages.
    room: usize,
    /// Messages of the user and the agent in turns, and their sizes.
    messages: VecDeque<(Vec<Value>, usize)>,
    size: usize,
    is_user: bool,
    /// The files of calls that may change them.
    changing: HashMap<ToolCallId, Vec<PathBuf>>,
    changed: Vec<PathBuf>,
}

impl Recap {
    /// Makes an empty recap for about `room` bytes.
    pub(crate) fn new(room: usize) -> Recap {
        Recap { room, ..Recap::default() }
    }

    /// Adds an event that is shown.
    pub(crate) fn take(&mut self, session: &SessionId, event: &Event) {
        self.note_changes(event);
        let mut line = Vec::new();
        let printer = NotePrinter(Dialect::Container);
        update::print(&mut line, printer, session, event.clone(), None, self.room);
        // Nothing is printed for an event that the dialect cannot express.
        let Ok(mut note) = serde_json::from_slice::<Value>(&line) else { return };
        let Value::Array(blocks) = note["params"]["content"].take() else { return };
        let is_user = matches!(event, Event::User { .. });
        if self.messages.is_empty() || std::mem::replace(&mut self.is_user, is_user) != is_user {
            self.is_user = is_user;
            self.messages.push_back((Vec::new(), 0));
        }
        if let Some((message, size)) = self.messages.back_mut() {
            message.extend(blocks);
            *size += line.len();
            self.size += line.len();
        }
        while self.size > self.room
            && let Some((_, size)) = self.messages.pop_front()
        {
            self.size -= size;
        }
    }

    /// Notes the files of a call that changed them.
    fn note_changes(&mut self, event: &Event) {
        match event {
            Event::ToolCall(call)
                if matches!(call.kind, ToolKind::Edit | ToolKind::Delete | ToolKind::Move) =>
            {
                let paths = call.locations.iter().map(|location| location.path.clone()).collect();
                self.changing.insert(call.id.clone(), paths);
            }
            Event::ToolUpdate(id, update) if update.status == Some(ToolStatus::Completed) => {
                for path in self.changing.remove(id).unwrap_or_default() {
                    if !self.changed.contains(&path) {
                        self.changed.push(path);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns the messages, oldest first.
    pub(crate) fn history(&self) -> Value {
        self.messages.iter().map(|(blocks, _)| Value::Array(blocks.clone())).collect()
    }

    /// Returns the files that were changed.
    pub(crate) fn changed(&self) -> Value {
        self.changed.iter().map(|path| Value::from(path.to_string_lossy())).collect()
    }
}

#[cfg(test)]
mod tests {
    use engine::words::{Block, Location, MessageId, ToolCall, ToolUpdate};
    use serde_json::json;

    use super::*;

    fn user(text: &str) -> Event {
        let block = Block::Text(text.to_owned());
        Event::User { message: MessageId::new("u"), block, meta: None }
    }

    fn agent(text: &str) -> Event {
        Event::Text { message: MessageId::new("a"), text: text.to_owned() }
    }

    fn texts(recap: Recap) -> Vec<Vec<String>> {
        let Value::Array(messages) = recap.history() else { panic!("a list") };
        let text = |block: &Value| block["content"].as_str().unwrap().to_owned();
        let message = |message: &Value| message.as_array().unwrap().iter().map(text).collect();
        messages.iter().map(message).collect()
    }

    // R: D3, S6
    #[test]
    fn messages_are_lists_of_blocks_and_the_newest_fit() {
        let session = SessionId::new("s");
        let mut recap = Recap::new(10_000);
        for event in [user("one"), user("two"), agent("three"), user("four")] {
            recap.take(&session, &event);
        }
        assert_eq!(texts(recap), [vec!["one", "two"], vec!["three"], vec!["four"]]);
        let mut recap = Recap::new(400);
        for event in [user("one"), agent("two"), user("three"), agent("four")] {
            recap.take(&session, &event);
        }
        assert_eq!(texts(recap), [["three"], ["four"]]);
    }

    // R: S6
    #[test]
    fn file_is_listed_when_its_call_is_completed() {
        let mut recap = Recap::new(10_000);
        let session = SessionId::new("s");
        let call = |id: &str, kind, path: &str| {
            Event::ToolCall(Box::new(ToolCall {
                id: ToolCallId::new(id),
                name: "tool".to_owned(),
                title: "title".to_owned(),
                kind,
                status: ToolStatus::Pending,
                content: Vec::new(),
                locations: vec![Location { path: path.into(), line: None }],
                raw_input: Value::Null,
            }))
        };
        let ended = |id: &str, status| {
            let update = ToolUpdate { status: Some(status), ..ToolUpdate::default() };
            Event::ToolUpdate(ToolCallId::new(id), Box::new(update))
        };
        for event in [
            call("1", ToolKind::Edit, "/w/a"),
            call("2", ToolKind::Read, "/w/b"),
            call("3", ToolKind::Delete, "/w/c"),
            ended("1", ToolStatus::Completed),
            ended("2", ToolStatus::Completed),
            ended("3", ToolStatus::Failed),
        ] {
            recap.take(&session, &event);
        }
        assert_eq!(recap.changed(), json!(["/w/a"]));
    }
}
