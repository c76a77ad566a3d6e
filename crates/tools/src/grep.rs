//! `grep`: finds text in files, with ripgrep's engine.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::permission::PermissionKey;
use engine::ports::Denied;
use engine::ports::{Intent, Output, ToolCx, ToolError};
use engine::words::{Location, ToolKind, code_block};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch,
};
use ignore::WalkState;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::files::Files;
use crate::scope::{Kind, Target};
use crate::text::escape;
use crate::tool::{TypedTool, flag, number, shown};
use crate::walk::{note, only, place, search, search_access, walk, with_note};

/// The most lines that are shown, context included.
const MAX_SHOWN: usize = 250;
/// The search stops after this many lines.
const MAX_FOUND: usize = 5000;
/// The most bytes of a line that are shown.
const MAX_LINE: usize = 400;
/// Memory for one line; files with longer lines are skipped.
const MAX_MEMORY: usize = 16 * 1024 * 1024;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(alias = "query", alias = "regex")]
    pattern: String,
    #[serde(default, alias = "dir", alias = "directory")]
    path: Option<String>,
    #[serde(default, alias = "glob", alias = "include_pattern")]
    include: Option<String>,
    #[serde(
        default,
        rename = "ignoreCase",
        alias = "-i",
        alias = "ignore_case",
        deserialize_with = "flag"
    )]
    ignore_case: bool,
    #[serde(default, alias = "-C", deserialize_with = "number")]
    context: Option<u32>,
}

/// The tool.
pub(crate) struct Grep(pub(crate) Arc<Files>);

pub(crate) struct Plan {
    target: Target,
    kind: Kind,
    matcher: RegexMatcher,
    include: Vec<String>,
    context: usize,
}

impl TypedTool for Grep {
    const NAME: &'static str = "grep";
    const KIND: ToolKind = ToolKind::Search;
    const DESCRIPTION: &'static str = "
Finds lines by a regular expression (the syntax of ripgrep) in the files of a folder, or in one file. Skips what git ignores, binary
files, files with secrets, and files that a rule forbids to read.";
    const BRIEF: Option<&'static str> =
        Some("Finds text in the files of the project, by a regular expression.");
    const ALIASES: &'static [&'static str] = &[
        "rg",
        "ripgrep",
        "search",
        "searchtext",
        "searchfiles",
        "searchcode",
        "searchinfiles",
        "findtext",
        "findinfiles",
        "grepsearch",
        "codesearch",
    ];

    type Input = Input;
    type Plan = Plan;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "pattern": { "type": "string", "description": "The regular expression" },
            "path": { "type": "string", "description": "The folder or file to search; default the working folder" },
            "include": { "type": "string", "description": "Only files that match this glob, such as `*.json` or `*.{ts,tsx}`" },
            "ignoreCase": { "type": "boolean", "description": "Ignore case" },
            "context": { "type": "integer", "description": "Context lines around each match" },
        });
        (fields, &["pattern"])
    }

    fn brief_fields() -> Value {
        json!({
            "pattern": { "type": "string" },
            "path": { "type": "string", "description": "A folder or file; default all" },
        })
    }

    async fn plan(&self, _: &ToolCx<'_>, input: Input) -> Result<(Intent, Plan), ToolError> {
        let (target, kind) = place(&self.0, input.path.as_deref()).await?;
        let matcher = RegexMatcherBuilder::new()
            .case_insensitive(input.ignore_case)
            .line_terminator(Some(b'\n'))
            .build(&input.pattern)
            .map_err(|err| Error::Pattern(err.to_string()))?;
        let place =
            if target.name() == "." { String::new() } else { format!(" in {}", target.name()) };
        let of = input.include.as_ref().map_or(String::new(), |include| format!(" ({include})"));
        let intent = Intent {
            title: format!("Search {}{place}{of}", input.pattern),
            locations: vec![Location { path: target.path().to_owned(), line: None }],
            access: search_access(PermissionKey::SearchText, &input.pattern, &target, kind),
            content: Vec::new(),
        };
        let context = usize::try_from(input.context.unwrap_or(0).min(20)).unwrap_or(0);
        let include = input.include.into_iter().collect();
        Ok((intent, Plan { target, kind, matcher, include, context }))
    }

    async fn run(&self, cx: &ToolCx<'_>, plan: Plan) -> Result<Output, ToolError> {
        let denied = cx.turn.denied(&PermissionKey::Read);
        let work = move |stop: &AtomicBool| find(&plan, denied, stop);
        let (found, note) = search(cx, work).await?;
        Ok(with_note(print(&found), note))
    }
}

/// The lines found in one file.
#[derive(Debug)]
struct Hits {
    name: String,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    number: u64,
    is_match: bool,
    text: String,
}

/// Returns the lines, and a note about ignore files that were not used.
fn find(
    plan: &Plan,
    denied: Arc<dyn Denied>,
    stop: &AtomicBool,
) -> Result<(Vec<Hits>, Option<String>), Error> {
    let count = AtomicUsize::new(0);
    let searcher = SearcherBuilder::new()
        .line_number(true)
        .before_context(plan.context)
        .after_context(plan.context)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_MEMORY))
        .build();
    if plan.kind == Kind::File {
        let mut searcher = searcher;
        let lines = search_file(plan, &mut searcher, plan.target.open_file(), &count);
        return Ok((vec![Hits { name: plan.target.name().to_owned(), lines }], None));
    }
    let directory = plan.target.real();
    let open = plan.target.open_as_directory().map_err(|err| Error::of(plan.target.name(), err))?;
    let globs = only(&directory, &plan.include).map_err(|err| Error::Pattern(err.to_string()))?;
    let (mut walk, skipped) = walk(&directory, &plan.target, denied, globs);
    walk.threads(threads());
    let found = Mutex::new(Vec::new());
    walk.build_parallel().run(|| {
        let mut searcher = searcher.clone();
        let (found, count, directory, open) = (&found, &count, &directory, &open);
        Box::new(move |entry| {
            if stop.load(Ordering::Relaxed) || count.load(Ordering::Relaxed) >= MAX_FOUND {
                return WalkState::Quit;
            }
            let Ok(entry) = entry else {
                return WalkState::Continue;
            };
            let below = entry.path().strip_prefix(directory).unwrap_or(entry.path());
            if !entry.file_type().is_some_and(|kind| kind.is_file())
                || shell::is_secret(Path::new(entry.file_name()))
            {
                return WalkState::Continue;
            }
            // Opened like every other file: a link that replaced it is not followed.
            let lines = search_file(plan, &mut searcher, open.open_file(below), count);
            if !lines.is_empty() {
                let hits = Hits { name: plan.target.below(below).name().to_owned(), lines };
                found.lock().unwrap_or_else(PoisonError::into_inner).push(hits);
            }
            WalkState::Continue
        })
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((found, note(&skipped, &directory)))
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(12))
}

/// Searches one file. One that cannot be read has no matches.
fn search_file(
    plan: &Plan,
    searcher: &mut Searcher,
    file: io::Result<File>,
    count: &AtomicUsize,
) -> Vec<Line> {
    let mut found = Found { lines: Vec::new(), count };
    let Ok(file) = file else {
        return Vec::new();
    };
    match searcher.search_file(&plan.matcher, &file, &mut found) {
        Ok(()) | Err(_) => found.lines,
    }
}

/// Collects what the searcher finds in one file.
struct Found<'a> {
    lines: Vec<Line>,
    count: &'a AtomicUsize,
}

impl Found<'_> {
    fn push(&mut self, number: Option<u64>, is_match: bool, bytes: &[u8]) -> bool {
        let end = bytes.len().min(MAX_LINE);
        let mut text = escape(bytes[..end].trim_ascii_end());
        if bytes.len() > MAX_LINE {
            text.push_str(" …");
        }
        self.lines.push(Line { number: number.unwrap_or(0), is_match, text });
        self.count.fetch_add(1, Ordering::Relaxed) < MAX_FOUND
    }
}

impl Sink for Found<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        Ok(self.push(found.line_number(), true, found.bytes()))
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> Result<bool, Self::Error> {
        match line.kind() {
            SinkContextKind::Before | SinkContextKind::After => {
                Ok(self.push(line.line_number(), false, line.bytes()))
            }
            SinkContextKind::Other => Ok(true),
        }
    }
}

fn print(found: &[Hits]) -> Output {
    let matches: usize =
        found.iter().flat_map(|hits| &hits.lines).filter(|line| line.is_match).count();
    if matches == 0 {
        return shown("No matches".to_owned());
    }
    let mut text = String::new();
    let mut printed = 0;
    for hits in found.iter().filter(|hits| !hits.lines.is_empty()) {
        if printed >= MAX_SHOWN {
            break;
        }
        text.push_str(&escape(hits.name.as_bytes()));
        text.push('\n');
        for line in hits.lines.iter().take(MAX_SHOWN - printed) {
            let mark = if line.is_match { ':' } else { '-' };
            text.push_str(&format!("  {}{mark} {}\n", line.number, line.text));
            printed += 1;
        }
    }
    let mut output = shown(code_block(&text));
    let all: usize = found.iter().map(|hits| hits.lines.len()).sum();
    if all >= MAX_FOUND {
        text.push_str("(more matches than can be counted; use a more specific pattern)");
    } else if all > printed {
        text.push_str(&format!(
            "({matches} matches; {} more lines; use a more specific pattern)",
            all - printed
        ));
    }
    output.text = text;
    output
}
