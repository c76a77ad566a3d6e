//! `glob`: finds files by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use engine::permission::PermissionKey;
use engine::ports::{Intent, Output, ToolCx, ToolError};
use engine::words::{Location, ToolKind, code_block};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::files::Files;
use crate::scope::Target;
use crate::text::escape;
use crate::tool::{TypedTool, shown};
use crate::walk::{note, only, place, search, search_access, walk, with_note};

/// The most files that are shown.
const MAX: usize = 200;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(alias = "glob", alias = "glob_pattern")]
    pattern: String,
    #[serde(default, alias = "dir", alias = "directory")]
    path: Option<String>,
}

/// The tool.
pub(crate) struct Glob(pub(crate) Arc<Files>);

pub(crate) struct Plan {
    target: Target,
    pattern: String,
}

impl TypedTool for Glob {
    const NAME: &'static str = "glob";
    const KIND: ToolKind = ToolKind::Search;
    const DESCRIPTION: &'static str = "
Finds files by their paths, with a glob such as `*.json`, `src/**/*.ts` or `**/test_*`, most recently changed first. Skips what git
ignores.";
    const ALIASES: &'static [&'static str] =
        &["find", "findfile", "findfiles", "globfiles", "fileglob", "filesearch"];

    type Input = Input;
    type Plan = Plan;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "pattern": { "type": "string", "description": "The glob; one without `/` matches at any depth" },
            "path": { "type": "string", "description": "The folder to look in, the working folder if not given" },
        });
        (fields, &["pattern"])
    }

    async fn plan(&self, _: &ToolCx<'_>, input: Input) -> Result<(Intent, Plan), ToolError> {
        let (target, kind) = place(&self.0, input.path.as_deref()).await?;
        let place =
            if target.name() == "." { String::new() } else { format!(" in {}", target.name()) };
        let intent = Intent {
            title: format!("Find {}{place}", input.pattern),
            locations: vec![Location { path: target.path().to_owned(), line: None }],
            access: search_access(PermissionKey::FindFiles, &input.pattern, &target, kind),
            content: Vec::new(),
        };
        Ok((intent, Plan { target, pattern: input.pattern }))
    }

    async fn run(&self, cx: &ToolCx<'_>, plan: Plan) -> Result<Output, ToolError> {
        let denied = cx.turn.denied(&PermissionKey::Read);
        let work = move |flag: &AtomicBool| {
            let directory = plan.target.real();
            let globs = only(&directory, std::slice::from_ref(&plan.pattern));
            let globs = globs.map_err(|err| Error::Pattern(err.to_string()))?;
            let (walk, skipped) = walk(&directory, &plan.target, denied, globs);
            let mut found = Vec::new();
            for entry in walk.build().flatten() {
                if flag.load(Ordering::Relaxed) {
                    break;
                }
                if entry.file_type().is_some_and(|kind| kind.is_file()) {
                    let changed = entry.metadata().ok().and_then(|data| data.modified().ok());
                    let below = entry.path().strip_prefix(&directory).unwrap_or(entry.path());
                    let name = plan.target.below(below).name().to_owned();
                    found.push((changed.unwrap_or(SystemTime::UNIX_EPOCH), name));
                }
            }
            found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            Ok((found, note(&skipped, &directory)))
        };
        let (found, note) = search(cx, work).await?;
        if found.is_empty() {
            return Ok(with_note(shown("No matches".to_owned()), note));
        }
        let mut text = String::new();
        for (_, name) in found.iter().take(MAX) {
            text.push_str(&escape(name.as_bytes()));
            text.push('\n');
        }
        let mut output = shown(code_block(&text));
        if found.len() > MAX {
            text.push_str(&format!("({} more; use a more specific pattern)", found.len() - MAX));
        }
        output.text = text;
        Ok(with_note(output, note))
    }
}
