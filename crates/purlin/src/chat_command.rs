//! `purlin chat`: the terminal client, with our own agent or any other.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chat::{AgentAddress, ColorChoice, ColorLevel, TalkOptions, Token};
use clap::Args;

use crate::env;
use crate::run::args::{workspace, workspace_flags};

/// The options of `purlin chat`.
#[derive(Debug, Args, Default)]
pub(crate) struct ChatArgs {
    /// Working directory
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    cwd: PathBuf,
    /// Model to use
    #[arg(long, value_name = "MODEL", conflicts_with = "agent")]
    model: Option<String>,
    /// Where the session works: project, worktree, devcontainer or container:IMAGE
    #[arg(long, value_name = "WORKSPACE", conflicts_with = "agent", value_parser = workspace)]
    workspace: Option<String>,
    /// Load this session
    #[arg(long, value_name = "SESSION")]
    resume: Option<String>,
    /// Use another ACP agent: its command line, such as "opencode acp", or the address of a server
    #[arg(long, value_name = "COMMAND|URL")]
    agent: Option<String>,
    /// File with the token for a server; otherwise PURLIN_TOKEN is used
    #[arg(long, value_name = "FILE", requires = "agent")]
    token_file: Option<PathBuf>,
    /// Colours: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = color)]
    color: ColorChoice,
    /// Print everything in order and without motion, for screen readers
    #[arg(long)]
    screen_reader: bool,
    /// Use the keys of vi in the input
    #[arg(long)]
    vi: bool,
}

fn color(text: &str) -> Result<ColorChoice, String> {
    match text {
        "auto" => Ok(ColorChoice::Auto),
        "always" => Ok(ColorChoice::Always),
        "never" => Ok(ColorChoice::Never),
        _ => Err("must be auto, always or never".to_owned()),
    }
}

/// Returns whether the client can be used here.
pub(crate) fn is_possible() -> bool {
    cfg!(unix) && io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Runs the client. `own_agent` makes the command of our own agent for a model.
#[cfg(unix)]
pub(crate) fn run(
    args: ChatArgs,
    own_agent: impl FnOnce(Option<&str>) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        is_possible(),
        "`purlin chat` needs a terminal. Elsewhere there is `purlin run PROMPT`."
    );
    let url = args.agent.as_deref().and_then(server_url);
    let cwd = if args.cwd.as_os_str().is_empty() { PathBuf::from(".") } else { args.cwd.clone() };
    let cwd = match cwd.canonicalize() {
        // On a server, its own folder is meant.
        Err(_) if url.is_some() && cwd.is_absolute() => cwd,
        cwd => cwd.map_err(|err| {
            anyhow::anyhow!("cannot open the folder {}: {err}", args.cwd.display())
        })?,
    };
    let agent = match (url, &args.agent) {
        (Some(url), _) => {
            let token = crate::shim::token(args.token_file.as_deref())?.map(Token);
            AgentAddress::Server { url, token }
        }
        (None, Some(line)) => AgentAddress::Program(words(line)),
        (None, None) => {
            if args.model.is_none() {
                crate::first_run::connect_a_model()?;
            }
            let mut words = own_agent(args.model.as_deref())?;
            words.extend(workspace_flags(args.workspace));
            AgentAddress::Program(words)
        }
    };
    if let AgentAddress::Program(words) = &agent {
        anyhow::ensure!(!words.is_empty(), "the command of the agent is empty");
    }
    let offers_files = args.agent.is_some() && matches!(agent, AgentAddress::Program(_));
    let (config, _) = env::load_config(None);
    let keys = config.chat.keys.iter().map(|(key, action)| (key.as_str(), action.as_str()));
    let (key_map, notices) = chat::KeyMap::parse(keys);
    let is_dumb = env::colors().term.is_none_or(|term| term.is_empty() || term == "dumb");
    let level = ColorLevel::detect(args.color, &env::colors(), true);
    let options = chat::ChatOptions {
        talk: TalkOptions {
            agent,
            cwd: cwd.clone(),
            offers_files,
            // Until the terminal has been asked.
            terminal: process::TerminalSize { columns: 80, rows: 24 },
            name: "purlin chat",
            version: env!("CARGO_PKG_VERSION"),
        },
        level,
        history: history_file(&cwd),
        editor: env::editor(),
        temporary: env::temporary(),
        session: args.resume,
        is_linear: is_dumb || args.screen_reader || config.chat.screen_reader,
        has_vi_keys: args.vi || config.chat.vi,
        images: match level {
            ColorLevel::None => chat::ImageProtocol::None,
            _ => chat::ImageProtocol::detect(&env::image_environment()),
        },
        key_map,
        notices,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(chat::run(options))?)
}

#[cfg(not(unix))]
pub(crate) fn run(
    _: ChatArgs,
    _: impl FnOnce(Option<&str>) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<ExitCode> {
    anyhow::bail!("`purlin chat` needs a Unix terminal. On Windows, use it inside WSL.")
}

/// Where the past prompts of a project are stored: a file named after its path.
fn history_file(cwd: &Path) -> Option<PathBuf> {
    let state = env::directories().state?;
    let path = cwd.to_string_lossy();
    let name: String = path
        .chars()
        .map(|char| if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' })
        .collect();
    // Long paths share their end, which tells projects apart.
    let start = name.len().saturating_sub(120);
    // Two paths may have the same name by now: the sum of their bytes keeps them apart.
    let sum = path.bytes().fold(5381_u32, |sum, byte| sum.wrapping_mul(33) ^ u32::from(byte));
    Some(state.join("prompts").join(format!("{}-{sum:08x}.jsonl", &name[start..])))
}

/// Returns the WebSocket address of an agent on a server; `None` for a command line.
fn server_url(agent: &str) -> Option<String> {
    let (scheme, rest) = agent.trim().split_once("://")?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "ws" | "http" => "ws",
        "wss" | "https" => "wss",
        _ => return None,
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = if path.is_empty() { "acp" } else { path };
    Some(format!("{scheme}://{host}/{path}"))
}

/// Splits a command line at white space; quotes keep words together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for char in line.chars() {
        match (char, quote) {
            ('"' | '\'', None) => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (char, Some(open)) if char == open => quote = None,
            (char, None) if char.is_whitespace() => words.extend(word.take()),
            (char, _) => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_split_like_in_a_shell() {
        assert_eq!(words("opencode acp"), ["opencode", "acp"]);
        assert_eq!(words(" a  'b c' \"d 'e\"f ''"), ["a", "b c", "d 'ef", ""]);
    }

    #[test]
    fn server_is_told_from_a_command_line() {
        assert_eq!(server_url("opencode acp"), None);
        assert_eq!(server_url("http://h:1").as_deref(), Some("ws://h:1/acp"));
        assert_eq!(server_url("https://h/").as_deref(), Some("wss://h/acp"));
        assert_eq!(server_url("wss://h/a/b?c").as_deref(), Some("wss://h/a/b?c"));
    }

    #[test]
    fn projects_have_files_of_their_own() {
        let file = |path: &str| history_file(Path::new(path));
        assert_ne!(file("/a/b"), file("/a_b"));
    }
}
