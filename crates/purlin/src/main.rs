//! The binary. Everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    match purlin::cli::main() {
        Ok(code) => code,
        Err(err) => {
            eprintln!("purlin: {err:#}");
            ExitCode::from(2)
        }
    }
}
