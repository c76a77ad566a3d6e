//! Keeps one server running: starts it, detects when it exits or hangs, and restarts it up to a limit.
//!
//! Each server has one task. The task owns the process and the connection; tools get the connection from
//! `server::Status`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use process::sandbox::{Network, Profile};
use process::{Child, Grace, Spec};
use rmcp::model::ServerCapabilities;
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::clean::clean_line;
use crate::config::{Command, Remote, Transport};
use crate::connection::{Failure, Inbox, Peer};
use crate::error::Error;
use crate::handler;
use crate::host::{Confinement, Options, Timing};
use crate::http::{chain, client_for, secret};
use crate::offer::{self, Offer};
use crate::server::{Phase, Server};
use crate::transport::http::Http;
use crate::transport::sse::Sse;
use crate::transport::{Pipe, stdio};

/// A server is not restarted after this many failures in a row.
const MAX_FAILURES: u32 = 5;
/// How long the process of a stopped server may take to exit before it is killed.
const GRACE: Grace =
    Grace { after_close: Duration::from_millis(500), after_term: Duration::from_millis(500) };
/// Delay before a start, so that the reply to `session/new` goes out first: starting a process would slow it down.
const START_DELAY: Duration = Duration::from_millis(10);
/// How long to wait for the exit status and the last output of a process that closed its pipes.
const EXIT_WAIT: Duration = Duration::from_millis(200);
/// The shortest interval between two listings, for servers whose lists change all the time.
const RELIST_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps a server running until it is stopped.
pub(crate) async fn supervise(server: Arc<Server>, options: Arc<Options>) {
    let mut failures = 0;
    sleep(START_DELAY).await;
    loop {
        let begun = Instant::now();
        server.set_phase(Phase::Starting, None);
        let (name, session) = (clean_line(server.name(), 80), &*server.session);
        tracing::info!(session, operation = "mcp server", server = name, "starting");
        let started = tokio::select! {
            biased;
            () = server.stop.cancelled() => break,
            started = start(&server, &options) => started,
        };
        let error = match started {
            Ok((live, offer)) => {
                let since = Instant::now();
                let tools = offer.tools.len();
                let duration_ms = millis(since - begun);
                tracing::info!(
                    session,
                    operation = "mcp server",
                    duration_ms,
                    server = name,
                    tools,
                    "ready"
                );
                server.set_ready(live.peer.clone(), offer);
                let error = watch(&server, live, &options.timing).await;
                if since.elapsed() >= options.timing.steady {
                    failures = 0;
                }
                error
            }
            Err(error) => Some(error),
        };
        let Some(error) = error else {
            break;
        };
        failures += 1;
        let duration_ms = millis(begun.elapsed());
        tracing::warn!(
            session,
            operation = "mcp server",
            duration_ms,
            server = name,
            failures,
            "failed: {error}"
        );
        if error.is_final() || failures >= MAX_FAILURES {
            server.set_phase(Phase::Failed, Some(error));
            tokio::select! {
                () = server.stop.cancelled() => break,
                () = server.retry.notified() => failures = 0,
            }
            continue;
        }
        let wait = options.timing.wait_after(failures);
        server.set_phase(Phase::Waiting(wait), Some(error));
        tokio::select! {
            () = server.stop.cancelled() => break,
            () = server.retry.notified() => {}
            () = sleep(wait) => {}
        }
    }
    server.set_phase(Phase::Stopped, None);
    let (name, session) = (clean_line(server.name(), 80), &*server.session);
    tracing::info!(session, operation = "mcp server", server = name, "stopped");
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A connected server.
pub(crate) struct Live {
    pub(crate) peer: Peer,
    /// The tasks that read messages and answer requests. Dropping this value stops them.
    _tasks: JoinSet<()>,
    program: Option<Program>,
    capabilities: ServerCapabilities,
}

impl Live {
    /// Closes the connection and ends the process.
    pub(crate) async fn end(self) {
        self.peer.pipe.end().await;
        if let Some(mut program) = self.program {
            program.end().await;
        }
    }
}

/// Starts a server and lists what it offers. If it takes too long it is reported as late, but may still become ready.
async fn start(server: &Arc<Server>, options: &Options) -> Result<(Live, Offer), Error> {
    let timing = &options.timing;
    let starting = async {
        let live = connect(server, options).await?;
        list(live, server).await
    };
    tokio::pin!(starting);
    let expected = server.config.start.unwrap_or(timing.start);
    if let Ok(started) = timeout(expected, &mut starting).await {
        return started;
    }
    let error = server.config.timed_out(expected, server.log_excerpt());
    server.set_phase(Phase::Late, Some(error));
    match timeout(timing.start_limit, starting).await {
        Ok(started) => started,
        Err(_) => {
            let after = expected + timing.start_limit;
            Err(server.config.timed_out(after, server.log_excerpt()))
        }
    }
}

/// Lists what a connected server offers.
pub(crate) async fn list(mut live: Live, server: &Server) -> Result<(Live, Offer), Error> {
    match offer::list(&live.peer, &live.capabilities).await {
        Ok(offer) => Ok((live, offer)),
        Err(err) => {
            let explained = explain(&mut live.program, server).await;
            Err(explained.unwrap_or_else(|| call_error(server, &err)))
        }
    }
}

/// Connects to a server. A local server is started first.
pub(crate) async fn connect(server: &Arc<Server>, options: &Options) -> Result<Live, Error> {
    let (inbox, requests) = Inbox::new(Arc::clone(server));
    let mut tasks = JoinSet::new();
    let mut program = None;
    let pipe: Arc<dyn Pipe> = match &server.config.transport {
        Transport::Command(command) => {
            let (started, pipe) =
                start_program(server, command, options, &inbox, &mut tasks).await?;
            program = Some(started);
            pipe
        }
        Transport::Http(remote) => {
            let (client, headers) = (client_for(&remote.url)?, headers(remote)?);
            let signer = options.login.signer(server.name(), &remote.url).await?;
            let inbox = Arc::clone(&inbox);
            let http = Http::new(client, &remote.url, headers, signer, inbox, server.name());
            tasks.spawn(http.clone().listen());
            Arc::new(http)
        }
        Transport::Sse(remote) => {
            let (client, mut headers) = (client_for(&remote.url)?, headers(remote)?);
            if let Some(token) = options.login.token(server.name(), &remote.url).await? {
                headers.insert(reqwest::header::AUTHORIZATION, secret(&format!("Bearer {token}"))?);
            }
            let (sse, stream) = Sse::connect(client, &remote.url, headers, server.name()).await?;
            tasks.spawn(stream.read(Arc::clone(&inbox)));
            Arc::new(sse)
        }
    };
    let peer = Peer::new(inbox, pipe);
    tasks.spawn(peer.clone().serve_requests(requests));
    match handshake(server, &peer).await {
        Ok(capabilities) => Ok(Live { peer, _tasks: tasks, program, capabilities }),
        Err(failure) => {
            let explained = explain(&mut program, server).await;
            Err(explained.unwrap_or_else(|| call_error(server, &failure)))
        }
    }
}

/// The result of `initialize`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeResult {
    protocol_version: String,
    #[serde(default)]
    capabilities: ServerCapabilities,
}

async fn handshake(server: &Server, peer: &Peer) -> Result<ServerCapabilities, Failure> {
    let result: InitializeResult = peer.call("initialize", &handler::client_info(server)).await?;
    peer.pipe.set_version(&result.protocol_version);
    peer.notify("notifications/initialized", &json!({})).await?;
    Ok(result.capabilities)
}

fn headers(remote: &Remote) -> Result<reqwest::header::HeaderMap, Error> {
    let mut headers = reqwest::header::HeaderMap::new();
    for (name, value) in &remote.headers {
        let bad = || {
            Error::Start(format!(
                "the header `{}` is not a valid HTTP header",
                clean_line(name, 80)
            ))
        };
        let name: reqwest::header::HeaderName = name.parse().map_err(|_| bad())?;
        headers.insert(name, secret(value.reveal()).map_err(|_| bad())?);
    }
    Ok(headers)
}

/// The process of a local server, with the task that reads its stderr.
struct Program {
    child: Child,
    /// Declared after the child, so that the child is watched until it is dropped.
    _watched: Option<process::guard::Watched>,
    has_invalid_output: Arc<AtomicBool>,
    reader: JoinSet<()>,
}

async fn start_program(
    server: &Arc<Server>,
    command: &Command,
    options: &Options,
    inbox: &Arc<Inbox>,
    tasks: &mut JoinSet<()>,
) -> Result<(Program, Arc<dyn Pipe>), Error> {
    if server.config.is_in_container {
        return start_inside(server, command, options, inbox, tasks).await;
    }
    let mut spec = spec(server, command, options);
    if !is_installed(&spec) {
        return Err(Error::NoProgram(clean_line(&command.program, 200)));
    }
    let mut sandbox = None;
    if let Some(confinement) = &options.confinement {
        let restricted = match server.config.is_unsandboxed {
            true => None,
            false => {
                let caches = own_caches(server, command, confinement);
                let mut env: Vec<_> =
                    CACHES.iter().zip(caches.iter().cycle()).map(own_variable).collect();
                // What the configuration declares wins.
                env.append(&mut spec.env);
                spec.env = env;
                let profile = profile(server, &spec, confinement, caches);
                Some((profile, confinement.sandbox.found().await))
            }
        };
        sandbox = Some((Arc::clone(&confinement.sandbox), restricted));
    }
    let guard = options.guard.clone();
    let spawned = options.starter.run(move || {
        let child = match sandbox {
            Some((sandbox, Some((profile, found)))) => sandbox.spawn(&spec, &profile, &found),
            Some((sandbox, None)) => sandbox.spawn_free(&spec),
            None => process::spawn(&spec),
        };
        child.map(|child| (guard.watch(&child), child))
    });
    let (watched, child) = match spawned.await {
        Some(Ok(spawned)) => spawned,
        Some(Err(process::Error::NoSuchProgram { .. })) => {
            return Err(Error::NoProgram(clean_line(&command.program, 200)));
        }
        Some(Err(err)) => return Err(Error::Start(chain(&err))),
        None => return Err(Error::Start("too many servers are starting".to_owned())),
    };
    attach_pipes(server, child, Some(watched), inbox, tasks)
}

/// Starts the program of a server in a container of the session, which no command shares: its environment may have secrets.
async fn start_inside(
    server: &Arc<Server>,
    command: &Command,
    options: &Options,
    inbox: &Arc<Inbox>,
    tasks: &mut JoinSet<()>,
) -> Result<(Program, Arc<dyn Pipe>), Error> {
    let Some(containers) = &server.containers else {
        let why = "it is configured to run in a container, and this session has none";
        return Err(Error::Start(why.to_owned()));
    };
    let real = |root: &PathBuf| root.canonicalize().ok();
    let roots: Vec<PathBuf> = server.roots.iter().filter_map(real).collect();
    let cwd = command.cwd.clone().or_else(|| roots.first().cloned()).unwrap_or_else(|| "/".into());
    let mut spec = Spec::new(&command.program, cwd).args(&command.args);
    spec.env =
        command.env.iter().map(|(name, value)| (name.into(), value.reveal().into())).collect();
    spec.keep_input = true;
    let git = roots.iter().map(|root| root.join(".git")).filter(|git| git.exists());
    let confined = options.confinement.as_ref();
    let confined = confined.map(|confinement| profile(server, &spec, confinement, None));
    let (protected, hidden) = confined.map(|it| (it.protected, it.hidden)).unwrap_or_default();
    let profile = Profile {
        protected: git.chain(protected).collect(),
        hidden,
        network: Network::On,
        ..Profile::writing_to(roots.clone())
    };
    let child = containers.spawn_alone(server.name(), &spec, &profile).await;
    attach_pipes(server, child.map_err(|err| Error::Start(chain(&err)))?, None, inbox, tasks)
}

/// Connects to a program that runs.
fn attach_pipes(
    server: &Arc<Server>,
    mut child: process::Child,
    watched: Option<process::guard::Watched>,
    inbox: &Arc<Inbox>,
    tasks: &mut JoinSet<()>,
) -> Result<(Program, Arc<dyn Pipe>), Error> {
    let (Some(input), Some(output), Some(mut errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Error::Start("the process has no pipes".to_owned()));
    };
    let mut reader = JoinSet::new();
    let logger = Arc::clone(server);
    reader.spawn(async move {
        let mut chunk = vec![0; 8 * 1024];
        while let Ok(count @ 1..) = errors.read(&mut chunk).await {
            logger.log(&chunk[..count]);
        }
    });
    let has_invalid_output = Arc::new(AtomicBool::new(false));
    tasks.spawn(stdio::read(output, Arc::clone(inbox), Arc::clone(&has_invalid_output)));
    let program = Program { child, _watched: watched, has_invalid_output, reader };
    Ok((program, Arc::new(stdio::Stdio::new(input))))
}

/// Returns the process to start: the configured arguments unchanged, and only the declared environment variables.
fn spec(server: &Server, command: &Command, options: &Options) -> Spec {
    let cwd = command.cwd.clone().or_else(|| server.roots.first().cloned());
    let mut spec = Spec::new(&command.program, cwd.unwrap_or_else(|| options.directory.clone()));
    spec.clear_env = true;
    spec.args = command.args.iter().map(Into::into).collect();
    let declared = command.env.iter().map(|(name, value)| (name.into(), value.reveal().into()));
    spec.env = options.environment.iter().cloned().chain(declared).collect();
    spec.keep_input = true;
    spec
}

/// Returns whether the program exists. Inside the sandbox, a missing program is only seen as an exit code.
fn is_installed(spec: &Spec) -> bool {
    let program = spec.program.as_path();
    if program.components().count() > 1 {
        return spec.cwd.join(program).is_file();
    }
    // If a variable is set twice, the process sees the last value.
    let path = spec.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    path.is_none_or(|path| {
        std::env::split_paths(path).any(|directory| directory.join(program).is_file())
    })
}

/// The variables that name caches of package runners, and where each is in the server's own directory. The caches of the user have
/// programs in them that others run: a server must not be able to replace those.
const CACHES: [(&str, &str); 13] = [
    ("XDG_CACHE_HOME", "cache"),
    ("npm_config_cache", "npm"),
    ("npm_config_store_dir", "pnpm"),
    ("PNPM_HOME", "pnpm-home"),
    ("YARN_CACHE_FOLDER", "yarn"),
    ("YARN_GLOBAL_FOLDER", "yarn-global"),
    ("BUN_INSTALL_CACHE_DIR", "bun"),
    ("DENO_DIR", "deno"),
    ("UV_CACHE_DIR", "uv"),
    ("UV_TOOL_DIR", "uv-tools"),
    ("UV_PYTHON_INSTALL_DIR", "uv-python"),
    ("PIP_CACHE_DIR", "pip"),
    ("PRE_COMMIT_HOME", "pre-commit"),
];

fn own_variable(((name, part), own): (&(&str, &str), &PathBuf)) -> (OsString, OsString) {
    ((*name).into(), own.join(part).into())
}

/// Creates the directory of a server's own caches. A server of the same name with another command gets another one.
fn own_caches(server: &Server, command: &Command, confinement: &Confinement) -> Option<PathBuf> {
    let mut words = vec![server.name(), &command.program];
    words.extend(command.args.iter().map(String::as_str));
    let own = confinement.caches.as_ref()?.join(offer::fingerprint(&words));
    match std::fs::create_dir_all(&own) {
        Ok(()) => Some(own),
        Err(err) => {
            tracing::warn!("could not create {}: {err}", own.display());
            None
        }
    }
}

/// Returns the sandbox profile of a server's process: it can write to its session's directories and cannot read secrets.
fn profile(
    server: &Server,
    spec: &Spec,
    confinement: &Confinement,
    caches: Option<PathBuf>,
) -> Profile {
    let writable =
        server.roots.iter().chain([&spec.cwd]).chain(&confinement.writable).chain(&caches);
    // Git runs hooks, and its configuration can name programs to run. Both are read-only.
    let git = server.roots.iter().map(|root| root.join(".git")).filter(|git| git.is_dir());
    let git = git.flat_map(|git| ["hooks", "config"].map(|part| git.join(part)));
    // A link cannot be protected.
    let is_there = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_symlink());
    let named = server.roots.iter().filter_map(|root| root.canonicalize().ok());
    let named =
        named.flat_map(|root| confinement.protected.iter().map(move |name| root.join(name)));
    Profile {
        protected: git.chain(named.filter(is_there)).collect(),
        hidden: confinement.hidden.clone(),
        private: Vec::new(),
        temporary: None,
        network: Network::On,
        ..Profile::writing_to(writable.filter_map(|path| path.canonicalize().ok()).collect())
    }
}

/// Returns how the process ended, if the server has one and it exited.
async fn explain(program: &mut Option<Program>, server: &Server) -> Option<Error> {
    let program = program.as_mut()?;
    if program.has_invalid_output.load(Ordering::Relaxed) {
        return Some(Error::InvalidOutput);
    }
    let status = timeout(EXIT_WAIT, program.child.wait()).await.ok()?.ok()?;
    Some(program.ended(server, status).await)
}

impl Program {
    /// Returns how the process ended, after its remaining output was read.
    async fn ended(&mut self, server: &Server, status: std::process::ExitStatus) -> Error {
        if timeout(EXIT_WAIT, self.reader.join_next()).await.is_err() {
            tracing::debug!(
                server = server.name(),
                "the process exited, but another one holds its stderr open"
            );
        }
        let how = match (status.code(), process::end::signal_name(status)) {
            (Some(code), _) => format!("code {code}"),
            (None, Some(signal)) => signal,
            (None, None) => "no exit code".to_owned(),
        };
        Error::Exited { how, log: server.log_excerpt() }
    }

    /// Ends the process, whose stdin is closed: terminates it, then kills it.
    async fn end(&mut self) {
        if let Err(err) = self.child.end(GRACE).await {
            tracing::warn!("could not wait for an MCP server to exit: {err}");
        }
    }
}

/// Watches a server that is ready. Returns why it failed, or `None` if it was stopped.
async fn watch(server: &Arc<Server>, live: Live, timing: &Timing) -> Option<Error> {
    let Live { peer, _tasks, mut program, capabilities } = live;
    let mut listing: Option<BoxFuture<'_, Result<Offer, Failure>>> = None;
    let mut listed_at = Instant::now();
    let error = loop {
        tokio::select! {
            biased;
            () = server.stop.cancelled() => break None,
            () = server.unresponsive.notified() => break Some(Error::Unresponsive),
            () = exit_of(&mut program) => break Some(broken(&mut program, server).await),
            () = peer.closed() => break Some(broken(&mut program, server).await),
            () = server.relist.notified(), if listing.is_none() => {
                // No delay after a quiet period: the next request to the model may need the new tool.
                let pause = RELIST_INTERVAL.min(timing.start).saturating_sub(listed_at.elapsed());
                let (peer, capabilities) = (&peer, &capabilities);
                listing = Some(Box::pin(async move {
                    sleep(pause).await;
                    offer::list(peer, capabilities).await
                }));
            }
            listed = listed(&mut listing) => {
                listing = None;
                listed_at = Instant::now();
                match listed {
                    Ok(offer) => server.set_ready(peer.clone(), offer),
                    Err(failure) => {
                        let why = call_error(server, &failure);
                        tracing::warn!(server = server.name(), "could not list its tools: {why}");
                    }
                }
            }
        }
    };
    if error.is_some() {
        // Set before the process has ended, so that pending calls fail at once.
        server.set_phase(Phase::Waiting(timing.first_wait), error.clone());
    }
    drop(listing);
    peer.inbox.close();
    peer.pipe.end().await;
    if let Some(program) = &mut program {
        program.end().await;
    }
    error
}

async fn listed(
    listing: &mut Option<BoxFuture<'_, Result<Offer, Failure>>>,
) -> Result<Offer, Failure> {
    match listing {
        Some(listing) => listing.await,
        None => std::future::pending().await,
    }
}

/// Waits until the process exits. Its status can be queried again afterwards.
async fn exit_of(program: &mut Option<Program>) {
    match program {
        Some(program) => drop(program.child.wait().await),
        None => std::future::pending().await,
    }
}

async fn broken(program: &mut Option<Program>, server: &Server) -> Error {
    let explained = explain(program, server).await;
    explained.unwrap_or_else(|| Error::Unreachable("the connection was lost".to_owned()))
}

/// Returns why a call to a server failed.
pub(crate) fn call_error(server: &Server, failure: &Failure) -> Error {
    match failure {
        Failure::Refused(message) => Error::Refused(clean_line(message, 300)),
        Failure::Invalid => Error::Refused("its response does not match the protocol".to_owned()),
        Failure::NotSent(error) => error.clone(),
        Failure::Closed => server
            .status()
            .error
            .unwrap_or_else(|| Error::Unreachable("the connection was lost".to_owned())),
    }
}
