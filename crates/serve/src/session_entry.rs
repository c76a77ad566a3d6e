//! What a connection knows of an open session.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use engine::session::SessionHandle;
use tokio_util::sync::CancellationToken;
use wire::RequestId;

use crate::dialect::SessionExtras;
use crate::rate::Window;
use crate::shared::SharedSession;
use crate::workspace::ServersSlot;

/// A session as its connection knows it.
pub(crate) struct SessionEntry {
    pub(crate) handle: SessionHandle,
    /// Its working directory.
    pub(crate) cwd: PathBuf,
    pub(crate) created: SystemTime,
    /// What the client's dialect needs of it.
    pub(crate) extras: SessionExtras,
    /// The MCP servers that the client requested last.
    pub(crate) requested: Vec<mcp::ServerConfig>,
    /// All its MCP servers; set when it is opened.
    pub(crate) servers: ServersSlot,
    /// The turn that runs.
    pub(crate) turn: Option<RunningTurn>,
    /// Whether its last turn failed.
    pub(crate) has_failed: bool,
    pub(crate) prompts: Window,
    /// Its link to the session, if that outlives the connection.
    pub(crate) shared: Option<SharedLink>,
}

/// How a connection is attached to a session that outlives it.
#[derive(Clone)]
pub(crate) struct SharedLink {
    pub(crate) session: Arc<SharedSession>,
    pub(crate) attachment: u64,
}

impl SessionEntry {
    /// Tells whether a turn runs, for this client or another one.
    pub(crate) fn is_running(&self) -> bool {
        self.turn.is_some() || self.shared.as_ref().is_some_and(|link| link.session.is_running())
    }
}

/// A turn that runs.
pub(crate) struct RunningTurn {
    /// The call to answer.
    pub(crate) call: RequestId,
    pub(crate) cancel: CancellationToken,
    /// Set when we stopped the turn because the client reads nothing.
    pub(crate) is_stalled: bool,
}
