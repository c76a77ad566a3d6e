//! `write`: creates a file, or replaces its content.

use std::sync::Arc;

use engine::ports::{Intent, Output, ToolCx, ToolError};
use engine::words::{Location, ToolKind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::change::{self, Change};
use crate::diff::diff;
use crate::edit::check_placeholder;
use crate::error::Error;
use crate::files::{Files, Use, edit_access, read_access};
use crate::scope::Target;
use crate::text::{Text, usual_ending, with_ending};
use crate::tool::TypedTool;
use crate::unread::with_content;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(rename = "filePath", alias = "file_path", alias = "path", alias = "file")]
    path: String,
    #[serde(alias = "contents", alias = "text", alias = "file_text")]
    content: String,
}

/// What a call does.
pub(crate) enum Plan {
    /// Changes a file.
    Change(Box<Change>),
    /// Nothing: the file of this name has the content already.
    Unchanged(String),
}

/// The tool.
pub(crate) struct Write(pub(crate) Arc<Files>);

impl TypedTool for Write {
    const NAME: &'static str = "write";
    const KIND: ToolKind = ToolKind::Edit;
    const DESCRIPTION: &'static str = "
Creates a file, and folders as needed, or replaces the whole content of a file that you have read completely. To change part of a
file, use `edit`. `content` is the complete text, without placeholders such as \"rest of the code\".";
    const BRIEF: Option<&'static str> =
        Some("Creates a file with this content, or replaces all of its content.");
    const ALIASES: &'static [&'static str] = &[
        "writefile",
        "create",
        "createfile",
        "savefile",
        "newfile",
        "addfile",
        "filewrite",
        "writetofile",
        "overwritefile",
        "updatefile",
    ];

    type Input = Input;
    type Plan = Plan;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "filePath": { "type": "string", "description": "The file, absolute or relative to the working folder" },
            "content": { "type": "string", "description": "The complete content of the file" },
        });
        (fields, &["filePath", "content"])
    }

    fn brief_fields() -> Value {
        json!({ "filePath": { "type": "string" }, "content": { "type": "string" } })
    }

    async fn plan(&self, cx: &ToolCx<'_>, input: Input) -> Result<(Intent, Plan), ToolError> {
        let target = self.0.locate(&input.path).await?;
        let old = cx.or_cancelled(self.0.read_for_change(cx.editor, &target)).await??;
        let (text, body) = match &old {
            None => (None, input.content),
            Some(bytes) => {
                if let Err(err) = self.0.check_seen(&target, bytes, Use::Overwrite).await {
                    return Err(with_content(&self.0, cx, &target, bytes, err));
                }
                let text = Text::decode(bytes.clone())
                    .map_err(|(_, why)| Error::NotText { name: target.name().to_owned(), why })?;
                // Line endings stay the same; models write plain ones.
                let body = with_ending(&input.content, usual_ending(&text.body));
                if body == text.body {
                    return Ok(unchanged(&target));
                }
                (Some(text), body)
            }
        };
        let before = text.as_ref().map(|text| text.body.as_str());
        check_placeholder(&body, before.unwrap_or(""))?;
        let intent = Intent {
            title: format!("Write {}", target.name()),
            content: diff(target.path(), before, &body),
            locations: vec![Location { path: target.path().to_owned(), line: None }],
            access: edit_access(&target),
        };
        let new = match text {
            None => body.into_bytes(),
            Some(text) => text.encode(&body),
        };
        Ok((intent, Plan::Change(Box::new(Change::new(target, old, Some(new))))))
    }

    async fn run(&self, cx: &ToolCx<'_>, plan: Plan) -> Result<Output, ToolError> {
        let change = match plan {
            Plan::Change(change) => change,
            Plan::Unchanged(name) => {
                let text = format!("{name} is unchanged: it has exactly this content already");
                return Ok(Output { text, ..Output::default() });
            }
        };
        let name = change.target.name().to_owned();
        let text = match &change.old {
            None => format!("Created {name}"),
            Some(_) => format!("Replaced {name}"),
        };
        change::make(&self.0, cx, vec![*change]).await?;
        Ok(Output { text, ..Output::default() })
    }
}

/// Plans a call that would change nothing: it only compares.
fn unchanged(target: &Target) -> (Intent, Plan) {
    let intent = Intent {
        title: format!("Write {} (unchanged)", target.name()),
        locations: vec![Location { path: target.path().to_owned(), line: None }],
        access: read_access(target),
        content: Vec::new(),
    };
    (intent, Plan::Unchanged(target.name().to_owned()))
}
