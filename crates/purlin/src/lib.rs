//! The program: wiring, transports, the bridge between ACP and the engine, the command line.
//!
//! A library besides the binary so that tests can serve a client in process. Start with [`serve`].

pub mod acp;
pub mod assemble;
pub mod auth;
mod branch;
mod bridge;
mod choices;
pub mod cli;
pub mod config;
mod count;
pub mod custom;
pub mod doctor;
mod env;
mod error_table;
pub mod guide;
pub mod kept;
pub mod ladder;
pub mod limits;
pub mod log;
pub mod permissions;
pub mod primer;
pub mod project;
mod rate;
pub mod run;
pub mod serve;
pub mod servers;
pub mod sessions;
pub mod tour;
pub mod trust;
