//! How messages get to a server and back: pipes of a program, streamable HTTP, HTTP with server-sent events.

pub(crate) mod http;
pub(crate) mod sse;
pub(crate) mod stdio;

use futures_util::future::BoxFuture;

use crate::error::Error;

/// How long one message of a server may be.
pub(crate) const MAX_MESSAGE: usize = 10 * 1024 * 1024;

/// The way to a server. What comes back goes into the connection's inbox.
pub(crate) trait Pipe: Send + Sync {
    /// Sends a message; `call` is its number if it wants a reply.
    ///
    /// The future may go on until that reply has come; it can be dropped before.
    fn send(&self, message: Vec<u8>, call: Option<u64>) -> BoxFuture<'static, Result<(), Error>>;

    /// Notes the version that both sides agreed on.
    fn agree(&self, _version: &str) {}

    /// Says farewell. The server may not listen any more.
    fn end(&self) -> BoxFuture<'static, ()>;
}
