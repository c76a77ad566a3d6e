//! The command line: what can be typed, and where it goes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};
use engine::permission::Decision;
use settings::Settings;
use settings::workspace::WorkspaceConfig;
use wire::acp::dialect::Dialect;

use crate::acp::{self, AcpOptions};
use crate::auth::AuthCommand;
use crate::chat_command::{self, ChatArgs};
use crate::check_command::{self, CheckArgs};
use crate::config_command::ConfigCommand;
#[cfg(unix)]
use crate::container_command::{self, ContainerCommand};
#[cfg(unix)]
use crate::dashboard::{self, DashboardArgs};
use crate::load_command::{self, LoadArgs};
use crate::log::LogOptions;
use crate::logs_command::{self, LogsArgs};
use crate::mcp_command::McpCommand;
use crate::permissions::PermissionsCommand;
use crate::record_command::{self, ReplayArgs};
use crate::report::{self, ReportArgs};
use crate::run;
use crate::run::args::RunArgs;
use crate::run::rules::RuleArg;
use crate::serve_command::{self, ServeArgs};
use crate::sessions::{self, SessionsCommand};
use crate::setup::{self, SetupArgs};
use crate::tap_command::{self, TapArgs};
use crate::trace_command::{self, TraceArgs};
use crate::trust::{self, TrustCommand};
use crate::{
    auth, config_command, doctor, env, log, mcp_command, model_sources, permissions, shim,
};

/// The version, with the commit in a release build. `build.rs` sets it.
const VERSION: &str = env!("PURLIN_VERSION");

/// A coding agent that editors drive over the Agent Client Protocol.
#[derive(Debug, Parser)]
#[command(name = "purlin", version = VERSION, about, long_about = None)]
struct Cli {
    /// Log level on stderr: error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL", value_parser = log::level)]
    log: Option<tracing::Level>,
    /// Format of the log on stderr
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: log::Format,
    /// Without a command, `purlin chat` starts on a terminal.
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Chat with an agent in the terminal; the default on a terminal
    Chat(ChatArgs),
    /// Serve an editor on stdin and stdout
    Acp(AcpArgs),
    /// Serve editors over the network, by WebSocket and HTTP
    Serve(Box<ServeArgs>),
    /// Manage API keys
    Auth {
        #[command(subcommand)]
        command: Auth,
    },
    /// Manage MCP servers
    Mcp(McpArgs),
    /// List available models, and explain why others are not available
    Models(ModelsArgs),
    /// Add Purlin to the settings of an editor
    Setup(SetupArgs),
    /// Check the installation and report problems
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Manage stored sessions
    Sessions {
        #[command(subcommand)]
        command: SessionsCommand,
    },
    /// Explain permissions, and list or revoke saved answers
    Permissions {
        #[command(subcommand)]
        command: PermissionsCommand,
    },
    /// Show what a project would run, and trust it
    Trust(TrustArgs),
    /// Show a trace written by `purlin acp --trace FILE` or `purlin tap`
    Trace(TraceArgs),
    /// Stand between an editor and any ACP agent, and record their messages
    Tap(TapArgs),
    /// Show the log of all agents
    Logs(LogsArgs),
    /// Play a recording of `purlin acp --record DIR` again, and compare the output byte for byte
    Replay(ReplayArgs),
    /// Pack log, trace, version and configuration for a bug report, without secrets
    Report(ReportArgs),
    /// Show all running agents on a page in the browser
    #[cfg(unix)]
    Dashboard(DashboardArgs),
    /// Run the agent itself in a container
    #[cfg(unix)]
    Container {
        #[command(subcommand)]
        command: ContainerCommand,
    },
    /// Run one prompt from the shell
    Run(Box<RunArgs>),
    /// Check whether an agent conforms to the Agent Client Protocol
    Check(Box<CheckArgs>),
    /// Put an agent under load, and measure time and memory
    Load(Box<LoadArgs>),
    /// Serve as the MCP server of `purlin check`
    #[command(hide = true)]
    McpProbe {
        /// Written to the file, so that `purlin check` sees the argument
        #[arg(long, default_value = "")]
        mark: String,
    },
    /// Show the configuration and its sources, its schema, and what is used of other agents
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print a shell completion script
    Completions {
        /// bash, elvish, fish, powershell or zsh
        shell: Shell,
    },
    /// Print the manual page of the program or of a command
    Man {
        /// The command, such as `mcp add`
        command: Vec<String>,
        /// Write the pages of all commands to this directory
        #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
        write: Option<PathBuf>,
    },
}

// A struct for each command: parsed in one function, they would need more stack than a small thread has.
#[derive(Debug, Args)]
struct AcpArgs {
    /// Model: PROVIDER/MODEL or script:FILE
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Use this configuration file instead of the default purlin.json
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Do not store sessions on disk
    #[arg(long)]
    forget: bool,
    /// Connect to `purlin serve` at this address, such as wss://agent.example.com/acp
    #[arg(long, value_name = "URL", conflicts_with_all = ["model", "config", "forget", "dialect", "trace", "allow", "deny"])]
    connect: Option<String>,
    /// File with the token for the server; without it, the environment variable PURLIN_TOKEN
    #[arg(long, value_name = "FILE", requires = "connect")]
    token_file: Option<PathBuf>,
    /// Ask for an API key on the terminal; editors use this to log in
    #[arg(long, hide = true)]
    login: bool,
    /// Use this dialect instead of detecting it: v1, message-reference or container
    #[arg(long, value_name = "DIALECT", value_parser = dialect)]
    dialect: Option<Dialect>,
    /// Record every message in this file, with secrets masked; view it with `purlin trace FILE`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Where sessions work: project, worktree, devcontainer or container:IMAGE
    #[arg(long, value_name = "WORKSPACE", value_parser = run::args::workspace)]
    workspace: Option<String>,
    /// Record everything the sessions depend on in this directory, with secrets masked; play it with `purlin replay DIR`
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Allow without asking, besides your configuration: a list such as `edit,bash:"cargo *"`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    allow: Vec<RuleArg>,
    /// Deny, besides your configuration: a list as for `--allow`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    deny: Vec<RuleArg>,
}

impl AcpArgs {
    fn into_options(self) -> AcpOptions {
        let allow = self.allow.iter().map(|rule| rule.rule(Decision::Allow));
        let deny = self.deny.iter().map(|rule| rule.rule(Decision::Reject));
        let workspace = self.workspace.as_deref().map(WorkspaceConfig::parse);
        AcpOptions {
            rules: allow.chain(deny).collect(),
            model: self.model,
            config: self.config,
            forget: self.forget,
            dialect: self.dialect,
            trace: self.trace,
            record: self.record,
            workspace: workspace.and_then(Result::ok),
        }
    }
}

#[derive(Debug, Args)]
struct McpArgs {
    /// Use this configuration file instead of the default purlin.json
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: McpCommand,
}

#[derive(Debug, Args)]
struct ModelsArgs {
    /// Fetch current model lists from all providers
    #[arg(long)]
    refresh: bool,
    /// Use this configuration file instead of the default purlin.json
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct TrustArgs {
    /// Project directory
    #[arg(default_value = ".")]
    path: PathBuf,
    /// List trusted directories
    #[arg(long, conflicts_with = "revoke")]
    list: bool,
    /// Stop trusting the directory
    #[arg(long)]
    revoke: bool,
}

#[derive(Debug, Subcommand)]
enum Auth {
    /// Save an API key: entered on the terminal, or read from stdin
    Login {
        /// Provider: anthropic, openai, google, openrouter, or a name from purlin.json
        provider: Option<String>,
    },
    /// Remove an API key
    Logout {
        /// Provider
        provider: String,
    },
    /// Use OpenCode's API keys where no others exist; asks first
    Import,
    /// List providers with keys; the keys are not shown
    List,
}

/// Parses the command line on a thread of its own: the main thread may have too small a stack for it.
fn parse() -> anyhow::Result<Cli> {
    let thread = std::thread::Builder::new().name("parse".to_owned()).stack_size(2 * 1024 * 1024);
    let parsed = thread.spawn(Cli::parse)?.join();
    parsed.map_err(|_panic| anyhow::anyhow!("cannot parse the command line"))
}

/// Runs the program.
///
/// # Errors
/// Anything that ends the program with a message.
pub fn main() -> anyhow::Result<ExitCode> {
    match run_command() {
        // The reader has seen enough, like `head`.
        Err(err) if is_reader_gone(&err) => Ok(ExitCode::SUCCESS),
        done => done,
    }
}

fn is_reader_gone(err: &anyhow::Error) -> bool {
    let cause = err.downcast_ref::<std::io::Error>();
    cause.is_some_and(|err| err.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run_command() -> anyhow::Result<ExitCode> {
    // How editors start us. Parsing the whole command line would take a tenth of the time to the first answer.
    if std::env::args_os().skip(1).eq(["acp"]) {
        log::start(LogOptions { has_file: true, ..LogOptions::default() });
        return acp::run(AcpOptions::default());
    }
    // A shell calls us like this to complete a word.
    CompleteEnv::with_factory(Cli::command).complete();
    let cli = parse()?;
    let is_drawn = matches!(cli.command, None | Some(Command::Chat(_)));
    let has_file = is_drawn
        || matches!(cli.command, Some(Command::Acp(_) | Command::Serve(_) | Command::Tap(_)));
    log::start(LogOptions { level: cli.log, format: cli.log_format, has_file, is_drawn });
    match cli.command {
        None => run_without_command(),
        Some(Command::Acp(args)) => run_acp(args),
        Some(command) => run_other(command),
    }
}

fn run_acp(args: AcpArgs) -> anyhow::Result<ExitCode> {
    match args {
        AcpArgs { login: true, .. } => auth::run(&AuthCommand::Login(None)),
        AcpArgs { connect: Some(url), token_file, .. } => shim::run(&url, token_file.as_deref()),
        args => acp::run(args.into_options()),
    }
}

/// Runs any command but `acp`, whose stack may be small and has no room for what all others need.
fn run_other(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Chat(args) => chat_command::run(args, run::args::this_program),
        Command::Acp(args) => run_acp(args),
        Command::Serve(args) => serve_command::run(*args),
        Command::Auth { command } => auth::run(&auth_command(command)),
        Command::Mcp(McpArgs { command, config }) => mcp_command::run(command, config),
        Command::Models(ModelsArgs { refresh, config: file }) => {
            settings::config::check_readable(file.as_deref())?;
            let config = env::load_and_report(file.clone());
            model_sources::print_models(config, file.as_deref(), refresh)
        }
        Command::Doctor { json } => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(doctor::run(json))
        }
        Command::Sessions { command } => {
            let config = env::load_and_report(None);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(sessions::run(command, &config))
        }
        Command::Setup(args) => setup::run(args),
        Command::Config { command } => config_command::run(command),
        Command::Completions { shell } => completions(shell),
        Command::Man { write: Some(directory), .. } => manual_pages(&directory),
        Command::Man { command, write: None } => manual(&command),
        Command::Permissions { command } => run_permissions(command),
        Command::Trust(TrustArgs { path, list, revoke }) => trust::run(match (list, revoke) {
            (true, _) => TrustCommand::List,
            (false, true) => TrustCommand::Revoke(path),
            (false, false) => TrustCommand::Ask(path),
        }),
        Command::Check(args) => check_command::run(&args),
        Command::Load(args) => load_command::run(&args),
        Command::McpProbe { mark } => check_command::serve_mcp_probe(&mark),
        Command::Trace(args) => trace_command::run(args),
        Command::Tap(args) => tap_command::run(&args),
        Command::Logs(args) => logs_command::run(&args),
        Command::Replay(args) => record_command::run(&args),
        Command::Report(args) => report::run(&args),
        #[cfg(unix)]
        Command::Dashboard(args) => dashboard::run(&args),
        #[cfg(unix)]
        Command::Container { command } => container_command::run(command),
        Command::Run(args) => {
            let options = args.into_options()?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run::run(options))
        }
    }
}

fn run_permissions(command: PermissionsCommand) -> anyhow::Result<ExitCode> {
    let (config, problems) = env::load_config(None);
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let settings = Settings::new(config, problems, env::directories());
    runtime.block_on(permissions::run(command, &settings))
}

/// `purlin` alone: the client on a terminal, help elsewhere.
fn run_without_command() -> anyhow::Result<ExitCode> {
    if chat_command::is_possible() {
        return chat_command::run(ChatArgs::default(), run::args::this_program);
    }
    eprint!("{}", Cli::command().render_help());
    Ok(ExitCode::from(2))
}

fn auth_command(command: Auth) -> AuthCommand {
    match command {
        Auth::Login { provider } => AuthCommand::Login(provider),
        Auth::Logout { provider } => AuthCommand::Logout(provider),
        Auth::Import => AuthCommand::Import,
        Auth::List => AuthCommand::List,
    }
}

/// Prints the registration: the shell then calls this program, so session ids are current.
fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let shells = Shells::builtins();
    let name = shell.to_string();
    let Some(completer) = shells.completer(&name) else {
        anyhow::bail!("no completion for {name}");
    };
    let mut script = Vec::new();
    completer.write_registration("COMPLETE", "purlin", "purlin", "purlin", &mut script)?;
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the manual pages of all commands.
fn manual_pages(directory: &Path) -> anyhow::Result<ExitCode> {
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory)
        .with_context(|| directory.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a manual page. `purlin man mcp add` prints the page `purlin-mcp-add(1)`.
fn manual(words: &[String]) -> anyhow::Result<ExitCode> {
    let more = "Run `purlin man COMMAND` for the page of a command.";
    let mut command = Cli::command().disable_help_subcommand(true).after_help(more);
    // Names every command by all its words.
    command.build();
    for word in words {
        let found = command.find_subcommand(word).cloned();
        command = found.with_context(|| format!("unknown command `{}`", words.join(" ")))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    std::io::stdout().write_all(&page)?;
    Ok(ExitCode::SUCCESS)
}

fn dialect(name: &str) -> Result<Dialect, String> {
    Dialect::from_name(name)
        .ok_or_else(|| format!("must be one of {}", Dialect::ALL.map(Dialect::name).join(", ")))
}

#[cfg(test)]
mod documented;

#[cfg(test)]
mod tests {
    use super::*;

    // R: D1, D2, D3
    #[test]
    fn dialect_is_forced_by_its_name() {
        let parsed = |name: &str| Cli::try_parse_from(["purlin", "acp", "--dialect", name]);
        for dialect in Dialect::ALL {
            let Some(Command::Acp(args)) = parsed(dialect.name()).unwrap().command else {
                panic!("acp is another command");
            };
            assert_eq!(args.dialect, Some(dialect));
        }
        let refused = parsed("latin").unwrap_err().to_string();
        assert!(refused.contains("v1, message-reference, container"), "{refused}");
    }
}
