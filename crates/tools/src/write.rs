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
use crate::files::{Files, Use, edit_access};
use crate::text::{Text, usual_ending, with_ending};
use crate::tool::TypedTool;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(rename = "filePath", alias = "file_path", alias = "path", alias = "file")]
    path: String,
    #[serde(alias = "contents", alias = "text", alias = "file_text")]
    content: String,
}

/// The tool.
pub(crate) struct Write(pub(crate) Arc<Files>);

impl TypedTool for Write {
    const NAME: &'static str = "write";
    const KIND: ToolKind = ToolKind::Edit;
    const DESCRIPTION: &'static str = "
Creates a file, with missing folders, or replaces the content of a file that was read completely. To change part of a file, use
`edit`. Give the complete content, without placeholders such as \"rest of the code\".";

    type Input = Input;
    type Plan = Change;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "filePath": { "type": "string", "description": "The file, absolute or relative to the working folder" },
            "content": { "type": "string", "description": "The complete content of the file" },
        });
        (fields, &["filePath", "content"])
    }

    async fn plan(&self, cx: &ToolCx<'_>, input: Input) -> Result<(Intent, Change), ToolError> {
        let target = self.0.locate(&input.path)?;
        let old = cx.or_cancelled(self.0.read_for_change(cx.editor, &target)).await??;
        let (text, body) = match &old {
            None => (None, input.content),
            Some(bytes) => {
                self.0.check_seen(&target, bytes, Use::Overwrite).await?;
                let text = Text::decode(bytes.clone())
                    .map_err(|(_, why)| Error::NotText { name: target.name().to_owned(), why })?;
                // Line endings stay the same; models write plain ones.
                let body = with_ending(&input.content, usual_ending(&text.body));
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
        Ok((intent, Change::new(target, old, Some(new))))
    }

    async fn run(&self, cx: &ToolCx<'_>, plan: Change) -> Result<Output, ToolError> {
        let name = plan.target.name().to_owned();
        let text = match &plan.old {
            None => format!("Created {name}"),
            Some(_) => format!("Replaced {name}"),
        };
        change::make(&self.0, cx, vec![plan]).await?;
        Ok(Output { text, ..Output::default() })
    }
}
