//! What users and projects add to a session: agents, slash commands and hooks.
//!
//! `custom::agents`, `custom::commands` and `custom::hooks` read them, from configurations and from Markdown files
//! (`custom::files`). What the user wrote takes precedence over a project. A project runs nothing before it is trusted,
//! and never widens what the user allows. Nothing here runs anything; `serve` does.

pub mod agents;
pub mod commands;
pub mod files;
pub mod front_matter;
pub mod hooks;
pub mod template;
pub(crate) mod tool_switches;

use std::sync::Arc;

use engine::permission::rules::AskFloor;
use engine::words::Agent;
use engine::words::visible;
use serde_json::{Map, Value};

use crate::{Project, Settings};
use agents::Agents;
use commands::{Author, Command};
use files::Sort;
use hooks::Hook;

/// What a configuration adds, as it is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Additions {
    /// `agent`.
    pub agent: Map<String, Value>,
    /// `command`.
    pub command: Map<String, Value>,
    /// `hooks`.
    pub hooks: Value,
}

/// The most agents, commands and problems that are used.
const MOST: usize = 100;

/// Tells whether a name of an agent or a command is valid.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_:".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(is_plain)
}

/// Asks for what a tool does whose switch is neither true nor false. `place` is where it stands.
pub(crate) fn unclear_tool(place: &str, key: String) -> AskFloor {
    let why = format!("{place} has a value for `{key}` that is neither true nor false.");
    AskFloor { key, pattern: "*".to_owned(), why }
}

/// Asks for everything, because a hook that could reject something cannot be understood. `place` is where it stands.
pub(crate) fn unclear_hook(place: &str) -> AskFloor {
    AskFloor::everything(format!(
        "{place} has a hook that cannot be understood: everything asks until this is corrected."
    ))
}

/// Returns the members of an object, or an empty map if the value is no object.
pub(crate) fn members(value: Value) -> Map<String, Value> {
    if let Value::Object(members) = value { members } else { Map::new() }
}

/// What the user and the project of a session add to it.
#[derive(Debug, Default)]
pub struct Custom {
    /// The agents.
    pub agents: Vec<Arc<Agent>>,
    /// The slash commands.
    pub commands: Vec<Command>,
    /// The hooks, the user's before the project's.
    pub hooks: Vec<Hook>,
    /// What is wrong with them.
    pub problems: Vec<String>,
}

impl Custom {
    /// Gathers what the user's configuration, the user's files and the project add.
    #[must_use]
    pub fn gather(settings: &Settings, project: Option<&Project>) -> Custom {
        let (user, directories) = (&settings.config.additions, &settings.directories);
        let (home, reader) = (directories.home.as_deref(), &*settings.reader);
        let mut problems = Vec::new();
        let (mut agents, mut found) = (Agents::new(), Custom::default());
        agents::of_config(&user.agent, home, &mut agents, &mut problems);
        for file in files::of_user(directories, Sort::Agents, reader, &mut problems) {
            agents::of_file(&file, home, &mut agents, &mut problems);
        }
        commands::of_config(&user.command, Author::User, &mut found.commands, &mut problems);
        for file in files::of_user(directories, Sort::Commands, reader, &mut problems) {
            commands::of_file(&file, Author::User, &mut found.commands, &mut problems);
        }
        found.hooks = hooks::read(&user.hooks, false, &mut problems);
        found.hooks.extend(settings.config.claude_hooks.iter().cloned());
        if let Some(project) = project {
            let is_trusted = project.is_trusted();
            let author = if is_trusted { Author::Trusted } else { Author::Stranger };
            let mut theirs = Agents::new();
            for given in project.additions() {
                agents::of_config(&given.agent, home, &mut theirs, &mut problems);
                commands::of_config(&given.command, author, &mut found.commands, &mut problems);
                if is_trusted {
                    found.hooks.extend(hooks::read(&given.hooks, true, &mut problems));
                }
            }
            found.hooks.extend(project.claude_hooks().filter(|_| is_trusted).cloned());
            for file in project.agents() {
                agents::of_file(file, home, &mut theirs, &mut problems);
            }
            agents::add_project(theirs, is_trusted, &mut agents, &mut problems);
            for file in project.commands() {
                commands::of_file(file, author, &mut found.commands, &mut problems);
            }
        }
        problems.truncate(MOST);
        found.problems = problems.iter().map(|problem| visible(problem)).collect();
        found.agents = agents.into_values().map(Arc::new).collect();
        found
    }
}
