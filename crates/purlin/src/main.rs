//! The binary. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: the sandbox helper becomes a command, and must not inherit anything from us.
    #[cfg(target_os = "linux")]
    if let Some(code) = process::sandbox::helper::run_if_asked(std::env::args_os()) {
        return code;
    }
    #[cfg(unix)]
    process::harden();
    match purlin::cli::main() {
        Ok(code) => code,
        Err(err) => {
            eprintln!("purlin: {err:#}");
            ExitCode::from(2)
        }
    }
}
