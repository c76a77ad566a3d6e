//! Search engines, asked in their own forms on a local server.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

/// Answers one request, and returns it.
fn serve(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        loop {
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..read]);
            let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                break;
            }
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, served)
}

async fn search(
    engine: SearchEngine,
    answer: &'static str,
) -> (Result<Vec<Found>, String>, String) {
    let (url, served) = serve(answer);
    let key = Some(Secret::new("secret-key"));
    let tool = WebSearch(Options { engine, url: Some(url), key, results: 3 });
    let found = tool.search(&Plan { query: "rust & é".to_owned(), results: 3 }).await;
    (found, served.join().unwrap())
}

macro_rules! ok {
    ($body:literal) => {
        concat!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", $body)
    };
}

// R: T4
#[tokio::test]
async fn each_engine_is_asked_in_its_own_form() {
    let found = |title: &str, text: &str| Found {
        title: title.to_owned(),
        url: "https://a.example/".to_owned(),
        text: text.to_owned(),
    };
    let (brave, request) = search(
        SearchEngine::Brave,
        ok!(r#"{"type":"search","web":{"results":[{"title":"A","url":"https://a.example/","description":"<strong>b</strong>"}]}}"#),
    )
    .await;
    assert_eq!(brave, Ok(vec![found("A", "<strong>b</strong>")]));
    assert!(request.starts_with("GET /res/v1/web/search?q=rust+%26+%C3%A9&count=3 "), "{request}");
    assert!(request.contains("x-subscription-token: secret-key\r\n"), "{request}");

    let (tavily, request) = search(
        SearchEngine::Tavily,
        ok!(r#"{"query":"x","results":[{"title":"A","url":"https://a.example/","content":"b","score":0.9}]}"#),
    )
    .await;
    assert_eq!(tavily, Ok(vec![found("A", "b")]));
    assert!(request.starts_with("POST /search "), "{request}");
    assert!(request.contains("authorization: Bearer secret-key\r\n"), "{request}");
    let body = request.split("\r\n\r\n").nth(1).unwrap_or_default();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body, serde_json::json!({ "query": "rust & é", "max_results": 3 }));

    let (exa, request) = search(
        SearchEngine::Exa,
        ok!(r#"{"results":[{"title":"A","url":"https://a.example/","highlights":["b","c"]}]}"#),
    )
    .await;
    assert_eq!(exa, Ok(vec![found("A", "b … c")]));
    assert!(request.contains("x-api-key: secret-key\r\n"), "{request}");
    assert!(request.contains(r#""numResults":3"#), "{request}");

    let (searxng, request) = search(
        SearchEngine::SearXng,
        ok!(r#"{"results":[{"title":"A","url":"https://a.example/","content":"b"}]}"#),
    )
    .await;
    assert_eq!(searxng, Ok(vec![found("A", "b")]));
    assert!(request.starts_with("GET /search?q=rust+%26+%C3%A9&format=json "), "{request}");
}

#[tokio::test]
async fn failures_say_what_to_do_and_never_show_the_key() {
    for (answer, expected) in [
        ("HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n", "it refused the API key"),
        (
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nConnection: close\r\n\r\n",
            "rate limit reached; retry in 7 s",
        ),
        ("HTTP/1.1 503 Down\r\nConnection: close\r\n\r\n", "the server answered 503"),
        (ok!("<html>"), "the answer is not JSON"),
        (ok!("{}"), "the answer has no results"),
        ("", ""),
    ] {
        let why = search(SearchEngine::Brave, answer).await.0.unwrap_err();
        assert!(why.starts_with(expected) && !why.contains("secret-key"), "{why}");
    }
    let tool = WebSearch(Options { engine: SearchEngine::Exa, url: None, key: None, results: 3 });
    let why = tool.search(&Plan { query: "x".to_owned(), results: 1 }).await.unwrap_err();
    assert!(why.contains("EXA_API_KEY"), "{why}");
}

#[test]
fn tags_are_removed_and_text_is_cut() {
    assert_eq!(cut("a <strong>b</strong>\nc < d", 50), "a b c < d");
    assert_eq!(cut("ééé", 2), "éé …");
}
