//! Keeps one server running: starts it, notices when it ends or hangs, starts it again, gives it up.
//!
//! One task per server. It owns the program and the connection; tools use the connection through `server::Status`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use process::{Child, Grace, Spec};
use rmcp::model::ServerCapabilities;
use rmcp::service::{ClientInitializeError, Peer, RoleClient, RunningService, ServiceError};
use rmcp::transport::IntoTransport;
use rmcp::{ServiceExt, transport};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::clean::clean_line;
use crate::config::{Command, Reach, Remote};
use crate::error::Error;
use crate::handler::Handler;
use crate::host::{Options, Timing};
use crate::http::{chain, client_for};
use crate::offer::{self, Offer};
use crate::server::{Phase, Server};
use crate::transport::sse::Sse;
use crate::transport::stdio::Stdio;

/// After how many failures in a row a server is given up.
const MAX_FAILURES: u32 = 5;
/// How long the program of a server that is not needed any more may take to end by itself.
const GRACE: Grace =
    Grace { after_close: Duration::from_millis(500), after_term: Duration::from_millis(500) };
/// How long a start waits for the answer to the client that opened the session: nothing takes the processor from it.
const BEHIND: Duration = Duration::from_millis(10);
/// How long we wait for the end of a program that seems to have ended, and for the rest of what it said.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How often a list is asked for that changes all the time.
const RELIST: Duration = Duration::from_secs(1);

/// Keeps a server running until nobody needs it.
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
    pub(crate) peer: Peer<RoleClient>,
    service: RunningService<RoleClient, Handler>,
    program: Option<Program>,
    announced: ServerCapabilities,
}

impl Live {
    /// Ends the connection and the program.
    pub(crate) async fn end(self) {
        self.service.cancellation_token().cancel();
        if let Some(mut program) = self.program {
            program.end().await;
        }
    }
}

/// Starts a server and asks what it offers. Past its time it is reported as late, and may still join.
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
    let error = Error::Silent { after: patience, log: server.last_words() };
    server.set_phase(Phase::Late, Some(error));
    match timeout(timing.start_most, starting).await {
        Ok(started) => started,
        Err(_) => {
            let after = patience + timing.start_most;
            Err(Error::Silent { after, log: server.last_words() })
        }
    }
}

/// Asks a server that is connected what it offers.
pub(crate) async fn list(mut live: Live, server: &Server) -> Result<(Live, Offer), Error> {
    match offer::list(&live.peer, &live.announced).await {
        Ok(offer) => Ok((live, offer)),
        Err(err) => {
            let explained = explain(&mut live.program, server).await;
            Err(explained.unwrap_or_else(|| service_error(server, &err)))
        }
    }
}

/// Connects to a server; starts its program first where it has one.
pub(crate) async fn connect(server: &Arc<Server>, options: &Options) -> Result<Live, Error> {
    match &server.config.reach {
        Reach::Command(command) => connect_program(server, command, options).await,
        Reach::Http(remote) => {
            let client = client_for(&remote.url)?;
            let headers = headers(remote)?;
            let config =
                transport::streamable_http_client::StreamableHttpClientTransportConfig::with_uri(
                    remote.url.as_str(),
                )
                .custom_headers(
                    headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect(),
                )
                .max_sse_event_size(crate::transport::MAX_MESSAGE);
            match options.login.manager(server.name(), &remote.url).await? {
                Some(manager) => {
                    let client = transport::AuthClient::new(client, manager);
                    let pipe =
                        transport::StreamableHttpClientTransport::with_client(client, config);
                    shake_hands(server, pipe, None).await
                }
                None => {
                    let pipe =
                        transport::StreamableHttpClientTransport::with_client(client, config);
                    shake_hands(server, pipe, None).await
                }
            }
        }
        Reach::Sse(remote) => {
            let client = client_for(&remote.url)?;
            let mut headers = headers(remote)?;
            if let Some(token) = options.login.token(server.name(), &remote.url).await? {
                headers.insert(reqwest::header::AUTHORIZATION, secret(&format!("Bearer {token}"))?);
            }
            let pipe = Sse::connect(client, &remote.url, headers, server.name()).await?;
            shake_hands(server, pipe, None).await
        }
    }
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

fn secret(text: &str) -> Result<reqwest::header::HeaderValue, Error> {
    let mut value: reqwest::header::HeaderValue =
        text.parse().map_err(|_| Error::Start("a header cannot be sent".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The program of a server, with what reads its stderr.
struct Program {
    child: Child,
    /// Behind the child: it is watched until it is dropped.
    _watched: process::guard::Watched,
    /// Held here too, so that the program's input can be closed while the connection still has it.
    input: Arc<tokio::sync::Mutex<Option<process::ChildStdin>>>,
    is_garbage: Arc<AtomicBool>,
    reader: JoinSet<()>,
}

async fn connect_program(
    server: &Arc<Server>,
    command: &Command,
    options: &Options,
) -> Result<Live, Error> {
    let spec = spec(server, command, options);
    let guard = options.guard.clone();
    // Starting a program takes a moment in which nothing else would run here, so another thread does it.
    let spawned = tokio::task::spawn_blocking(move || {
        process::spawn(&spec).map(|child| (guard.watch(&child), child))
    });
    let (watched, mut child) = match spawned.await {
        Ok(Ok(spawned)) => spawned,
        Ok(Err(process::Error::NoSuchProgram { .. })) => {
            return Err(Error::NoProgram(clean_line(&command.program, 200)));
        }
        Ok(Err(err)) => return Err(Error::Start(chain(&err))),
        Err(err) => return Err(Error::Start(err.to_string())),
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
    let (pipe, input) = Stdio::new(input, output, Arc::clone(&is_garbage));
    shake_hands(server, pipe, Some(Program { child, _watched: watched, input, is_garbage, reader }))
        .await
}

/// What is started: the arguments as they are given, and an environment with nothing in it but what was declared.
fn spec(server: &Server, command: &Command, options: &Options) -> Spec {
    let folder = command.cwd.clone().or_else(|| server.roots.first().cloned());
    let mut spec = Spec::new(&command.program, folder.unwrap_or_else(|| options.folder.clone()));
    spec.clear_env = true;
    spec.args = command.args.iter().map(Into::into).collect();
    let declared = command.env.iter().map(|(name, value)| (name.into(), value.reveal().into()));
    spec.env = options.environment.iter().cloned().chain(declared).collect();
    spec
}

async fn shake_hands<T, E, A>(
    server: &Arc<Server>,
    pipe: T,
    mut program: Option<Program>,
) -> Result<Live, Error>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let handler = Handler { server: Arc::clone(server) };
    let service = match handler.serve(pipe).await {
        Ok(service) => service,
        Err(err) => {
            let explained = explain(&mut program, server).await;
            return Err(explained.unwrap_or_else(|| initialize_error(server, &err)));
        }
    };
    let info = service.peer().peer_info();
    let announced = info.map(|info| info.capabilities.clone()).unwrap_or_default();
    Ok(Live { peer: service.peer().clone(), service, program, announced })
}

/// Says how the program ended, if there is one and it did.
async fn explain(program: &mut Option<Program>, server: &Server) -> Option<Error> {
    let program = program.as_mut()?;
    if program.is_garbage.load(Ordering::Relaxed) {
        return Some(Error::Garbage);
    }
    let status = timeout(LAST_WORDS, program.child.wait()).await.ok()?.ok()?;
    Some(program.ended(server, status).await)
}

impl Program {
    /// Says how the program ended, once all it said has been read.
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

    /// Ends the program: closes its input, asks it, kills it.
    async fn end(&mut self) {
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        if let Err(err) = self.child.end(GRACE).await {
            tracing::warn!("the end of an MCP server could not be awaited: {err}");
        }
    }
}

/// Watches a server that works. Returns why it does not any more; `None` if nobody needs it.
async fn watch(server: &Arc<Server>, live: Live, timing: &Timing) -> Option<Error> {
    let Live { peer, service, mut program, announced } = live;
    let token = service.cancellation_token();
    let closed = service.waiting();
    tokio::pin!(closed);
    let mut listing: Option<BoxFuture<'_, Result<Offer, ServiceError>>> = None;
    let error = loop {
        tokio::select! {
            biased;
            () = server.stop.cancelled() => break None,
            () = server.hung.notified() => break Some(Error::Hung),
            () = exit_of(&mut program) => break Some(broken(&mut program, server).await),
            _ = &mut closed => break Some(broken(&mut program, server).await),
            () = server.relist.notified(), if listing.is_none() => {
                let (peer, announced, pause) = (&peer, &announced, RELIST.min(timing.start));
                listing = Some(Box::pin(async move {
                    sleep(pause).await;
                    offer::list(peer, announced).await
                }));
            }
            listed = listed(&mut listing) => {
                listing = None;
                match listed {
                    Ok(offer) => server.set_ready(peer.clone(), offer),
                    Err(err) => tracing::warn!(server = server.name(), "its lists cannot be read: {err}"),
                }
            }
        }
    };
    if error.is_some() {
        // Told before the program has ended: calls that wait must not wait for that, too.
        server.set_phase(Phase::Waiting(timing.first_wait), error.clone());
    }
    drop(listing);
    token.cancel();
    if let Some(program) = &mut program {
        program.end().await;
    }
    error
}

async fn listed(
    listing: &mut Option<BoxFuture<'_, Result<Offer, ServiceError>>>,
) -> Result<Offer, ServiceError> {
    match listing {
        Some(listing) => listing.await,
        None => std::future::pending().await,
    }
}

/// Waits for the end of the program; how it ended can be asked again.
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

fn initialize_error(server: &Server, err: &ClientInitializeError) -> Error {
    if err.is_authorization_required() {
        return Error::AuthNeeded(server.name().to_owned());
    }
    match err {
        ClientInitializeError::JsonRpcError(error) => {
            Error::Refused(clean_line(&error.message, 300))
        }
        ClientInitializeError::ConnectionClosed(_) => {
            Error::Unreachable("it closed the connection".to_owned())
        }
        ClientInitializeError::TransportError { error, .. } => {
            Error::Unreachable(chain(&*error.error))
        }
        other => Error::Refused(clean_line(&other.to_string(), 300)),
    }
}

/// Why a request to a server that was connected failed.
pub(crate) fn service_error(server: &Server, err: &ServiceError) -> Error {
    match err {
        ServiceError::McpError(error) => Error::Refused(clean_line(&error.message, 300)),
        ServiceError::TransportSend(error) => Error::Unreachable(chain(&*error.error)),
        ServiceError::TransportClosed => server
            .status()
            .error
            .unwrap_or_else(|| Error::Unreachable("the connection broke".to_owned())),
        other => Error::Refused(clean_line(&other.to_string(), 300)),
    }
}
