//! Why the dispatcher wakes: the closed list of everything that can reach it.

use engine::Event;
use engine::words::SessionId;
use serde_json::value::RawValue;
use wire::RpcError;

use crate::connection::Connection;

/// A reason to wake.
pub(crate) enum Wake {
    /// The client sent bytes.
    Bytes(Vec<u8>),
    /// The client closed our input, or we were told to stop.
    Stop,
    /// Sessions or the hub sent something; it is in the dispatcher's buffer.
    Sessions,
    /// Nobody waits for this call of ours any more.
    Abandoned(u64),
    /// The writer is free again; an error means that the client closed our output.
    Written(std::io::Result<Vec<u8>>),
    /// Text that was delayed may be sent now, or the client has read nothing for too long.
    Time,
}

/// What a session sends the dispatcher. Everything goes through one queue, which preserves the order.
pub(crate) enum FromSession {
    /// Show this to the client.
    Event {
        session: SessionId,
        event: Event,
        /// How much of the budgets it uses.
        cost: usize,
    },
    /// Send the client this line.
    Line { session: SessionId, line: Vec<u8>, cost: usize },
    /// Call the client.
    Call { session: SessionId, call: ClientCall, cost: usize },
    /// Finish a call of the client: the second half of its method.
    Finish(Finish),
}

/// The second half of a method, which answers the call.
pub(crate) type Finish = Box<dyn FnOnce(&mut Connection) + Send>;

/// A call to the client.
pub(crate) struct ClientCall {
    /// The number that it is sent with.
    pub(crate) number: u64,
    pub(crate) method: &'static str,
    pub(crate) params: Box<RawValue>,
    /// Takes the answer on the dispatcher's task: it decodes the answer and must not block.
    pub(crate) answer: TakeAnswer,
}

/// Takes the raw answer of the client.
pub(crate) type TakeAnswer = Box<dyn FnOnce(Result<&RawValue, RpcError>) + Send>;
