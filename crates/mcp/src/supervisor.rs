//! Keeps one server running: starts it, notices when it ends or hangs, starts it again, gives it up.
//!
//! One task per server. It owns the program and the connection; tools use the connection through `server::Status`.

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
use crate::config::{Command, Reach, Remote};
use crate::connection::{Failure, Inbox, Peer};
use crate::error::Error;
use crate::handler;
use crate::host::{Confine, Options, Timing};
use crate::http::{chain, client_for, secret};
use crate::offer::{self, Offer};
use crate::server::{Phase, Server};
use crate::transport::http::Http;
use crate::transport::sse::Sse;
use crate::transport::{Pipe, stdio};

/// After how many failures in a row a server is given up.
const MAX_FAILURES: u32 = 5;
/// How long the program of a stopped server may take to exit by itself.
const GRACE: Grace =
    Grace { after_close: Duration::from_millis(500), after_term: Duration::from_millis(500) };
/// How long a start is delayed, so that the answer to `session/new` is not slowed down.
const BEHIND: Duration = Duration::from_millis(10);
/// How long we wait for a program that seems to have ended, and for the rest of its log.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How often a list that keeps changing is read.
const RELIST: Duration = Duration::from_secs(1);

/// Keeps a server running until it is no longer needed.
pub(crate) async fn supervise(server: Arc<Server>, options: Arc<Options>) {
    let mut failures = 0;
    sleep(BEHIND).await;
    loop {
        server.set_phase(Phase::Starting, None);
        let started = tokio::select! {
            biased;
            () = server.stop.cancelled() => break,
            started = start(&server, &options) => started,
        };
        let error = match started {
            Ok((live, offer)) => {
                let since = Instant::now();
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
        tracing::warn!(server = server.name(), failures, "an MCP server failed: {error}");
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
}

/// A server that is connected.
pub(crate) struct Live {
    pub(crate) peer: Peer,
    /// The tasks that read and answer; they end with this value.
    _tasks: JoinSet<()>,
    program: Option<Program>,
    announced: ServerCapabilities,
}

impl Live {
    /// Ends the connection and the program.
    pub(crate) async fn end(self) {
        self.peer.pipe.end().await;
        if let Some(mut program) = self.program {
            program.end().await;
        }
    }
}

/// Starts a server and asks what it offers. After the time limit it is reported as slow, and may still become ready.
async fn start(server: &Arc<Server>, options: &Options) -> Result<(Live, Offer), Error> {
    let timing = &options.timing;
    let starting = async {
        let live = connect(server, options).await?;
        list(live, server).await
    };
    tokio::pin!(starting);
    let patience = server.config.start.unwrap_or(timing.start);
    if let Ok(started) = timeout(patience, &mut starting).await {
        return started;
    }
    let error = server.config.silent(patience, server.last_words());
    server.set_phase(Phase::Late, Some(error));
    match timeout(timing.start_most, starting).await {
        Ok(started) => started,
        Err(_) => {
            let after = patience + timing.start_most;
            Err(server.config.silent(after, server.last_words()))
        }
    }
}

/// Asks a connected server what it offers.
pub(crate) async fn list(mut live: Live, server: &Server) -> Result<(Live, Offer), Error> {
    match offer::list(&live.peer, &live.announced).await {
        Ok(offer) => Ok((live, offer)),
        Err(err) => {
            let explained = explain(&mut live.program, server).await;
            Err(explained.unwrap_or_else(|| call_error(server, &err)))
        }
    }
}

/// Connects to a server; starts its program first, if it has one.
pub(crate) async fn connect(server: &Arc<Server>, options: &Options) -> Result<Live, Error> {
    let (inbox, questions) = Inbox::new(Arc::clone(server));
    let mut tasks = JoinSet::new();
    let mut program = None;
    let pipe: Arc<dyn Pipe> = match &server.config.reach {
        Reach::Command(command) => {
            let (started, pipe) =
                start_program(server, command, options, &inbox, &mut tasks).await?;
            program = Some(started);
            pipe
        }
        Reach::Http(remote) => {
            let (client, headers) = (client_for(&remote.url)?, headers(remote)?);
            let signer = options.login.signer(server.name(), &remote.url).await?;
            let inbox = Arc::clone(&inbox);
            let http = Http::new(client, &remote.url, headers, signer, inbox, server.name());
            tasks.spawn(http.clone().listen());
            Arc::new(http)
        }
        Reach::Sse(remote) => {
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
    tasks.spawn(peer.clone().answer_questions(questions));
    match shake_hands(server, &peer).await {
        Ok(announced) => Ok(Live { peer, _tasks: tasks, program, announced }),
        Err(failure) => {
            let explained = explain(&mut program, server).await;
            Err(explained.unwrap_or_else(|| call_error(server, &failure)))
        }
    }
}

/// What a server says about itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hello {
    protocol_version: String,
    #[serde(default)]
    capabilities: ServerCapabilities,
}

async fn shake_hands(server: &Server, peer: &Peer) -> Result<ServerCapabilities, Failure> {
    let hello: Hello = peer.call("initialize", &handler::hello(server)).await?;
    peer.pipe.agree(&hello.protocol_version);
    peer.tell("notifications/initialized", &json!({})).await?;
    Ok(hello.capabilities)
}

fn headers(remote: &Remote) -> Result<reqwest::header::HeaderMap, Error> {
    let mut headers = reqwest::header::HeaderMap::new();
    for (name, value) in &remote.headers {
        let bad = || Error::Start(format!("the header `{}` cannot be sent", clean_line(name, 80)));
        let name: reqwest::header::HeaderName = name.parse().map_err(|_| bad())?;
        headers.insert(name, secret(value.reveal()).map_err(|_| bad())?);
    }
    Ok(headers)
}

/// The program of a server, with the task that reads its stderr.
struct Program {
    child: Child,
    /// After the child: it guards the child until it is dropped.
    _watched: process::guard::Watched,
    is_garbage: Arc<AtomicBool>,
    reader: JoinSet<()>,
}

async fn start_program(
    server: &Arc<Server>,
    command: &Command,
    options: &Options,
    inbox: &Arc<Inbox>,
    tasks: &mut JoinSet<()>,
) -> Result<(Program, Arc<dyn Pipe>), Error> {
    let spec = spec(server, command, options);
    if !is_there(&spec) {
        return Err(Error::NoProgram(clean_line(&command.program, 200)));
    }
    let mut sandbox = None;
    if let Some(confine) = &options.confine {
        make_caches(command, confine);
        let restricted = match server.config.is_free {
            true => None,
            false => Some((profile(server, &spec, confine), confine.sandbox.found().await)),
        };
        sandbox = Some((Arc::clone(&confine.sandbox), restricted));
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
    let (watched, mut child) = match spawned.await {
        Some(Ok(spawned)) => spawned,
        Some(Err(process::Error::NoSuchProgram { .. })) => {
            return Err(Error::NoProgram(clean_line(&command.program, 200)));
        }
        Some(Err(err)) => return Err(Error::Start(chain(&err))),
        None => return Err(Error::Start("too many programs are starting".to_owned())),
    };
    let (Some(input), Some(output), Some(mut errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Error::Start("the program has no pipes".to_owned()));
    };
    let mut reader = JoinSet::new();
    let of = Arc::clone(server);
    reader.spawn(async move {
        let mut chunk = vec![0; 8 * 1024];
        while let Ok(count @ 1..) = errors.read(&mut chunk).await {
            of.log(&chunk[..count]);
        }
    });
    let is_garbage = Arc::new(AtomicBool::new(false));
    tasks.spawn(stdio::read(output, Arc::clone(inbox), Arc::clone(&is_garbage)));
    let program = Program { child, _watched: watched, is_garbage, reader };
    Ok((program, Arc::new(stdio::Stdio::new(input))))
}

/// Returns the command: the arguments unchanged, and only the declared environment.
fn spec(server: &Server, command: &Command, options: &Options) -> Spec {
    let folder = command.cwd.clone().or_else(|| server.roots.first().cloned());
    let mut spec = Spec::new(&command.program, folder.unwrap_or_else(|| options.folder.clone()));
    spec.clear_env = true;
    spec.args = command.args.iter().map(Into::into).collect();
    let declared = command.env.iter().map(|(name, value)| (name.into(), value.reveal().into()));
    spec.env = options.environment.iter().cloned().chain(declared).collect();
    spec.keep_input = true;
    spec
}

/// Tells whether the program can be found. The sandbox would only report that something ended.
fn is_there(spec: &Spec) -> bool {
    let program = spec.program.as_path();
    if program.components().count() > 1 {
        return spec.cwd.join(program).is_file();
    }
    // The last one applies, as it does for the program.
    let path = spec.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    path.is_none_or(|path| std::env::split_paths(path).any(|folder| folder.join(program).is_file()))
}

/// Creates folders that a program would create itself: the sandbox allows writes to existing ones only.
fn make_caches(command: &Command, confine: &Confine) {
    for (_, folder) in confine.caches.iter().filter(|(of, _)| command.fetcher() == Some(*of)) {
        if let Err(err) = std::fs::create_dir_all(folder) {
            tracing::debug!("{} cannot be made: {err}", folder.display());
        }
    }
}

/// Returns the sandbox profile of a server: it may write to the folders of its session, and sees no secrets.
fn profile(server: &Server, spec: &Spec, confine: &Confine) -> Profile {
    let folders = server.roots.iter().chain([&spec.cwd]).chain(&confine.writable);
    // What git runs, or what decides what git runs, is protected.
    let git = server.roots.iter().map(|root| root.join(".git")).filter(|git| git.is_dir());
    Profile {
        protected: git.flat_map(|git| ["hooks", "config"].map(|part| git.join(part))).collect(),
        hidden: confine.hidden.clone(),
        private: Vec::new(),
        network: Network::On,
        ..Profile::writing_to(folders.filter_map(|folder| folder.canonicalize().ok()).collect())
    }
}

/// Returns how the program ended, if it did.
async fn explain(program: &mut Option<Program>, server: &Server) -> Option<Error> {
    let program = program.as_mut()?;
    if program.is_garbage.load(Ordering::Relaxed) {
        return Some(Error::Garbage);
    }
    let status = timeout(LAST_WORDS, program.child.wait()).await.ok()?.ok()?;
    Some(program.ended(server, status).await)
}

impl Program {
    /// Returns how the program ended, after its log was read.
    async fn ended(&mut self, server: &Server, status: std::process::ExitStatus) -> Error {
        if timeout(LAST_WORDS, self.reader.join_next()).await.is_err() {
            tracing::debug!(
                server = server.name(),
                "somebody still holds the stderr of a program that ended"
            );
        }
        let how = match (status.code(), process::end::signal_name(status)) {
            (Some(code), _) => format!("code {code}"),
            (None, Some(signal)) => signal,
            (None, None) => "no code".to_owned(),
        };
        Error::Ended { how, log: server.last_words() }
    }

    /// Ends the program: asks it to exit, then kills it.
    async fn end(&mut self) {
        if let Err(err) = self.child.end(GRACE).await {
            tracing::warn!("the end of an MCP server could not be awaited: {err}");
        }
    }
}

/// Watches a ready server. Returns why it failed; `None` if it is no longer needed.
async fn watch(server: &Arc<Server>, live: Live, timing: &Timing) -> Option<Error> {
    let Live { peer, _tasks, mut program, announced } = live;
    let mut listing: Option<BoxFuture<'_, Result<Offer, Failure>>> = None;
    let mut listed_at = Instant::now();
    let error = loop {
        tokio::select! {
            biased;
            () = server.stop.cancelled() => break None,
            () = server.hung.notified() => break Some(Error::Hung),
            () = exit_of(&mut program) => break Some(broken(&mut program, server).await),
            () = peer.closed() => break Some(broken(&mut program, server).await),
            () = server.relist.notified(), if listing.is_none() => {
                // At once after a quiet time: a new tool may be needed for the next request.
                let pause = RELIST.min(timing.start).saturating_sub(listed_at.elapsed());
                let (peer, announced) = (&peer, &announced);
                listing = Some(Box::pin(async move {
                    sleep(pause).await;
                    offer::list(peer, announced).await
                }));
            }
            listed = listed(&mut listing) => {
                listing = None;
                listed_at = Instant::now();
                match listed {
                    Ok(offer) => server.set_ready(peer.clone(), offer),
                    Err(failure) => {
                        let why = call_error(server, &failure);
                        tracing::warn!(server = server.name(), "its lists cannot be read: {why}");
                    }
                }
            }
        }
    };
    if error.is_some() {
        // Before the program has ended: pending calls must not wait for that, too.
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

/// Waits for the end of the program. Its status can be queried again.
async fn exit_of(program: &mut Option<Program>) {
    match program {
        Some(program) => drop(program.child.wait().await),
        None => std::future::pending().await,
    }
}

async fn broken(program: &mut Option<Program>, server: &Server) -> Error {
    let explained = explain(program, server).await;
    explained.unwrap_or_else(|| Error::Unreachable("the connection broke".to_owned()))
}

/// Why a call to a server failed.
pub(crate) fn call_error(server: &Server, failure: &Failure) -> Error {
    match failure {
        Failure::Refused(message) => Error::Refused(clean_line(message, 300)),
        Failure::Misfit => Error::Refused("its answer violates the protocol".to_owned()),
        Failure::Unsent(error) => error.clone(),
        Failure::Closed => server
            .status()
            .error
            .unwrap_or_else(|| Error::Unreachable("the connection broke".to_owned())),
    }
}
