//! Calls to the client, on their way through the dispatcher.

use serde_json::value::RawValue;
use wire::RpcError;

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
