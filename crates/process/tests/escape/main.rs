//! Escape attempts. `escape drive` acts as the agent and starts `escape try` in the sandbox; the tests of this crate compare the
//! results with the table in docs/internals/escapes.md. `escape hold` acts as an agent that will be killed.

#[cfg(target_os = "linux")]
mod attempts;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod modes;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod others;
#[cfg(target_os = "linux")]
mod system;
#[cfg(target_os = "linux")]
mod tricks;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    if let Some(code) = process::sandbox::helper::run_if_asked(std::env::args_os()) {
        return code;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["drive", level, directory] => driver::drive(level, directory.as_ref()),
        ["privileged"] => ExitCode::from(u8::from(!others::has_capability())),
        ["hold", level, directory, script] => driver::hold(level, directory.as_ref(), script),
        ["try", world @ ..] => attempts::try_all(&attempts::World::read(world)),
        _ => ExitCode::from(2),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::from(2)
}
