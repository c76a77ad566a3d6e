//! `purlin load`: puts any ACP agent under load and prints or writes what was measured.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use check::load::{self, LoadOptions, Scenario};

use crate::check_command::{profile_of, split_agents, write};
use crate::env;
use crate::stdout::print;

#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Profile of the agent: a known name or a file; once for each agent
    #[arg(long, value_name = "PROFILE")]
    profile: Vec<String>,
    /// Sessions at once
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    sessions: u16,
    /// Turns in each session
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    turns: u16,
    /// Chunks in each answer of the model
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    chunks: u32,
    /// Bytes in each chunk
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    size: u32,
    /// Run only scenarios with this name: sessions, history, large chunks, files, slow reader, cancels
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Double the sessions up to this number, until the agent fails
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    ramp: Option<u16>,
    /// Seconds after which a scenario is stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    limit: u64,
    /// Write a JSON report
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report with plots; several agents are shown side by side
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Agent and its arguments; separate several agents by `--`
    #[arg(last = true, value_name = "AGENT")]
    agent: Vec<String>,
}

pub(crate) fn run(args: &LoadArgs) -> anyhow::Result<ExitCode> {
    let agents = split_agents(&args.agent);
    anyhow::ensure!(!agents.is_empty(), "name an agent: purlin load -- AGENT ARGUMENTS…");
    let scenarios = scenarios(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut outcomes = Vec::new();
    for (index, command) in agents.into_iter().enumerate() {
        let profile = profile_of(&args.profile, index, &command)?;
        let profile = profile.with_context(|| {
            let known = check::Profile::names().join(", ");
            format!(
                "{} has no known profile: name one with --profile ({known}, or a file)",
                command[0]
            )
        })?;
        let limit = Duration::from_secs(args.limit);
        let options = LoadOptions { command, profile, path: env::program_path(), limit };
        let mut progress = |it: &Scenario| {
            eprintln!(
                "{}: {} × {} × {} × {} bytes…",
                it.name, it.sessions, it.turns, it.chunks, it.size
            );
        };
        outcomes.push(runtime.block_on(load::run(&options, &scenarios, &mut progress))?);
    }
    print(&load::report::terminal(&outcomes))?;
    write(args.json.as_deref(), || serde_json::to_string_pretty(&outcomes).unwrap_or_default())?;
    write(args.html.as_deref(), || load::report::html(&outcomes))?;
    let has_failed =
        |outcome: &load::LoadOutcome| outcome.measured.iter().any(|it| it.is_failure());
    Ok(if outcomes.iter().any(has_failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn scenarios(args: &LoadArgs) -> anyhow::Result<Vec<Scenario>> {
    let (chunks, size) = (args.chunks as usize, args.size as usize);
    if let Some(most) = args.ramp {
        return Ok(load::ramp(most.into(), chunks, size));
    }
    let all = load::scenarios(args.sessions.into(), args.turns.into(), chunks, size);
    let names: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
    for name in &args.only {
        anyhow::ensure!(
            names.contains(&name.as_str()),
            "no scenario `{name}`; known are {}",
            names.join(", ")
        );
    }
    let is_wanted =
        |it: &Scenario| args.only.is_empty() || args.only.iter().any(|name| name == it.name);
    Ok(all.into_iter().filter(is_wanted).collect())
}
