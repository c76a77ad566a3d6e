//! The program: command line, environment, and the assembly of everything else.
//!
//! A library besides the binary so that tests can serve a client in process. Start with [`acp`].

pub mod acp;
pub mod assemble;
pub mod auth;
mod chat_command;
mod check_command;
pub mod cli;
pub mod config_command;
#[cfg(unix)]
mod container_command;
mod count;
#[cfg(unix)]
mod dashboard;
pub mod doctor;
pub mod env;
#[cfg(unix)]
mod first_run;
pub mod guide;
mod load_command;
pub mod log;
mod logs_command;
mod mcp_command;
pub mod model_sources;
mod observer;
pub mod permissions;
mod record_command;
mod report;
mod run;
mod serve_command;
pub mod sessions;
mod setup;
mod shim;
mod stdout;
pub mod storage;
mod tap_command;
pub mod tour;
mod trace_command;
mod trace_extension;
pub mod trust;
