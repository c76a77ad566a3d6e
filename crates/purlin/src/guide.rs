//! The guide: answers where no model is connected. Built in, the same every time, without a network.
//!
//! It is the engine's `Model` and works through the session's own tools, but it is no model and says so. What it
//! understands is in `question`; which tools it asks for and what it says of their results is in `answer`.

mod answer;
mod outline;
mod project;
mod question;

use std::sync::Arc;

use engine::orders::takes_a_model;
use engine::ports::{Clock, Model, ModelEvent, ModelStream, Request};
use engine::script::SystemClock;
use engine::session::ModelChoice;
use engine::words::{Block, Message, ModelId, Prompt, StopReason, ToolCallId, ToolRequest};
use futures_util::{StreamExt, stream};
use serde_json::Value;

use answer::Next;

/// What the guide is called among the models.
pub const ID: &str = "purlin/guide";

/// How to connect a model; stands behind every answer.
const CONNECT: &str = "This is Purlin's built-in guide, not a model. To connect a model: `purlin auth login anthropic`, or \
                       `export ANTHROPIC_API_KEY=…`.";

/// Said of `/init` and `/review`.
const NEEDS_MODEL: &str = "That is work for a model, and none is connected.";

/// Said besides where OpenCode has keys and the user was not asked for them.
const IMPORT: &str =
    "OpenCode keeps API keys on this machine; `purlin auth import` asks whether they may be used.";

/// Returns the guide as sessions choose it.
#[must_use]
pub fn choice() -> ModelChoice {
    choice_of(Guide { can_import: false })
}

/// Returns the guide for a user whose OpenCode has keys.
pub(crate) fn choice_with_import() -> ModelChoice {
    choice_of(Guide { can_import: true })
}

fn choice_of(guide: Guide) -> ModelChoice {
    ModelChoice {
        id: ModelId::new(ID),
        name: "Guide (built in, not a model)".to_owned(),
        context_size: 1_000_000,
        price: None,
        can_think: false,
        model: Arc::new(guide),
    }
}

/// The guide. Keeps nothing: how far it is, the history tells.
struct Guide {
    /// Whether OpenCode has keys that the user was not asked for.
    can_import: bool,
}

/// A tool call that was made for the question at hand, and what came of it.
#[derive(Debug, Clone, PartialEq)]
struct Done {
    name: String,
    input: Value,
    text: String,
    failed: bool,
}

impl Model for Guide {
    fn answer(&self, request: Request) -> ModelStream {
        let (asked, rounds) = asked(&request.messages);
        let mut events = Vec::new();
        let next = match takes_a_model(&asked) {
            true => Next::Say(NEEDS_MODEL.to_owned()),
            false => answer::next(&question::read(&asked), &rounds),
        };
        match next {
            Next::Ask(calls) => {
                for (name, input) in calls {
                    // Never used before, whatever was taken back or summed up since.
                    let id = ToolCallId::new(format!("guide-{}", SystemClock.fresh_id()));
                    events.push(ModelEvent::Tool(ToolRequest { id, name: name.to_owned(), input }));
                }
            }
            Next::Say(words) => {
                let import = if self.can_import { format!(" {IMPORT}") } else { String::new() };
                let text = format!("{}\n\n{CONNECT}{import}\n", words.trim_end());
                events.push(ModelEvent::Text(text));
            }
        }
        events.push(ModelEvent::Stop(StopReason::EndTurn));
        stream::iter(events.into_iter().map(Ok)).boxed()
    }
}

/// Returns the last thing that the user said, and what was done for it since, round by round.
fn asked(messages: &[Arc<Message>]) -> (String, Vec<Vec<Done>>) {
    let is_question = |message: &Arc<Message>| matches!(&**message, Message::User(_));
    let Some(at) = messages.iter().rposition(is_question) else {
        return (String::new(), Vec::new());
    };
    let since = &messages[at..];
    let text = match &*messages[at] {
        Message::User(prompt) => words_of(prompt),
        Message::Agent { .. } | Message::ToolResult { .. } => String::new(),
    };
    let rounds = since.iter().filter_map(|message| match &**message {
        // In the order of the calls, whichever ended first.
        Message::Agent { calls, .. } if !calls.is_empty() => {
            Some(calls.iter().filter_map(|call| done(call, since)).collect())
        }
        Message::Agent { .. } | Message::User(_) | Message::ToolResult { .. } => None,
    });
    (text, rounds.collect())
}

/// Returns what came of a call.
fn done(call: &ToolRequest, messages: &[Arc<Message>]) -> Option<Done> {
    messages.iter().find_map(|message| match &**message {
        Message::ToolResult { id, text, failed } if *id == call.id => Some(Done {
            name: call.name.clone(),
            input: call.input.clone(),
            text: text.clone(),
            failed: *failed,
        }),
        Message::ToolResult { .. } | Message::User(_) | Message::Agent { .. } => None,
    })
}

/// The words of a prompt; a file that was attached counts as its name.
fn words_of(prompt: &Prompt) -> String {
    let words: Vec<String> = prompt
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text(text) => Some(text.clone()),
            Block::Link { uri, .. } | Block::Resource { uri, .. } => {
                Some(format!("`{}`", uri.strip_prefix("file://").unwrap_or(uri)))
            }
            Block::Image(_) | Block::Audio(_) => None,
        })
        .collect();
    words.join(" ")
}
