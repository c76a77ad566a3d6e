//! Bytes to typed messages and back: newline-delimited JSON, JSON-RPC 2.0, ACP, and server-sent events.
//!
//! Everything here is a pure value machine: no IO, no clock, no async runtime. `purlin::serve` and
//! `client::connect` move the bytes. Start with [`peer`] for the connection, [`acp`] for the methods.

pub mod acp;
pub mod code;
pub mod line;
pub mod peek;
pub mod peer;
pub mod rpc;
pub mod sse;

pub use code::{Code, RpcError};
pub use line::SizeLimits;
pub use peer::{Incoming, Peer};
pub use rpc::RequestId;
