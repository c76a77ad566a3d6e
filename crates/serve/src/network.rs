//! ACP over the network: WebSocket and Streamable HTTP at `/acp`, for many clients at once.
//!
//! `access` decides who may use it. `websocket` and `streams` turn requests into the pipes of a connection, which is then
//! served like one on stdin and stdout, except that its sessions outlive it (`shared`). Every wait here has a limit, and so
//! has everything that is stored.

mod access;
mod answer;
mod metrics;
mod streams;
mod websocket;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::hub::HubOptions;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::access::{Access, User};
use self::metrics::Metrics;
use self::streams::HttpConnection;
use crate::options::Watcher;
use crate::shared::Tenant;
use crate::workspace::Workspaces;

pub use self::access::{check_token_line, token_line};

/// The largest message, and the largest body of a request.
pub(super) const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// How many sockets may be open. More wait in the queue of the system.
const SOCKETS: usize = 20_000;
/// How long the headers of a request and the handshake of TLS may take.
const HEADERS: Duration = Duration::from_secs(10);
/// How long a connection over Streamable HTTP may be without a reader and without a request.
const HTTP_IDLE: Duration = Duration::from_secs(600);
/// How often idle connections and sessions are looked for.
const SWEEP: Duration = Duration::from_secs(30);
/// How long a session that nobody is attached to stays in memory. It stays stored in any case.
const DETACHED: Duration = Duration::from_secs(900);
/// How many tenants may use the server at once.
const TENANTS: usize = 10_000;

/// What a server is started with.
pub struct NetworkOptions {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Certificate and key; `None` for plain HTTP.
    pub tls: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
    /// The file of tokens; `None` if everybody who reaches the server may use it.
    pub tokens: Option<PathBuf>,
    /// The names that clients use for this server.
    pub hosts: Vec<String>,
    /// The origins of pages that may use it.
    pub origins: Vec<String>,
    /// Makes what the sessions of one tenant share.
    pub hub: Box<dyn Fn() -> HubOptions + Send + Sync>,
    /// Makes who sees the bytes of a new connection, if anybody.
    pub watch: Box<dyn Fn() -> Option<Arc<dyn Watcher>> + Send + Sync>,
    /// Opens what sessions work with.
    pub workspaces: Arc<Workspaces>,
    /// The directory that a client means by `.`.
    pub cwd: PathBuf,
    /// How long running turns may take to end when the server stops.
    pub drain: Duration,
    /// Stops the server.
    pub stop: CancellationToken,
}

/// A server that listens.
pub struct Network {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    server: Arc<Server>,
    drain: Duration,
    stop: CancellationToken,
}

/// What all connections share.
struct Server {
    access: Access,
    hub: Box<dyn Fn() -> HubOptions + Send + Sync>,
    watch: Box<dyn Fn() -> Option<Arc<dyn Watcher>> + Send + Sync>,
    workspaces: Arc<Workspaces>,
    cwd: PathBuf,
    tenants: Mutex<HashMap<Arc<str>, OpenTenant>>,
    http: Mutex<HashMap<String, Arc<HttpConnection>>>,
    metrics: Metrics,
    /// Fires when no new work is accepted.
    draining: CancellationToken,
    /// Ends all connections.
    closing: CancellationToken,
    tasks: TaskTracker,
}

struct OpenTenant {
    tenant: Arc<Tenant>,
    /// The task of its hub; dropping it ends its sessions where they are.
    hub: JoinSet<()>,
}

impl Network {
    /// Begins to listen.
    ///
    /// # Errors
    /// Says why the address or the tokens cannot be used.
    pub async fn bind(options: NetworkOptions) -> Result<Network, String> {
        let NetworkOptions { listen, tls, tokens, mut hosts, origins, .. } = options;
        let NetworkOptions { hub, watch, workspaces, cwd, drain, stop, .. } = options;
        if tokens.is_none() && !listen.ip().is_loopback() {
            return Err(format!(
                "{listen} can be reached from other machines: give the server a file of tokens with `--tokens`"
            ));
        }
        hosts.extend(own_names(listen));
        let access = Access::new(tokens, hosts, origins)?;
        let listener = TcpListener::bind(listen).await.map_err(|err| format!("{listen}: {err}"))?;
        let server = Arc::new(Server {
            access,
            hub,
            watch,
            workspaces,
            cwd,
            tenants: Mutex::default(),
            http: Mutex::default(),
            metrics: Metrics::default(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        Ok(Network { listener, tls: tls.map(TlsAcceptor::from), server, drain, stop })
    }

    /// Returns the address it listens on.
    ///
    /// # Errors
    /// Fails if the system does not know it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is stopped. Then running turns may end, and what still runs is left to be continued elsewhere.
    pub async fn run(self) {
        let Network { listener, tls, server, drain, stop } = self;
        let sockets = Arc::new(Semaphore::new(SOCKETS));
        loop {
            let Ok(permit) = Arc::clone(&sockets).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sleep(SWEEP) => {
                    server.sweep();
                    continue;
                }
                () = stop.cancelled() => break,
            };
            let socket = match accepted {
                Ok((socket, _)) => socket,
                Err(err) => {
                    // Out of file descriptors, most likely: others must close first.
                    tracing::warn!("cannot accept a connection: {err}");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (of, tls) = (Arc::clone(&server), tls.clone());
            server.tasks.spawn(async move {
                accept(of, tls, socket).await;
                drop(permit);
            });
        }
        drop(listener);
        server.end(drain).await;
    }
}

/// Returns the names under which a client on the same network reaches an address.
fn own_names(listen: SocketAddr) -> Vec<String> {
    let ip = listen.ip();
    let mut names = vec![if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }];
    if ip.is_loopback() || ip.is_unspecified() {
        names.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
    }
    names
}

/// Serves one socket.
async fn accept(server: Arc<Server>, tls: Option<TlsAcceptor>, socket: TcpStream) {
    if let Err(err) = socket.set_nodelay(true) {
        tracing::debug!("cannot set TCP_NODELAY: {err}");
    }
    let Some(tls) = tls else { return serve_socket(server, socket).await };
    match timeout(HEADERS, tls.accept(socket)).await {
        Ok(Ok(socket)) => serve_socket(server, socket).await,
        Ok(Err(err)) => tracing::debug!("a TLS handshake failed: {err}"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn serve_socket(
    server: Arc<Server>,
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) {
    let closing = server.closing.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let server = Arc::clone(&server);
        async move {
            Ok::<Response<answer::Body>, std::convert::Infallible>(
                answer::answer(&server, request).await,
            )
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS).max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .max_header_list_size(64 * 1024)
        .keep_alive_interval(Some(Duration::from_secs(15)))
        .keep_alive_timeout(Duration::from_secs(30));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(socket), service);
    tokio::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => {
            if let Err(err) = served {
                tracing::debug!("a connection ended: {err}");
            }
        }
        () = closing.cancelled() => connection.as_mut().graceful_shutdown(),
    }
}

impl Server {
    fn http(&self) -> MutexGuard<'_, HashMap<String, Arc<HttpConnection>>> {
        self.http.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_tenants(&self) -> MutexGuard<'_, HashMap<Arc<str>, OpenTenant>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the connections of a user share; `None` if too many tenants use the server.
    fn tenant(&self, user: &User) -> Option<Arc<Tenant>> {
        let mut tenants = self.open_tenants();
        if let Some(open) = tenants.get(&user.tenant) {
            return Some(Arc::clone(&open.tenant));
        }
        if tenants.len() >= TENANTS {
            return None;
        }
        let limits = &self.workspaces.settings().config.limits;
        let (tenant, hub) = Tenant::new(&user.tenant, user.root.clone(), (self.hub)(), limits);
        let mut task = JoinSet::new();
        task.spawn(hub.run());
        let open = OpenTenant { tenant: Arc::clone(&tenant), hub: task };
        tenants.insert(Arc::clone(&user.tenant), open);
        Some(tenant)
    }

    fn all_tenants(&self) -> Vec<Arc<Tenant>> {
        self.open_tenants().values().map(|open| Arc::clone(&open.tenant)).collect()
    }

    /// Ends connections and unloads sessions that nobody uses.
    fn sweep(&self) {
        self.http().retain(|_, connection| {
            let is_idle = connection.is_idle(HTTP_IDLE);
            if is_idle {
                connection.stop.cancel();
            }
            !is_idle && !connection.stop.is_cancelled()
        });
        self.all_tenants().iter().for_each(|tenant| tenant.unload_idle(DETACHED));
    }

    /// Ends the server: running turns may end first. A turn that does not is left open in the journal, so that whoever
    /// opens its session next can continue it.
    async fn end(&self, drain: Duration) {
        self.draining.cancel();
        let end = Instant::now() + drain;
        while Instant::now() < end && self.all_tenants().iter().any(|tenant| tenant.is_busy()) {
            sleep(Duration::from_millis(50)).await;
        }
        let tenants: Vec<OpenTenant> = self.open_tenants().drain().map(|(_, open)| open).collect();
        for OpenTenant { tenant, mut hub } in tenants {
            hub.shutdown().await;
            tenant.release_all().await;
        }
        self.closing.cancel();
        self.tasks.close();
        if timeout(Duration::from_secs(2), self.tasks.wait()).await.is_err() {
            tracing::debug!("some connections did not end in time");
        }
    }
}
