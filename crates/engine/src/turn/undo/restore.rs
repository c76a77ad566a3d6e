//! Restores the files of turns: all of them, or none.

use std::path::PathBuf;

use super::some;
use crate::ports::{Content, Error, FileError};
use crate::turn::cx::{TurnCx, TurnError};
use crate::words::ContentId;

/// The expected content of a file, and its new content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) path: PathBuf,
    pub(super) from: Option<ContentId>,
    pub(super) to: Option<ContentId>,
}

/// A step to run.
struct Due<'a> {
    step: &'a Step,
    /// The SHA-256 of the file's content; `None` for no file.
    hash: Option<[u8; 32]>,
    /// The content itself, if it is not byte for byte the one that the journal has.
    exact: Option<Vec<u8>>,
}

/// Runs all steps, or none: if a file has unexpected content or cannot be written, says `nothing` and why.
pub(super) async fn restore(
    cx: &TurnCx<'_>,
    steps: &[Step],
    nothing: &str,
) -> Result<Result<(), String>, TurnError> {
    let (mut due, mut edited, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    for step in steps {
        match look(cx, step).await? {
            Look::Due(one) => due.push(one),
            Look::Done => {}
            Look::Edited => edited.push(format!("- `{}`", step.path.display())),
            Look::Lost(why) => lost.push(format!("- `{}`: {why}", step.path.display())),
        }
    }
    if !edited.is_empty() || !lost.is_empty() {
        let mut why = format!("{nothing} ");
        if !edited.is_empty() {
            why.push_str("These files were changed since then, and those changes would be lost:\n");
            why.push_str(&some(&edited));
        }
        if !lost.is_empty() {
            why.push_str(if edited.is_empty() { "" } else { "\n\n" });
            why.push_str("These files cannot be restored:\n");
            why.push_str(&some(&lost));
        }
        return Ok(Err(why));
    }
    for (count, one) in due.iter().enumerate() {
        let ran = run(cx, one).await;
        if let Ok(Ok(())) = ran {
            continue;
        }
        let stuck = roll_back(cx, &due[..count]).await;
        if let Err(err) = ran? {
            let why = format!("- `{}`: {err}", one.step.path.display());
            return Ok(Err(report(nothing, &why, &stuck)));
        }
    }
    Ok(Ok(()))
}

/// Runs one step.
async fn run(cx: &TurnCx<'_>, due: &Due<'_>) -> Result<Result<(), FileError>, TurnError> {
    let new = content(cx, due.step.to.as_ref()).await?.flatten();
    Ok(cx.ports.files.replace(cx.ports.editor, &due.step.path, due.hash, new).await)
}

/// Reverts steps that were run, the last one first. Returns those for which that failed, each as a line.
async fn roll_back(cx: &TurnCx<'_>, done: &[Due<'_>]) -> Vec<String> {
    let mut stuck = Vec::new();
    for one in done.iter().rev() {
        if let Err(why) = revert(cx, one).await {
            stuck.push(format!("- `{}`: {why}", one.step.path.display()));
        }
    }
    stuck
}

async fn revert(cx: &TurnCx<'_>, due: &Due<'_>) -> Result<(), String> {
    let saved =
        |id| async move { content(cx, id).await.ok().flatten().ok_or("its content is lost") };
    let (files, editor, path) = (cx.ports.files, cx.ports.editor, &due.step.path);
    let now = files.read(editor, path).await.map_err(|err| err.to_string())?;
    if !is_same(now.as_deref(), saved(due.step.to.as_ref()).await?.as_deref()) {
        return Err(FileError::Changed.to_string());
    }
    let old = match &due.exact {
        Some(exact) => Some(exact.clone()),
        None => saved(due.step.from.as_ref()).await?,
    };
    let hash = now.map(|now| Content::new(now).hash());
    files.replace(editor, path, hash, old).await.map_err(|err| err.to_string())
}

/// Says that a file could not be written, and which files could not be reverted after that.
fn report(nothing: &str, why: &str, stuck: &[String]) -> String {
    if stuck.is_empty() {
        return format!("{nothing} This file could not be written:\n{why}");
    }
    format!(
        "The conversation is unchanged. This file could not be written:\n{why}\n\nThese files were restored before that and could not be changed back:\n{}\n\nRun the same command to try again.",
        some(stuck)
    )
}

/// How a file compares to a step.
enum Look<'a> {
    /// It has the expected content and can be written.
    Due(Due<'a>),
    /// It already has the new content.
    Done,
    /// It was changed by someone else.
    Edited,
    /// The step is impossible, for this reason.
    Lost(String),
}

async fn look<'a>(cx: &TurnCx<'_>, step: &'a Step) -> Result<Look<'a>, TurnError> {
    let read = cx.ports.files.read(cx.ports.editor, &step.path);
    let now = match cx.or_cancelled(read).await? {
        Ok(now) => now,
        Err(FileError::Gone) => return Err(TurnError::Cancelled),
        Err(err) => return Ok(Look::Lost(err.to_string())),
    };
    let not_saved = || Ok(Look::Lost("its content was too large to save".to_owned()));
    let Some(to) = content(cx, step.to.as_ref()).await? else { return not_saved() };
    if is_same(now.as_deref(), to.as_deref()) {
        return Ok(Look::Done);
    }
    let Some(from) = content(cx, step.from.as_ref()).await? else { return not_saved() };
    if !is_same(now.as_deref(), from.as_deref()) {
        return Ok(Look::Edited);
    }
    if let Err(err) = cx.ports.files.check(cx.ports.editor, &step.path, to.as_deref()).await {
        return Ok(Look::Lost(err.to_string()));
    }
    let hash = now.clone().map(|now| Content::new(now).hash());
    let exact = (now != from).then_some(now).flatten();
    Ok(Look::Due(Due { step, hash, exact }))
}

/// Returns the saved content of a file, which may be no file; `None` if it was not saved.
async fn content(
    cx: &TurnCx<'_>,
    id: Option<&ContentId>,
) -> Result<Option<Option<Vec<u8>>>, TurnError> {
    let Some(id) = id else { return Ok(Some(None)) };
    let saved = cx.ports.journal.content(cx.conversation.session, id).await;
    Ok(saved.map_err(|err| Error::of_journal(cx.conversation.session, err))?.map(Some))
}

/// Compares contents. Editors drop byte order marks and change line endings, so both are ignored.
fn is_same(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    fn plain(bytes: &[u8]) -> impl Iterator<Item = u8> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut bytes = bytes.iter().copied().peekable();
        std::iter::from_fn(move || match bytes.next() {
            Some(b'\r') if bytes.peek() == Some(&b'\n') => bytes.next(),
            next => next,
        })
    }
    match (one, other) {
        (Some(one), Some(other)) => one == other || plain(one).eq(plain(other)),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_endings_and_byte_order_marks_are_ignored() {
        let same = |one: &[u8], other: &[u8]| is_same(Some(one), Some(other));
        assert!(same(b"a\r\nb\n", b"a\nb\r\n"));
        assert!(same(b"\xef\xbb\xbfa", b"a"));
        assert!(!same(b"a\rb", b"ab"));
        assert!(!same(b"a\n", b"a"));
        assert!(!is_same(Some(b""), None));
        assert!(is_same(None, None));
    }
}
