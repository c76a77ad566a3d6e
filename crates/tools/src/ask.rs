//! `ask`: asks the user something, where the client can show a form.

use engine::ports::{EditorError, Form, FormAnswer, Intent, Output, ToolCx, ToolError};
use engine::words::ToolKind;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tool::{Tool, shown};

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(alias = "message", alias = "prompt", alias = "text")]
    question: String,
    #[serde(default, alias = "choices")]
    options: Vec<Choice>,
}

/// An answer to choose: its text alone, or with what it means.
#[derive(Deserialize)]
#[serde(untagged)]
enum Choice {
    Text(String),
    Full {
        #[serde(alias = "value", alias = "title")]
        label: String,
        #[serde(default)]
        description: Option<String>,
    },
}

/// The tool.
pub(crate) struct Ask;

impl Tool for Ask {
    const NAME: &'static str = "ask";
    const KIND: ToolKind = ToolKind::Think;
    const DESCRIPTION: &'static str = "
Asks the user one question and waits for the answer. For decisions that only the user can make; ask nothing that the files
can tell.";

    type Input = Input;
    type Plan = String;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "question": { "type": "string", "description": "The question" },
            "options": { "type": "array", "items": { "type": "string" }, "description": "Answers to choose from, if there are such" },
        });
        (fields, &["question"])
    }

    async fn plan(&self, _: &ToolCx<'_>, input: Input) -> Result<(Intent, String), ToolError> {
        let title = input.question.clone();
        let mut message = input.question;
        for choice in input.options {
            match choice {
                Choice::Text(label) | Choice::Full { label, description: None } => {
                    message.push_str(&format!("\n- {label}"));
                }
                Choice::Full { label, description: Some(more) } => {
                    message.push_str(&format!("\n- {label}: {more}"));
                }
            }
        }
        Ok((Intent { title, ..Intent::default() }, message))
    }

    async fn run(&self, cx: &ToolCx<'_>, message: String) -> Result<Output, ToolError> {
        let form = Form { message, call: Some(cx.id.clone()), page: None, fields: None };
        match cx.or_cancelled(cx.editor.elicit(form)).await? {
            Ok(FormAnswer::Text(text)) => Ok(shown(text)),
            Ok(FormAnswer::Fields(fields)) => Ok(shown(Value::Object(fields).to_string())),
            Ok(FormAnswer::Declined) => Ok(shown("the user declined to answer".to_owned())),
            Ok(FormAnswer::Cancelled) => Ok(shown("the user closed the question".to_owned())),
            Err(EditorError::NotOffered(_)) => Err(ToolError::Model(
                "the editor cannot show questions; ask in your answer, and end your turn"
                    .to_owned(),
            )),
            Err(err) => Err(err.into()),
        }
    }
}
