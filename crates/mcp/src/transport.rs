//! The transports: pipes of a local process, streamable HTTP, and the older HTTP with server-sent events.

pub(crate) mod http;
pub(crate) mod sse;
pub(crate) mod stdio;

use futures_util::future::BoxFuture;

use crate::error::Error;

/// The maximum size of one message from a server, in bytes.
pub(crate) const MAX_MESSAGE: usize = 10 * 1024 * 1024;

/// The sending side of a transport. Received messages go to the connection's inbox.
pub(crate) trait Pipe: Send + Sync {
    /// Sends a message. `call` is its number if it expects a reply.
    ///
    /// The future may run until the reply has arrived. It can be dropped earlier.
    fn send(&self, message: Vec<u8>, call: Option<u64>) -> BoxFuture<'static, Result<(), Error>>;

    /// Sets the negotiated protocol version.
    fn set_version(&self, _version: &str) {}

    /// Closes the transport. The server may already be gone.
    fn end(&self) -> BoxFuture<'static, ()>;
}
