//! Fetches from a small server on loopback.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// Answers every request with `answer` of its path.
async fn server(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    let answer = Arc::new(answer);
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let count = stream.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..count]).into_owned();
            let path = request.split_whitespace().nth(1).unwrap_or("/").to_owned();
            // A client that has read enough closes the connection.
            drop(stream.write_all(&answer(&path)).await);
        }
    });
    (port, tasks)
}

fn plain(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn moved(to: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
    .into()
}

async fn fetch(port: u16, path: &str) -> Result<String, String> {
    let url = Url::parse(&format!("http://127.0.0.1:{port}{path}")).unwrap();
    let addresses = resolve(&url).await.unwrap();
    let time = Duration::from_secs(20);
    let plan = Plan { url, format: Format::Markdown, time };
    get(&plan, &addresses).await.map_err(|err| err.to_string())
}

#[tokio::test]
async fn text_is_fetched_and_everything_else_is_an_error() {
    let (port, _tasks) = server(|path| match path {
        "/page" => plain("text/html; charset=utf-8", "<h1>Hi</h1><p>é".as_bytes()),
        "/latin" => plain("text/plain; charset=iso-8859-1", b"caf\xe9"),
        "/json" => plain("application/json", b"{}"),
        "/image" => plain("image/png", b"\x89PNG"),
        "/long" => plain("text/plain", &b"x".repeat(MAX_BODY + 10)),
        "/same" => moved("/page"),
        "/other" => moved("http://example.invalid/x"),
        "/port" => moved("http://127.0.0.1:1/x"),
        "/loop" => moved("/loop"),
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(),
    })
    .await;
    assert_eq!(fetch(port, "/page").await.unwrap().trim_end(), "# Hi\n\né");
    assert_eq!(fetch(port, "/latin").await.unwrap(), "café");
    assert_eq!(fetch(port, "/json").await.unwrap(), "{}");
    assert_eq!(fetch(port, "/same").await.unwrap().trim_end(), "# Hi\n\né");
    assert!(fetch(port, "/long").await.unwrap().ends_with("x\n(cut here)"));
    let refused = [
        ("/image", "image/png, not text"),
        ("/other", "redirects to http://example.invalid/x, on another host"),
        ("/port", "another host or port"),
        ("/loop", "too many redirects"),
        ("/none", "404"),
    ];
    for (path, why) in refused {
        let err = fetch(port, path).await.unwrap_err();
        assert!(err.contains(why), "{path}: {err}");
    }
}

#[test]
fn invalid_url_is_refused() {
    for url in
        ["file:///etc/passwd", "ftp://a/b", "http://user:pass@a/", "a.com", "javascript:1", ""]
    {
        assert!(parse(url).is_err(), "{url}");
    }
    assert!(parse("https://a.com/b?c#d").is_ok());
}
