//! What the model sees: instructions and history, built in one place.

use std::sync::Arc;

use crate::guide::{self, Brief, Given, Surroundings};
use crate::modes::Mode;
use crate::ports::{Request, ToolSpec};
use crate::session::Settings;
use crate::stamp;
use crate::turn::{TurnCx, TurnError};
use crate::words::{Message, ToolCallId};

/// What a session knows beside its conversation, to build what the model sees.
#[derive(Debug, Default)]
pub(crate) struct Mind {
    /// What holds from the beginning, once it was looked up.
    brief: Option<Arc<Brief>>,
    /// The day it was looked up: the model's cache holds only what stays the same.
    date: String,
    /// Instructions that came with a result.
    pub(crate) given: Given,
}

impl Mind {
    /// Forgets what was looked up and given, so that it is looked up and given anew.
    pub(crate) fn refresh(&mut self) {
        *self = Mind::default();
    }
}

/// Returns what holds from the beginning, looked up when it is first needed.
pub(crate) async fn brief(cx: &mut TurnCx<'_>) -> Result<Arc<Brief>, TurnError> {
    if let Some(brief) = &cx.mind.brief {
        return Ok(Arc::clone(brief));
    }
    let guide = cx.guide;
    let brief = Arc::new(cx.or_cancelled(guide.brief()).await?);
    let mut date = stamp::iso_8601(cx.clock.now());
    date.truncate("2026-11-16".len());
    cx.mind.date = date;
    cx.mind.brief = Some(Arc::clone(&brief));
    Ok(brief)
}

/// The conversation so far. Entries are shared with requests, never copied.
#[derive(Debug, Default, Clone)]
pub struct History {
    messages: Vec<Arc<Message>>,
}

impl History {
    /// Appends an entry.
    pub fn push(&mut self, message: Message) {
        self.messages.push(Arc::new(message));
    }

    /// Returns how many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Tells whether nothing was said yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes back everything behind the first `length` entries.
    pub fn truncate(&mut self, length: usize) {
        self.messages.truncate(length);
    }

    /// Takes back everything behind the first `length` entries and returns it.
    pub fn split_off(&mut self, length: usize) -> Vec<Arc<Message>> {
        self.messages.split_off(length.min(self.messages.len()))
    }

    /// Puts back what was taken back.
    pub fn extend(&mut self, messages: Vec<Arc<Message>>) {
        self.messages.extend(messages);
    }

    /// Returns the entries, the oldest first.
    #[must_use]
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// Forgets the oldest turns until at most `bytes` of text are left. The last turn always stays. Returns how many
    /// entries are gone.
    pub fn keep_last(&mut self, bytes: usize) -> usize {
        let mut left = 0;
        let mut first = 0;
        for (index, message) in self.messages.iter().enumerate().rev() {
            left += message.size();
            if matches!(**message, Message::User(_)) {
                first = index;
                if left > bytes {
                    break;
                }
            }
        }
        if left <= bytes {
            return 0;
        }
        self.messages.drain(..first);
        first
    }

    /// Gives every tool call that has no result one that says why: a model must never see an open call.
    pub fn close_open_calls(&mut self, why: &str) {
        let mut open: Vec<ToolCallId> = Vec::new();
        for message in &self.messages {
            match &**message {
                Message::Agent { calls, .. } => {
                    open.extend(calls.iter().map(|call| call.id.clone()))
                }
                Message::ToolResult { id, .. } => open.retain(|call| call != id),
                Message::User(_) => {}
            }
        }
        for id in open {
            self.push(Message::ToolResult { id, text: why.to_owned(), failed: true });
        }
    }
}

/// Builds the request for the next answer.
pub(crate) async fn view(
    cx: &mut TurnCx<'_>,
    settings: &Settings,
    mode: &Mode,
    window: u64,
) -> Result<Request, TurnError> {
    let brief = brief(cx).await?;
    let tools: Vec<Arc<ToolSpec>> = cx
        .tools
        .now()
        .iter()
        .filter(|tool| mode.offers(tool.kind()) && mode.has_tool(&tool.spec().name))
        .filter(|tool| tool.suits(&settings.model))
        .map(|tool| tool.spec())
        .collect();
    let around = Surroundings { cwd: cx.cwd, date: &cx.mind.date, window };
    let instructions = guide::join(&guide::sections(mode, &brief, &around, &tools));
    Ok(Request {
        model: settings.model.clone(),
        thinking: settings.thinking,
        instructions: instructions.into(),
        messages: cx.history.messages.clone(),
        tools,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::words::ToolRequest;

    #[test]
    fn open_calls_get_a_result() {
        let call =
            |id: &str| ToolRequest { id: ToolCallId::new(id), name: "t".into(), input: json!({}) };
        let mut history = History::default();
        history.push(Message::Agent {
            thoughts: Vec::new(),
            text: String::new(),
            calls: vec![call("a"), call("b")],
        });
        history.push(Message::ToolResult {
            id: ToolCallId::new("a"),
            text: "ok".into(),
            failed: false,
        });
        history.close_open_calls("cancelled");
        assert_eq!(history.len(), 3);
        let last = Message::ToolResult {
            id: ToolCallId::new("b"),
            text: "cancelled".into(),
            failed: true,
        };
        assert_eq!(*history.messages[2], last);
        history.close_open_calls("again");
        assert_eq!(history.len(), 3);
    }
}
