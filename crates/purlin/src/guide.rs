//! The guide: answers when no model is connected. It is built in and uses no network.
//!
//! It implements the engine's `Model`, but it is not a model and says so. It answers one question, "what is this
//! project?", by listing the directory and reading the README with the session's own tools; `project` writes that answer. To everything
//! else it replies that no model is connected, and how to connect one.

mod project;

use std::sync::Arc;

use engine::ports::ModelChoice;
use engine::ports::SystemClock;
use engine::ports::{Clock, Model, ModelEvent, ModelStream, Request};
use engine::words::{Message, ModelId, StopReason, ToolCallId, ToolRequest};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

/// The guide's id in the list of models.
pub const ID: &str = "purlin/guide";

/// The ways to ask what the project is, in lower case and without punctuation.
const PROJECT_QUESTIONS: [&str; 8] = [
    "what is this",
    "what is this project",
    "what is this project about",
    "what does this project do",
    "what is this repository",
    "describe this project",
    "explain this project",
    "tell me about this project",
];

/// Ends the description of a project.
const NOT_A_MODEL: &str = "This is Purlin's built-in guide, not a model. To connect a model: `purlin auth login anthropic`, or \
                           `export ANTHROPIC_API_KEY=…`.";

/// The beginning of the answer to every other question.
const NO_MODEL: &str =
    "No model is connected, so this cannot be answered. Connect one in any of these ways";
/// The ways to connect one.
const WAYS: &str = "- Store an API key: `purlin auth login anthropic` (or `openai`, `google`, `openrouter`).\n\
    - Set `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY` or `OPENROUTER_API_KEY` in the environment.\n\
    - Start a local server: Ollama, LM Studio, llama.cpp or vLLM. It is found automatically.\n\
    - Configure any other provider under `provider` in `purlin.json`.\n\
    \n\
    `purlin models` lists the models that are available, and why the others are not.";
/// What works all the same.
const WITHOUT: &str = "Without a model, Purlin can describe this project (\"what is this project?\") and show how a turn works \
                       (`/tour`).";

/// Added to every answer if OpenCode has API keys that the user has not yet been asked about.
const IMPORT: &str =
    "OpenCode has stored API keys on this machine. To use them, run `purlin auth import`.";

/// Returns the message for a person in a shell whose prompt needs a model.
pub(crate) fn no_model() -> String {
    format!("{NO_MODEL}:\n{WAYS}")
}

/// Returns the guide as an entry in the list of models.
#[must_use]
pub fn choice() -> ModelChoice {
    choice_of(Guide { can_import: false })
}

/// Returns the guide for a user who could import API keys from OpenCode.
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
        profile: None,
        model: Arc::new(guide),
    }
}

/// The guide. It has no state: the history shows which tools it has already called.
struct Guide {
    /// Whether OpenCode has API keys that the user has not yet been asked about.
    can_import: bool,
}

/// What the guide does next.
#[derive(Debug, PartialEq)]
enum Next {
    /// Calls this tool with this input.
    Call(&'static str, Value),
    /// Ends the turn with this text.
    Say(String),
}

impl Model for Guide {
    fn answer(&self, request: Request) -> ModelStream {
        let event = match next(&request.messages) {
            Next::Call(name, input) => tool_event(name, input),
            Next::Say(text) => {
                let import = if self.can_import { format!("\n\n{IMPORT}") } else { String::new() };
                ModelEvent::Text(format!("{}{import}\n", text.trim_end()))
            }
        };
        let events = [event, ModelEvent::Stop(StopReason::EndTurn)];
        stream::iter(events.map(Ok)).boxed()
    }
}

fn tool_event(name: &str, input: Value) -> ModelEvent {
    // Unique in the session, also after an undo or a compaction removed earlier calls from the history.
    let id = ToolCallId::new(format!("guide-{}", SystemClock.fresh_id()));
    ModelEvent::Tool(ToolRequest { id, name: name.to_owned(), input: input.into() })
}

/// Decides what to do next: list the project, then read its README, then describe it.
fn next(messages: &[Arc<Message>]) -> Next {
    let is_prompt = |message: &Arc<Message>| matches!(&**message, Message::User(_));
    let start = messages.iter().rposition(is_prompt).unwrap_or_default();
    let mut turn = messages[start..].iter().map(|message| &**message);
    let Some(Message::User(prompt)) = turn.next() else { return Next::Say(refusal()) };
    if !asks_about_project(&prompt.text()) {
        return Next::Say(refusal());
    }
    let mut results = turn.filter_map(|message| match message {
        Message::ToolResult { text, failed, .. } => Some((text, *failed)),
        Message::User(_) | Message::Agent { .. } => None,
    });
    let entries = match results.next() {
        None => return Next::Call("list", json!({ "path": "." })),
        Some((why, true)) => {
            return Next::Say(format!("The project could not be listed: {why}\n\n{NOT_A_MODEL}"));
        }
        Some((listing, false)) => project::entries(listing),
    };
    let about = match (project::readme(&entries), results.next()) {
        (None, _) => "This project has no README.".to_owned(),
        (Some(name), None) => {
            return Next::Call("read", json!({ "filePath": name, "limit": 120 }));
        }
        (Some(name), Some((why, true))) => format!("`{name}` could not be read: {why}"),
        (Some(name), Some((text, false))) => project::summary(name, text),
    };
    Next::Say(format!("{}\n{NOT_A_MODEL}", project::describe(&about, &entries)))
}

fn refusal() -> String {
    format!("{NO_MODEL}, then start a new session:\n{WAYS} {WITHOUT}")
}

/// Tells whether a prompt asks what the project is.
pub(crate) fn asks_about_project(text: &str) -> bool {
    let text =
        text.trim().trim_end_matches(['?', '.', '!']).to_lowercase().replace("what's", "what is");
    PROJECT_QUESTIONS.contains(&text.as_str())
}

#[cfg(test)]
mod tests {
    use engine::words::{Block, Prompt};

    use super::*;

    fn asked(text: &str) -> Vec<Arc<Message>> {
        vec![Arc::new(Message::User(Prompt {
            blocks: vec![Block::Text(text.to_owned())],
            ..Prompt::default()
        }))]
    }

    #[test]
    fn project_question_is_recognised_in_any_case() {
        for text in ["what is this project?", "What's this project?", " Describe this project. "] {
            assert!(asks_about_project(text), "{text}");
            assert_eq!(next(&asked(text)), Next::Call("list", json!({ "path": "." })), "{text}");
        }
    }

    #[test]
    fn other_prompts_are_answered_with_how_to_connect_a_model() {
        for text in ["", "make it faster", "what is this project written in?", "find 'sail'"] {
            assert_eq!(next(&asked(text)), Next::Say(refusal()), "{text}");
        }
    }
}
