//! MCP client: connects to servers and offers their tools to a session.
//!
//! Start with [`Host`], which all sessions share, and [`SessionServers`], the servers of one session. `supervisor` keeps one
//! server running, `transport` moves its messages, `tool` adapts one of its tools to the engine. This crate does not read
//! configuration files and does not depend on the client's protocol.

mod attach;
mod clean;
pub mod config;
mod connection;
mod error;
mod handler;
mod host;
mod http;
pub mod oauth;
mod offer;
pub mod probe;
mod report;
mod server;
mod session;
mod starter;
mod supervisor;
mod tool;
mod transport;

pub use config::{Command, Remote, ServerConfig, Transport};
pub use error::Error;
pub use host::{Confinement, Host, Options, Timing};
pub use session::SessionServers;
pub use starter::Starter;
