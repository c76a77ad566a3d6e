//! Transports: pipes of a program, streamable HTTP, HTTP with server-sent events.

pub(crate) mod http;
pub(crate) mod sse;
pub(crate) mod stdio;

use futures_util::future::BoxFuture;

use crate::error::Error;

/// How long one message of a server may be.
pub(crate) const MAX_MESSAGE: usize = 10 * 1024 * 1024;

/// Sends messages to a server. What comes back goes into the connection's inbox.
pub(crate) trait Pipe: Send + Sync {
    /// Sends a message; `call` is its number if it expects a reply.
    ///
    /// The future may run until that reply has arrived; it can be dropped earlier.
    fn send(&self, message: Vec<u8>, call: Option<u64>) -> BoxFuture<'static, Result<(), Error>>;

    /// Notes the version that both sides agreed on.
    fn agree(&self, _version: &str) {}

    /// Closes the connection. The server may no longer respond.
    fn end(&self) -> BoxFuture<'static, ()>;
}
