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
use engine::words::{
    Block, Contents, Message, ModelId, Prompt, StopReason, ToolCallId, ToolRequest,
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use answer::Next;
use question::Question;

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
    input: Arc<Value>,
    text: String,
    failed: bool,
}

impl Model for Guide {
    fn answer(&self, request: Request) -> ModelStream {
        let (prompt, mut rounds) = asked(&request.messages);
        let asked = words_of(&prompt);
        let mut events = Vec::new();
        let next = match takes_a_model(&asked) {
            true => Next::Say(NEEDS_MODEL.to_owned()),
            false => {
                let question = question::read(&asked);
                if let Some(given) = given(&question, &prompt) {
                    rounds.insert(0, vec![given]);
                }
                answer::next(&question, &rounds)
            }
        };
        match next {
            Next::Ask(calls) => {
                for (name, input) in calls {
                    // Never used before, whatever was taken back or summed up since.
                    let id = ToolCallId::new(format!("guide-{}", SystemClock.fresh_id()));
                    events.push(ModelEvent::Tool(ToolRequest {
                        id,
                        name: name.to_owned(),
                        input: input.into(),
                    }));
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
fn asked(messages: &[Arc<Message>]) -> (Prompt, Vec<Vec<Done>>) {
    let is_question = |message: &Arc<Message>| matches!(&**message, Message::User(_));
    let Some(at) = messages.iter().rposition(is_question) else {
        return (Prompt::default(), Vec::new());
    };
    let since = &messages[at..];
    let prompt = match &*messages[at] {
        Message::User(prompt) => prompt.clone(),
        Message::Agent { .. } | Message::ToolResult { .. } => Prompt::default(),
    };
    let rounds = since.iter().filter_map(|message| match &**message {
        // In the order of the calls, whichever ended first.
        Message::Agent { calls, .. } if !calls.is_empty() => {
            Some(calls.iter().filter_map(|call| done(call, since)).collect())
        }
        Message::Agent { .. } | Message::User(_) | Message::ToolResult { .. } => None,
    });
    (prompt, rounds.collect())
}

/// Returns the file that is asked about as if it had been read, if its text was sent with the question.
fn given(question: &Question, prompt: &Prompt) -> Option<Done> {
    let (path, lines) = match question {
        Question::Show(path, lines) => (path, lines.unwrap_or((1, u32::MAX))),
        Question::Outline(path) => (path, (1, u32::MAX)),
        _ => return None,
    };
    let text = prompt.blocks.iter().find_map(|block| match block {
        Block::Resource { uri, contents: Contents::Text(text), .. } if name_of(uri) == path => {
            Some(text)
        }
        _ => None,
    })?;
    let numbered = (1..).zip(text.lines()).filter(|(at, _)| (lines.0..=lines.1).contains(at));
    let text = numbered.map(|(at, line)| format!("{at}\t{line}\n")).collect();
    Some(Done {
        name: "read".to_owned(),
        input: json!({ "filePath": path }).into(),
        text,
        failed: false,
    })
}

/// What the guide calls a file that was attached.
fn name_of(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
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
                Some(format!("`{}`", name_of(uri)))
            }
            Block::Image(_) | Block::Audio(_) => None,
        })
        .collect();
    words.join(" ")
}
