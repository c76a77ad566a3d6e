//! A change of a file that the model has not read, or that has changed since: the answer shows the file, so that the model can
//! repeat the change at once.

use engine::ports::{ToolCx, ToolError};
use engine::words::{Block, ToolContent};

use crate::error::Error;
use crate::files::{Files, read_access};
use crate::read::show;
use crate::scope::Target;
use crate::seen::hash;
use crate::text::{Text, count_lines};

/// The most bytes of a file that are shown; a longer file must be read.
const MAX_SHOWN: usize = 6_000;

/// Adds the content of a file to the error of a change, if the file is short and reading it needs no question.
pub(crate) fn with_content(
    files: &Files,
    cx: &ToolCx<'_>,
    target: &Target,
    bytes: &[u8],
    err: Error,
) -> ToolError {
    let room = cx.turn.result_limit().min(MAX_SHOWN);
    let is_readable = matches!(err, Error::Unread(_) | Error::Changed(_))
        && bytes.len() <= room / 2
        && cx.turn.allows(&read_access(target));
    let text = is_readable.then(|| Text::decode(bytes.to_vec()).ok()).flatten();
    let Some(text) = text else { return err.into() };
    let lines = u32::try_from(count_lines(&text.body)).unwrap_or(u32::MAX);
    let shown = show(&text.body, 1, Some(lines), room);
    if shown.is_cut || shown.part.limit != lines {
        return err.into();
    }
    files.note_whole(target, hash(bytes));
    let what = match err {
        Error::Changed(name) => format!("{name} has changed since it was read"),
        _ => format!("{} had not been read yet", target.name()),
    };
    let content =
        Some(vec![ToolContent::Block(Block::Text(format!("{what}; nothing was changed")))]);
    let text = format!(
        "Nothing was changed: {what}. This is the file now:\n{}\nRepeat the change with text from the file.",
        shown.output.text.trim_end()
    );
    ToolError::Failed { failure: None, text, content }
}
