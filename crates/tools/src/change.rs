//! Changes of files. Every change that a tool makes goes through [`make`], with all that the file held and will hold,
//! which is kept first, so that the turn can be taken back.

use engine::ports::{ToolCx, ToolError};

use crate::files::{Files, hash};
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

/// Makes a change, and notes that the model knows what the file holds now.
pub(crate) async fn make(files: &Files, cx: &ToolCx<'_>, change: Change) -> Result<(), ToolError> {
    let Change { target, old, new } = change;
    let known = new.as_deref().map(hash);
    cx.keep_change(target.path(), old.clone(), new.clone()).await?;
    cx.or_cancelled(files.write(cx.editor, &target, old, new)).await??;
    match known {
        Some(known) => files.note_whole(&target, known),
        None => files.forget(&target),
    }
    Ok(())
}
