//! The binary. Everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: the helper becomes a command, and nothing of ours may be left in it.
    #[cfg(target_os = "linux")]
    if let Some(code) = process::sandbox::helper::run_if_asked(std::env::args_os()) {
        return code;
    }
    match purlin::cli::main() {
        Ok(code) => code,
        Err(err) => {
            eprintln!("purlin: {err:#}");
            ExitCode::from(2)
        }
    }
}
