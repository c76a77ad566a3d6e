//! `list`: lists a directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::permission::PermissionKey;
use engine::ports::{Intent, Output, ToolCx, ToolError};
use engine::words::{Location, ToolKind, code_block};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::files::Files;
use crate::scope::{Kind, Target};
use crate::text::escape;
use crate::tool::{TypedTool, number, shown};
use crate::walk::{note, only, place, search, search_access, walk, with_note};

/// The most entries that are shown.
const MAX: usize = 500;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(default, alias = "dir", alias = "directory", alias = "dirPath", alias = "dir_path")]
    path: Option<String>,
    #[serde(default, deserialize_with = "number")]
    depth: Option<u32>,
    #[serde(default)]
    ignore: Vec<String>,
}

/// The tool.
pub(crate) struct List(pub(crate) Arc<Files>);

pub(crate) struct Plan {
    target: Target,
    depth: usize,
    ignore: Vec<String>,
}

impl TypedTool for List {
    const NAME: &'static str = "list";
    const KIND: ToolKind = ToolKind::Search;
    const DESCRIPTION: &'static str = "
Lists the files and folders in a folder; folders end with `/`. Skips what git ignores. To find files by their names use `glob`, by
their content `grep`.";
    const BRIEF: Option<&'static str> = Some("Lists the files in a folder.");
    const ALIASES: &'static [&'static str] = &[
        "ls",
        "listfiles",
        "listdir",
        "listdirectory",
        "listfolder",
        "dir",
        "tree",
        "getfiles",
        "showfiles",
    ];

    type Input = Input;
    type Plan = Plan;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "path": { "type": "string", "description": "The folder; default the working folder" },
            "depth": { "type": "integer", "description": "How many levels to list; default 1" },
            "ignore": { "type": "array", "items": { "type": "string" }, "description": "Globs of files to skip" },
        });
        (fields, &[])
    }

    fn brief_fields() -> Value {
        json!({ "path": { "type": "string", "description": "The folder; default `.`" } })
    }

    async fn plan(&self, _: &ToolCx<'_>, input: Input) -> Result<(Intent, Plan), ToolError> {
        let (target, kind) = place(&self.0, input.path.as_deref()).await?;
        if kind != Kind::Directory {
            let why = format!("{} is a file; use `read`", target.name());
            return Err(ToolError::Model(why));
        }
        let place = if target.name() == "." { "project root" } else { target.name() };
        let intent = Intent {
            title: format!("List {place}"),
            locations: vec![Location { path: target.path().to_owned(), line: None }],
            access: search_access(PermissionKey::ListDirectory, target.name(), &target, kind),
            content: Vec::new(),
        };
        let depth = usize::try_from(input.depth.unwrap_or(1).clamp(1, 16)).unwrap_or(1);
        Ok((intent, Plan { target, depth, ignore: input.ignore }))
    }

    async fn run(&self, cx: &ToolCx<'_>, plan: Plan) -> Result<Output, ToolError> {
        let denied = cx.turn.denied(&PermissionKey::Read);
        let work = move |flag: &AtomicBool| {
            let directory = plan.target.real();
            let globs: Vec<String> = plan.ignore.iter().map(|glob| format!("!{glob}")).collect();
            let globs = only(&directory, &globs);
            let globs = globs.map_err(|err| Error::Pattern(err.to_string()))?;
            let (mut walk, skipped) = walk(&directory, &plan.target, denied, globs);
            walk.max_depth(Some(plan.depth));
            let mut names = Vec::new();
            for entry in walk.build().skip(1).flatten() {
                if flag.load(Ordering::Relaxed) || names.len() > 100 * MAX {
                    break;
                }
                let below = entry.path().strip_prefix(&directory).unwrap_or(entry.path());
                let mut name = escape(below.as_os_str().as_encoded_bytes());
                if entry.file_type().is_some_and(|kind| kind.is_dir()) {
                    name.push('/');
                }
                names.push(name);
            }
            names.sort();
            Ok((names, note(&skipped, &directory)))
        };
        let (names, note) = search(cx, work).await?;
        if names.is_empty() {
            let text = "(empty, or everything is ignored by git)".to_owned();
            return Ok(with_note(shown(text), note));
        }
        let mut text = names.iter().take(MAX).fold(String::new(), |text, name| text + name + "\n");
        let mut output = shown(code_block(&text));
        if names.len() > MAX {
            text.push_str(&format!("({} more; list the folders one by one)", names.len() - MAX));
        }
        output.text = text;
        Ok(with_note(output, note))
    }
}
