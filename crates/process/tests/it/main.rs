//! The sandbox from outside: what gets out of it, and what a command cannot break.

#[cfg(target_os = "linux")]
mod escapes;
#[cfg(target_os = "linux")]
mod faults;
