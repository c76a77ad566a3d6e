//! `purlin mcp login`: the browser is redirected to a local port that is open only while the login lasts.
//!
//! Any program on this machine can connect to that port. Only a request with the login's own `state` ends the wait; each
//! connection has its own task, a limited request and limited time, so none can block, fill or end it.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use mcp::{ServerConfig, Transport};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::env;

/// How long a connection may take to send its request.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// How long a request may be. A longer one is not from the browser.
const MAX_LINE: u64 = 16 * 1024;
/// How long to wait after a connection that could not be accepted.
const RETRY: Duration = Duration::from_millis(50);
/// How many connections may be open. A further one replaces the oldest.
const MAX_OPEN: usize = 32;

/// Logs in to a server, and stores the login.
pub(super) async fn run(server: &ServerConfig) -> anyhow::Result<ExitCode> {
    let (Transport::Http(remote) | Transport::Sse(remote)) = &server.transport else {
        anyhow::bail!("`{}` is a local server and needs no login", server.name);
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let home = format!("http://127.0.0.1:{}", listener.local_addr()?.port());
    let redirect = format!("{home}/callback");
    let attempt = env::host_options().login.begin(&server.name, &remote.url, &redirect).await?;
    let state = parameter(attempt.page(), "state").context("the login page has no state")?;
    let state = state.to_owned();
    eprintln!("Open this page to log in to `{}`:", server.name);
    writeln!(std::io::stdout().lock(), "{}", attempt.page())?;
    let path = callback(&listener, &state).await?;
    attempt.finish(&format!("{home}{path}")).await?;
    eprintln!("Saved the login to `{}`.", server.name);
    Ok(ExitCode::SUCCESS)
}

/// Waits for the browser, and returns the path that it requests.
async fn callback(listener: &TcpListener, state: &str) -> anyhow::Result<String> {
    let mut open: JoinSet<Option<String>> = JoinSet::new();
    let mut handles = std::collections::VecDeque::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    // The other side is gone already, or others have taken all descriptors for a moment.
                    tokio::time::sleep(RETRY).await;
                    continue;
                };
                if handles.len() == MAX_OPEN
                    && let Some(oldest) = handles.pop_front()
                {
                    tokio::task::AbortHandle::abort(&oldest);
                }
                let state = state.to_owned();
                handles.push_back(open.spawn(async move {
                    tokio::time::timeout(MAX_WAIT, answer(stream, &state)).await.ok().flatten()
                }));
            }
            Some(done) = open.join_next() => {
                if let Ok(Some(path)) = done {
                    return Ok(path);
                }
            }
        }
    }
}

/// Answers a connection. Returns the path if it is the browser's.
async fn answer(stream: TcpStream, state: &str) -> Option<String> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    (&mut stream).take(MAX_LINE).read_line(&mut line).await.ok()?;
    let path = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let is_it = path.starts_with("/callback?") && parameter(&path, "state") == Some(state);
    let (status, text) = match is_it {
        true => ("200 OK", "You are logged in. You can close this page."),
        false => ("404 Not Found", "Not found."),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    // A browser that does not wait for the page has still delivered the path.
    stream.write_all(answer.as_bytes()).await.ok();
    is_it.then_some(path)
}

/// Returns a parameter of a URL or a path, as it is written there.
fn parameter<'a>(url: &'a str, name: &str) -> Option<&'a str> {
    let (_, query) = url.split_once('?')?;
    let query = query.split('#').next().unwrap_or_default();
    query
        .split('&')
        .find_map(|part| part.split_once('=').filter(|(key, _)| *key == name))
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn send(port: u16, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream
    }

    // R: I4
    #[tokio::test]
    async fn only_the_browser_of_this_login_ends_the_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let others = async {
            let mut open = Vec::new();
            // Silent ones, one that never ends its line, forged and empty states, noise.
            for _ in 0..3 * MAX_OPEN {
                open.push(send(port, b"").await);
            }
            open.push(send(port, b"GET /").await);
            open.push(send(port, b"GET /callback?code=evil&state=forged HTTP/1.1\r\n\r\n").await);
            open.push(send(port, b"GET /callback?code=evil HTTP/1.1\r\n\r\n").await);
            open.push(
                send(port, b"GET /callback?error=access_denied&state= HTTP/1.1\r\n\r\n").await,
            );
            open.push(send(port, &[0xff; 64]).await);
            let mut long = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            // The other side may close before all of it is written.
            long.write_all(&vec![b'a'; 4 * MAX_LINE as usize]).await.ok();
            let mut browser =
                send(port, b"GET /callback?code=yes&state=own HTTP/1.1\r\n\r\n").await;
            let mut page = String::new();
            browser.read_to_string(&mut page).await.unwrap();
            assert!(page.contains("You are logged in"), "{page}");
            drop(open);
        };
        let (path, ()) = tokio::join!(callback(&listener, "own"), others);
        assert_eq!(path.unwrap(), "/callback?code=yes&state=own");
    }

    #[test]
    fn parameter_is_found_by_its_whole_name() {
        let url = "https://a.example/authorize?xstate=1&state=two%20&y=3#state=4";
        assert_eq!(parameter(url, "state"), Some("two%20"));
        assert_eq!(parameter(url, "code"), None);
        assert_eq!(parameter("https://a.example/state=1", "state"), None);
    }
}
