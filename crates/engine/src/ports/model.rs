//! The model: a request goes out, its answer comes back as a stream of events.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::words::{
    Message, ModelId, Seal, StopReason, Thinking, ToolRequest, Usage, estimate, nearest, tokens_of,
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
    /// The context of the client's trace, if the user passes it on; the request is a part of it.
    pub traceparent: Option<String>,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// The answer has a call in its text that was not run; why, for the model.
    NotRun(String),
    /// Tokens used so far by this answer.
    Usage(Usage),
    /// The end.
    Stop(StopReason),
}

/// How a model can fail. The text is for the user: what happened and what can be done.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
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
    /// Reads calls that were made with other names.
    pub adopt: Adopt,
}

/// Reads a call of the tool that may have another name, or other names of arguments, from the name and the input that the model
/// wrote. Returns the input with the names of the schema; `None` if the call is not for this tool.
#[derive(Clone)]
pub struct Adopt(Arc<ReadCall>);

/// The function that reads calls.
type ReadCall = dyn Fn(&str, &Value) -> Option<Value> + Send + Sync;

impl Adopt {
    /// Takes the function that reads calls.
    pub fn new(read: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static) -> Adopt {
        Adopt(Arc::new(read))
    }

    /// Adopts no calls.
    #[must_use]
    pub fn nothing() -> Adopt {
        Adopt::new(|_, _| None)
    }

    /// Reads a call.
    #[must_use]
    pub fn read(&self, name: &str, input: &Value) -> Option<Value> {
        (self.0)(name, input)
    }
}

impl std::fmt::Debug for Adopt {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Adopt")
    }
}

impl ToolSpec {
    /// Makes a description of a tool that is called only by its own name.
    #[must_use]
    pub fn new(name: String, description: String, schema: Schema) -> ToolSpec {
        ToolSpec { name, description, schema, adopt: Adopt::nothing() }
    }

    /// Finds the tool that a call is for: by its name, else by a name that one of the tools adopts. Returns the input with the
    /// names of its schema.
    #[must_use]
    pub fn find<'a>(
        tools: &'a [Arc<ToolSpec>],
        name: &str,
        input: &Value,
    ) -> Option<(&'a ToolSpec, Option<Value>)> {
        if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
            let adopted = tool.adopt.read(name, input).filter(|adopted| adopted != input);
            return Some((tool, adopted));
        }
        tools.iter().find_map(|tool| Some((&**tool, Some(tool.adopt.read(name, input)?))))
    }

    /// Explains a call of an unknown tool: names those that were offered, and the nearest with its form.
    #[must_use]
    pub fn unknown(name: &str, offered: &[Arc<ToolSpec>]) -> String {
        let names = || offered.iter().map(|tool| tool.name.as_str());
        let like = nearest(name, names()).or_else(|| {
            // `read_the_file` means `read`.
            let mut words = name.split(|character: char| !character.is_ascii_alphabetic());
            words.find_map(|word| names().find(|name| *name == word))
        });
        let list: Vec<&str> = names().collect();
        let mut text = format!("unknown tool `{name}`; the tools are {}", list.join(", "));
        if let Some(tool) = offered.iter().find(|tool| Some(tool.name.as_str()) == like) {
            text.push_str(&format!(". Did you mean {}?", tool.form()));
        }
        text
    }

    /// Returns a call of the tool as an example: its required arguments, with `…` for their values.
    #[must_use]
    pub fn form(&self) -> String {
        let schema: Value = serde_json::from_str(self.schema.text()).unwrap_or_default();
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        let fields = required.iter().filter_map(Value::as_str);
        let fields: Vec<String> = fields.map(|field| format!("\"{field}\": …")).collect();
        format!("{} {{{}}}", self.name, fields.join(", "))
    }
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
