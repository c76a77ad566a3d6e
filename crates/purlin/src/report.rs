//! `purlin report`: packs what somebody needs to understand a problem, without secrets. Shows what is inside, and asks before
//! it writes. The archive is written by `report::archive`; what a secret is, is in `report::secrets` and `observe::mask`.

mod archive;
mod secrets;

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, bail};
use clap::Args;
use engine::words::{iso_8601, visible};

use self::secrets::Secrets;
use crate::count::count;
use crate::stdout::print;
use crate::{config_command, doctor, env, log};

/// How much of the log is packed: its end.
const MAX_LOG: u64 = 4 * 1024 * 1024;
/// How much of the trace is packed: its end.
const MAX_TRACE: u64 = 16 * 1024 * 1024;
/// A recording is packed whole or not at all.
const MAX_RECORDING: u64 = 64 * 1024 * 1024;

/// The arguments of `purlin report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The archive to write; by default purlin-report-TIME.tar.gz in this directory
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Pack this trace; by default the one that the configuration names
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Pack this recording of `purlin acp --record`
    #[arg(long, value_name = "DIR")]
    recording: Option<PathBuf>,
    /// Write without asking
    #[arg(long)]
    yes: bool,
}

/// A file of the report.
struct Part {
    name: String,
    /// What it is, for the user.
    about: String,
    content: Vec<u8>,
}

/// Collects the report, shows what is in it, asks, and writes it.
///
/// # Errors
/// Says what cannot be read or written.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let output = args.output.clone().unwrap_or_else(default_output);
    if output.exists() {
        bail!("{} exists already; name another file with `--output FILE`", output.display());
    }
    if !args.yes && !std::io::stdin().is_terminal() {
        print(&shown(&collect(args)?))?;
        bail!("nothing was written: run this in a terminal, or add `--yes`");
    }
    let parts = collect(args)?;
    print(&shown(&parts))?;
    if !args.yes {
        print(&format!("Write {}? [y/N] ", output.display()))?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "yes") {
            print("Nothing was written.\n")?;
            return Ok(ExitCode::FAILURE);
        }
    }
    write(&output, &parts).with_context(|| format!("cannot write {}", output.display()))?;
    let path = output.display();
    print(&format!(
        "Wrote {path}. Nothing was sent. Look at it before you give it to somebody: tar xzf {path}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn default_output() -> PathBuf {
    let time = iso_8601(SystemTime::now()).replace([':', '-'], "").replace('T', "-");
    PathBuf::from(format!("purlin-report-{}.tar.gz", time.trim_end_matches('Z')))
}

/// Writes the archive, which only its owner can read. An existing file is not replaced.
fn write(output: &Path, parts: &[Part]) -> std::io::Result<()> {
    let mut options = File::options();
    options.create_new(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let files = parts.iter().map(|part| (part.name.as_str(), part.content.as_slice()));
    archive::write(options.open(output)?, files)
}

/// Lists the files for the user.
fn shown(parts: &[Part]) -> String {
    let mut text = "The report has these files:\n".to_owned();
    for Part { name, about, content } in parts {
        text.push_str(&format!("  {name:<24} {:>9}  {about}\n", size(content.len())));
    }
    let home = if env::directories().home.is_some() { " Your home directory is ~." } else { "" };
    text.push_str(&format!("Secrets that were recognised are masked.{home}\n"));
    text
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => count(bytes, "byte", "bytes"),
        1024..1_048_576 => format!("{} kB", bytes / 1024),
        _ => format!("{} MB", bytes / 1_048_576),
    }
}

fn collect(args: &ReportArgs) -> anyhow::Result<Vec<Part>> {
    let (config, known) = config_command::report();
    let secrets = Secrets::gather(known);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let doctor = runtime.block_on(doctor::text());
    let part = |name: &str, about: &str, content: String| Part {
        name: name.to_owned(),
        about: about.to_owned(),
        content: secrets.masked(&content).into_bytes(),
    };
    let mut parts = vec![
        part("version.txt", "version and system", version()),
        part("doctor.txt", "the output of `purlin doctor`", doctor),
        part("configuration.txt", "the effective configuration and its sources", config),
    ];
    if let Some(log) = log_part(&secrets)? {
        parts.push(log);
    }
    let (settings, _) = env::load_config(None);
    let configured = env::trace_file().or(settings.trace).filter(|file| file.exists());
    if let Some(file) = args.trace.clone().or(configured) {
        parts.push(trace_part(&file, &secrets)?);
    }
    if let Some(directory) = &args.recording {
        parts.extend(recording_parts(directory, &secrets)?);
    }
    Ok(parts)
}

/// Describes the program and the system.
fn version() -> String {
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let system = system.map_or_else(String::new, |name| format!(" ({})", name.trim_matches('"')));
    #[cfg(unix)]
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let kernel = "unknown";
    let version = env!("PURLIN_VERSION");
    let time = iso_8601(SystemTime::now());
    format!("purlin {version}\nsystem {os} {arch}{system}\nkernel {kernel}\ntime {time}\n")
}

/// Reads the end of the log: all its files in order.
fn log_part(secrets: &Secrets) -> anyhow::Result<Option<Part>> {
    let mut texts = Vec::new();
    let mut left = MAX_LOG;
    for file in log::files().into_iter().rev() {
        let (text, is_whole) = end_of(&file, left)?;
        left = left.saturating_sub(text.len() as u64);
        texts.push(text);
        if left == 0 || !is_whole {
            break;
        }
    }
    texts.reverse();
    let text = texts.concat();
    if text.is_empty() {
        return Ok(None);
    }
    let content: String = text.lines().map(|line| secrets.masked_line(line) + "\n").collect();
    let about = "the end of the log of all agents".to_owned();
    Ok(Some(Part { name: "log.jsonl".to_owned(), about, content: content.into_bytes() }))
}

fn trace_part(file: &Path, secrets: &Secrets) -> anyhow::Result<Part> {
    let (text, is_whole) = end_of(file, MAX_TRACE)?;
    let content: String = text.lines().map(|line| secrets.masked_line(line) + "\n").collect();
    let part = if is_whole { "" } else { "the end of " };
    let about =
        format!("{part}{}; has prompts, answers and files", visible(&file.to_string_lossy()));
    Ok(Part { name: "trace.jsonl".to_owned(), about, content: content.into_bytes() })
}

/// Reads the end of a file, from the beginning of a line on. Tells whether it is the whole file.
fn end_of(file: &Path, max: u64) -> anyhow::Result<(String, bool)> {
    let read = || -> std::io::Result<(Vec<u8>, bool)> {
        let mut input = File::open(file)?;
        let length = input.metadata()?.len();
        let mut content = Vec::new();
        if length <= max {
            input.take(max).read_to_end(&mut content)?;
            return Ok((content, true));
        }
        input.seek(SeekFrom::Start(length - max))?;
        let mut input = BufReader::new(input.take(max));
        input.skip_until(b'\n')?;
        input.read_to_end(&mut content)?;
        Ok((content, false))
    };
    let (content, is_whole) = read().with_context(|| file.display().to_string())?;
    Ok((String::from_utf8_lossy(&content).into_owned(), is_whole))
}

/// Reads a recording, which can still be played afterwards: it is masked already, and only known secrets are replaced.
fn recording_parts(directory: &Path, secrets: &Secrets) -> anyhow::Result<Vec<Part>> {
    let mut left = MAX_RECORDING;
    let mut parts = Vec::new();
    for name in [recording::ENTRIES, recording::OUTPUT] {
        let file = directory.join(name);
        let (text, is_whole) = end_of(&file, left)?;
        if !is_whole {
            bail!("{} is too large: more than {} MB", directory.display(), MAX_RECORDING >> 20);
        }
        left = left.saturating_sub(text.len() as u64);
        let about = "the recording; has prompts, answers and files".to_owned();
        let content = secrets.without_known(&text).into_bytes();
        parts.push(Part { name: format!("recording/{name}"), about, content });
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_file_is_read_from_a_whole_line_on() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("log");
        std::fs::write(&file, "first line\nsecond line\nthird\n").unwrap();
        let (text, is_whole) = end_of(&file, 12).unwrap();
        assert_eq!((text.as_str(), is_whole), ("third\n", false));
        let (text, is_whole) = end_of(&file, 1000).unwrap();
        assert_eq!((text.lines().count(), is_whole), (3, true));
    }

    #[test]
    fn existing_archive_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report.tar.gz");
        write(&file, &[]).unwrap();
        assert!(write(&file, &[]).is_err());
        #[cfg(unix)]
        {
            let permissions = std::fs::metadata(&file).unwrap().permissions();
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777, 0o600);
        }
    }
}
