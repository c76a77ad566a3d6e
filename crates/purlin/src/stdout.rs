//! Output of commands on stdout.

use std::io::Write;

/// Prints to stdout.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}
