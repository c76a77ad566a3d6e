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
mod count;
pub mod doctor;
pub mod env;
pub mod guide;
mod load_command;
pub mod log;
mod mcp_command;
pub mod model_sources;
pub mod permissions;
pub mod run;
pub mod sessions;
mod setup;
mod stdout;
pub mod storage;
pub mod tour;
pub mod trust;
