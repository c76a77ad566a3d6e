//! Tests of the built program, from outside: what a client can send, see and do to it.
//!
//! `agent` starts the program; each other module is one kind of client.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

#[cfg(target_os = "linux")]
mod again;
mod agent;
mod agents;
#[cfg(target_os = "linux")]
mod commands;
mod context;
mod crash;
mod dialects;
mod ends;
mod faults;
mod guide;
#[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]
mod hardening;
mod hostile;
#[cfg(target_os = "linux")]
mod injected;
mod judge;
mod ladder;
mod large_files;
mod mcp;
#[cfg(target_os = "linux")]
mod memory;
mod models;
mod order;
mod permissions;
mod project_custom;
mod project_servers;
#[cfg(target_os = "linux")]
mod secrets;
#[cfg(target_os = "linux")]
mod server_sandbox;
mod shell;
mod slow;
#[cfg(target_os = "linux")]
mod survivors;
#[cfg(target_os = "linux")]
mod syscalls;
mod torture;
mod trace;
#[cfg(target_os = "linux")]
mod undo;
#[cfg(target_os = "linux")]
mod wishes;
#[cfg(target_os = "linux")]
mod worktrees;
