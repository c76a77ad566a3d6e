//! `purlin permissions`: lists and revokes saved answers, and explains what would happen to a command.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use engine::permission::policy::Policy;
use engine::permission::rules::Rule;
use engine::permission::{Access, Decision, always_words};
use engine::words::{MODES, Mode, saved_words, visible};
use engine::words::{SessionId, ToolKind};
use process::sandbox::Level;
use serde_json::json;
use serve::Machine;
use settings::answer_store::{self, SavedAnswer};
use settings::{Settings, quote_all};
use tools::bash::ExtraPermissions;
use tools::bash::Requirement;

use crate::env;
use crate::stdout::print;

/// A subcommand of `purlin permissions`.
#[derive(Debug, Subcommand)]
pub enum PermissionsCommand {
    /// Explain whether a command would run, and which rule decides
    Explain {
        /// Mode: build, accept_edits, plan or ask
        #[arg(long, value_name = "MODE", default_value = "build")]
        mode: String,
        /// Working directory
        #[arg(long, value_name = "FOLDER", default_value = ".")]
        cwd: PathBuf,
        /// Assume no sandbox
        #[arg(long)]
        no_sandbox: bool,
        /// Assume that the command requests network access
        #[arg(long)]
        network: bool,
        /// Assume that the command requests to change .git
        #[arg(long)]
        git: bool,
        /// Assume that the command requests to write to this directory; repeatable
        #[arg(long, value_name = "FOLDER")]
        write_outside: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The command
        #[arg(required = true, last = true)]
        command: Vec<String>,
    },
    /// List saved answers
    List {
        /// Print one JSON line per entry
        #[arg(long)]
        json: bool,
    },
    /// Revoke saved answers
    Revoke {
        /// Number from `list`, or `all`
        which: String,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// Says what failed.
pub async fn run(command: PermissionsCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match command {
        PermissionsCommand::Explain {
            mode,
            cwd,
            no_sandbox,
            network,
            git,
            write_outside,
            json,
            command,
        } => {
            let cwd = cwd.canonicalize().with_context(|| cwd.display().to_string())?;
            let Some(mode) = Mode::find(&mode) else {
                bail!(
                    "unknown mode; must be one of {}",
                    MODES.each_ref().map(|mode| &*mode.id).join(", ")
                );
            };
            // One argument is a whole command line; several are its words.
            let text = match command.as_slice() {
                [one] => one.clone(),
                words => quote_all(words.iter().map(String::as_str)),
            };
            let policy = serve::workspace::policy(settings, &[settings.project(&cwd)]);
            // What the sandbox can do is tested, not assumed.
            let machine = Machine::new(env::this_machine());
            let (containers, notices) =
                serve::container::containers(settings, &machine, &cwd, &cwd);
            notices.iter().for_each(|notice| eprintln!("{}", visible(notice)));
            let level = match (no_sandbox, &containers) {
                (true, _) => Level::None,
                // A container enforces what the full sandbox does.
                (false, Some(_)) => Level::Full,
                (false, None) => machine.sandbox.found().await.level,
            };
            let containers = containers.filter(|_| !no_sandbox);
            let container = containers.as_ref().map(|it| it.image().to_owned());
            let (session, directories) = (SessionId::new("explain"), std::slice::from_ref(&cwd));
            let bash = machine.bash_in(&session, directories, containers);
            let extra = ExtraPermissions { network, git, write_outside };
            let explained = match bash.requirements(&cwd, &text, &extra, level) {
                Ok(parts) => Explained { container, ..explain(parts, mode, level, &policy) },
                Err(why) => Explained {
                    container,
                    outcome: format!("Would be rejected: {}.", visible(&why)),
                    mode: &mode.id,
                    level,
                    can_be_saved: false,
                    parts: Vec::new(),
                },
            };
            print(&if json { explained.as_json() } else { explained.as_text() })?;
        }
        PermissionsCommand::List { json } => print(&list(&saved_rules()?, json))?,
        PermissionsCommand::Revoke { which } => revoke(&which)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn saved_file() -> anyhow::Result<PathBuf> {
    let data = env::directories().data.context("no data directory; set HOME")?;
    Ok(answer_store::file_in(&data))
}

fn saved_rules() -> anyhow::Result<Vec<SavedAnswer>> {
    answer_store::read(&saved_file()?).map_err(anyhow::Error::msg)
}

fn list(rules: &[SavedAnswer], as_json: bool) -> String {
    let mut text = String::new();
    for (index, rule) in rules.iter().enumerate() {
        let number = index + 1;
        if as_json {
            let SavedAnswer { directory, key, pattern, action } = rule;
            let line = json!({ "number": number, "folder": directory, "key": key, "pattern": pattern, "action": action });
            text.push_str(&format!("{line}\n"));
        } else {
            text.push_str(&format!("{number}  {}\n", shown(rule)));
        }
    }
    if text.is_empty() && !as_json { "No saved answers.\n".to_owned() } else { text }
}

fn shown(rule: &SavedAnswer) -> String {
    let directory = visible(&rule.directory.to_string_lossy());
    format!("{:<5}  {}  in {directory}", rule.action, saved_words(&rule.key, &rule.pattern))
}

fn revoke(which: &str) -> anyhow::Result<()> {
    let number: Option<usize> = which.parse().ok().filter(|number| *number > 0);
    if number.is_none() && which != "all" {
        bail!(
            "invalid number `{}`: use a number from `purlin permissions list`, or `all`",
            visible(which)
        );
    }
    let mut taken = Vec::new();
    answer_store::change::<Vec<SavedAnswer>>(&saved_file()?, |rules| match number {
        None => taken = std::mem::take(rules),
        Some(number) if number <= rules.len() => taken.push(rules.remove(number - 1)),
        Some(_) => {}
    })
    .map_err(anyhow::Error::msg)?;
    if number.is_some() && taken.is_empty() {
        bail!(
            "no saved answer has the number {which}; `purlin permissions list` shows the numbers"
        );
    }
    if taken.is_empty() {
        return print("No saved answers.\n");
    }
    let lines: String = taken.iter().map(|rule| format!("Revoked: {}\n", shown(rule))).collect();
    print(&lines)
}

/// Whether a command would run, and why.
struct Explained {
    outcome: String,
    mode: &'static str,
    level: Level,
    /// The image of the container that it would run in, if any.
    container: Option<String>,
    /// Whether "always" would be offered.
    can_be_saved: bool,
    parts: Vec<(Requirement, Decision, Option<Rule>)>,
}

fn explain(
    parts: Vec<Requirement>,
    mode: &'static Mode,
    level: Level,
    policy: &Policy,
) -> Explained {
    let access: Vec<Access> = parts.iter().map(|part| part.access.clone()).collect();
    let judgement = policy.judge_within(&access, ToolKind::Execute, std::slice::from_ref(mode));
    let is_permitted = mode.permits(ToolKind::Execute, &access);
    let outcome = match judgement.decision {
        _ if !is_permitted => "Not allowed in this mode.",
        Decision::Allow => "Would run without asking.",
        Decision::Ask => "Would ask for permission.",
        Decision::Reject => "Would be rejected.",
    };
    let explained = parts.into_iter().map(|part| {
        let verdict = policy.explain(&part.access);
        (part, verdict.decision, verdict.by)
    });
    let is_asked = is_permitted && judgement.decision == Decision::Ask;
    let is_fixed = judgement.asked.iter().any(|asked| asked.floor.is_some());
    let asked: Vec<Access> = judgement.asked.into_iter().map(|asked| asked.access).collect();
    let can_be_saved = is_asked
        && !is_fixed
        && !asked.iter().any(|access| access.can_destroy)
        && always_words(&asked).is_some();
    let mut outcome = outcome.to_owned();
    for why in policy.floors() {
        outcome.push_str(&format!("\n{}", visible(why)));
    }
    let parts = explained.collect();
    Explained { outcome, mode: &mode.id, level, container: None, can_be_saved, parts }
}

impl Explained {
    /// Tells whether "always" would save a rule for a part with this decision.
    fn is_saved(&self, decision: Decision) -> bool {
        decision == Decision::Ask && self.can_be_saved
    }

    fn as_text(&self) -> String {
        let mut text = format!("{}\n", self.outcome);
        if let Some(image) = &self.container {
            text.push_str(&format!("  It runs in a container of the image {}.\n", visible(image)));
        }
        for (part, decision, rule) in &self.parts {
            let why = match rule {
                Some(rule) if rule.decision > *decision => {
                    format!("may match the deny rule {}", visible(&rule.to_string()))
                }
                Some(rule) => format!("rule {}", visible(&rule.to_string())),
                None => visible(&part.why),
            };
            text.push_str(&format!("  {:<5}  {}: {why}\n", decision.word(), part.access.words()));
            let always = part.access.always_words().filter(|_| self.is_saved(*decision));
            text.extend(always.map(|always| format!("         always: {always}\n")));
        }
        text
    }

    fn as_json(&self) -> String {
        let parts = self.parts.iter().map(|(part, decision, rule)| {
            let always = part.access.always.as_ref().filter(|_| self.is_saved(*decision));
            json!({
                "key": part.access.key.as_str(), "subject": part.access.subject, "decision": decision.word(),
                "why": part.why, "rule": rule.as_ref().map(Rule::to_string), "always": always,
            })
        });
        let all = json!({ "outcome": self.outcome, "mode": self.mode, "sandbox": self.level.to_string(), "container": self.container, "parts": parts.collect::<Vec<_>>() });
        format!("{all}\n")
    }
}
