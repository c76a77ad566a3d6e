//! `purlin check`: checks any ACP agent and prints or writes reports.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use check::baseline::Baseline;
use check::{Catalogue, Outcome, Profile, RowResult, Suite, SuiteOptions, report};

use crate::env;
use crate::stdout::print;

/// The suite itself failed, which says nothing about the agent.
const SUITE_FAILED: u8 = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Print the catalogue and exit
    #[arg(long)]
    list: bool,
    /// Profile of the agent: a known name or a file; once for each agent
    #[arg(long, value_name = "PROFILE")]
    profile: Vec<String>,
    /// Check only rows whose id contains this text
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Play only cases whose name begins with this text
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Also fail on rows that are a `should`, and on rows that are not part of ACP
    #[arg(long)]
    strict: bool,
    /// File with the ids of rows that are known to fail; an id that does not fail is an error
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Show a JSON report of an earlier run side by side with the others
    #[arg(long, value_name = "FILE")]
    merge: Vec<PathBuf>,
    /// Write a JUnit report
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a JSON report
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report; several agents are shown side by side
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a Markdown table of all agents
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write a badge of the first agent as SVG
    #[arg(long, value_name = "FILE")]
    badge: Option<PathBuf>,
    /// Number of cases to run at once
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    parallel: usize,
    /// Seconds to wait for a message
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    timeout: u64,
    /// Agent and its arguments; separate several agents by `--`
    #[arg(last = true, value_name = "AGENT")]
    agent: Vec<String>,
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        print(&report::list(&Catalogue::load()?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let agents = split_agents(&args.agent);
    anyhow::ensure!(
        !agents.is_empty() || !args.merge.is_empty(),
        "name an agent: purlin check -- AGENT ARGUMENTS…"
    );
    let baseline = args.baseline.as_deref().map(Baseline::read).transpose()?;
    let mut outcomes = merged(&args.merge)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for (index, command) in agents.into_iter().enumerate() {
        let suite = Suite::new(options(args, index, command)?)?;
        let outcome = runtime.block_on(suite.run(&mut show_progress));
        clear_progress();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(err) => {
                eprintln!("purlin: {err:#}");
                return Ok(ExitCode::from(SUITE_FAILED));
            }
        };
        print(&report::terminal(&outcome, args.strict))?;
        outcomes.push(outcome);
    }
    write_reports(args, baseline.as_ref(), &outcomes)?;
    exit_code(args, baseline.as_ref(), &outcomes)
}

/// Splits the words at `--`.
pub(crate) fn split_agents(words: &[String]) -> Vec<Vec<String>> {
    let agents = words.split(|word| word == "--").map(<[String]>::to_vec);
    agents.filter(|agent| !agent.is_empty()).collect()
}

/// Returns the profile of an agent: the one that was named for it, or the known one of its program.
pub(crate) fn profile_of(
    named: &[String],
    index: usize,
    command: &[String],
) -> anyhow::Result<Option<Profile>> {
    match named.get(index) {
        Some(name) => Ok(Some(Profile::find(name)?)),
        None => Ok(Profile::of_command(command)),
    }
}

fn options(args: &CheckArgs, index: usize, command: Vec<String>) -> anyhow::Result<SuiteOptions> {
    Ok(SuiteOptions {
        profile: profile_of(&args.profile, index, &command)?,
        command,
        only: args.only.clone(),
        cases: args.case.clone(),
        parallel: args.parallel,
        wait: Duration::from_secs(args.timeout),
        linger: Duration::from_millis(100),
        mcp_command: std::env::current_exe()?,
        path: env::program_path(),
    })
}

/// Reads the reports of earlier runs.
fn merged(files: &[PathBuf]) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file);
        let text = text.with_context(|| format!("cannot read {}", file.display()))?;
        let read = report::read(&text).map_err(|reason| anyhow::anyhow!(reason));
        outcomes.extend(read.with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(outcomes)
}

fn write_reports(
    args: &CheckArgs,
    baseline: Option<&Baseline>,
    outcomes: &[Outcome],
) -> anyhow::Result<()> {
    write(args.json.as_deref(), || report::json(outcomes))?;
    write(args.html.as_deref(), || report::html(outcomes))?;
    write(args.markdown.as_deref(), || report::markdown(outcomes))?;
    let is_failure = |result: &RowResult| {
        let fails = if args.strict { result.is_strict_violation() } else { result.is_violation() };
        fails && !baseline.is_some_and(|baseline| baseline.has(&result.row.id))
    };
    write(args.junit.as_deref(), || report::junit(outcomes, &is_failure))?;
    if let Some(outcome) = outcomes.first() {
        write(args.badge.as_deref(), || report::badge(outcome))?;
    }
    Ok(())
}

pub(crate) fn write(path: Option<&Path>, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, text()).with_context(|| format!("cannot write {}", path.display()))
}

fn exit_code(
    args: &CheckArgs,
    baseline: Option<&Baseline>,
    outcomes: &[Outcome],
) -> anyhow::Result<ExitCode> {
    if outcomes.iter().any(|outcome| !outcome.suite_faults.is_empty()) {
        return Ok(ExitCode::from(SUITE_FAILED));
    }
    let mut is_good = true;
    for outcome in outcomes {
        let Some(baseline) = baseline else {
            is_good &= match args.strict {
                true => outcome.strict_violations().next().is_none(),
                false => outcome.is_conformant(),
            };
            continue;
        };
        let compared = baseline.compare(outcome, args.strict);
        for id in &compared.new {
            print(&format!("not in the baseline: {id}\n"))?;
        }
        for id in &compared.stale {
            print(&format!("stale in the baseline, because it does not fail: {id}\n"))?;
        }
        is_good &= compared.new.is_empty() && compared.stale.is_empty();
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show_progress(done: usize, total: usize, name: &str) {
    let mut err = std::io::stderr();
    // Progress that cannot be shown is not worth failing for.
    if err.is_terminal() {
        write!(err, "\r\x1b[K[{done}/{total}] {name}").ok();
    } else if done.is_multiple_of(20) || done == total {
        writeln!(err, "[{done}/{total}]").ok();
    }
    err.flush().ok();
}

fn clear_progress() {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        write!(err, "\r\x1b[K").ok();
    }
}

/// Serves as the MCP server of the cases, see `check::mcp_probe`.
pub(crate) fn serve_mcp_probe(mark: &str) -> anyhow::Result<ExitCode> {
    let (file, variable) = env::mcp_probe().context("mcp-probe is for `purlin check`")?;
    let mark = format!("{mark} {variable}");
    check::mcp_probe::serve(&file, &mark, std::io::stdin().lock(), std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
