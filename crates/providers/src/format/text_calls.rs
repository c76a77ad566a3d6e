//! Recovers a tool call that a model wrote as text. Pure.
//!
//! Many models on OpenAI-compatible servers write their calls into the answer, because the server does not parse the form that
//! they were trained on. Text is held back only while an answer begins like a call. At its end it becomes a native call, or it is
//! shown as the text it is.
//!
//! A file or a web page may contain a call, and small models repeat what they read. Therefore a call is recovered only if
//!
//! 1. the answer is nothing but calls, and the first of them is the one,
//! 2. the tool was offered,
//! 3. all its required arguments are there,
//! 4. nothing that the model was given contains the call.
//!
//! Then it is planned, shown and permitted like any other call. `text_calls::forms` reads the forms, `text_calls::copies` finds
//! copies.

mod copies;
mod forms;

use std::sync::Arc;

use engine::ports::{Request, ToolSpec};
use engine::words::Message;
use serde_json::Value;

use copies::Given;

/// The longest text that is held back, in bytes. A longer one is shown as it comes.
const MAX_HELD: usize = 1024 * 1024;

/// How the message begins that tells a model why a call was not run.
pub(crate) const NOT_RUN: &str = "Nothing was run";

/// How much text is searched for calls at the end of an answer, in bytes.
const MAX_SEARCHED: usize = 64 * 1024;

/// Returns the part of a text that looks like calls: JSON with the name of a tool and arguments. It need not be valid.
fn calls_in<'a>(text: &'a str, tools: &[Arc<ToolSpec>]) -> Option<&'a str> {
    let part = text.get(text.find('{')?..=text.rfind('}')?)?;
    let dense: String = part.split_whitespace().collect();
    let is_named = |tool: &Arc<ToolSpec>| {
        let has = |key: &str| dense.contains(&format!("\"{key}\":\"{}\"", tool.name));
        has("name") || has("tool") || has("function")
    };
    // A text that is one call of an unknown tool names it in the same way.
    let is_unknown = text.trim_start().starts_with(['{', '`']) && dense.contains("\"name\":\"");
    let has_arguments = ["\"arguments\":", "\"parameters\":"].iter().any(|key| dense.contains(key));
    (has_arguments && (is_unknown || tools.iter().any(is_named))).then_some(part)
}

/// The text of one answer, as far as it may be a call.
#[derive(Debug)]
pub(super) struct TextCalls {
    tools: Vec<Arc<ToolSpec>>,
    messages: Vec<Arc<Message>>,
    instructions: Arc<str>,
    held: String,
    /// The text that was shown, as far as it is searched for calls.
    shown: String,
    /// Whether the answer turned out to be text.
    is_text: bool,
}

/// Why an answer that begins like a call is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It has another form, or text beside the call.
    NotACall,
    /// No tool of this name was offered.
    NotOffered(String),
    /// A required argument is missing; the form of the call.
    Incomplete(String),
    /// The model was given this call, for example by a file.
    Copy,
}

impl TextCalls {
    pub(super) fn new(request: &Request) -> TextCalls {
        TextCalls {
            tools: request.tools.clone(),
            messages: request.messages.clone(),
            instructions: Arc::clone(&request.instructions),
            held: String::new(),
            shown: String::new(),
            // Without tools, such as for a title or a summary, every answer is text.
            is_text: request.tools.is_empty(),
        }
    }

    /// Adds a chunk of the answer. Returns what can be shown already.
    pub(super) fn push(&mut self, chunk: String) -> Option<String> {
        if self.is_text {
            self.note(&chunk);
            return Some(chunk);
        }
        self.held.push_str(&chunk);
        let begun = self.held.trim_start();
        if self.held.len() <= MAX_HELD && (begun.is_empty() || forms::may_be_call(begun)) {
            return None;
        }
        self.release()
    }

    /// Returns the text that is held back: the rest of the answer is text.
    pub(super) fn release(&mut self) -> Option<String> {
        self.is_text = true;
        let held = std::mem::take(&mut self.held);
        self.note(&held);
        (!held.trim().is_empty()).then_some(held)
    }

    /// Notes text that is shown.
    fn note(&mut self, text: &str) {
        if !self.tools.is_empty() && self.shown.len() + text.len() <= MAX_SEARCHED {
            self.shown.push_str(text);
        }
    }

    /// Explains to the model why the call in its text was not run; `None` if there is none, or if it is a copy. Called at the end
    /// of an answer that is text.
    pub(super) fn explain(&self) -> Option<String> {
        let text = self.shown.trim();
        let written = calls_in(text, &self.tools)?;
        if self.given().contains_text(written) {
            return None;
        }
        let why = match self.check(text) {
            Err(Refusal::NotOffered(name)) => ToolSpec::unknown(&name, &self.tools),
            Err(Refusal::Incomplete(form)) => format!("an argument is missing; the form is {form}"),
            Err(Refusal::Copy) | Ok(_) => return None,
            Err(Refusal::NotACall) if text.starts_with(['{', '`']) => {
                "the call is not valid JSON".to_owned()
            }
            Err(Refusal::NotACall) => {
                "a call must be the whole answer, without other text".to_owned()
            }
        };
        Some(format!(
            "{NOT_RUN}: {why}. Answer with one call and nothing else, or without any call if the work is done."
        ))
    }

    /// Returns the call, if the text is one that may be run: the name of the tool and its input.
    pub(super) fn recover(&mut self) -> Option<(String, Value)> {
        if self.is_text || self.held.trim().is_empty() {
            return None;
        }
        match self.check(self.held.trim()) {
            Ok(call) => {
                self.held.clear();
                Some(call)
            }
            Err(refusal) => {
                tracing::info!(
                    "an answer that looks like a tool call is shown as text: {refusal:?}"
                );
                None
            }
        }
    }

    /// Returns the call that a text is, if it may be run.
    fn check(&self, text: &str) -> Result<(String, Value), Refusal> {
        let calls = forms::read(text, &|name| self.schema(name));
        let written = calls.into_iter().next().ok_or(Refusal::NotACall)?;
        let found = ToolSpec::find(&self.tools, &written.name, &written.input);
        let (tool, adopted) = found.ok_or_else(|| Refusal::NotOffered(written.name.clone()))?;
        let (name, input) = (&tool.name, adopted.unwrap_or_else(|| written.input.clone()));
        let schema = self.schema(name).unwrap_or_default();
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_given = |field: &Value| field.as_str().is_some_and(|field| !input[field].is_null());
        if !required.iter().all(is_given) {
            return Err(Refusal::Incomplete(tool.form()));
        }
        let given = self.given();
        let is_copy = |name: &str, input: &Value| given.contains(name, input, text);
        if is_copy(&written.name, &written.input) || is_copy(name, &input) {
            return Err(Refusal::Copy);
        }
        Ok((name.clone(), input))
    }

    fn given(&self) -> Given<'_> {
        Given { messages: &self.messages, instructions: &self.instructions, tools: &self.tools }
    }

    /// Returns the schema of a tool that was offered.
    fn schema(&self, name: &str) -> Option<Value> {
        let tool = self.tools.iter().find(|tool| tool.name == name)?;
        serde_json::from_str(tool.schema.text()).ok()
    }
}

#[cfg(test)]
mod tests;
