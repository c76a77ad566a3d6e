//! `purlin trace`: shows a recorded trace, or converts it for other tools.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use observe::show::{self, Filter};
use observe::view;

use crate::count::count;

/// The arguments of `purlin trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Trace file
    file: PathBuf,
    /// Write a page for the browser: sequence, timing, errors and profile
    #[arg(long, value_name = "OUT", group = "form")]
    html: Option<PathBuf>,
    /// Print a Mermaid sequence diagram
    #[arg(long, group = "form")]
    mermaid: bool,
    /// Print a picture for documents
    #[arg(long, value_name = "PICTURE", group = "form")]
    svg: Option<Picture>,
    /// Print the spans for Perfetto or chrome://tracing
    #[arg(long, group = "form")]
    perfetto: bool,
    /// Send the spans to an OpenTelemetry collector, such as http://localhost:4318
    #[arg(long, value_name = "URL", group = "form")]
    otlp: Option<String>,
    /// Only this session; the beginning of its id is enough
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only messages and spans with this in their method, kind or name
    #[arg(long, value_name = "TEXT")]
    method: Option<String>,
    /// Only what failed
    #[arg(long)]
    errors: bool,
    /// Only what took at least this many milliseconds
    #[arg(long, value_name = "MS")]
    slower_than: Option<f64>,
}

/// A picture for documents.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Picture {
    /// What took how long
    Timing,
    /// Who sent what
    Sequence,
}

/// Shows a trace.
///
/// # Errors
/// Says which file cannot be read or written, and why a collector takes no spans.
pub(crate) fn run(args: TraceArgs) -> anyhow::Result<ExitCode> {
    let file = &args.file;
    let input = File::open(file).with_context(|| format!("{}", file.display()))?;
    let filter = Filter {
        session: args.session.clone(),
        method: args.method.clone(),
        errors: args.errors,
        min_ms: args.slower_than,
        since: None,
    };
    if let Some(url) = &args.otlp {
        return push(file, url);
    }
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    let input = BufReader::with_capacity(1024 * 1024, input);
    let bad = match (&args.html, args.svg) {
        (Some(page), _) => write_page(file, &filter, page)?,
        (None, Some(Picture::Timing)) => view::timing_svg(file, &filter, &mut stdout)?,
        (None, Some(Picture::Sequence)) => view::sequence_svg(file, &filter, &mut stdout)?,
        (None, None) if args.perfetto => view::perfetto(file, &mut stdout)?,
        (None, None) if args.mermaid => show::mermaid(input, &filter, &mut stdout)?,
        (None, None) => show::list(input, &filter, &mut stdout)?,
    };
    stdout.flush()?;
    if bad > 0 {
        let (lines, are) = (count(bad, "line", "lines"), if bad == 1 { "is" } else { "are" });
        eprintln!("Skipped {lines} that {are} not part of a trace");
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a trace, which only its owner can read. Returns how many lines are not part of the trace.
///
/// # Errors
/// Says which file cannot be written.
pub(crate) fn write_page(file: &Path, filter: &Filter, page: &Path) -> anyhow::Result<usize> {
    write_page_from(file, filter, None, page)
}

/// The same, from a call of the client on, named by its id as JSON.
///
/// # Errors
/// Says which file cannot be written.
pub(crate) fn write_page_from(
    file: &Path,
    filter: &Filter,
    call: Option<&str>,
    page: &Path,
) -> anyhow::Result<usize> {
    let mut options = File::options();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let out = options.open(page).with_context(|| format!("cannot write {}", page.display()))?;
    let mut out = BufWriter::with_capacity(256 * 1024, out);
    let bad = view::page(file, filter, call, &mut out)?;
    out.flush()?;
    Ok(bad)
}

/// Returns where a collector takes `signal`: `traces` or `metrics`. The address may name another signal, or none.
pub(crate) fn collector_url(url: &str, signal: &str) -> String {
    let base = url.trim_end_matches('/');
    let base = base.strip_suffix("/v1/traces").or_else(|| base.strip_suffix("/v1/metrics"));
    format!("{}/v1/{signal}", base.unwrap_or_else(|| url.trim_end_matches('/')))
}

/// Sends the spans to a collector.
fn push(file: &Path, url: &str) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let url = collector_url(url, "traces");
    let send = |spans: serde_json::Value| {
        let posted = runtime.block_on(providers::post_json(&url, spans.to_string().into_bytes()));
        posted.map_err(std::io::Error::other)
    };
    let sent = view::otlp(file, env!("CARGO_PKG_VERSION"), send);
    let sent = sent.context("the collector did not take the spans")?;
    let sent = format!("Sent {}\n", count(sent, "span", "spans"));
    std::io::stdout().write_all(sent.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
