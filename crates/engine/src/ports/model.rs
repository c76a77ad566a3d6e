//! The model: a request goes out, its answer comes back as a stream of events.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::words::{Message, ModelId, Seal, StopReason, Thinking, ToolRequest, Usage};

/// A model that answers requests.
pub trait Model: Send + Sync {
    /// Asks for one answer. The stream ends after [`ModelEvent::Stop`]; dropping it stops the model.
    fn answer(&self, request: Request) -> ModelStream;
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

/// One event of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The next chunk of text.
    Text(String),
    /// The next chunk of thinking.
    Thought(String),
    /// The thought so far is complete; the seal is sent back to the model with it.
    ThoughtEnd(Option<Seal>),
    /// The model is waiting, for example to retry; the reason is for the user.
    Waiting(String),
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
