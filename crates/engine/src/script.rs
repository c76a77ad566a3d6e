//! The scripted model, for transcripts, `/tour` and `--model script:FILE`.
//!
//! The script is the `model` lines of a transcript; `conformance/README.md` describes them.

mod page_tool;
mod parse;

use std::sync::Mutex;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};

pub use page_tool::OpenPage;
pub use parse::ScriptError;
use parse::{Answer, Failure, Item};

use crate::ports::{Model, ModelError, ModelEvent, ModelStream, Request};
use crate::words::{Message, StopReason, ToolCallId, ToolRequest};

/// A model that plays a script, one answer per request.
#[derive(Debug)]
pub struct ScriptedModel {
    answers: Vec<Answer>,
    is_endless: bool,
    window: Option<u64>,
    /// What the ids of its tool calls start with.
    id_prefix: String,
    /// Which answer comes next, and how many tool calls there were. Never locked across an await.
    next: Mutex<(usize, usize)>,
}

/// The context window of a scripted model that does not set one, in tokens.
const WINDOW: u64 = 32_000;

impl ScriptedModel {
    /// Reads the `model` lines of a transcript.
    ///
    /// # Errors
    /// Names the line that is invalid.
    pub fn parse(text: &str) -> Result<ScriptedModel, ScriptError> {
        let script = parse::parse(text)?;
        Ok(ScriptedModel {
            answers: script.answers,
            is_endless: script.is_endless,
            window: script.window,
            id_prefix: "t".to_owned(),
            next: Mutex::new((0, 0)),
        })
    }

    /// Sets what the ids of its tool calls start with, for a session that plays several scripts.
    #[must_use]
    pub fn with_id_prefix(self, prefix: impl Into<String>) -> ScriptedModel {
        ScriptedModel { id_prefix: prefix.into(), ..self }
    }

    /// Returns the size of the context window, in tokens.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window.unwrap_or(WINDOW)
    }

    fn next_answer(&self) -> (Answer, usize) {
        let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (at, tools) = *next;
        let index =
            if self.is_endless && !self.answers.is_empty() { at % self.answers.len() } else { at };
        let answer = self.answers.get(index).cloned().unwrap_or_default();
        next.0 = at + 1;
        next.1 = tools + answer.iter().filter(|item| matches!(item, Item::Tool { .. })).count();
        (answer, tools)
    }
}

impl Model for ScriptedModel {
    fn answer(&self, request: Request) -> ModelStream {
        let (answer, mut tools) = self.next_answer();
        let (said, id_prefix) = (last_words(&request), self.id_prefix.clone());
        let events = stream::iter(answer).flat_map(move |item| {
            if matches!(item, Item::Tool { .. }) {
                tools += 1;
            }
            play(item, &id_prefix, tools, &said)
        });
        // Only the first stop has an effect: the script's own, or this one.
        events.chain(stream::iter([Ok(ModelEvent::Stop(StopReason::EndTurn))])).boxed()
    }
}

fn play(item: Item, id_prefix: &str, tool: usize, said: &str) -> ModelStream {
    let once = |event| stream::iter([Ok(event)]).boxed();
    match item {
        Item::Text(text) => once(ModelEvent::Text(text)),
        Item::Thought(text) => once(ModelEvent::Thought(text)),
        Item::Chunks(count, text) => {
            stream::iter((0..count).map(move |_| Ok(ModelEvent::Text(text.clone())))).boxed()
        }
        Item::Echo => once(ModelEvent::Text(said.to_owned())),
        Item::Tool { name, input } => once(ModelEvent::Tool(ToolRequest {
            id: ToolCallId::new(format!("{id_prefix}{tool}")),
            name,
            input,
        })),
        Item::Usage(usage) => once(ModelEvent::Usage(usage)),
        Item::Stop(stop) => once(ModelEvent::Stop(stop)),
        Item::Wait(time) => wait(time),
        Item::Hang => stream::pending().boxed(),
        Item::Fail(failure) => {
            let error = match failure {
                Failure::Auth => {
                    ModelError::AuthNeeded("the provider refused the key; log in again".to_owned())
                }
                Failure::Overloaded => {
                    ModelError::Unavailable("the provider is overloaded; try again".to_owned())
                }
                Failure::Full => ModelError::ContextFull("the conversation is too long".to_owned()),
                Failure::Broken => {
                    ModelError::Failed("the provider's answer was invalid".to_owned())
                }
            };
            stream::iter([Err(error)]).boxed()
        }
        #[expect(
            clippy::panic,
            reason = "the script asks for it, to test that other sessions are not affected"
        )]
        Item::Panic => stream::once(async { panic!("the script said so") }).boxed(),
    }
}

fn wait(time: Duration) -> ModelStream {
    let empty: ModelStream = stream::empty().boxed();
    tokio::time::sleep(time).map(move |()| empty).flatten_stream().boxed()
}

fn last_words(request: &Request) -> String {
    let last = request.messages.iter().rev().find_map(|message| match &**message {
        Message::User(prompt) => Some(prompt.text()),
        Message::Agent { .. } | Message::ToolResult { .. } => None,
    });
    last.unwrap_or_default()
}
