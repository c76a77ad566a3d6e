//! MCP: connects to servers and offers their tools to a session.
//!
//! Start with [`Host`], which all sessions share, and [`SessionServers`], the servers of one session. `supervisor` keeps one
//! server running, `transport` moves its messages, `tool` is one of its tools. Nothing here reads
//! configuration files or knows the client's protocol.

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

pub use config::{Command, Reach, Remote, Secret, ServerConfig};
pub use error::Error;
pub use host::{Confine, Host, Options, Timing};
pub use session::SessionServers;
pub use starter::Starter;
