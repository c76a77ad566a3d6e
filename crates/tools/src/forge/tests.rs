//! A server that fails in every way a forge can fail.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use engine::words::Secret;

use super::github::GitHub;
use super::*;

/// Answers requests one after the other with what `answer` returns for their first line, and records them.
fn serve(
    answer: impl Fn(usize, &str) -> String + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    std::thread::spawn(move || {
        for (index, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            loop {
                let mut buffer = [0; 4096];
                let read = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if read == 0 || body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                    break;
                }
            }
            let request = String::from_utf8(request).unwrap();
            let answer = answer(index, request.lines().next().unwrap());
            recorded.lock().unwrap().push(request);
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, requests)
}

fn reply(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

fn github(url: &str) -> GitHub {
    GitHub::new(url, "o/r", Secret::new("secret-token"))
}

fn all(limit: usize) -> Wanted {
    Wanted::Issues(Filter { state: "all".to_owned(), labels: None, limit })
}

// R: T6
#[tokio::test]
async fn each_failure_is_explained_and_changes_are_sent_once() {
    let table = [
        (
            "401 Unauthorized",
            "",
            r#"{"message":"Bad credentials"}"#,
            "purlin auth login github",
            1,
            1,
        ),
        ("403 Forbidden", "", r#"{"message":"No"}"#, "no permission for this: No", 1, 1),
        ("403 Forbidden", "Retry-After: 3600\r\n", "{}", "try again in 3600 s", 1, 1),
        (
            "403 Forbidden",
            "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 99999999999\r\n",
            "{}",
            "rate limit reached",
            1,
            1,
        ),
        ("404 Not Found", "", "{}", "not found, or the token has no access", 1, 1),
        (
            "422 Unprocessable Entity",
            "",
            r#"{"message":"Validation Failed","errors":[{"field":"head","code":"invalid"}]}"#,
            "Validation Failed; head invalid",
            1,
            1,
        ),
        ("502 Bad Gateway", "", "<html>", "the server failed (502)", 3, 1),
    ];
    for (status, headers, body, expected, reads, writes) in table {
        let answer = reply(status, headers, body);
        let (url, requests) = serve(move |_, _| answer.clone());
        let github = github(&url);
        let why = github.read(&Wanted::Issue(1)).await.unwrap_err();
        assert!(why.contains(expected), "{status}: {why}");
        assert_eq!(requests.lock().unwrap().len(), reads, "{status}");
        let change = Change::Comment { number: 1, body: "x".to_owned() };
        let why = github.send(&github.request(&change)).await.unwrap_err();
        assert!(why.contains(expected) && !why.contains("secret-token"), "{status}: {why}");
        assert_eq!(requests.lock().unwrap().len(), reads + writes, "{status}");
    }
}

// R: T6
#[tokio::test]
async fn short_limit_is_waited_for_and_the_change_is_sent_again() {
    let (url, requests) = serve(|index, _| match index {
        0 => reply("429 Too Many Requests", "Retry-After: 1\r\n", "{}"),
        _ => reply("201 Created", "", r#"{"number":7,"html_url":"https://x/7"}"#),
    });
    let github = github(&url);
    let change = Change::Comment { number: 1, body: "x".to_owned() };
    let before = std::time::Instant::now();
    assert_eq!(github.send(&github.request(&change)).await.unwrap(), "Done #7: https://x/7");
    assert!(before.elapsed().as_secs() >= 1);
    assert_eq!(requests.lock().unwrap().len(), 2);
}

/// A server that sends this and then nothing more, but does not hang up.
fn silent(beginning: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            // All of these requests are smaller than what is read at once.
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            stream.write_all(beginning.as_bytes()).unwrap();
            open.push(stream);
        }
    });
    url
}

// R: T6
#[tokio::test]
async fn slow_server_is_given_up_and_the_doubt_about_a_change_is_reported() {
    let short = std::time::Duration::from_millis(200);
    let begun = "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{";
    for beginning in ["", "HTTP/1.1 201 Created\r\n", begun] {
        let client =
            client::Client::with_timeout(&silent(beginning), Secret::new("secret-token"), short);
        let github = GitHub::of(client, "o/r");
        let why = github.read(&Wanted::Issue(1)).await.unwrap_err();
        assert!(why.contains("no answer within") || why.contains("timed out"), "{why}");
        let change = Change::Comment { number: 1, body: "x".to_owned() };
        let why = github.send(&github.request(&change)).await.unwrap_err();
        assert!(why.contains("The change may have been made"), "{beginning:?}: {why}");
    }
}

// R: T6
#[tokio::test]
async fn five_hundred_issues_are_read_page_by_page_from_one_origin() {
    let (url, requests) = serve(|_, line| {
        let page: usize = line
            .split("&page=")
            .nth(1)
            .map_or(1, |rest| rest.split([' ', '&']).next().unwrap().parse().unwrap());
        let issue = |index| format!(r#"{{"number":{index},"state":"open","title":"t"}}"#);
        let first = (page - 1) * 100 + 1;
        let body: Vec<String> = (first..first + 100).map(issue).collect();
        let next = match page {
            5 => "Link: <http://evil.example/steal>; rel=\"next\"\r\n".to_owned(),
            page => format!(
                "Link: <HOST/repos/o/r/issues?per_page=100&page={}>; rel=\"next\"\r\n",
                page + 1
            ),
        };
        reply("200 OK", &next, &format!("[{}]", body.join(",")))
    });
    // The server does not know its own address when it is made.
    let (relay, _) = relay(url.clone());
    let text = github(&relay).read(&all(1000)).await.unwrap();
    assert_eq!(text.lines().count(), 500, "{text}");
    assert!(text.ends_with("#500 open t\n"));
    assert_eq!(requests.lock().unwrap().len(), 5);
    let text = github(&relay).read(&all(150)).await.unwrap();
    assert!(text.ends_with("… there are more; these are 150\n"), "{text}");
}

/// Passes requests on, and replaces `HOST` in the answers with its own address.
fn relay(to: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let own = Arc::new(Mutex::new(String::new()));
    let known = Arc::clone(&own);
    let (url, requests) = serve(move |_, line| {
        let mut stream = std::net::TcpStream::connect(to.trim_start_matches("http://")).unwrap();
        write!(stream, "{line}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.replace("HOST", &known.lock().unwrap())
    });
    *own.lock().unwrap() = url.clone();
    (url, requests)
}

// R: T6
#[tokio::test]
async fn unchanged_answer_is_not_sent_again() {
    let (url, requests) = serve(|index, _| match index {
        0 => reply("200 OK", "ETag: \"e1\"\r\n", r#"[{"number":1,"state":"open","title":"t"}]"#),
        _ => reply("304 Not Modified", "", ""),
    });
    let github = github(&url);
    let first = github.read(&all(10)).await.unwrap();
    assert_eq!(github.read(&all(10)).await.unwrap(), first);
    let requests = requests.lock().unwrap();
    assert!(requests[1].to_lowercase().contains("if-none-match: \"e1\""), "{}", requests[1]);
}

// R: T6
#[tokio::test]
async fn token_is_not_sent_to_another_host() {
    let (logs, at_logs) = serve(|_, _| reply("200 OK", "", "the log"));
    let (url, at_forge) =
        serve(move |_, _| reply("302 Found", &format!("Location: {logs}/x\r\n"), ""));
    assert_eq!(github(&url).read(&Wanted::Log(5)).await.unwrap(), "the log");
    assert!(at_forge.lock().unwrap()[0].contains("secret-token"));
    assert!(!at_logs.lock().unwrap()[0].contains("secret-token"));
}

// R: T6
#[tokio::test]
async fn device_login_waits_for_the_user_and_returns_the_token() {
    let (url, requests) = serve(|index, _| {
        let body = match index {
            0 => {
                r#"{"device_code":"d","user_code":"AB-12","verification_uri":"https://x/device","interval":0}"#
            }
            1 => r#"{"error":"authorization_pending"}"#,
            2 => r#"{"error":"slow_down","interval":1}"#,
            _ => r#"{"access_token":"the-token"}"#,
        };
        reply("200 OK", "", body)
    });
    let shown = Mutex::new(String::new());
    let show = |url: &str, code: &str| *shown.lock().unwrap() = format!("{url} {code}");
    let token = login::login(&url, "client&1", show).await.unwrap();
    assert_eq!(token.reveal(), "the-token");
    assert_eq!(*shown.lock().unwrap(), "https://x/device AB-12");
    let requests = requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 4);
    assert!(requests[0].ends_with("client_id=client%261&scope=repo"), "{}", requests[0]);

    let (url, _) = serve(|index, _| match index {
        0 => reply("200 OK", "", r#"{"device_code":"d","interval":0}"#),
        _ => reply("200 OK", "", r#"{"error":"access_denied"}"#),
    });
    assert_eq!(login::login(&url, "c", |_, _| ()).await.unwrap_err(), "access denied");
}
