//! What users and projects add to a session, at work: agents, slash commands and hooks over the session's tools.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::permission::Decision;
use engine::permission::policy::Policy;
use engine::ports::{Expanded, Extension, TurnOverrides};
use engine::words::{
    Agent, Block, Contents, Mode, ModeId, ModelId, Moment, Prompt, Ruling, SessionId, SlashCommand,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use settings::custom::Custom;
use settings::custom::commands::{Author, Command};
use settings::custom::template::{self, Part};
use tools::bash::{Bash, CapturedRun};
use tools::scope::Scope;

use crate::hooks::{self, HookPlace};
use crate::workspace::Report;

/// How long a command of a slash command may run.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How much of its output, and how much of a file, goes into a prompt.
const MOST_TEXT: usize = 32 * 1024;
/// How many files and commands one slash command may name.
const MOST_PARTS: usize = 16;

/// What users and projects add to a session.
pub(crate) struct CustomTools {
    custom: Custom,
    bash: Arc<Bash>,
    scope: Scope,
    policy: Policy,
    place: HookPlace,
    report: Report,
    /// What the user was not told yet.
    news: Mutex<Vec<String>>,
}

impl CustomTools {
    pub(crate) fn new(
        mut custom: Custom,
        bash: Arc<Bash>,
        scope: Scope,
        policy: Policy,
        (session, cwd): (SessionId, PathBuf),
        report: Report,
    ) -> CustomTools {
        let problems = std::mem::take(&mut custom.problems);
        problems.iter().for_each(|problem| tracing::warn!("{problem}"));
        let place = HookPlace { session, cwd };
        let news = Mutex::new(problems);
        CustomTools { custom, bash, scope, policy, place, report, news }
    }
}

impl Extension for CustomTools {
    fn agents(&self) -> Vec<Arc<Agent>> {
        self.custom.agents.clone()
    }

    fn commands(&self) -> Vec<SlashCommand> {
        let doctor = SlashCommand {
            name: "doctor".into(),
            description: "Say whether everything is as it should be".into(),
            hint: None,
        };
        let custom = self.custom.commands.iter().map(Command::listed);
        std::iter::once(doctor).chain(custom).collect()
    }

    fn take_news(&self) -> Vec<String> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        async move {
            let text = prompt.blocks.first().and_then(Block::as_text).unwrap_or_default().trim();
            let Some(line) = text.strip_prefix('/') else {
                return Expanded::Prompt(prompt);
            };
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            if name == "doctor" && rest.is_empty() {
                return Expanded::Answer((self.report)().await);
            }
            let Some(command) = self.custom.commands.iter().find(|command| command.name == name)
            else {
                return Expanded::Prompt(prompt);
            };
            match self.fill_in(command, rest.trim()).await {
                Ok(mut blocks) => {
                    blocks.extend(prompt.blocks.into_iter().skip(1));
                    let overrides = TurnOverrides {
                        mode: command.agent.as_deref().map(ModeId::new),
                        model: command.model.as_deref().map(ModelId::new),
                    };
                    Expanded::With(Prompt::from(blocks), overrides)
                }
                Err(why) => Expanded::Answer(format!("`/{name}` was not done: {why}")),
            }
        }
        .boxed()
    }

    fn hook<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, Ruling> {
        hooks::ask(&self.custom.hooks, moment, &self.bash, &self.place)
    }
}

impl CustomTools {
    /// Makes the prompt of a command: its text, and behind it the files that the text names.
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
        let shown = engine::words::visible(shell);
        if command.author == Author::Stranger {
            return Err(format!(
                "it wants to run `{shown}`, and this project is not trusted; `purlin trust` shows what it could do, and asks"
            ));
        }
        let cwd = self.place.cwd.clone();
        let access = self.bash.access_of(&cwd, shell).await;
        let access = access.map_err(|why| format!("`{shown}` did not run: {why}"))?;
        if self.policy.judge(&access).decision == Decision::Reject {
            return Err(format!("a rule of yours forbids `{shown}`"));
        }
        let run = CapturedRun {
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
