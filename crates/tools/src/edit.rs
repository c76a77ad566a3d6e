//! `edit`: replaces text in a file.

use std::sync::Arc;

use engine::ports::{Intent, Offers, Output, ToolCx, ToolError};
use engine::words::{Location, ModelId, ToolKind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::apply_patch::knows_patches;
use crate::change::{self, Change};
use crate::diff::{diff, first_line};
use crate::error::Error;
use crate::files::{Files, Use, edit_access};
use crate::matching::{self, Miss};
use crate::missing::not_found;
use crate::placeholder;
use crate::scope::Target;
use crate::text::Text;
use crate::tool::{TypedTool, flag};
use crate::unread::with_content;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(rename = "filePath", alias = "file_path", alias = "path", alias = "file")]
    path: String,
    #[serde(
        rename = "oldString",
        alias = "old_string",
        alias = "old_str",
        alias = "old_text",
        alias = "oldText"
    )]
    old: String,
    #[serde(
        rename = "newString",
        alias = "new_string",
        alias = "new_str",
        alias = "new_text",
        alias = "newText"
    )]
    new: String,
    #[serde(default, rename = "replaceAll", alias = "replace_all", deserialize_with = "flag")]
    all: bool,
}

/// The tool.
pub(crate) struct Edit(pub(crate) Arc<Files>);

pub(crate) struct Plan {
    change: Change,
    done: String,
}

impl TypedTool for Edit {
    const NAME: &'static str = "edit";
    const KIND: ToolKind = ToolKind::Edit;
    const DESCRIPTION: &'static str = "
Replaces `oldString` by `newString` in a file that you have read. `oldString` is copied exactly from the file, without line numbers,
and must occur only once: add lines around it until it does, or set `replaceAll`. Write the complete new text, without placeholders
such as \"rest of the code\". An empty `oldString` creates a new file.";
    const BRIEF: Option<&'static str> =
        Some("Changes a file: replaces oldString, copied exactly from the file, by newString.");
    const ALIASES: &'static [&'static str] = &[
        "editfile",
        "strreplace",
        "replace",
        "strreplaceeditor",
        "strreplacebasededittool",
        "replaceinfile",
        "searchreplace",
        "searchandreplace",
        "replacestring",
        "replacetext",
        "modifyfile",
        "fileedit",
    ];

    fn suits(model: &ModelId, _: Offers) -> bool {
        !knows_patches(model)
    }

    type Input = Input;
    type Plan = Plan;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "filePath": { "type": "string", "description": "The file, absolute or relative to the working folder" },
            "oldString": { "type": "string", "description": "The text to replace" },
            "newString": { "type": "string", "description": "The text to replace it with" },
            "replaceAll": { "type": "boolean", "description": "Replace all occurrences" },
        });
        (fields, &["filePath", "oldString", "newString"])
    }

    fn brief_fields() -> Value {
        json!({
            "filePath": { "type": "string" },
            "oldString": { "type": "string" },
            "newString": { "type": "string" },
        })
    }

    async fn plan(&self, cx: &ToolCx<'_>, input: Input) -> Result<(Intent, Plan), ToolError> {
        let target = self.0.locate(&input.path).await?;
        if input.old == input.new {
            return Err(ToolError::Model("oldString and newString are the same".to_owned()));
        }
        let old = cx.or_cancelled(self.0.read_for_change(cx.editor, &target)).await??;
        let (text, body, count) = match &old {
            None if input.old.is_empty() => (None, input.new.clone(), 0),
            None => return Err(not_found(&self.0, cx, &target).await),
            Some(bytes) => {
                let (text, body, count) = self.change(cx, &target, bytes, &input).await?;
                (Some(text), body, count)
            }
        };
        let before = text.as_ref().map(|text| text.body.as_str());
        // Lines that stand for others are gone from the body.
        check_placeholder(&body, before.unwrap_or(""))?;
        let line = before.map(|before| first_line(before, &body));
        let intent = Intent {
            title: format!("Edit {}", target.name()),
            content: diff(target.path(), before, &body),
            locations: vec![Location { path: target.path().to_owned(), line }],
            access: edit_access(&target),
        };
        let done = match (count, line) {
            (0, _) => format!("Created {}", target.name()),
            (1, Some(line)) => format!("Changed {} at line {line}", target.name()),
            _ => format!("Changed {} in {count} places", target.name()),
        };
        let new = text.map_or_else(|| body.clone().into_bytes(), |text| text.encode(&body));
        Ok((intent, Plan { change: Change::new(target, old, Some(new)), done }))
    }

    async fn run(&self, cx: &ToolCx<'_>, plan: Plan) -> Result<Output, ToolError> {
        change::make(&self.0, cx, vec![plan.change]).await?;
        Ok(Output { text: plan.done, ..Output::default() })
    }
}

impl Edit {
    /// Makes the new text of an existing file. Returns the old text, the new body and the number of replacements.
    async fn change(
        &self,
        cx: &ToolCx<'_>,
        target: &Target,
        bytes: &[u8],
        input: &Input,
    ) -> Result<(Text, String, usize), ToolError> {
        let name = target.name();
        if let Err(err) = self.0.check_seen(target, bytes, Use::Edit).await {
            return Err(with_content(&self.0, cx, target, bytes, err));
        }
        let text = Text::decode(bytes.to_vec())
            .map_err(|(_, why)| Error::NotText { name: name.to_owned(), why })?;
        if input.old.is_empty() && bytes.is_empty() {
            return Ok((text, input.new.clone(), 0));
        }
        if input.old.is_empty() {
            let why = format!(
                "{name} already exists, so oldString must be text of the file. To add lines, give the line before them as \
                 oldString, and that line with the new ones as newString"
            );
            return Err(ToolError::Model(why));
        }
        let found = matching::replace(&text.body, &input.old, &input.new, input.all);
        let (body, count) = found.map_err(|miss| {
            let near = matching::nearest(&text.body, &input.old);
            ToolError::Model(explain(name, &miss, near))
        })?;
        if body == text.body {
            return Err(ToolError::Model(format!("this would change nothing in {name}")));
        }
        Ok((text, body, count))
    }
}

/// Refuses placeholders for omitted text.
pub(crate) fn check_placeholder(new: &str, before: &str) -> Result<(), ToolError> {
    match placeholder::find(new, before) {
        None => Ok(()),
        Some(line) => Err(ToolError::Model(format!(
            "the new text contains the placeholder `{line}`: write the complete text, or edit a smaller part"
        ))),
    }
}

fn explain(name: &str, miss: &Miss, near: Option<(usize, String)>) -> String {
    let list = |lines: &[usize]| {
        let shown: Vec<String> = lines.iter().take(10).map(usize::to_string).collect();
        shown.join(", ")
    };
    match miss {
        Miss::NotFound(_) if let Some((line, near)) = &near => format!(
            "oldString was not found in {name}. The nearest text begins at line {line}:\n{near}\nCopy oldString from the file exactly"
        ),
        Miss::NotFound(like) if like.is_empty() => {
            format!(
                "oldString was not found in {name}; read the file again and copy the text exactly"
            )
        }
        Miss::NotFound(like) => format!(
            "oldString was not found in {name}; its beginning matches line {}. Read that part and copy it exactly",
            list(like)
        ),
        Miss::Ambiguous(lines) => format!(
            "oldString occurs {} times in {name} (lines {}); add surrounding lines to make it unique, or set replaceAll",
            lines.len(),
            list(lines)
        ),
    }
}
