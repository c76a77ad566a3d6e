//! `apply_patch`: changes several files at once, in the patch format that OpenAI's models know.

pub(crate) mod parse;

use std::sync::Arc;

use engine::ports::{Intent, Offers, Output, ToolCx, ToolError};
use engine::words::{Location, ModelId, ToolKind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::change::{self, Change};
use crate::diff::{diff, first_line};
use crate::edit::check_placeholder;
use crate::error::Error;
use crate::files::{Files, Use, edit_access};
use crate::scope::Target;
use crate::text::Text;
use crate::tool::TypedTool;
use parse::{Hunk, Step};

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(rename = "patchText", alias = "patch_text", alias = "patch", alias = "input")]
    patch: String,
}

/// Tells whether a model was trained on this patch format, as OpenAI's models were. They get this tool instead of `edit`: with both,
/// models choose badly.
pub(crate) fn knows_patches(model: &ModelId) -> bool {
    let name = model.as_str().rsplit('/').next().unwrap_or_default().to_lowercase();
    ["gpt-", "chatgpt", "codex", "o1", "o3", "o4"].iter().any(|start| name.starts_with(start))
}

/// The tool.
pub(crate) struct ApplyPatch(pub(crate) Arc<Files>);

impl TypedTool for ApplyPatch {
    const NAME: &'static str = "apply_patch";
    const KIND: ToolKind = ToolKind::Edit;
    const DESCRIPTION: &'static str = "
Applies a patch to files, completely or not at all. Files to change or delete must have been read. The format is:

*** Begin Patch
*** Add File: path
+each line of the new file
*** Update File: path
*** Move to: new path (only to move the file)
@@ a line above the change, such as a function's first line (only if needed to find it)
 an unchanged line
-a removed line
+an added line
*** Delete File: path
*** End Patch";

    fn suits(model: &ModelId, _: Offers) -> bool {
        knows_patches(model)
    }

    type Input = Input;
    type Plan = Vec<Change>;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "patchText": { "type": "string", "description": "The patch, from `*** Begin Patch` to `*** End Patch`" },
        });
        (fields, &["patchText"])
    }

    fn outline(input: &Value) -> (String, Vec<String>) {
        let patch = Input::deserialize(input).map(|input| input.patch).unwrap_or_default();
        let paths = parse::paths(&patch);
        let names: Vec<&str> = paths.iter().map(String::as_str).collect();
        (title(&names), paths)
    }

    async fn plan(
        &self,
        cx: &ToolCx<'_>,
        input: Input,
    ) -> Result<(Intent, Vec<Change>), ToolError> {
        let steps = parse::parse(&input.patch).map_err(ToolError::Model)?;
        let mut intent = Intent::default();
        let mut changes: Vec<Change> = Vec::new();
        for step in steps {
            let made = self.plan_step(cx, step, &mut intent).await?;
            for change in &made {
                let is_known = |known: &Change| known.target.path() == change.target.path();
                if changes.iter().any(is_known) {
                    let why = format!("the patch changes {} twice", change.target.name());
                    return Err(ToolError::Model(why));
                }
                intent.access.extend(edit_access(&change.target));
            }
            changes.extend(made);
        }
        let names: Vec<&str> = changes.iter().map(|change| change.target.name()).collect();
        if names.is_empty() {
            return Err(ToolError::Model("the patch changes nothing".to_owned()));
        }
        intent.title = title(&names);
        Ok((intent, changes))
    }

    async fn run(&self, cx: &ToolCx<'_>, changes: Vec<Change>) -> Result<Output, ToolError> {
        let done: Vec<String> = changes.iter().map(said).collect();
        change::make(&self.0, cx, changes).await?;
        Ok(Output { text: done.join("\n"), ..Output::default() })
    }
}

fn title(names: &[&str]) -> String {
    match names {
        [] => "Patch".to_owned(),
        [name] => format!("Patch {name}"),
        [name, rest @ ..] => format!("Patch {name} and {} more", rest.len()),
    }
}

fn said(change: &Change) -> String {
    let what = match (&change.old, &change.new) {
        (None, _) => "new",
        (_, None) => "deleted",
        _ => "changed",
    };
    format!("{} is {what}", change.target.name())
}

impl ApplyPatch {
    /// Plans the changes of one step, and adds its diff.
    async fn plan_step(
        &self,
        cx: &ToolCx<'_>,
        step: Step,
        intent: &mut Intent,
    ) -> Result<Vec<Change>, ToolError> {
        match step {
            Step::Add { path, content } => {
                let (target, old) = self.find(cx, &path).await?;
                if old.as_ref().is_some_and(|old| !old.is_empty()) {
                    let why = format!("{} already exists; update it instead", target.name());
                    return Err(ToolError::Model(why));
                }
                check_placeholder(&content, "")?;
                show(intent, &target, None, &content);
                Ok(vec![Change::new(target, old, Some(content.into_bytes()))])
            }
            Step::Delete { path } => {
                self.0.locate_itself(&path).await?;
                let (target, old) = self.find(cx, &path).await?;
                let bytes = old.ok_or_else(|| Error::NotFound(target.name().to_owned()))?;
                self.0.check_seen(&target, &bytes, Use::Edit).await?;
                if let Ok(text) = Text::decode(bytes.clone()) {
                    show(intent, &target, Some(&text.body), "");
                }
                Ok(vec![Change::new(target, Some(bytes), None)])
            }
            Step::Update { path, move_to, hunks } => {
                self.plan_update(cx, &path, move_to.as_deref(), &hunks, intent).await
            }
        }
    }

    async fn plan_update(
        &self,
        cx: &ToolCx<'_>,
        path: &str,
        move_to: Option<&str>,
        hunks: &[Hunk],
        intent: &mut Intent,
    ) -> Result<Vec<Change>, ToolError> {
        let (target, old) = self.find(cx, path).await?;
        let name = target.name().to_owned();
        let bytes = old.ok_or_else(|| Error::NotFound(name.clone()))?;
        self.0.check_seen(&target, &bytes, Use::Edit).await?;
        let text = Text::decode(bytes.clone())
            .map_err(|(_, why)| Error::NotText { name: name.clone(), why })?;
        let body = parse::apply(&text.body, hunks)
            .map_err(|why| ToolError::Model(format!("the patch does not match {name}: {why}")))?;
        let added: Vec<&str> = hunks.iter().flat_map(Hunk::added).collect();
        check_placeholder(&added.join("\n"), &text.body)?;
        let new = text.encode(&body);
        let Some(move_to) = move_to else {
            show(intent, &target, Some(&text.body), &body);
            return Ok(vec![Change::new(target, Some(bytes), Some(new))]);
        };
        self.0.locate_itself(path).await?;
        let (to, there) = self.find(cx, move_to).await?;
        if there.is_some() {
            return Err(ToolError::Model(format!("{} already exists", to.name())));
        }
        show(intent, &to, None, &body);
        show(intent, &target, Some(&text.body), "");
        let made = Change::new(to.clone(), None, Some(new));
        let gone = Change::new(target.clone(), Some(bytes), None);
        Ok(vec![Change { like: Some(target), ..made }, Change { like: Some(to), ..gone }])
    }

    async fn find(
        &self,
        cx: &ToolCx<'_>,
        path: &str,
    ) -> Result<(Target, Option<Vec<u8>>), ToolError> {
        let target = self.0.locate(path).await?;
        let old = cx.or_cancelled(self.0.read_for_change(cx.editor, &target)).await??;
        Ok((target, old))
    }
}

fn show(intent: &mut Intent, target: &Target, old: Option<&str>, new: &str) {
    let line = old.map(|old| first_line(old, new));
    intent.content.extend(diff(target.path(), old, new));
    intent.locations.push(Location { path: target.path().to_owned(), line });
}
