//! What the client's dialect needs of a session beside v1. Methods pass it on and do not look inside.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::words::SessionId;
use recording::Tape;

use crate::branch;

/// What one session has for the client's dialect.
#[derive(Debug, Clone)]
pub(crate) struct SessionExtras {
    /// The branch of the session's directory, once it is found; `None` if no answer names it.
    pub(super) branch: Option<Arc<OnceLock<String>>>,
    pub(super) permission_timeout: Option<Duration>,
}

impl SessionExtras {
    /// Finds what the answer that opens a session in this directory needs.
    pub(crate) async fn find(&self, session: &SessionId, cwd: &Path, tape: Option<&Tape>) {
        let Some(slot) = &self.branch else { return };
        let find = branch::find(cwd.to_owned());
        let branch = match tape {
            Some(tape) => tape.step(&format!("branch {session}"), find).await,
            None => find.await,
        };
        if let Some(branch) = branch {
            slot.get_or_init(|| branch);
        }
    }

    /// Returns how long to wait for the answer to a permission request; `None` waits without end.
    pub(crate) fn permission_timeout(&self) -> Option<Duration> {
        self.permission_timeout
    }

    /// Returns the branch that was found.
    pub(super) fn branch(&self) -> Option<String> {
        self.branch.as_ref()?.get().cloned()
    }
}
