//! Who may use the server: every request that must be refused, and how.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::client::{Client, Server};
use crate::directory::Directory;

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;

/// Makes a token as an operator does.
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
pub(crate) fn token(directory: &Path, name: &str, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(["serve", "token", name, "--tokens"]).arg(directory.join("tokens"));
    let output = command.args(more).env("HOME", directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn with_tokens(directory: &Directory) -> Server {
    directory.write("script.acp", "model text \"Hello.\"\nmodel loop\n");
    let file = directory.join("tokens").display().to_string();
    Server::start(directory, &["--tokens", &file])
}

/// Sends bytes and returns the status and the answer: all of it, or the head if the connection becomes a WebSocket.
fn raw(server: &Server, request: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(&server.address).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    // A server that refuses early may reset the connection.
    while let Ok(size @ 1..) = socket.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..size]);
        if answer.starts_with(b"HTTP/1.1 101") && answer.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, answer)
}

fn post(server: &Server, headers: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let host = &server.address;
    raw(
        server,
        &format!(
            "POST /acp HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
        ),
    )
}

const JSON: &str = "Content-Type: application/json\r\n";

// R: S10
#[test]
fn token_decides_who_uses_the_server() {
    let directory = Directory::new();
    let good = token(&directory, "ann", &[]);
    let old = token(&directory, "ann", &["--expires", "1999-12-31"]);
    let mut server = with_tokens(&directory);
    let bearer = |token: &str| format!("{JSON}Authorization: Bearer {token}\r\n");
    assert_eq!(post(&server, JSON, INITIALIZE).0, 401);
    for wrong in ["wrong", "", &old, &good[1..], &format!("{good}0")] {
        let (status, answer) = post(&server, &bearer(wrong), INITIALIZE);
        assert_eq!(status, 401, "{answer}");
        assert!(wrong.is_empty() || !answer.contains(wrong), "the token is repeated");
    }
    assert_eq!(post(&server, &bearer(&good), INITIALIZE).0, 200);
    // In the address it is ignored, whoever logs it.
    let host = &server.address;
    let query =
        format!("GET /acp?token={good} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    assert_eq!(raw(&server, &query).0, 401);
    let twice = format!("{}Authorization: Bearer {good}\r\n", bearer(&good));
    assert_eq!(post(&server, &twice, INITIALIZE).0, 401);
    assert_eq!(Client::open_socket(&server).err(), Some(401));
    server.token = Some(good.clone());
    Client::connect(&server);
    // The file has no token, only hashes.
    let file = std::fs::read_to_string(directory.join("tokens")).unwrap();
    assert!(!file.contains(&good));
    // A token that is removed from the file is not valid any more.
    std::fs::write(directory.join("tokens"), "# none\n").unwrap();
    assert_eq!(Client::open_socket(&server).err(), Some(401));
}

// R: S10
#[test]
fn sessions_of_other_users_do_not_exist() {
    let directory = Directory::new();
    let (ann, bob) = (token(&directory, "ann", &[]), token(&directory, "bob", &[]));
    let mut server = with_tokens(&directory);
    server.token = Some(ann);
    let mut of_ann = Client::connect(&server);
    let session = of_ann.open(&directory);
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "go" }] });
    of_ann.call("session/prompt", &prompt, &mut Vec::new());
    server.token = Some(bob);
    let mut of_bob = Client::connect(&server);
    let own = of_bob.open(&directory);
    let listed = of_bob.call("session/list", &json!({}), &mut Vec::new());
    assert!(!listed.to_string().contains(&session), "{listed}");
    let named = json!({ "sessionId": session, "cwd": directory.path(), "mcpServers": [] });
    let unknown = json!({ "sessionId": "ann~nothing", "cwd": directory.path(), "mcpServers": [] });
    for method in
        ["session/load", "session/resume", "session/fork", "session/prompt", "session/close"]
    {
        let params = |of: &serde_json::Value| match method {
            "session/prompt" => json!({ "sessionId": of["sessionId"], "prompt": [] }),
            _ => of.clone(),
        };
        let foreign = of_bob.call(method, &params(&named), &mut Vec::new());
        let missing = of_bob.call(method, &params(&unknown), &mut Vec::new());
        assert_eq!(foreign["error"]["code"], missing["error"]["code"], "{method}: {foreign}");
        assert!(foreign.get("error").is_some(), "{method}: {foreign}");
    }
    // The slash command reads other sessions of the directory, too.
    let say =
        |text: &str| json!({ "sessionId": own, "prompt": [{ "type": "text", "text": text }] });
    let mut seen = Vec::new();
    of_bob.call("session/prompt", &say("/resume"), &mut seen);
    of_bob.call("session/prompt", &say(&format!("/resume {session}")), &mut seen);
    assert!(!super::text_of(&seen).contains("Hello."), "{seen:?}");
    of_bob.call("session/delete", &json!({ "sessionId": session }), &mut Vec::new());
    let mut shown = Vec::new();
    of_ann.call("session/load", &json!({ "sessionId": session }), &mut shown);
    assert!(super::text_of(&shown).contains("Hello."), "{shown:?}");
}

// R: S10
#[test]
fn user_stays_in_its_directory() {
    let directory = Directory::new();
    std::fs::create_dir_all(directory.join("ann/work")).unwrap();
    let root = directory.join("ann").display().to_string();
    let ann = token(&directory, "ann", &["--root", &root]);
    let mut server = with_tokens(&directory);
    server.token = Some(ann);
    let mut client = Client::connect(&server);
    client.open(&directory.join("ann/work"));
    #[cfg(unix)]
    std::os::unix::fs::symlink("/", directory.join("ann/link")).unwrap();
    for outside in ["", "ann/..", "ann/link/etc", "ann/nothing"] {
        let params = json!({ "cwd": directory.join(outside), "mcpServers": [] });
        let refused = client.call("session/new", &params, &mut Vec::new());
        assert_eq!(refused["error"]["code"], -32602, "{outside}: {refused}");
    }
    let more = json!({
        "cwd": directory.join("ann/work"), "mcpServers": [], "additionalDirectories": ["/etc"],
    });
    let refused = client.call("session/new", &more, &mut Vec::new());
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

// R: S10
#[test]
fn requests_that_a_browser_could_be_tricked_into_are_refused() {
    let directory = Directory::new();
    directory.write("script.acp", "model loop\n");
    let server = Server::start(&directory, &["--origin", "https://good.example"]);
    let length = INITIALIZE.len();
    let with_host = |host: &str| {
        raw(&server, &format!(
            "POST /acp HTTP/1.1\r\n{host}{JSON}Content-Length: {length}\r\nConnection: close\r\n\r\n{INITIALIZE}"
        ))
        .0
    };
    assert_eq!(with_host(&format!("Host: {}\r\n", server.address)), 200);
    assert_eq!(with_host("Host: localhost:1\r\n"), 200);
    for host in ["Host: evil.example\r\n", "Host: 127.0.0.1.evil.example\r\n", ""] {
        assert!(matches!(with_host(host), 400 | 421), "{host}");
    }
    assert_eq!(with_host("Host: localhost\r\nHost: evil.example\r\n"), 421);
    let origin = |origin: &str| post(&server, &format!("{JSON}Origin: {origin}\r\n"), INITIALIZE).0;
    assert_eq!(origin("https://good.example"), 200);
    assert_eq!(origin("https://evil.example"), 403);
    assert_eq!(origin("null"), 403);
    let host = &server.address;
    let upgrade = |origin: &str| {
        raw(&server, &format!(
            "GET /acp HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nOrigin: {origin}\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ))
        .0
    };
    assert_eq!(upgrade("https://good.example"), 101);
    assert_eq!(upgrade("https://evil.example"), 403);
    // A form of a page cannot send JSON.
    assert_eq!(post(&server, "Content-Type: text/plain\r\n", INITIALIZE).0, 415);
}

// R: S10, W10
#[test]
fn malformed_requests_are_refused_and_harm_nobody() {
    let directory = Directory::new();
    directory.write("script.acp", "model text \"Hello.\"\nmodel loop\n");
    let server = Server::start(&directory, &[]);
    let host = &server.address;
    let known = post(&server, JSON, INITIALIZE).1;
    let id = known.lines().find_map(|line| line.strip_prefix("acp-connection-id: ")).unwrap();
    let of = format!("{JSON}Acp-Connection-Id: {id}\r\n");
    let get = |headers: &str| {
        raw(
            &server,
            &format!("GET /acp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"),
        )
        .0
    };
    assert_eq!(post(&server, JSON, "[]").0, 501);
    assert_eq!(post(&server, JSON, "{").0, 400);
    assert_eq!(post(&server, JSON, r#"{"jsonrpc":"2.0","id":1,"method":"session/new"}"#).0, 400);
    assert_eq!(post(&server, &of, INITIALIZE).0, 400);
    assert_eq!(post(&server, &format!("{JSON}Acp-Connection-Id: nobody\r\n"), INITIALIZE).0, 404);
    let contradicting = r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"a"}}"#;
    assert_eq!(post(&server, &format!("{of}Acp-Session-Id: b\r\n"), contradicting).0, 400);
    assert_eq!(post(&server, &of, contradicting).0, 202);
    assert_eq!(get(""), 406);
    assert_eq!(get("Accept: text/event-stream\r\n"), 400);
    assert_eq!(get("Accept: text/event-stream\r\nAcp-Connection-Id: nobody\r\n"), 404);
    let long = "x".repeat(2_000);
    assert_eq!(get(&format!("Accept: text/event-stream\r\nAcp-Connection-Id: {long}\r\n")), 400);
    // Too large, and a length that is not true.
    let large = 17 * 1024 * 1024;
    let head = format!(
        "POST /acp HTTP/1.1\r\nHost: {host}\r\n{JSON}Connection: close\r\nContent-Length: {large}\r\n\r\n"
    );
    assert_eq!(raw(&server, &head).0, 413);
    let smuggled = format!(
        "POST /acp HTTP/1.1\r\nHost: {host}\r\n{JSON}Connection: close\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"
    );
    assert!(!raw(&server, &smuggled).1.contains("purlin_sessions_open"));
    // Bodies are never decompressed.
    let packed = format!("{JSON}Content-Encoding: gzip\r\n");
    assert_eq!(post(&server, &packed, "\u{1f}not json").0, 400);
    assert_eq!(
        raw(&server, &format!("PUT /acp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).0,
        405
    );
    assert_eq!(
        raw(
            &server,
            &format!("GET /etc/passwd HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        )
        .0,
        404
    );
    // Sockets that never finish their request, and one that is in use all the same.
    let half_open: Vec<TcpStream> = (0..500)
        .map(|_| {
            let mut socket = TcpStream::connect(host).unwrap();
            socket.write_all(b"GET /acp HTTP/1.1\r\nHo").unwrap();
            socket
        })
        .collect();
    let mut client = Client::connect(&server);
    client.open(&directory);
    drop(half_open);
}

// R: S10
#[test]
fn health_is_public_and_metrics_are_not() {
    let directory = Directory::new();
    let ann = token(&directory, "ann", &[]);
    let server = with_tokens(&directory);
    let host = &server.address;
    let get = |path: &str, headers: &str| {
        raw(
            &server,
            &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"),
        )
    };
    assert_eq!(get("/healthz", "").0, 200);
    assert_eq!(get("/readyz", "").0, 200);
    assert_eq!(get("/metrics", "").0, 401);
    let (status, text) = get("/metrics", &format!("Authorization: Bearer {ann}\r\n"));
    assert_eq!(status, 200);
    assert!(text.contains("purlin_requests_unauthorized_total 1"), "{text}");
}

// R: S10
#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn without_tokens_only_this_machine_is_served() {
    let directory = Directory::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(["serve", "--listen", "0.0.0.0:0"]).env("HOME", directory.path());
    let output = command.output().unwrap();
    assert!(!output.status.success());
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("--tokens"), "{printed}");
}
