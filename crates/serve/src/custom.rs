//! What users and projects add: agents, slash commands and hooks, as a layer over the tools of a session.
//!
//! `custom::agents`, `custom::commands` and `custom::hooks` read them, from configurations and from Markdown files
//! (`custom::files`). What the user wrote counts before what a project says; what a project says runs nothing before it
//! is trusted, and never widens anything.

pub(crate) mod agents;
pub(crate) mod commands;
pub(crate) mod files;
pub(crate) mod front_matter;
pub(crate) mod hooks;
pub(crate) mod template;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::agents::Agent;
use engine::commands::SlashCommand;
use engine::hooks::{Moment, Ruling};
use engine::modes::Mode;
use engine::permission::Decision;
use engine::ports::{AnyTool, Expanded, Guise, Tools};
use engine::words::{Block, Contents, ModeId, ModelId, Prompt};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tools::bash::{Bash, CapturedRun};
use tools::scope::Scope;

use crate::assemble::{Machine, OpenTools, Workspace};
use crate::permissions::OpenPolicy;
use crate::trust::{self, Trust};
use crate::{doctor, env, project};
use agents::Agents;
use commands::{Author, Command};
use files::Sort;
use hooks::Hook;
use template::Part;

/// What the user's configuration adds to every session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Additions {
    /// `agent`, as it is written.
    pub agent: Map<String, Value>,
    /// `command`, as it is written.
    pub command: Map<String, Value>,
    /// `hooks`, as they are written.
    pub hooks: Value,
}

/// How long a command that a slash command names may run.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much of its output, and how much of a file, goes into a prompt.
const MOST_TEXT: usize = 32 * 1024;
/// How many files and commands one slash command may name.
const MOST_PARTS: usize = 16;

/// So many agents, so many commands, and so many problems of them are taken; a project with more is not meant for people.
const MOST: usize = 100;

/// Tells whether agents and commands can be called so.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(is_plain)
}

/// Adds what the user's configuration, the user's files and the project's describe.
#[must_use]
pub fn with_additions(
    tools: OpenTools,
    additions: Additions,
    policy: OpenPolicy,
    machine: Arc<Machine>,
) -> OpenTools {
    Arc::new(move |workspace: Workspace| {
        let bash = machine.bash(&workspace);
        let scope = Scope::new(workspace.folders.clone()).without(&env::own_folders());
        let scope = scope.with_hidden(Arc::clone(&machine.hidden));
        let (found, problems) = gather(&additions, workspace.folders.first());
        let inner = tools(workspace.clone());
        problems.iter().for_each(|problem| tracing::warn!("{problem}"));
        let news = Mutex::new(problems);
        let policy = Arc::clone(&policy);
        Arc::new(Custom { inner, found, bash, scope, workspace, policy, news })
    })
}

/// What was found.
#[derive(Debug, Default)]
struct Gathered {
    agents: Vec<Arc<Agent>>,
    commands: Vec<Command>,
    hooks: Vec<Hook>,
}

fn gather(user: &Additions, folder: Option<&PathBuf>) -> (Gathered, Vec<String>) {
    let mut problems = Vec::new();
    let (mut agents, mut found) = (Agents::new(), Gathered::default());
    agents::of_config(&user.agent, &mut agents, &mut problems);
    for file in files::of_user(Sort::Agents, &mut problems) {
        agents::of_file(&file, &mut agents, &mut problems);
    }
    commands::of_config(&user.command, Author::User, &mut found.commands, &mut problems);
    for file in files::of_user(Sort::Commands, &mut problems) {
        commands::of_file(&file, Author::User, &mut found.commands, &mut problems);
    }
    found.hooks = hooks::read(&user.hooks, false, &mut problems);
    if let Some(folder) = folder {
        let project = project::additions(folder);
        let is_trusted = trust::check(folder, &project.parts) == Trust::Trusted;
        let author = if is_trusted { Author::Trusted } else { Author::Stranger };
        let mut theirs = Agents::new();
        for given in &project.given {
            agents::of_config(&given.agent, &mut theirs, &mut problems);
            commands::of_config(&given.command, author, &mut found.commands, &mut problems);
            if is_trusted {
                found.hooks.extend(hooks::read(&given.hooks, true, &mut problems));
            }
        }
        for file in files::of_project(folder, Sort::Agents, &mut problems) {
            agents::of_file(&file, &mut theirs, &mut problems);
        }
        agents::add_project(theirs, is_trusted, &mut agents, &mut problems);
        for file in &project.commands {
            commands::of_file(file, author, &mut found.commands, &mut problems);
        }
    }
    problems.truncate(MOST);
    found.agents = agents.into_values().map(Arc::new).collect();
    (found, problems.iter().map(|problem| engine::visible::visible(problem)).collect())
}

struct Custom {
    inner: Arc<dyn Tools>,
    found: Gathered,
    bash: Bash,
    scope: Scope,
    workspace: Workspace,
    policy: OpenPolicy,
    /// What the user is still to be told.
    news: Mutex<Vec<String>>,
}

impl Tools for Custom {
    fn now(&self) -> Arc<[Arc<dyn AnyTool>]> {
        self.inner.now()
    }

    fn inner(&self) -> Option<&dyn Tools> {
        Some(&*self.inner)
    }

    fn agents(&self) -> Vec<Arc<Agent>> {
        self.found.agents.clone()
    }

    fn commands(&self) -> Vec<SlashCommand> {
        let mut commands = self.inner.commands();
        commands.push(SlashCommand {
            name: "doctor".into(),
            description: "Say whether everything is as it should be".into(),
            hint: None,
        });
        commands.extend(self.found.commands.iter().map(Command::listed));
        commands
    }

    fn news(&self) -> Vec<String> {
        let mut news = self.inner.news();
        news.append(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner));
        news
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        async move {
            let text = prompt.blocks.first().and_then(Block::as_text).unwrap_or_default().trim();
            let Some(line) = text.strip_prefix('/') else {
                return self.inner.expand(prompt).await;
            };
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            if name == "doctor" && rest.is_empty() {
                return Expanded::Say(doctor::report().await);
            }
            let Some(command) = self.found.commands.iter().find(|command| command.name == name)
            else {
                return self.inner.expand(prompt).await;
            };
            match self.fill_in(command, rest.trim()).await {
                Ok(mut blocks) => {
                    blocks.extend(prompt.blocks.into_iter().skip(1));
                    let guise = Guise {
                        mode: command.agent.as_deref().map(ModeId::new),
                        model: command.model.as_deref().map(ModelId::new),
                    };
                    Expanded::As(Prompt::from(blocks), guise)
                }
                Err(why) => Expanded::Say(format!("`/{name}` was not done: {why}")),
            }
        }
        .boxed()
    }

    fn hook<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, Ruling> {
        hooks::ask(&self.found.hooks, moment, &self.bash, &self.workspace)
    }
}

impl Custom {
    /// Makes the prompt of a command: its text, and behind it the files that the text names.
    async fn fill_in(&self, command: &Command, arguments: &str) -> Result<Vec<Block>, String> {
        let modes = Mode::with(&self.found.agents);
        if let Some(agent) = &command.agent
            && !modes.iter().any(|mode| mode.is(agent))
        {
            return Err(format!("it wants the agent `{agent}`, and there is no such mode"));
        }
        let words = template::words(arguments);
        let last = template::last_word(&command.parts);
        let (mut text, mut files) = (String::new(), Vec::new());
        let mut count = 0;
        for part in &command.parts {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Arguments => text.push_str(arguments),
                Part::Word(number) => text.push_str(&template::word(&words, *number, last)),
                Part::File(_) | Part::Shell(_) if count >= MOST_PARTS => {
                    return Err(format!("it names more than {MOST_PARTS} files and commands"));
                }
                Part::File(path) => {
                    count += 1;
                    text.push_str(&format!("@{path}"));
                    files.extend(self.file(path).await);
                }
                Part::Shell(shell) => {
                    count += 1;
                    text.push_str(&self.shell(command, shell, &words, arguments).await?);
                }
            }
        }
        let uses = |part: &Part| matches!(part, Part::Arguments | Part::Word(_) | Part::Shell(_));
        if !arguments.is_empty() && !command.parts.iter().any(uses) {
            text.push_str(&format!("\n\n{arguments}"));
        }
        files.insert(0, Block::Text(text));
        Ok(files)
    }

    /// Reads a file of the project that needs no leave; others stay names, for the model to ask for.
    async fn file(&self, path: &str) -> Option<Block> {
        let (at, contents) = tools::read_freely(&self.scope, path, MOST_TEXT).await?;
        let uri = wire::acp::file_uri::encode(&at.to_string_lossy());
        Some(Block::Resource { uri, mime: None, contents: Contents::Text(contents) })
    }

    /// Runs a command that a template names. The user wrote it, or saw and trusted it; a rule that denies still counts.
    async fn shell(
        &self,
        command: &Command,
        shell: &str,
        words: &[String],
        arguments: &str,
    ) -> Result<String, String> {
        let shown = engine::visible::visible(shell);
        if command.author == Author::Stranger {
            return Err(format!(
                "it wants to run `{shown}`, and this project is not trusted; `purlin trust` shows what it could do, and asks"
            ));
        }
        let cwd = self.workspace.folders.first().cloned().unwrap_or_default();
        let access = self.bash.access_of(&cwd, shell).await;
        let access = access.map_err(|why| format!("`{shown}` did not run: {why}"))?;
        let (policy, _) = (self.policy)(&self.workspace.folders);
        if policy.judge(&access).decision == Decision::Reject {
            return Err(format!("a rule of yours forbids `{shown}`"));
        }
        let run = CapturedRun {
            command: shell.to_owned(),
            args: words.to_vec(),
            environment: vec![("ARGUMENTS".to_owned(), arguments.to_owned())],
            cwd,
            input: Vec::new(),
            timeout: PATIENCE,
            limit: MOST_TEXT,
            must_be_confined: true,
        };
        let ran = self.bash.run_captured(run).await;
        let ran = ran.map_err(|why| format!("`{shown}` did not run: {why}"))?;
        if ran.is_late {
            return Err(format!("`{shown}` took too long and was ended"));
        }
        let mut said = ran.output.trim_end().to_owned();
        if ran.code != Some(0) {
            let code = ran.code.map_or("a signal".to_owned(), |code| format!("code {code}"));
            said.push_str(&format!("\n({shown} ended with {code})\n{}", ran.errors.trim_end()));
        }
        Ok(said)
    }
}
