//! `read`: reads a text file, a range of its lines, or a picture.
//!
//! `picture` recognises pictures; `large` reads lines of a file that is too large to be read whole.

mod large;
mod picture;

use std::sync::Arc;

use engine::ports::{Intent, Output, ToolCx, ToolError};
use engine::words::{Block, Location, ToolContent, ToolKind, code_block};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::disk::{MAX_BYTES, look_any_size};
use crate::error::Error;
use crate::files::{Files, on_a_thread, read_access};
use crate::missing::not_found;
use crate::scope::Target;
use crate::seen::{Part, hash};
use crate::text::{body_of, count_lines};
use crate::tool::{TypedTool, number};
use picture::Picture;

/// The default number of lines.
const LINES: u32 = 2000;
/// The most bytes that are shown at once.
const MAX_SHOWN: usize = 128 * 1024;
/// The most characters of a line that are shown.
pub(crate) const MAX_LINE: usize = 2000;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(rename = "filePath", alias = "file_path", alias = "path", alias = "file")]
    path: String,
    #[serde(default, alias = "line", alias = "start_line", deserialize_with = "number")]
    offset: Option<u32>,
    #[serde(default, alias = "lines", deserialize_with = "number")]
    limit: Option<u32>,
}

/// The tool.
pub(crate) struct Read(pub(crate) Arc<Files>);

pub(crate) struct Plan {
    target: Target,
    /// Whether the model requested a range.
    is_part: bool,
    part: Part,
}

impl TypedTool for Read {
    const NAME: &'static str = "read";
    const KIND: ToolKind = ToolKind::Read;
    const DESCRIPTION: &'static str = "
Reads a text file and returns its lines with their numbers: at most 2000 lines, from the first. Use `offset` and `limit` for other
lines, in a file of any size. Includes changes that the user has not saved yet. Read a file before you change it. Shows pictures
(PNG, JPEG, GIF, WebP).";
    const BRIEF: Option<&'static str> = Some("Reads a file.");
    const ALIASES: &'static [&'static str] = &[
        "readfile",
        "cat",
        "open",
        "openfile",
        "view",
        "viewfile",
        "showfile",
        "getfile",
        "getfilecontent",
        "getfilecontents",
        "readfilecontent",
        "readfilecontents",
        "fileread",
        "head",
    ];

    type Input = Input;
    type Plan = Plan;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "filePath": { "type": "string", "description": "The file, absolute or relative to the working folder" },
            "offset": { "type": "integer", "description": "The first line, counting from 1" },
            "limit": { "type": "integer", "description": "The number of lines; default 2000" },
        });
        (fields, &["filePath"])
    }

    fn brief_fields() -> Value {
        json!({
            "filePath": { "type": "string" },
            "offset": { "type": "integer", "description": "First line" },
            "limit": { "type": "integer", "description": "Number of lines" },
        })
    }

    async fn plan(&self, _: &ToolCx<'_>, input: Input) -> Result<(Intent, Plan), ToolError> {
        let target = self.0.locate(&input.path).await?;
        let limit = input.limit.filter(|limit| *limit > 0);
        let part = Part { line: input.offset.unwrap_or(1).max(1), limit: limit.unwrap_or(LINES) };
        let is_part = input.offset.is_some() || limit.is_some();
        let title = match (input.offset, limit) {
            (None, None) => format!("Read {}", target.name()),
            (_, None) => format!("Read {} from line {}", target.name(), part.line),
            (_, Some(limit)) => {
                let last = part.line.saturating_add(limit).saturating_sub(1);
                match last == part.line {
                    true => format!("Read {} line {last}", target.name()),
                    false => format!("Read {} lines {}–{last}", target.name(), part.line),
                }
            }
        };
        let line = input.offset.map(|_| part.line);
        let intent = Intent {
            title,
            locations: vec![Location { path: target.path().to_owned(), line }],
            access: read_access(&target),
            content: Vec::new(),
        };
        Ok((intent, Plan { target, is_part, part }))
    }

    async fn run(&self, cx: &ToolCx<'_>, plan: Plan) -> Result<Output, ToolError> {
        let Plan { target, is_part, part } = plan;
        let room = cx.turn.result_limit().min(MAX_SHOWN);
        match self.on_disk(cx, &target, part, room).await? {
            OnDisk::Text => {}
            OnDisk::Picture(picture) => return Ok(picture.output(&target, cx.turn.sees_pictures())),
            OnDisk::Large(output) => return Ok(output),
        }
        if is_part {
            let read = self.0.read_part(cx.editor, &target, part);
            if let Some(text) = cx.or_cancelled(read).await?? {
                let Some(text) = text else { return Err(not_found(&self.0, cx, &target).await) };
                // Nothing at a high offset: only the whole file shows how many lines there are.
                if !text.is_empty() || part.line == 1 {
                    let shown = show(&text, part.line, None, room);
                    let lines = Part { line: 1, ..shown.part }.of(&text);
                    self.0.note_part(&target, shown.part, lines);
                    return Ok(shown.output);
                }
            }
        }
        let Some(bytes) = cx.or_cancelled(self.0.read_whole(cx.editor, &target)).await?? else {
            return Err(not_found(&self.0, cx, &target).await);
        };
        // A longer file is not shown whole.
        let whole = (bytes.len() <= room).then(|| hash(&bytes));
        let (body, note) = body_of(bytes);
        let lines = u32::try_from(count_lines(&body)).unwrap_or(u32::MAX);
        if part.line > lines.max(1) {
            let (name, line) = (target.name().to_owned(), part.line);
            return Err(Error::NoSuchLine { name, lines, line }.into());
        }
        let Shown { mut output, part, is_cut } = show(part.of(&body), part.line, Some(lines), room);
        match whole {
            Some(hash) if part.line == 1 && part.limit == lines && !is_cut => {
                self.0.note_whole(&target, hash);
            }
            _ => self.0.note_part(&target, part, part.of(&body)),
        }
        if let Some(why) = note {
            output.text.push_str(&format!(
                "\n(not a text file: {why}; some bytes are shown as \\xNN, and it cannot be edited)"
            ));
        }
        Ok(output)
    }
}

/// What a file is on the disk, as far as it decides how it is read.
enum OnDisk {
    /// Text, something else, or nothing: the editor may have it.
    Text,
    Picture(Picture),
    /// Lines of a file that is too large for the editor and the memory.
    Large(Output),
}

impl Read {
    async fn on_disk(
        &self,
        cx: &ToolCx<'_>,
        target: &Target,
        part: Part,
        room: usize,
    ) -> Result<OnDisk, ToolError> {
        let (place, cancel) = (target.clone(), cx.cancel.clone());
        let look = on_a_thread(move || {
            let Some(look) = look_any_size(&place)? else { return Ok(OnDisk::Text) };
            if let Some(picture) = Picture::read(&place, look.bytes)? {
                return Ok(OnDisk::Picture(picture));
            }
            match look.bytes > MAX_BYTES {
                true => {
                    large::read(&place, part, room, &|| cancel.is_cancelled()).map(OnDisk::Large)
                }
                false => Ok(OnDisk::Text),
            }
        });
        Ok(cx.or_cancelled(look).await??)
    }
}

/// The shown part of a file.
pub(crate) struct Shown {
    pub(crate) output: Output,
    /// The lines.
    pub(crate) part: Part,
    /// Whether one of them was cut.
    pub(crate) is_cut: bool,
}

/// The most bytes of the note below the lines.
const BELOW: usize = 200;

/// Numbers the lines for the model; the user sees them without numbers.
pub(crate) fn show(lines: &str, first: u32, all: Option<u32>, room: usize) -> Shown {
    let mut text = String::with_capacity(lines.len() + lines.len() / 4);
    let mut next = first;
    let mut is_cut = false;
    for line in lines.lines() {
        // A line cannot have more characters than bytes.
        let end = if line.len() > MAX_LINE { line.char_indices().nth(MAX_LINE) } else { None };
        let (cut, more) = end.map_or((line, ""), |(at, _)| (&line[..at], " …"));
        if next > first && text.len() + cut.len() + BELOW > room {
            break;
        }
        is_cut |= end.is_some();
        text.push_str(&format!("{next:>6}\t{cut}{more}\n"));
        next = next.saturating_add(1);
    }
    let is_more = || usize::try_from(next - first).unwrap_or(usize::MAX) < count_lines(lines);
    match all {
        _ if lines.is_empty() && first == 1 => text.push_str("(the file is empty)"),
        Some(all) if next <= all => {
            text.push_str(&format!(
                "(lines {first} to {} of {all}; use `offset` for more)",
                next - 1
            ));
        }
        None if is_more() => text.push_str(&format!("(cut after line {})", next - 1)),
        Some(_) | None => {}
    }
    let shown = &lines[..lines.floor_char_boundary(MAX_SHOWN)];
    let content = Some(vec![ToolContent::Block(Block::Text(code_block(shown)))]);
    let part = Part { line: first, limit: next - first };
    Shown { output: Output { text, content, raw: None }, part, is_cut }
}
