//! The model: a request goes out, its answer comes back as a stream of events.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::words::{
    Message, ModelId, Seal, StopReason, Thinking, ToolRequest, Usage, estimate, tokens_of,
};

/// A model that answers requests.
pub trait Model: Send + Sync {
    /// Asks for one answer. The stream ends after [`ModelEvent::Stop`]; dropping it stops the model.
    fn answer(&self, request: Request) -> ModelStream;

    /// Asks the server what it tells about the model, such as the size of its window. Called before each request, so it
    /// returns at once when nothing is left to learn.
    fn prepare(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Tells whether it accepts pictures; true if that is unknown.
    fn sees_pictures(&self) -> bool {
        true
    }

    /// Returns the size of the context window in tokens, if the server told it.
    fn window(&self) -> Option<u64> {
        None
    }
}

/// The events of one answer.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// A request to a model.
#[derive(Debug, Clone)]
pub struct Request {
    /// Which model.
    pub model: ModelId,
    /// The system prompt.
    pub instructions: Arc<str>,
    /// The conversation; entries are shared with the history, not copied.
    pub messages: Vec<Arc<Message>>,
    /// The tools it can call.
    pub tools: Vec<Arc<ToolSpec>>,
    /// How much it should think.
    pub thinking: Thinking,
}

impl Request {
    /// Returns how many tokens it has, estimated.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        let tools = self.tools.iter().map(|tool| {
            (tool.name.len() + tool.description.len() + tool.schema.text().len()) as u64 * 3 / 10
        });
        let messages = self.messages.iter().map(|message| estimate(message));
        tokens_of(&self.instructions) + tools.sum::<u64>() + messages.sum::<u64>()
    }
}

/// One event of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The next chunk of text.
    Text(String),
    /// The next chunk of thinking.
    Thought(String),
    /// The thought so far is complete; the seal is sent back to the model with it.
    ThoughtEnd(Option<Seal>),
    /// The request failed and is sent again after a wait.
    Waiting {
        /// What happened, for the user, as a sentence without its full stop.
        reason: String,
        /// How long the wait lasts from now.
        remaining: Duration,
    },
    /// Something the user should know about this answer: not a failure, and no wait.
    Notice(String),
    /// A tool call.
    Tool(ToolRequest),
    /// Tokens used so far by this answer.
    Usage(Usage),
    /// The end.
    Stop(StopReason),
}

/// How a model can fail. The text is for the user: what happened and what can be done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A credential is missing or was refused.
    #[error("{0}")]
    AuthNeeded(String),
    /// The conversation is longer than the model's context window.
    #[error("{0}")]
    ContextFull(String),
    /// Too many requests in too little time, or no credit left.
    #[error("{0}")]
    RateLimited(String),
    /// The provider cannot be reached or is overloaded; a later try may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The answer was cut off. What arrived of it was shown.
    #[error("{0}")]
    Incomplete(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// A tool as it is described to a model.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its input.
    pub schema: Schema,
}

/// A JSON schema, serialized once: every request repeats it.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Schema(Box<RawValue>);

impl Schema {
    /// Returns its text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }
}

impl From<&Value> for Schema {
    fn from(schema: &Value) -> Schema {
        // A value can always be serialized.
        Schema(to_raw_value(schema).unwrap_or_default())
    }
}

impl From<Value> for Schema {
    fn from(schema: Value) -> Schema {
        Schema::from(&schema)
    }
}
