//! Starts an agent, or connects to one on a server, and initializes it.

use std::fmt;
use std::time::Duration;

use client::{
    Connection, Error, FormQuestion, Host, HostOptions, LastWords, Permission, PermissionQuestion,
    Spec, TerminalOutput,
};
use tokio::sync::mpsc;
use wire::acp::schema;

use super::{TalkOptions, with_sources};
use crate::app::{Agent, Continued};

/// After this time an agent that has not answered `initialize` is given up. Some need many seconds to start on a busy machine.
const INITIALIZE: Duration = Duration::from_secs(30);

/// Where the agent is.
#[derive(Debug, Clone)]
pub enum AgentAddress {
    /// A program and its arguments.
    Program(Vec<String>),
    /// A server, by WebSocket.
    Server {
        /// Begins with `ws://` or `wss://`.
        url: String,
        /// Proves who the user is.
        token: Option<Token>,
    },
}

/// A secret of the user.
#[derive(Clone)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(****)")
    }
}

/// An agent that answered `initialize`.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) connection: Connection,
    pub(super) asked: mpsc::Receiver<PermissionQuestion>,
    pub(super) elicited: mpsc::Receiver<FormQuestion>,
    pub(super) written: mpsc::Receiver<TerminalOutput>,
    pub(super) agent: Agent,
    pub(super) session: Option<Continued>,
}

/// Why an agent could not be used.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) reason: String,
    pub(super) can_retry: bool,
}

/// Starts the agent and initializes it.
pub(super) async fn start(
    options: TalkOptions,
    after: Duration,
    session: Option<Continued>,
) -> Result<Started, Refusal> {
    tokio::time::sleep(after).await;
    let fatal = |reason: String| Refusal { reason, can_retry: false };
    // One question is shown at a time. If a channel is full, the agent waits for its answers.
    let ((questions, asked), (forms, elicited)) = (mpsc::channel(16), mpsc::channel(4));
    // If this one is full, output is not shown.
    let (output, written) = mpsc::channel(256);
    let host = Host::new(HostOptions {
        files: options.offers_files,
        terminals: options.offers_files,
        cwd: options.cwd.clone(),
        permission: Permission::Ask(questions),
    });
    let host = host
        .with_forms(forms)
        .with_roots(vec![options.cwd.clone()])
        .with_terminal_size(options.terminal)
        .with_live_output()
        .with_terminal_output(output);
    let is_remote = matches!(options.agent, AgentAddress::Server { .. });
    let host = if is_remote { host } else { host.with_terminal_login() };
    let (connection, name) = connect(&options, host).await?;
    let info = schema::Implementation::new(options.name, options.version);
    let initialized = tokio::time::timeout(INITIALIZE, connection.initialize(info)).await;
    let response = match initialized {
        Ok(Ok(response)) => response,
        Ok(Err(Error::AgentGone { .. })) => {
            let words = connection.last_words().await;
            return Err(Refusal { reason: end_text(&words), can_retry: true });
        }
        Ok(Err(err)) => return Err(fatal(with_sources(&err))),
        Err(_elapsed) => {
            let seconds = INITIALIZE.as_secs();
            let reason = format!(
                "The agent did not answer `initialize` within {seconds} s. Is `{name}` an ACP agent?"
            );
            return Err(Refusal { reason, can_retry: true });
        }
    };
    let agent = agent_of(response, &name, is_remote);
    Ok(Started { connection, asked, elicited, written, agent, session })
}

/// Returns the connection, and what to call the agent until it says its name.
async fn connect(options: &TalkOptions, host: Host) -> Result<(Connection, String), Refusal> {
    match &options.agent {
        AgentAddress::Program(words) => {
            let Some((program, args)) = words.split_first() else {
                let reason = "No agent to start.".to_owned();
                return Err(Refusal { reason, can_retry: false });
            };
            let spec = Spec::new(program, &options.cwd).args(args);
            let connection = Connection::start(&spec, host).map_err(|err| Refusal {
                reason: format!("Cannot start the agent: {}", with_sources(&err)),
                can_retry: false,
            })?;
            Ok((connection, program.clone()))
        }
        AgentAddress::Server { url, token } => {
            let token = token.as_ref().map(|token| token.0.as_str());
            let connected = Connection::remote(url, token, host).await;
            let connection = connected.map_err(|err| Refusal {
                reason: sentence(&err.to_string()),
                can_retry: !matches!(err, Error::RemoteRefused(_)),
            })?;
            Ok((connection, url.clone()))
        }
    }
}

fn agent_of(response: schema::InitializeResponse, program: &str, is_remote: bool) -> Agent {
    let raw = serde_json::to_value(&response).unwrap_or_default();
    let steers = |value: &serde_json::Value| value["_meta"]["steering"]["supported"] == true;
    let can_steer = steers(&raw) || steers(&raw["agentCapabilities"]);
    let (name, version) = match response.agent_info {
        Some(info) => (info.title.unwrap_or(info.name), info.version),
        None => (program.to_owned(), String::new()),
    };
    Agent {
        name,
        version,
        capabilities: response.agent_capabilities,
        auth_methods: response.auth_methods,
        can_steer,
        is_remote,
    }
}

/// Says how an agent ended: its exit status and its last lines on stderr.
pub(super) fn end_text(words: &LastWords) -> String {
    let status = words.status.map(|status| format!(" ({status})")).unwrap_or_default();
    let mut text = format!("The connection to the agent was lost{status}.");
    let lines: Vec<&str> = words.stderr.trim().lines().collect();
    for line in &lines[lines.len().saturating_sub(8)..] {
        text.push('\n');
        text.push_str(line);
    }
    text
}

/// Begins with a capital letter and ends with a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}
