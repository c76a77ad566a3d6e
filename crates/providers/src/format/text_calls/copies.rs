//! Finds out whether a model copied a call from something that it was given. Pure.
//!
//! A file is shown with line numbers, and JSON can be spaced and escaped in many ways. So only letters are compared.

use std::sync::Arc;

use engine::ports::ToolSpec;
use engine::words::{Block, Contents, Message};
use serde_json::Value;

/// What a model was given.
pub(super) struct Given<'a> {
    pub(super) messages: &'a [Arc<Message>],
    pub(super) instructions: &'a str,
    pub(super) tools: &'a [Arc<ToolSpec>],
}

impl Given<'_> {
    /// Tells whether any of it contains the call: as it was written, or with its parts named or ordered otherwise.
    pub(super) fn contains(&self, name: &str, input: &Value, written: &str) -> bool {
        let (name, input) = (letters(name), letters(&input.to_string()));
        let mut needles = vec![letters(written)];
        for key in ["arguments", "parameters", "args", "input"] {
            // Without arguments, prose such as "list arguments" would look like a call.
            let label = if input.is_empty() { "name" } else { "" };
            needles.push(format!("{label}{name}{key}{input}"));
            needles.push(format!("{key}{input}name{name}"));
        }
        if !input.is_empty() {
            // `<function=NAME>{…}` and `[TOOL_CALLS]NAME{…}` have nothing between name and arguments.
            needles.extend([format!("function{name}{input}"), format!("CALLS{name}{input}")]);
        }
        self.has_any(&needles)
    }

    /// Tells whether any of it contains this text.
    pub(super) fn contains_text(&self, text: &str) -> bool {
        self.has_any(&[letters(text)])
    }

    fn has_any(&self, needles: &[String]) -> bool {
        let has_copy = |text: &str| {
            let text = letters(text);
            needles.iter().any(|needle| text.contains(needle.as_str()))
        };
        has_copy(self.instructions)
            || self.tools.iter().any(|tool| has_copy(&tool.description))
            || self.messages.iter().any(|message| match &**message {
                Message::ToolResult { text, .. } => has_copy(text),
                Message::User(prompt) => prompt.blocks.iter().any(|block| match block {
                    Block::Text(text) | Block::Resource { contents: Contents::Text(text), .. } => {
                        has_copy(text)
                    }
                    Block::Link { uri, name } => has_copy(uri) || has_copy(name),
                    Block::Resource { contents: Contents::Blob(_), .. }
                    | Block::Image(_)
                    | Block::Audio(_) => false,
                }),
                // The model's own words. A call that it repeats is one it was allowed to make, or text that was refused.
                Message::Agent { .. } => false,
            })
    }
}

/// Returns the letters of a text, without the letters of escapes such as `\n`.
fn letters(text: &str) -> String {
    let mut letters = String::with_capacity(text.len());
    let mut is_escape = false;
    for character in text.chars() {
        if std::mem::take(&mut is_escape) && matches!(character, 'n' | 't' | 'r') {
            continue;
        }
        match character {
            '\\' => is_escape = true,
            letter if letter.is_alphabetic() => letters.push(letter),
            _ => {}
        }
    }
    letters
}
