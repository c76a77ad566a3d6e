//! A proxy on loopback between an agent and its model server, which records what passes.
//!
//! The agent is measured from outside, so all agents are measured alike. Each connection serves one request. When the agent
//! closes its connection, the server sees that at once and stops, as it would without a proxy.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use super::http::{self, Endpoint, Framing, Head};

/// How much of an answer is recorded. The tokens are reported at its end, so the beginning is dropped.
const MAX_RECORDED: usize = 16 * 1024 * 1024;

/// Headers that the proxy sets itself, or that would hide the content from it.
const REQUEST_HEADERS: [&str; 7] = [
    "host",
    "connection",
    "keep-alive",
    "accept-encoding",
    "content-length",
    "transfer-encoding",
    "expect",
];
const ANSWER_HEADERS: [&str; 2] = ["connection", "keep-alive"];

/// A request and its answer.
#[derive(Debug, Default, Clone)]
pub(crate) struct Exchange {
    pub(crate) path: String,
    pub(crate) status: String,
    pub(crate) request: String,
    pub(crate) answer: String,
}

/// A running proxy.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    endpoint: Endpoint,
    exchanges: Mutex<Vec<Exchange>>,
    /// Every connection to the server, to be closed at the end.
    open: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

impl Proxy {
    /// Starts a proxy on a free port.
    pub(crate) fn start(endpoint: &Endpoint) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            endpoint: endpoint.clone(),
            exchanges: Mutex::default(),
            open: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let accepting = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Ok(Proxy { address, shared, accepting })
    }

    /// Returns the URL that stands for the endpoint.
    pub(crate) fn url(&self) -> String {
        self.shared.endpoint.at(&self.address.to_string())
    }

    /// Closes all connections and returns what passed, in the order in which the answers ended.
    pub(crate) fn end(self) -> Vec<Exchange> {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for stream in lock(&self.shared.open).iter() {
            close(stream);
        }
        // The listener looks at the flag only when a connection comes.
        drop(TcpStream::connect(self.address));
        if self.accepting.join().is_err() {
            eprintln!("xtask: the proxy panicked");
        }
        std::mem::take(&mut *lock(&self.shared.exchanges))
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut serving = Vec::new();
    for client in listener.incoming() {
        if shared.is_over.load(Ordering::SeqCst) {
            break;
        }
        let Ok(client) = client else { continue };
        let shared = Arc::clone(shared);
        serving.push(std::thread::spawn(move || {
            let mut exchange = Exchange::default();
            // An agent or a server may close its connection at any time; what passed until then is recorded.
            if let Err(err) = serve(&client, &shared, &mut exchange) {
                exchange.status = format!("{} ({err:#})", exchange.status);
            }
            close(&client);
            if !exchange.path.is_empty() {
                lock(&shared.exchanges).push(exchange);
            }
        }));
    }
    // A thread that panicked has said so on stderr.
    serving.into_iter().for_each(|thread| drop(thread.join()));
}

/// Passes one request on, and its answer back.
fn serve(client: &TcpStream, shared: &Shared, exchange: &mut Exchange) -> Result<()> {
    client.set_nodelay(true)?;
    let mut reader = BufReader::new(client);
    let Some(head) = Head::read(&mut reader)? else { return Ok(()) };
    let body = http::request_body(&mut reader, &head)?;
    exchange.path = head.second_word().to_owned();
    exchange.request = String::from_utf8_lossy(&body).into_owned();

    let authority = &shared.endpoint.authority;
    let mut server =
        TcpStream::connect(authority).with_context(|| format!("no server at {authority}"))?;
    lock(&shared.open).push(server.try_clone()?);
    let length = body.len().to_string();
    let added =
        [("host", authority.as_str()), ("connection", "close"), ("content-length", &length)];
    head.write(&mut server, &REQUEST_HEADERS, &added)?;
    server.write_all(&body)?;

    let watching = watch(client.try_clone()?, server.try_clone()?);
    let passed = pass_back(&server, client, head.first_line.starts_with("HEAD "), exchange);
    close(client);
    drop(watching.join());
    passed
}

fn pass_back(
    server: &TcpStream,
    mut client: &TcpStream,
    is_head: bool,
    exchange: &mut Exchange,
) -> Result<()> {
    let mut reader = BufReader::new(server);
    let head = Head::read(&mut reader)?.context("the server closed the connection")?;
    head.second_word().clone_into(&mut exchange.status);
    head.write(&mut client, &ANSWER_HEADERS, &[("connection", "close")])?;
    let has_body = !is_head && !matches!(head.second_word(), "204" | "304");
    let framing = if has_body { head.framing(Framing::UntilEnd) } else { Framing::Length(0) };
    let mut recorded = Vec::new();
    let passed = http::read_body(&mut reader, framing, |raw, data| {
        if recorded.len() + data.len() > MAX_RECORDED {
            recorded.clear();
        }
        recorded.extend_from_slice(data);
        Ok(client.write_all(raw)?)
    });
    exchange.answer = String::from_utf8_lossy(&recorded).into_owned();
    passed
}

/// Closes the connection to the server when the client closes its own.
fn watch(client: TcpStream, server: TcpStream) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut rest = [0; 64];
        while (&client).read(&mut rest).is_ok_and(|count| count > 0) {}
        close(&server);
    })
}

fn close(stream: &TcpStream) {
    // It fails only if the other side was faster.
    drop(stream.shutdown(Shutdown::Both));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// A server that answers one connection with `answer`, and returns the request.
    fn server(answer: &'static str) -> (Endpoint, JoinHandle<String>) {
        let (endpoint, serving, _) = server_that_reports(answer);
        (endpoint, serving)
    }

    /// The receiver gets a message when the whole request has arrived.
    fn server_that_reports(answer: &'static str) -> (Endpoint, JoinHandle<String>, Receiver<()>) {
        let (arrived, arrivals) = channel();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let head = Head::read(&mut reader).unwrap().unwrap();
            let body = http::request_body(&mut reader, &head).unwrap();
            arrived.send(()).ok();
            stream.write_all(answer.as_bytes()).unwrap();
            if answer.is_empty() {
                // Waits for the end of the connection.
                assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
            }
            format!("{} {}", head.first_line, String::from_utf8(body).unwrap())
        });
        (Endpoint::parse(&url).unwrap(), serving, arrivals)
    }

    fn post(proxy: &Proxy) -> TcpStream {
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n";
        stream.write_all(format!("{head}{{ }}\n").as_bytes()).unwrap();
        stream
    }

    #[test]
    fn request_and_answer_pass_unchanged_and_are_recorded() {
        let (endpoint, serving) =
            server("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
        let proxy = Proxy::start(&endpoint).unwrap();
        let mut answer = String::new();
        post(&proxy).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n2\r\nhi\r\n0\r\n\r\n"), "{answer}");
        assert_eq!(serving.join().unwrap(), "POST /v1/chat/completions HTTP/1.1 { }\n");
        let exchanges = proxy.end();
        assert_eq!(exchanges.len(), 1, "{exchanges:?}");
        assert_eq!((exchanges[0].status.as_str(), exchanges[0].answer.as_str()), ("200", "hi"));
    }

    #[test]
    fn server_sees_that_the_agent_closed_its_connection() {
        let (endpoint, serving) = server("");
        let proxy = Proxy::start(&endpoint).unwrap();
        drop(post(&proxy));
        serving.join().unwrap();
        assert_eq!(proxy.end().len(), 1);
    }

    #[test]
    fn connections_are_closed_at_the_end_of_a_run() {
        let (endpoint, serving, arrivals) = server_that_reports("");
        let proxy = Proxy::start(&endpoint).unwrap();
        let _stream = post(&proxy);
        arrivals.recv().unwrap();
        proxy.end();
        serving.join().unwrap();
    }
}
