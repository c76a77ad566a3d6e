//! `ask`: asks the user a question, if the client can show a form.

use engine::ports::{
    EditorError, Form, FormAnswer, Intent, Offers, Output, ToolCx, ToolError, Wait,
};
use engine::words::visible;
use engine::words::{ModelId, ToolKind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tool::{TypedTool, shown};

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(alias = "message", alias = "prompt", alias = "text")]
    question: String,
    #[serde(default, alias = "choices")]
    options: Vec<Choice>,
}

/// An answer to choose: a label, or a label with a description.
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

/// The question.
pub(crate) struct Question {
    message: String,
    /// The fields of the form, if there are answers to choose from.
    fields: Option<Value>,
}

/// The tool.
pub(crate) struct Ask;

impl TypedTool for Ask {
    const NAME: &'static str = "ask";
    const KIND: ToolKind = ToolKind::Think;
    const DESCRIPTION: &'static str = "
Asks the user one question and waits for the answer. For decisions that only the user can make, not for what the files can tell you.";
    const ALIASES: &'static [&'static str] =
        &["askuser", "question", "askquestion", "askfollowupquestion"];

    fn suits(_: &ModelId, offers: Offers) -> bool {
        offers.form
    }

    type Input = Input;
    type Plan = Question;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "question": { "type": "string", "description": "The question" },
            "options": { "type": "array", "items": { "type": "string" }, "description": "Answers to choose from, if any" },
        });
        (fields, &["question"])
    }

    async fn plan(&self, _: &ToolCx<'_>, input: Input) -> Result<(Intent, Question), ToolError> {
        let title = input.question.clone();
        let mut message = visible(&input.question);
        let mut labels = Vec::new();
        for choice in input.options {
            match choice {
                Choice::Text(label) | Choice::Full { label, description: None } => {
                    labels.push(visible(&label))
                }
                Choice::Full { label, description: Some(more) } => {
                    let label = visible(&label);
                    message.push_str(&format!("\n- {label}: {}", visible(&more)));
                    labels.push(label);
                }
            }
        }
        let fields = (!labels.is_empty()).then(|| {
            json!({ "type": "object", "properties": {
                "answer": { "type": "string", "title": "Answer", "enum": labels },
                "other": { "type": "string", "title": "Other" },
            } })
        });
        Ok((Intent { title, ..Intent::default() }, Question { message, fields }))
    }

    fn wait(&self, _: &Question) -> Option<Wait> {
        None
    }

    async fn run(&self, cx: &ToolCx<'_>, question: Question) -> Result<Output, ToolError> {
        let Question { message, fields } = question;
        let form = Form { message, call: Some(cx.id.clone()), page: None, fields };
        match cx.turn.elicit(form).await {
            Ok(FormAnswer::Text(text)) => Ok(shown(text)),
            Ok(FormAnswer::Fields(fields)) => {
                let said = |name: &str| fields.get(name)?.as_str().filter(|text| !text.is_empty());
                let answer = said("other").or_else(|| said("answer"));
                Ok(shown(answer.unwrap_or("the user gave no answer").to_owned()))
            }
            Ok(FormAnswer::Declined) => Ok(shown("the user declined to answer".to_owned())),
            Ok(FormAnswer::Cancelled) => Ok(shown("the user dismissed the question".to_owned())),
            Err(ToolError::Editor(EditorError::NotOffered(_))) => Err(ToolError::Model(
                "the editor cannot show questions; ask in your answer and end the turn".to_owned(),
            )),
            Err(err) => Err(err),
        }
    }
}
