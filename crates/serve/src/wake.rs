//! Why the dispatcher wakes: the closed list of everything that can reach it.

use engine::hub::Opened;
use engine::ports::Listing;
use engine::ports::Settings;
use engine::words::{SessionId, StopReason};
use engine::{Error, Event};
use serde_json::value::RawValue;
use wire::{RequestId, RpcError};

/// A reason to wake.
pub(crate) enum Wake {
    /// Bytes came in.
    Bytes(Vec<u8>),
    /// The client closed our input, or told us to stop.
    Stop,
    /// Sessions or the hub have something; it was put beside the wake, as many at once as there were.
    Sessions,
    /// Nobody waits for this call of ours any more.
    Abandoned(u64),
    /// The writer is free again; an error means that the client closed our output.
    Written(std::io::Result<Vec<u8>>),
    /// Text that had to wait may go now, or the client has read nothing for too long.
    Time,
}

/// What a session sends the dispatcher. All of it takes the same way, so order is kept by construction.
pub(crate) enum FromSession {
    /// Show this to the client.
    Event {
        session: SessionId,
        event: Event,
        /// Room it takes in the budgets.
        cost: usize,
    },
    /// Send the client this line.
    Line { session: SessionId, line: Vec<u8>, cost: usize },
    /// Ask the client.
    Call { session: SessionId, call: ClientCall, cost: usize },
    /// Answer a call of the client.
    Answer { id: RequestId, answer: Answer },
}

/// A call to the client.
pub(crate) struct ClientCall {
    /// The number it goes out with.
    pub(crate) number: u64,
    pub(crate) method: &'static str,
    pub(crate) params: Box<RawValue>,
    /// Takes the answer, on the dispatcher's own task: it reads it into its type and must not block.
    pub(crate) answer: TakeAnswer,
}

/// Takes the raw answer of the client.
pub(crate) type TakeAnswer = Box<dyn FnOnce(Result<&RawValue, RpcError>) + Send>;

/// The answer to a call, by what was called.
pub(crate) enum Answer {
    Opened(Opening, Result<Opened, Error>),
    /// A session that was open already was loaded or resumed.
    Reopened(SessionId, Opening, Result<Settings, Error>),
    Listed(Result<Listing, Error>),
    Titled(SessionId, Result<String, Error>),
    Deleted(SessionId, Result<(), Error>),
    Prompt(SessionId, Result<StopReason, Error>),
    /// A message for the running turn; the flag says that a session without one is no error.
    Steered(SessionId, bool, Result<(), Error>),
    /// `set_mode` and `set_model` answer with nothing, `set_config_option` with the whole list.
    Set(SessionId, Shape, Result<Settings, Error>),
    Closed(SessionId, Result<(), Error>),
}

/// How a change of a setting is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Empty,
    Options,
}

/// How a session is opened, and so how that is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    New,
    Load,
    Resume,
    Fork,
}
