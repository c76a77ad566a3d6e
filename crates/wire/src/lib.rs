//! Converts bytes to typed messages and back: newline-delimited JSON, JSON-RPC 2.0, ACP, and server-sent events.
//!
//! This crate does no IO, reads no clock and needs no async runtime; its callers move the bytes. Start with [`peer`] for
//! the connection and [`acp`] for the methods.

pub mod acp;
pub mod code;
#[cfg(test)]
mod fuzz;
pub mod id;
pub mod line;
pub mod peek;
pub mod peer;
pub mod rpc;
pub mod sse;

pub use code::{Code, RpcError};
pub use id::RequestId;
pub use line::SizeLimits;
pub use peer::{Incoming, Peer};
