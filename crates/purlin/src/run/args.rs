//! The arguments of `purlin run`, and what they mean together.

use std::io::IsTerminal;
use std::path::PathBuf;

use chat::{ColorChoice, ColorLevel};
use clap::{Args, ValueEnum, ValueHint};

use super::RunOptions;
use super::input::Input;
use super::rules::{RuleArg, Rules};
use super::session::Start;
use crate::{acp, env};

/// What `purlin run --help` prints at the end.
const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but something was rejected, 4 a limit was reached, \
                          130 interrupted.";

/// The arguments of `purlin run`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct RunArgs {
    /// The prompt; `-` reads it from stdin. With a prompt, other input on stdin is added to it
    prompt: Option<String>,
    /// Working directory
    #[arg(long, value_name = "FOLDER", default_value = ".", value_hint = ValueHint::DirPath)]
    cwd: PathBuf,
    /// Continue the last session of this directory
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    continues: bool,
    /// Continue this session: its id, or the beginning of it
    #[arg(long, value_name = "ID")]
    resume: Option<String>,
    /// Model to use
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Where the session works: project, worktree, devcontainer or container:IMAGE; Purlin only
    #[arg(long, value_name = "WORKSPACE", conflicts_with = "agent", value_parser = workspace)]
    workspace: Option<String>,
    /// Mode: build, accept_edits, plan or ask
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Attach a file; repeatable. `@PATH` in the prompt does the same
    #[arg(short, long = "file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Attach an image: PNG, JPEG, GIF or WebP; repeatable
    #[arg(long = "image", value_name = "FILE", value_hint = ValueHint::FilePath)]
    images: Vec<PathBuf>,
    /// Allow without asking: a list such as `edit,read,bash:"cargo *"`, or `all`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    allow: Vec<RuleArg>,
    /// Reject without asking: a list as for `--allow`. It wins over `--allow`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    deny: Vec<RuleArg>,
    /// Text, one JSON object at the end, or a JSON line for each update and one at the end
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output_format: OutputFormat,
    /// Stop after this many requests to the model; Purlin only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_turns: Option<u64>,
    /// Stop when the session has cost this much, in US dollars; checked after each answer of the model
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    max_cost: Option<f64>,
    /// When to use colours; NO_COLOR turns them off, too
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    color: Color,
    /// Run another ACP agent: its command and arguments, at the end of the line
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true)]
    agent: Vec<String>,
}

/// What is printed on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The answer.
    Text,
    /// One object at the end.
    Json,
    /// Every update as a line, and the same object at the end.
    StreamJson,
}

/// When colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Decides for an output.
    pub(super) fn level(self, output: &impl IsTerminal) -> ColorLevel {
        let choice = match self {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        ColorLevel::detect(choice, &env::colors(), output.is_terminal())
    }
}

fn dollars(text: &str) -> Result<f64, String> {
    let amount: f64 = text.trim_start_matches('$').parse().map_err(|_| "must be a number")?;
    match amount.is_finite() && amount > 0.0 {
        true => Ok(amount),
        false => Err("must be more than 0".to_owned()),
    }
}

impl RunArgs {
    /// Reads stdin and files, and checks what can be checked before the agent starts.
    ///
    /// # Errors
    /// Says which argument is wrong.
    pub(crate) fn into_options(self) -> anyhow::Result<RunOptions> {
        let cwd = self.cwd.canonicalize();
        let cwd = cwd.map_err(|err| anyhow::anyhow!("{}: {err}", self.cwd.display()))?;
        let is_own = self.agent.is_empty();
        anyhow::ensure!(
            is_own || self.max_turns.is_none(),
            "`--max-turns` works only with Purlin: other agents do not report their requests. Use `--max-cost`"
        );
        let rules = Rules::new(self.allow, self.deny);
        let input = Input::read(self.prompt, &cwd, &self.files, &self.images)?;
        let start = match (self.continues, self.resume) {
            (true, _) => Start::Last,
            (false, Some(id)) => Start::Stored(id),
            (false, None) => Start::New,
        };
        let mut variables = Vec::new();
        let mut agent = self.agent;
        if is_own {
            agent = this_program(self.model.as_deref())?;
            agent.extend(rules.flags());
            agent.extend(workspace_flags(self.workspace));
            if let Some(limit) = self.max_turns {
                variables.push(("PURLIN_LIMITS_MAX_REQUESTS_PER_TURN", limit.to_string()));
            }
            // The user's own prompt has no limit.
            if let Some(bytes) = input.limit_needed() {
                variables.push(("PURLIN_LIMITS_MAX_PROMPT_BYTES", bytes.to_string()));
            }
        }
        Ok(RunOptions {
            input,
            agent,
            variables,
            cwd,
            start,
            format: self.output_format,
            color: self.color,
            model: self.model,
            mode: self.mode,
            rules,
            max_cost: self.max_cost,
            is_own,
        })
    }
}

/// Checks the value of `--workspace`, which our own agent gets as it is.
pub(crate) fn workspace(words: &str) -> Result<String, String> {
    settings::workspace::WorkspaceConfig::parse(words).map(|_| words.to_owned())
}

/// The arguments of our own agent for a workspace.
pub(crate) fn workspace_flags(workspace: Option<String>) -> Vec<String> {
    workspace.map_or_else(Vec::new, |workspace| vec!["--workspace".to_owned(), workspace])
}

/// Our own agent, as a command.
pub(crate) fn this_program(model: Option<&str>) -> anyhow::Result<Vec<String>> {
    let program = std::env::current_exe()?;
    let mut command = vec![program.to_string_lossy().into_owned(), "acp".to_owned()];
    if let Some(model) = model {
        // Reported here, rather than by an agent that exits at once.
        acp::check_model(model, &env::load_config(None).0)?;
        // The agent runs in another directory than this shell.
        let model = match model.strip_prefix("script:") {
            Some(file) => format!("script:{}", std::path::absolute(file)?.display()),
            None => model.to_owned(),
        };
        command.extend(["--model".to_owned(), model]);
    }
    Ok(command)
}
