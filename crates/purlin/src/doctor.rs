//! `purlin doctor`: checks the installation and reports problems.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{Expanded, Extension, Journal, ModelChoice};
use engine::words::{Prompt, SlashCommand, nearest, visible};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use mcp::probe::probe;
use process::sandbox::{Level, Profile};
use serde_json::{Value, json};
use serve::Machine;
use serve::mcp_servers::convert;
use serve::workspace::MakeExtension;
use settings::{Config, Settings};

use crate::count::count;
use crate::{env, guide, model_sources, storage};

/// The result of one check.
struct Finding {
    name: &'static str,
    is_well: bool,
    /// One line for the user.
    summary: String,
    /// What is missing or wrong, and how to fix it.
    details: Vec<String>,
}

/// Gives every session the command `/doctor`.
pub(crate) fn extension() -> MakeExtension {
    Box::new(|_, _| Arc::new(Doctor))
}

struct Doctor;

impl Extension for Doctor {
    fn commands(&self) -> Vec<SlashCommand> {
        vec![SlashCommand {
            name: "doctor".into(),
            description: "Check the installation and report problems".into(),
            hint: None,
        }]
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        let is_doctor = prompt.text().trim() == "/doctor";
        async move {
            if is_doctor { Expanded::Answer(report().await) } else { Expanded::Prompt(prompt) }
        }
        .boxed()
    }
}

/// Runs all checks, for a conversation.
async fn report() -> String {
    let findings = look().await;
    let lines = findings.iter().map(|Finding { name, is_well, summary, details }| {
        let mark = if *is_well { "✓" } else { "!" };
        let wrong = details.iter().filter(|_| !is_well).map(|detail| format!("\n  - {detail}"));
        format!("- {mark} {name}: {summary}{}", wrong.collect::<String>())
    });
    lines.collect::<Vec<_>>().join("\n")
}

async fn look() -> Vec<Finding> {
    let (config, problems) = env::load_config(None);
    look_at(&config, problems).await
}

async fn look_at(config: &Config, problems: Vec<String>) -> Vec<Finding> {
    let mut findings = vec![sandbox().await];
    findings.extend(containers(config).await);
    findings.extend([sessions(config), configuration(problems), models(config).await]);
    findings
}

/// Runs all checks of the command line.
async fn look_closely() -> Vec<Finding> {
    let (config, problems) = env::load_config(None);
    let mut findings = look_at(&config, problems).await;
    // Only on the command line: in a conversation `/mcp` shows the servers that run already.
    findings.push(servers(&config).await);
    findings
}

/// Runs all checks. Returns the results for people.
pub(crate) async fn text() -> String {
    look_closely().await.iter().map(as_text).collect()
}

/// Runs all checks and prints the results; the exit code is 1 if there is a problem.
///
/// # Errors
/// Fails if it cannot be printed.
pub async fn run(json: bool) -> anyhow::Result<ExitCode> {
    let findings = look_closely().await;
    let is_well = findings.iter().all(|finding| finding.is_well);
    let mut out = std::io::stdout().lock();
    if json {
        let all: serde_json::Map<String, Value> = findings.iter().map(as_json).collect();
        writeln!(out, "{}", Value::Object(all))?;
    } else {
        findings.iter().try_for_each(|finding| out.write_all(as_text(finding).as_bytes()))?;
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_text(finding: &Finding) -> String {
    let mark = if finding.is_well { "✓" } else { "!" };
    let details = finding.details.iter().map(|detail| format!("    {detail}\n"));
    format!("{mark} {}: {}\n{}", finding.name, finding.summary, details.collect::<String>())
}

fn as_json(finding: &Finding) -> (String, Value) {
    let Finding { name, is_well, summary, details } = finding;
    let value = json!({ "ok": is_well, "summary": summary, "details": details });
    ((*name).to_owned(), value)
}

async fn sandbox() -> Finding {
    let found = serve::sandbox(&env::this_machine()).found().await;
    let summary = match found.level {
        Level::Full => "Full sandbox: commands see only the project and have no network",
        Level::Kernel => "Kernel sandbox: commands write only to the project and have no network",
        Level::Limits => "Resource limits only: every command needs permission",
        Level::None => "No sandbox: every command needs permission",
    };
    let mut details: Vec<String> = found
        .missing
        .iter()
        .map(|(level, why)| format!("level {level} is not available: {why}"))
        .collect();
    if found.level == Level::Kernel && cfg!(target_os = "linux") {
        let what =
            "not prevented: changes of `.git`, and of modes, owners and times of other files";
        details.push(what.to_owned());
    }
    if found.level < Level::Full && cfg!(target_os = "linux") {
        let what = "for the full sandbox allow user namespaces, or install bubblewrap";
        details.push(what.to_owned());
    }
    let is_well = found.level.confines();
    Finding { name: "sandbox", is_well, summary: summary.to_owned(), details }
}

/// Asks the engines, and tries a container if one is configured. `None` where nobody needs containers.
async fn containers(config: &Config) -> Option<Finding> {
    let workspace = &config.workspace;
    let is_wanted = workspace.container.is_some() || workspace.devcontainer;
    let machine = Machine::new(env::this_machine());
    let wanted = workspace.container.as_ref().and_then(|container| container.engine.as_deref());
    let engines = machine.engines(wanted);
    if engines.is_empty() && !is_wanted {
        return None;
    }
    let name = "containers";
    let (mut details, mut working) = (Vec::new(), None);
    for engine in &engines {
        match engine.facts().await {
            Ok(facts) => {
                let rootless = if facts.is_rootless { ", rootless" } else { "" };
                let line = format!("{} {}{rootless}", engine.name(), facts.version);
                working.get_or_insert(line.clone());
                details.push(line);
                if !facts.missing_limits.is_empty() {
                    let what = facts.missing_limits.join(", ");
                    details.push(format!("{} cannot limit here: {what}", engine.name()));
                }
            }
            Err(err) => details.push(format!("{} does not work: {err}", engine.name())),
        }
    }
    let summary = working.clone().map_or_else(
        || "neither Docker nor Podman works".to_owned(),
        |engine| format!("{engine} is used"),
    );
    let mut is_well = working.is_some() || !is_wanted;
    if is_wanted && working.is_some() {
        let settings = Settings::new(config.clone(), Vec::new(), env::directories());
        if let Err(why) = try_container(&settings, &machine).await {
            is_well = false;
            details.push(why);
        }
    }
    Some(Finding { name, is_well, summary, details })
}

/// Runs a command in a container as a session in this directory would.
async fn try_container(settings: &Settings, machine: &Machine) -> Result<(), String> {
    let here = std::env::current_dir().map_err(|err| err.to_string())?;
    let here = here.canonicalize().map_err(|err| err.to_string())?;
    let (containers, notices) = serve::container::containers(settings, machine, &here, &here);
    let Some(containers) = containers else { return Err(notices.join(" ")) };
    let profile = Profile::writing_to(vec![here.clone()]);
    let spec = process::Spec::new("/bin/sh", &here).args(["-c", "exit 0"]);
    let failed = |err: process::Error| format!("image {}: {err}", containers.image());
    let mut child = containers.spawn(&spec, &profile, &[]).await.map_err(failed)?;
    match child.wait().await.map_err(failed)? {
        status if status.success() => Ok(()),
        status => Err(format!("image {}: a command failed ({status})", containers.image())),
    }
}

fn sessions(config: &Config) -> Finding {
    if config.store.is_some() {
        return shared_sessions(config);
    }
    let store = storage::store(config);
    let (is_well, summary, details) = match (env::directories().data, store.is_persistent()) {
        (Some(directory), true) => {
            let store::Check { damage, remarks } = store::check(&directory);
            let summary = format!("stored in {}", directory.display());
            (damage.is_none(), summary, damage.into_iter().chain(remarks).collect())
        }
        _ => (false, "not stored".to_owned(), store.problem().into_iter().collect()),
    };
    Finding { name: "sessions", is_well, summary, details }
}

/// Connects to the store that several machines share.
fn shared_sessions(config: &Config) -> Finding {
    let location = storage::location(config);
    // The store blocks while it works, which is not allowed on a thread that runs async tasks.
    let reached = std::thread::spawn(move || store::reach(&location)).join();
    let reached =
        reached.unwrap_or_else(|_| Err(store::journal::Error::Failed("internal error".to_owned())));
    let (is_well, summary) = match &reached {
        Ok(()) => (true, "stored in a shared database"),
        Err(_) => (false, "the shared store cannot be reached"),
    };
    let details = reached.err().map(|err| err.to_string()).into_iter().collect();
    Finding { name: "sessions", is_well, summary: summary.to_owned(), details }
}

fn configuration(problems: Vec<String>) -> Finding {
    let summary = match problems.len() {
        0 => "valid".to_owned(),
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    Finding { name: "configuration", is_well: problems.is_empty(), summary, details: problems }
}

/// Starts every MCP server of the configuration once, in parallel, and reports those that fail.
async fn servers(config: &Config) -> Finding {
    let mut options = env::host_options();
    options.timing.start_limit = Duration::ZERO;
    let servers: Vec<_> =
        config.mcp.servers.iter().filter_map(|server| convert(server).ok()).collect();
    let probes = servers.iter().map(|server| probe(server.clone(), &options));
    let outcomes = join_all(probes).await;
    let failed = servers.iter().zip(&outcomes).filter_map(|(server, outcome)| {
        let (error, _) = outcome.as_ref().err()?;
        Some(format!("{}: {}", server.name, visible(&error.to_string())))
    });
    let details: Vec<String> = failed.collect();
    let (all, bad) = (outcomes.len(), details.len());
    let summary = match (all, bad) {
        (0, _) => "no servers configured".to_owned(),
        (_, 0) => count(all, "server works", "servers work"),
        _ => format!("{bad} of {} failed", count(all, "server", "servers")),
    };
    Finding { name: "mcp", is_well: bad == 0, summary, details }
}

async fn models(config: &Config) -> Finding {
    let name = "models";
    let usable = model_sources::usable(config).await;
    let total: usize = usable.iter().map(|(_, models)| models.len()).sum();
    if total == 0 {
        let summary = match config.model.as_deref().filter(|model| model.contains('/')) {
            Some(model) => {
                format!("none available; `model` is {model}, so prompts fail")
            }
            None => "none available, so the built-in guide answers".to_owned(),
        };
        let details = vec![
            "add a key with `purlin auth login anthropic` (or openai, google, openrouter)"
                .to_owned(),
            "or start a local server (Ollama, LM Studio, llama.cpp, vLLM); it is detected"
                .to_owned(),
            "`purlin models` explains why each provider is not available".to_owned(),
        ];
        return Finding { name, is_well: false, summary, details };
    }
    let mut details: Vec<String> =
        usable.iter().map(|(name, models)| format!("{name}: {}", models.len())).collect();
    let problem = config.model.as_deref().and_then(|model| problem_of(model, &usable));
    let is_well = problem.is_none();
    details.extend(problem);
    Finding { name, is_well, summary: format!("{total} available"), details }
}

/// Says what is wrong with the model of the configuration, given the available models.
fn problem_of(wanted: &str, usable: &[(String, Vec<ModelChoice>)]) -> Option<String> {
    let ids = || usable.iter().flat_map(|(_, models)| models).map(|choice| choice.id.as_str());
    if wanted.starts_with("script:") || wanted == guide::ID || ids().any(|id| id == wanted) {
        return None;
    }
    let hint = match nearest(wanted, ids()) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => "`purlin models` lists the available ones".to_owned(),
    };
    Some(format!("`model` is `{wanted}`, which is not available. {hint}"))
}
