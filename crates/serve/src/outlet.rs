//! How sessions reach the dispatcher: one queue for events, lines, calls and answers.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use engine::Event;
use engine::words::SessionId;
use tokio::sync::{Semaphore, mpsc};
use wire::RequestId;

use crate::client_call::ClientCall;
use crate::connection::Connection;

/// How the sessions of a connection reach it.
#[derive(Clone)]
pub(crate) struct Outlet {
    /// To the dispatcher. Full: the session waits.
    pub(crate) to_dispatcher: mpsc::Sender<FromSession>,
    /// Abandoned calls. A place is reserved before a call is made, so abandoning it never waits.
    pub(crate) abandoned: mpsc::Sender<u64>,
    /// The numbers of our calls.
    pub(crate) numbers: Arc<AtomicU64>,
    /// The budget of all sessions together.
    pub(crate) total: Arc<Semaphore>,
}

/// What a session sends the dispatcher. Everything goes through one queue, which preserves the order.
pub(crate) enum FromSession {
    /// Show this to the client.
    Event {
        session: SessionId,
        event: Event,
        /// How much of the budgets it uses.
        cost: usize,
        /// The number of its record, if the client is to know it.
        seq: Option<u64>,
        /// For which attachment to a shared session it is; `None` if the session is not shared.
        attachment: Option<u64>,
    },
    /// Send the client this line.
    Line { session: SessionId, line: Vec<u8>, cost: usize },
    /// Call the client.
    Call { session: SessionId, call: ClientCall, cost: usize },
    /// Finish a call of the client: the second half of its method.
    Finish(RequestId, Finish),
}

/// The second half of a method, which answers the call.
pub(crate) type Finish = Box<dyn FnOnce(&mut Connection) + Send>;
