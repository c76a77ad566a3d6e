//! Changes of files. Every change that a tool makes goes through [`make`], with all that the file held and will hold,
//! which is kept first, so that the turn can be taken back.

use engine::ports::{Content, ToolCx, ToolError};

use crate::files::Files;
use crate::scope::Target;

/// A change of one file; `None` stands for no file.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) target: Target,
    /// What it holds. If it holds something else by then, the change is refused.
    pub(crate) old: Option<Vec<u8>>,
    /// What it will hold.
    pub(crate) new: Option<Vec<u8>>,
}

/// Makes a change, and notes what the model knows of the file now.
pub(crate) async fn make(files: &Files, cx: &ToolCx<'_>, change: Change) -> Result<(), ToolError> {
    let Change { target, old, new } = change;
    let (old, new) = (old.map(Content::new), new.map(Content::new));
    cx.keep_change(target.path(), old.clone(), new.clone()).await?;
    cx.or_cancelled(files.write(cx.editor, &target, old.as_ref(), new.as_ref())).await??;
    match new {
        Some(new) => files.note_change(&target, old.as_ref(), &new),
        None => files.forget(&target),
    }
    Ok(())
}
