//! The extension of users and projects: their agents, slash commands and hooks in a session.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::permission::Decision;
use engine::permission::policy::Policy;
use engine::ports::{Expanded, Extension, TurnOverrides};
use engine::words::{
    Agent, Block, Contents, HookOutcome, Mode, ModeId, ModelId, Moment, Prompt, SlashCommand,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use settings::custom::Custom;
use settings::custom::commands::{Author, Command};
use settings::custom::template::{self, Part};
use tools::bash::{Bash, CapturedRun};
use tools::scope::Scope;

use crate::hooks::{self, HookContext};

/// Time-out of a command in a slash command.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How much of its output, and how much of a file, goes into a prompt.
const MOST_TEXT: usize = 32 * 1024;
/// The most files and commands of one slash command.
const MOST_PARTS: usize = 16;

/// What users and projects add to a session.
pub(crate) struct CustomExtension {
    custom: Custom,
    bash: Arc<Bash>,
    scope: Scope,
    policy: Arc<Policy>,
    context: HookContext,
    /// Messages that the user has not seen yet.
    news: Mutex<Vec<String>>,
}

impl CustomExtension {
    pub(crate) fn new(
        mut custom: Custom,
        bash: Arc<Bash>,
        scope: Scope,
        policy: Arc<Policy>,
        context: HookContext,
    ) -> CustomExtension {
        let problems = std::mem::take(&mut custom.problems);
        problems.iter().for_each(|problem| tracing::warn!("{problem}"));
        let news = Mutex::new(problems);
        CustomExtension { custom, bash, scope, policy, context, news }
    }
}

impl Extension for CustomExtension {
    fn agents(&self) -> Vec<Arc<Agent>> {
        self.custom.agents.clone()
    }

    fn commands(&self) -> Vec<SlashCommand> {
        self.custom.commands.iter().map(Command::listed).collect()
    }

    fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        async move {
            let Some((name, arguments)) = prompt.slash_command() else {
                return Expanded::Prompt(prompt);
            };
            let Some(command) = self.custom.commands.iter().find(|command| command.name == name)
            else {
                return Expanded::Prompt(prompt);
            };
            match self.fill_in(command, arguments).await {
                Ok(mut blocks) => {
                    blocks.extend(prompt.blocks.into_iter().skip(1));
                    let overrides = TurnOverrides {
                        mode: command.agent.as_deref().map(ModeId::new),
                        model: command.model.as_deref().map(ModelId::new),
                        grants: command.grants.clone(),
                    };
                    Expanded::With(Prompt::from(blocks), overrides)
                }
                Err(why) => Expanded::Answer(format!("`/{name}` failed: {why}")),
            }
        }
        .boxed()
    }

    fn hook<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, HookOutcome> {
        hooks::ask(&self.custom.hooks, moment, &self.bash, &self.context)
    }
}

impl CustomExtension {
    /// Makes the prompt of a command: its text, followed by the files that the text names.
    async fn fill_in(&self, command: &Command, arguments: &str) -> Result<Vec<Block>, String> {
        let modes = Mode::with(&self.custom.agents);
        if let Some(agent) = &command.agent
            && !modes.iter().any(|mode| mode.is(agent))
        {
            return Err(format!("its agent `{agent}` is not a mode"));
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
                    return Err(format!("it has more than {MOST_PARTS} files and commands"));
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

    /// Reads a file of the project, if that needs no permission. Other files are only named; the model can ask for them.
    async fn file(&self, path: &str) -> Option<Block> {
        let (at, contents) = tools::read_freely(&self.scope, path, MOST_TEXT).await?;
        let uri = wire::acp::file_uri::encode(&at.to_string_lossy());
        Some(Block::Resource { uri, mime: None, contents: Contents::Text(contents) })
    }

    /// Runs a command of a template. The user wrote it, or trusts the project; a deny rule still applies.
    async fn shell(
        &self,
        command: &Command,
        shell: &str,
        words: &[String],
        arguments: &str,
    ) -> Result<String, String> {
        let shown = engine::words::visible(shell);
        if command.author == Author::Stranger {
            return Err(format!(
                "it runs `{shown}`, and this project is not trusted. To review and trust it, run `purlin trust`."
            ));
        }
        let cwd = self.context.cwd.clone();
        let access = self.bash.access_of(&cwd, shell).await;
        let access = access.map_err(|why| format!("cannot run `{shown}`: {why}"))?;
        let judgement = self.policy.judge(&access);
        if judgement.decision == Decision::Reject {
            return Err(format!("`{shown}` is denied by your rules"));
        }
        // A command in a template cannot ask.
        if let Some(why) = judgement.asked.iter().find_map(|asked| asked.floor.as_ref()) {
            return Err(format!("`{shown}` would have to ask first: {why}"));
        }
        let run = CapturedRun {
            on_host: false,
            command: shell.to_owned(),
            args: words.to_vec(),
            environment: vec![("ARGUMENTS".to_owned(), arguments.to_owned())],
            cwd,
            input: Vec::new(),
            timeout: TIMEOUT,
            limit: MOST_TEXT,
            must_be_confined: true,
        };
        let ran = self.bash.run_captured(run).await;
        let ran = ran.map_err(|why| format!("cannot run `{shown}`: {why}"))?;
        if ran.is_late {
            return Err(format!("`{shown}` timed out"));
        }
        let mut text = ran.output.trim_end().to_owned();
        if ran.code != Some(0) {
            let code = ran.code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
            text.push_str(&format!("\n({shown} failed with {code})\n{}", ran.errors.trim_end()));
        }
        Ok(text)
    }
}
