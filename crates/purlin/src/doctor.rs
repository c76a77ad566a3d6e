//! `purlin doctor`: whether everything is as it should be, and what is missing, in words.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use engine::ports::Journal;
use engine::ports::ModelChoice;
use engine::words::nearest;
use engine::words::visible;
use futures_util::future::join_all;
use mcp::probe::probe;
use process::sandbox::Level;
use serde_json::{Value, json};
use serve::mcp_servers::convert;
use settings::Config;

use crate::count::count;
use crate::{assemble, env, guide, model_sources};

/// One thing that was looked at.
struct Finding {
    name: &'static str,
    is_well: bool,
    /// One line that sums it up.
    summary: String,
    /// What is missing or wrong.
    details: Vec<String>,
}

/// Looks at everything and says it in short, for a conversation.
pub(crate) async fn report() -> String {
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
    vec![sandbox().await, sessions(config), configuration(problems), models(config).await]
}

/// Looks at everything and prints it; the exit code is 1 if something is not as it should be.
///
/// # Errors
/// Fails if it cannot be printed.
pub async fn run(json: bool) -> anyhow::Result<ExitCode> {
    let (config, problems) = env::load_config(None);
    let mut findings = look_at(&config, problems).await;
    // Only here: in a conversation `/mcp` tells, of the servers that run already.
    findings.push(servers(&config).await);
    let is_well = findings.iter().all(|finding| finding.is_well);
    let mut out = std::io::stdout().lock();
    if json {
        let all: serde_json::Map<String, Value> = findings.iter().map(as_json).collect();
        writeln!(out, "{}", Value::Object(all))?;
    } else {
        for finding in &findings {
            let mark = if finding.is_well { "✓" } else { "!" };
            writeln!(out, "{mark} {}: {}", finding.name, finding.summary)?;
            for detail in &finding.details {
                writeln!(out, "    {detail}")?;
            }
        }
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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

fn sessions(config: &Config) -> Finding {
    let store = assemble::store(&config.limits);
    let (is_well, summary) = match (env::directories().data, store.is_persistent()) {
        (Some(folder), true) => (true, format!("kept in {}", folder.display())),
        _ => (false, "not kept".to_owned()),
    };
    Finding { name: "sessions", is_well, summary, details: store.problem().into_iter().collect() }
}

fn configuration(problems: Vec<String>) -> Finding {
    let summary = match problems.len() {
        0 => "can be read".to_owned(),
        1 => "has a mistake".to_owned(),
        count => format!("has {count} mistakes"),
    };
    Finding { name: "configuration", is_well: problems.is_empty(), summary, details: problems }
}

/// Starts every MCP server of the configuration once, side by side, and says which do not work.
async fn servers(config: &Config) -> Finding {
    let mut options = env::host_options();
    options.timing.start_most = Duration::ZERO;
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
        (0, _) => "no servers are configured".to_owned(),
        (_, 0) => count(all, "server works", "servers work"),
        _ => format!("{bad} of {} not work", count(all, "server does", "servers do")),
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
                format!("none can be used yet; `model` is {model}, so prompts are refused")
            }
            None => "none can be used yet, so the built-in guide answers".to_owned(),
        };
        let details = vec![
            "`purlin auth login anthropic` keeps a key; so do openai, google and openrouter"
                .to_owned(),
            "a server on this machine (Ollama, LM Studio, llama.cpp, vLLM) is found while it runs"
                .to_owned(),
            "`purlin models` says of each provider why it cannot be used".to_owned(),
        ];
        return Finding { name, is_well: false, summary, details };
    }
    let mut details: Vec<String> =
        usable.iter().map(|(name, models)| format!("{name}: {}", models.len())).collect();
    let problem = config.model.as_deref().and_then(|model| problem_of(model, &usable));
    let is_well = problem.is_none();
    details.extend(problem);
    Finding { name, is_well, summary: format!("{total} can be used"), details }
}

/// Says what is wrong with the model that the configuration names, given the models that can be used.
fn problem_of(wanted: &str, usable: &[(String, Vec<ModelChoice>)]) -> Option<String> {
    let ids = || usable.iter().flat_map(|(_, models)| models).map(|choice| choice.id.as_str());
    if wanted.starts_with("script:") || wanted == guide::ID || ids().any(|id| id == wanted) {
        return None;
    }
    let hint = match nearest(wanted, ids()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`purlin models` lists those that are, and says why others are not".to_owned(),
    };
    Some(format!("`model` is `{wanted}`, which is not among them; {hint}"))
}
