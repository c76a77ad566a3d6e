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
use forms::WrittenCall;

/// The longest text that is held back, in bytes. A longer one is shown as it comes.
const MAX_HELD: usize = 1024 * 1024;

/// The text of one answer, as far as it may be a call.
#[derive(Debug)]
pub(super) struct TextCalls {
    tools: Vec<Arc<ToolSpec>>,
    messages: Vec<Arc<Message>>,
    instructions: Arc<str>,
    held: String,
    /// Whether the answer turned out to be text.
    is_text: bool,
}

/// Why an answer that begins like a call is not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It has another form, or text beside the call.
    NotACall,
    /// No tool of this name was offered.
    NotOffered,
    /// A required argument is missing.
    Incomplete,
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
            // Without tools, such as for a title or a summary, every answer is text.
            is_text: request.tools.is_empty(),
        }
    }

    /// Adds a chunk of the answer. Returns what can be shown already.
    pub(super) fn push(&mut self, chunk: String) -> Option<String> {
        if self.is_text {
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
        (!held.trim().is_empty()).then_some(held)
    }

    /// Returns the call, if the text is one that may be run: the name of the tool and its input.
    pub(super) fn recover(&mut self) -> Option<(String, Value)> {
        if self.is_text || self.held.trim().is_empty() {
            return None;
        }
        match self.find() {
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

    fn find(&self) -> Result<(String, Value), Refusal> {
        let calls = forms::read(self.held.trim(), &|name| self.schema(name));
        let WrittenCall { name, input } = calls.into_iter().next().ok_or(Refusal::NotACall)?;
        let schema = self.schema(&name).ok_or(Refusal::NotOffered)?;
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_given = |field: &Value| field.as_str().is_some_and(|field| !input[field].is_null());
        if !required.iter().all(is_given) {
            return Err(Refusal::Incomplete);
        }
        let given = Given {
            messages: &self.messages,
            instructions: &self.instructions,
            tools: &self.tools,
        };
        if given.contains(&name, &input, self.held.trim()) {
            return Err(Refusal::Copy);
        }
        Ok((name, input))
    }

    /// Returns the schema of a tool that was offered.
    fn schema(&self, name: &str) -> Option<Value> {
        let tool = self.tools.iter().find(|tool| tool.name == name)?;
        serde_json::from_str(tool.schema.text()).ok()
    }
}

#[cfg(test)]
mod tests;
