//! Tests of the built program from outside, as clients use it.
//!
//! `agent` starts the program; the other modules are one subject each.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

mod agent;
mod agent_log;
mod agents;
#[cfg(target_os = "linux")]
mod background;
#[cfg(target_os = "linux")]
mod chat;
mod check;
mod clouds;
mod command_line;
#[cfg(target_os = "linux")]
mod commands;
mod containers;
mod context;
mod crash;
#[cfg(target_os = "linux")]
mod diagnostics;
mod dialects;
mod directory;
mod ends;
#[cfg(target_os = "linux")]
mod extra_permissions;
mod faults;
mod foreign_clients;
mod github;
mod github_commands;
mod github_push;
mod guide;
#[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]
mod hardening;
mod hostile;
#[cfg(target_os = "linux")]
mod injected;
mod large_files;
mod local_models;
mod mcp;
#[cfg(target_os = "linux")]
mod memory;
mod model_sources;
mod models;
#[cfg(target_os = "linux")]
mod moving;
#[cfg(target_os = "linux")]
mod odd_files;
mod order;
mod pages;
mod permissions;
#[cfg(target_os = "linux")]
mod persistence;
#[cfg(target_os = "linux")]
mod policy_files;
mod project_custom;
mod project_servers;
#[cfg(unix)]
mod recordings;
#[cfg(unix)]
mod run;
#[cfg(target_os = "linux")]
mod second_process;
#[cfg(target_os = "linux")]
mod secrets;
mod seeing;
#[cfg(target_os = "linux")]
#[cfg(unix)]
mod server;
mod server_sandbox;
#[cfg(target_os = "linux")]
mod session_worktrees;
mod setup;
mod shared_store;
mod slow;
#[cfg(target_os = "linux")]
mod survivors;
#[cfg(target_os = "linux")]
mod syscalls;
#[cfg(target_os = "linux")]
mod tasks;
mod torture;
mod trace;
#[cfg(target_os = "linux")]
mod undo;
mod worktrees;
