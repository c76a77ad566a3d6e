//! Remote servers on the loopback interface: streamable HTTP, the older server-sent events, and their faults.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::words::Secret;
use engine::words::ToolStatus;
use mcp::{Remote, ServerConfig, Timing, Transport};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::bench::{Bench, editor, quick};

/// A request as it was received.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn message(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// The answer of a server.
pub(crate) enum Answer {
    /// A status, additional headers, and a body.
    Whole(u16, Vec<(&'static str, String)>, String),
    /// Events, until the sender is dropped.
    Events(mpsc::Receiver<String>),
}

pub(crate) type Serve = Arc<dyn Fn(Request) -> Answer + Send + Sync>;

/// Listens on the loopback interface and returns the address.
pub(crate) async fn listen(serve: Serve) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(handle_connection(stream, Arc::clone(&serve)));
        }
    });
    (at, tasks)
}

async fn handle_connection(stream: TcpStream, serve: Serve) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        match serve(request) {
            Answer::Whole(status, headers, body) => {
                let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                let text = format!("{head}\r\n{body}");
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
            }
            Answer::Events(mut events) => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                stream.write_all(head.as_bytes()).await.unwrap();
                while let Some(event) = events.recv().await {
                    if stream.write_all(event.as_bytes()).await.is_err() {
                        return;
                    }
                }
                return;
            }
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|count| *count > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request { method, path, headers, body: String::new() };
    let length: usize =
        request.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    request.body = String::from_utf8(body).ok()?;
    Some(request)
}

/// Returns the reply of a working server to a message. A notification gets none.
pub(crate) fn reply(message: &Value) -> Option<Value> {
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "remote", "version": "1" },
        }),
        "tools/list" => json!({ "tools": [
            { "name": "echo", "description": "Returns its input", "inputSchema": { "type": "object" } },
        ] }),
        "tools/call" => {
            json!({ "content": [{ "type": "text", "text": "from the remote server" }] })
        }
        _ => return None,
    };
    Some(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

pub(crate) fn streamable(request: &Request) -> Answer {
    if request.method != "POST" {
        return Answer::Whole(405, Vec::new(), String::new());
    }
    match reply(&request.message()) {
        Some(reply) => {
            let kind = vec![("content-type", "application/json".to_owned())];
            Answer::Whole(200, kind, reply.to_string())
        }
        None => Answer::Whole(202, Vec::new(), String::new()),
    }
}

pub(crate) fn at(url: &str) -> Remote {
    Remote { url: url.to_owned(), headers: vec![("x-key".to_owned(), Secret::new("canary"))] }
}

async fn open(transport: Transport, timing: Timing) -> Bench {
    let config = ServerConfig::remote("remote", transport).unwrap();
    let script = "model tool remote_echo {}\nmodel text \"Done.\"\nmodel loop";
    Bench::with(script, vec![config], timing, editor()).await
}

// R: M1, M3
#[tokio::test]
async fn server_is_reached_over_streamable_http_with_its_headers() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&keys);
    let (url, _tasks) = listen(Arc::new(move |request| {
        seen.lock().unwrap().push(request.header("x-key").map(str::to_owned));
        streamable(&request)
    }))
    .await;
    let bench = open(Transport::Http(at(&url)), quick()).await.ready().await;
    assert_eq!(
        bench.prompt("go").await.calls,
        [(ToolStatus::Completed, "from the remote server".to_owned())]
    );
    assert!(keys.lock().unwrap().iter().all(|key| key.as_deref() == Some("canary")));
}

/// A server that requires its session id in every request, and answers tool calls with events. The first such stream ends
/// before the answer.
fn streaming(ended: Arc<AtomicU32>) -> Serve {
    let calls = AtomicU32::new(0);
    Arc::new(move |request| {
        let message = request.message();
        if message["method"] == "initialize" {
            let headers = vec![
                ("content-type", "application/json".to_owned()),
                ("mcp-session-id", "s-1".to_owned()),
            ];
            return Answer::Whole(200, headers, reply(&message).unwrap().to_string());
        }
        assert_eq!(request.header("mcp-session-id"), Some("s-1"), "{}", request.method);
        assert_eq!(request.header("mcp-protocol-version"), Some("2025-06-18"));
        if request.method == "DELETE" {
            ended.fetch_add(1, Ordering::Relaxed);
        }
        if message["method"] != "tools/call" {
            return streamable(&request);
        }
        let (sender, events) = mpsc::channel(2);
        sender.try_send(": a comment\n\n".to_owned()).unwrap();
        if calls.fetch_add(1, Ordering::Relaxed) > 0 {
            let reply = reply(&message).unwrap();
            sender.try_send(format!("id: 1\nevent: message\ndata: {reply}\n\n")).unwrap();
        }
        Answer::Events(events)
    })
}

// R: M1, M2
// Fault: M17
#[tokio::test]
async fn m17_stream_without_an_answer_fails_only_that_call() {
    let ended = Arc::new(AtomicU32::new(0));
    let (url, _tasks) = listen(streaming(Arc::clone(&ended))).await;
    let mut bench = open(Transport::Http(at(&url)), quick()).await.ready().await;
    let turn = bench.prompt("go").await;
    assert!(turn.calls[0].1.contains("failed: it sent no response"), "{turn:?}");
    assert_eq!(
        bench.prompt("go").await.calls,
        [(ToolStatus::Completed, "from the remote server".to_owned())]
    );
    bench.close();
    bench.until("the session is ended on the server", |_| ended.load(Ordering::Relaxed) == 1).await;
}

/// A server that cuts off its streams; the response to a call ends in the middle of an event. `rest` is its answer to a
/// client that resumes after the last event. `resumed` collects the ids with which the client resumes.
fn breaking(rest: fn(&Value) -> Answer, resumed: Arc<Mutex<Vec<String>>>) -> Serve {
    let reply_to_call = Mutex::new(Value::Null);
    Arc::new(move |request| {
        let (sender, events) = mpsc::channel(2);
        let notification =
            json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} });
        if request.method == "GET" {
            let last = request.header("last-event-id").unwrap_or_default().to_owned();
            resumed.lock().unwrap().push(last.clone());
            return match last.as_str() {
                "" => {
                    let event = format!("id: own-1\nretry: 10\ndata: {notification}\n\n");
                    sender.try_send(event).unwrap();
                    Answer::Events(events)
                }
                "call-1" => rest(&reply_to_call.lock().unwrap()),
                _ => Answer::Whole(405, Vec::new(), String::new()),
            };
        }
        let message = request.message();
        if message["method"] != "tools/call" {
            return streamable(&request);
        }
        *reply_to_call.lock().unwrap() = reply(&message).unwrap();
        let event =
            format!("retry: 10\nid: call-1\ndata: {notification}\n\nid: call-2\ndata: {{\"half");
        sender.try_send(event).unwrap();
        Answer::Events(events)
    })
}

// R: M1, M2
// Fault: M17
#[tokio::test]
async fn m17_broken_stream_is_resumed_after_its_last_event() {
    let resumed = Arc::default();
    let rest = |reply: &Value| {
        let (sender, events) = mpsc::channel(1);
        sender.try_send(format!("id: call-2\ndata: {reply}\n\n")).unwrap();
        Answer::Events(events)
    };
    let (url, _tasks) = listen(breaking(rest, Arc::clone(&resumed))).await;
    let bench = open(Transport::Http(at(&url)), quick()).await.ready().await;
    assert_eq!(
        bench.prompt("go").await.calls,
        [(ToolStatus::Completed, "from the remote server".to_owned())]
    );
    bench
        .until("the server's own stream is requested again", |_| {
            resumed.lock().unwrap().contains(&"own-1".to_owned())
        })
        .await;
    let ids = resumed.lock().unwrap().clone();
    assert!(ids.contains(&"call-1".to_owned()) && !ids.contains(&"call-2".to_owned()), "{ids:?}");
}

// R: M1, M2
// Fault: M17
#[tokio::test]
async fn m17_server_that_does_not_resume_fails_only_that_call() {
    let gone = |_: &Value| Answer::Whole(400, Vec::new(), String::new());
    let (url, _tasks) = listen(breaking(gone, Arc::default())).await;
    let bench = open(Transport::Http(at(&url)), quick()).await.ready().await;
    let turn = bench.prompt("go").await;
    assert!(turn.calls[0].1.contains("the response was cut off"), "{turn:?}");
    assert!(bench.state().contains("ready"), "{}", bench.state());
}

// R: M2, T4
// Fault: M16
#[tokio::test]
async fn m16_server_that_returns_500_is_reported_as_unavailable() {
    let tries = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let (url, _tasks) = listen(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Answer::Whole(500, Vec::new(), "internal error".to_owned())
    }))
    .await;
    let bench = open(Transport::Http(at(&url)), quick()).await;
    let notice = bench.notice("`remote` is not available").await;
    assert!(notice.contains("500") && !notice.contains("canary"), "{notice}");
    assert!(tries.load(Ordering::Relaxed) >= 5);
    let bench = open(Transport::Sse(at(&url)), quick()).await;
    let notice = bench.notice("`remote` is not available").await;
    assert!(notice.contains("HTTP 500"), "{notice}");
}

/// A server with the older transport. Each stream ends after `calls` tool calls.
fn sse_server(calls: u32) -> Serve {
    let stream: Arc<Mutex<Option<mpsc::Sender<String>>>> = Arc::default();
    let left = AtomicU32::new(calls);
    Arc::new(move |request| {
        if request.method == "GET" {
            let (sender, events) = mpsc::channel(16);
            sender.try_send("event: endpoint\ndata: /messages?session=1\n\n".to_owned()).unwrap();
            *stream.lock().unwrap() = Some(sender);
            return Answer::Events(events);
        }
        assert_eq!(request.path, "/messages?session=1");
        let message = request.message();
        if let Some(reply) = reply(&message) {
            let mut stream = stream.lock().unwrap();
            if message["method"] == "tools/call" && left.fetch_sub(1, Ordering::Relaxed) == 0 {
                left.store(calls, Ordering::Relaxed);
                *stream = None;
            }
            if let Some(stream) = &*stream {
                stream.try_send(format!("event: message\ndata: {reply}\n\n")).unwrap();
            }
        }
        Answer::Whole(202, Vec::new(), "Accepted".to_owned())
    })
}

// R: M1, M2
// Fault: M17
#[tokio::test]
async fn m17_server_is_reconnected_after_its_stream_ends() {
    let (url, _tasks) = listen(sse_server(1)).await;
    let bench = open(Transport::Sse(at(&format!("{url}/sse"))), quick()).await.ready().await;
    assert_eq!(
        bench.prompt("go").await.calls,
        [(ToolStatus::Completed, "from the remote server".to_owned())]
    );
    let turn = bench.prompt("go").await;
    assert!(turn.calls[0].1.contains("`remote` failed"), "{turn:?}");
    bench.notice("`remote` is ready").await;
    assert_eq!(
        bench.prompt("go").await.calls,
        [(ToolStatus::Completed, "from the remote server".to_owned())]
    );
}

// R: M2
#[tokio::test]
async fn keys_are_not_sent_to_a_redirect_target() {
    let (elsewhere, _tasks) =
        listen(Arc::new(|_| panic!("a request reached the redirect target"))).await;
    let target = elsewhere.clone();
    let (url, _tasks) = listen(Arc::new(move |request| {
        if request.method == "GET" {
            let (sender, events) = mpsc::channel(1);
            sender.try_send(format!("event: endpoint\ndata: {target}/messages\n\n")).unwrap();
            return Answer::Events(events);
        }
        Answer::Whole(307, vec![("location", target.clone())], String::new())
    }))
    .await;
    let bench = open(Transport::Sse(at(&url)), quick()).await;
    let notice = bench.notice("`remote`").await;
    assert!(notice.contains("it redirects to another host"), "{notice}");
    let bench = open(Transport::Http(at(&url)), quick()).await;
    bench.notice("`remote`").await;
}

// R: M2
#[tokio::test]
async fn unreachable_server_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let bench = open(Transport::Http(at(&url)), quick()).await;
    let notice = bench.notice("`remote` is not available").await;
    assert!(notice.to_lowercase().contains("connect"), "{notice}");
}

// R: S12
// Fault: M03
#[tokio::test]
async fn silent_remote_server_is_reported_as_late() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let timing = Timing {
        start: Duration::from_millis(50),
        start_limit: Duration::from_millis(50),
        ..quick()
    };
    for transport in [Transport::Http(at(&url)), Transport::Sse(at(&url))] {
        let bench = open(transport, timing).await;
        bench.notice("`remote` starts slowly").await;
        bench.notice("`remote` is not available").await;
    }
}
