//! Changes of files. Every change by a tool goes through [`make`], which first stores the old and the new content, so that the turn
//! can be undone.

use engine::ports::{Content, ToolCx, ToolError};
use engine::words::visible;
use engine::words::{Block, ToolContent};

use crate::diff::diff;
use crate::files::Files;
use crate::scope::Target;
use crate::text::body_of;

/// A change of one file; `None` stands for no file.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) target: Target,
    /// The expected content. If the file has other content by then, the change is refused.
    pub(crate) old: Option<Content>,
    /// The new content.
    pub(crate) new: Option<Content>,
    /// The file that it is moved from or to: a new file gets its mode, owner and attributes.
    pub(crate) like: Option<Target>,
}

impl Change {
    pub(crate) fn new(target: Target, old: Option<Vec<u8>>, new: Option<Vec<u8>>) -> Change {
        Change { target, old: old.map(Content::new), new: new.map(Content::new), like: None }
    }

    /// Returns the diff for the user.
    fn shown(&self) -> Vec<ToolContent> {
        let body = |content: &Content| body_of(content.bytes().to_vec()).0;
        let new = self.new.as_ref().map(body).unwrap_or_default();
        diff(self.target.path(), self.old.as_ref().map(body).as_deref(), &new)
    }

    fn reversed(&self) -> Change {
        Change { old: self.new.clone(), new: self.old.clone(), ..self.clone() }
    }
}

/// Makes changes, all or none, and records what the model now knows of the files.
pub(crate) async fn make(
    files: &Files,
    cx: &ToolCx<'_>,
    changes: Vec<Change>,
) -> Result<(), ToolError> {
    // Nothing is changed if one of them would fail; each is compared again right before it is made.
    if changes.len() > 1 {
        for change in &changes {
            let compared = cx.or_cancelled(files.compare(cx.editor, change)).await?;
            compared.map_err(|err| ToolError::Model(format!("{err}. No file was changed")))?;
        }
    }
    for (done, change) in changes.iter().enumerate() {
        let made = cx.or_cancelled(make_one(files, cx, change)).await;
        if let Err(err) = made.and_then(|made| made) {
            return Err(revert(files, cx, &changes[..done], err).await);
        }
    }
    for change in &changes {
        // A moved file is known as well as its source was.
        let is_source = |other: &&Change| {
            change.like.as_ref().is_some_and(|like| like.path() == other.target.path())
        };
        files.note_change(change, changes.iter().find(is_source).unwrap_or(change));
    }
    Ok(())
}

async fn make_one(files: &Files, cx: &ToolCx<'_>, change: &Change) -> Result<(), ToolError> {
    let Change { target, old, new, .. } = change;
    files.compare(cx.editor, change).await?;
    cx.save_change(target.path(), old.clone(), new.clone()).await?;
    let Err(err) = files.write(cx.editor, change).await else { return Ok(()) };
    // A change that did not happen must not be undone later. If that is unknown, the record stays.
    if let Ok(now) = files.read_for_change(cx.editor, target).await
        && now.as_deref() != new.as_ref().map(Content::bytes)
    {
        cx.save_change(target.path(), new.clone(), old.clone()).await?;
    }
    Err(err.into())
}

/// Reverts the changes that were made before one failed, the last first, even after a cancel. Returns the error to report.
async fn revert(files: &Files, cx: &ToolCx<'_>, done: &[Change], err: ToolError) -> ToolError {
    let mut stay = Vec::new();
    for change in done.iter().rev() {
        if let Err(why) = make_one(files, cx, &change.reversed()).await {
            tracing::warn!("a file could not be reverted: {why}");
            stay.push(change);
        }
    }
    let names = |changes: &[&Change]| {
        changes.iter().map(|change| change.target.name()).collect::<Vec<_>>().join(", ")
    };
    match err {
        ToolError::Cancelled | ToolError::Broken(_) => err,
        err if done.is_empty() => err,
        err if stay.is_empty() => {
            let done: Vec<&Change> = done.iter().collect();
            ToolError::Model(format!("{err}. Reverted: {}", names(&done)))
        }
        err => {
            let names = names(&stay);
            let text = format!("{err}. Could not be reverted and stays changed: {names}");
            let mut content: Vec<_> = stay.iter().flat_map(|change| change.shown()).collect();
            content.push(ToolContent::Block(Block::Text(visible(&text))));
            ToolError::Failed { failure: None, text, content: Some(content) }
        }
    }
}
