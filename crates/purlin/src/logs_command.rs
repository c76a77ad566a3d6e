//! `purlin logs`: shows the log file.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::log::{self, Line};

/// How often the file is read again with `--follow`.
const POLL: Duration = Duration::from_millis(250);

/// The arguments of `purlin logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Continue with new lines as they are written
    #[arg(short, long)]
    follow: bool,
    /// Only lines of this session; the beginning of its id is enough
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Print the lines as they are stored, as JSON
    #[arg(long)]
    json: bool,
}

/// Shows the log.
///
/// # Errors
/// Says which file cannot be read.
pub(crate) fn run(args: &LogsArgs) -> anyhow::Result<ExitCode> {
    let files = log::files();
    if files.is_empty() && !args.follow {
        eprintln!("Nothing has been logged yet.");
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stdout().lock();
    let path = log::file_path();
    let mut seen = 0;
    for file in &files {
        let end = show(file, 0, args, &mut out)?;
        if Some(file) == path.as_ref() {
            seen = end;
        }
    }
    let Some(path) = path.filter(|_| args.follow) else {
        return Ok(ExitCode::SUCCESS);
    };
    loop {
        std::thread::sleep(POLL);
        let length = std::fs::metadata(&path).map_or(0, |about| about.len());
        if length < seen {
            // It was renamed, and a new one begins.
            if let Some(renamed) = log::files().iter().rev().nth(1) {
                show(renamed, seen, args, &mut out)?;
            }
            seen = 0;
        }
        if length > seen {
            seen = show(&path, seen, args, &mut out)?;
        }
    }
}

/// Shows a file from an offset on. Returns where its last whole line ends.
fn show(file: &Path, from: u64, args: &LogsArgs, out: &mut impl Write) -> anyhow::Result<u64> {
    let mut input = File::open(file).with_context(|| format!("{}", file.display()))?;
    input.seek(SeekFrom::Start(from))?;
    let mut input = BufReader::new(input);
    let has_colours = std::io::stdout().is_terminal();
    let (mut bytes, mut seen) = (Vec::new(), from);
    while input.read_until(b'\n', &mut bytes)? > 0 && bytes.ends_with(b"\n") {
        seen += bytes.len() as u64;
        let line = String::from_utf8_lossy(&bytes);
        if let Some(text) = Line::shown(&line, args.session.as_deref(), has_colours) {
            let text = if args.json { line.as_bytes() } else { text.as_bytes() };
            out.write_all(text)?;
        }
        bytes.clear();
    }
    out.flush()?;
    Ok(seen)
}
