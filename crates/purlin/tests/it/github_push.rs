//! Pushing over HTTP with authentication: a bare repository behind `git http-backend`, and the user's own credential helper.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::directory::Directory;
use crate::github::{TOKEN, config, files, git, play};

pub(crate) const PASSWORD: &str = "pw-canary-77";
/// `octocat` with this password.
const AUTHORIZATION: &str = "Basic b2N0b2NhdDpwdy1jYW5hcnktNzc=";

/// A server of git repositories that wants a password. Returns its port and the first lines of all requests.
pub(crate) fn serve(root: PathBuf) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that gives up is no error here.
            answer(stream, &root, &seen).ok();
        }
    });
    (port, requests)
}

/// Answers one request with the output of `git http-backend`.
#[expect(clippy::disallowed_methods, reason = "a server that the program under test talks to")]
fn answer(stream: TcpStream, root: &Path, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    seen.lock().unwrap().push(first.trim().to_owned());
    let header = |name: &str| {
        let found = headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    if header("authorization") != AUTHORIZATION {
        let refused = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\n\
                       Content-Length: 0\r\nConnection: close\r\n\r\n";
        return writer.write_all(refused.as_bytes());
    }
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut backend = Command::new("git");
    backend.arg("http-backend").stdin(Stdio::piped()).stdout(Stdio::piped());
    backend.env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1");
    backend.env("REMOTE_USER", "octocat").env("REQUEST_METHOD", method).env("PATH_INFO", path);
    backend.env("QUERY_STRING", query).env("CONTENT_TYPE", header("content-type"));
    backend.env("CONTENT_LENGTH", body.len().to_string());
    backend.env("HTTP_CONTENT_ENCODING", header("content-encoding"));
    backend.env("GIT_PROTOCOL", header("git-protocol"));
    let mut child = backend.spawn()?;
    child.stdin.take().unwrap().write_all(&body)?;
    let output = child.wait_with_output()?.stdout;
    let text = String::from_utf8_lossy(&output);
    let status = text.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    write!(writer, "HTTP/1.1 {}\r\nConnection: close\r\n", status.trim())?;
    writer.write_all(&output)
}

/// A clone on the branch `topic` whose remote is the server, and the user's own git configuration.
pub(crate) fn clone_of(top: &Directory, port: u16, password: &str) {
    let clone = top.join("clone");
    std::fs::create_dir_all(&clone).unwrap();
    git(&clone, &["init", "-q", "-b", "topic"]);
    std::fs::write(clone.join("file"), "one\n").unwrap();
    git(&clone, &["add", "."]);
    git(&clone, &["commit", "-q", "-m", "first"]);
    git(&clone, &["branch", "other"]);
    let url = format!("http://localhost:{port}/octocat/hello.git");
    git(&clone, &["remote", "add", "origin", &url]);
    // A helper of the repository must not be asked.
    let evil = format!("!touch {}", top.text("ran"));
    git(&clone, &["config", "credential.helper", &evil]);
    let helper = format!(
        "!f() {{ echo \"$1\" >> {}; echo username=octocat; echo password={password}; }}; f",
        top.text("asked")
    );
    let helper = helper.replace('\\', "\\\\").replace('"', "\\\"");
    top.write("gitconfig", &format!("[credential]\n\thelper = \"{helper}\"\n"));
}

// R: T6
#[test]
fn push_uses_the_credential_helper_of_the_user_for_one_branch() {
    let top = Directory::outside_of_tmp();
    git(&top, &["init", "-q", "--bare", "served/octocat/hello.git"]);
    let (port, requests) = serve(top.join("served"));
    clone_of(&top, port, PASSWORD);
    let call = [("github_write", json!({ "action": "push" }))];

    // A rule that denies it: nothing is sent, and the helper is not asked.
    let mut denied = config(port);
    denied["permission"] = json!({ "git_push": "deny" });
    let seen = play(&top, denied, Some(TOKEN), &call);
    assert!(seen.asked.is_empty() && requests.lock().unwrap().is_empty(), "{}", seen.all);
    assert!(!top.join("asked").exists());

    let seen = play(&top, config(port), Some(TOKEN), &call);
    let commit = git(&top.join("clone"), &["rev-parse", "topic"]);
    let shown = format!("http://localhost:{port}/octocat/hello.git {commit}:refs/heads/topic");
    assert_eq!(seen.asked.len(), 1, "{}", seen.all);
    assert!(seen.asked[0].to_string().contains(&shown), "{}", seen.asked[0]);
    let refs = git(&top.join("served/octocat/hello.git"), &["for-each-ref", "--format=%(refname)"]);
    assert_eq!(refs, "refs/heads/topic", "{}", seen.all);
    assert!(std::fs::read_to_string(top.join("asked")).unwrap().starts_with("get\n"));
    assert!(!top.join("ran").exists(), "the helper of the repository ran");
    assert!(!seen.all.contains(PASSWORD) && !seen.all.contains(TOKEN));
    for path in files(&top.join("data")) {
        let bytes = std::fs::read(&path).unwrap();
        let is_in = bytes.windows(PASSWORD.len()).any(|part| part == PASSWORD.as_bytes());
        assert!(!is_in, "{}", path.display());
    }
}

// R: T6
#[test]
fn push_with_a_wrong_password_fails_and_does_not_wait_for_input() {
    let top = Directory::outside_of_tmp();
    git(&top, &["init", "-q", "--bare", "served/octocat/hello.git"]);
    let (port, _) = serve(top.join("served"));
    clone_of(&top, port, "wrong");
    let call = [("github_write", json!({ "action": "push" }))];
    let seen = play(&top, config(port), Some(TOKEN), &call);
    assert!(seen.all.contains("git push failed"), "{}", seen.all);
    assert!(!seen.all.contains("password=wrong"), "{}", seen.all);
    let refs = git(&top.join("served/octocat/hello.git"), &["for-each-ref"]);
    assert_eq!(refs, "");
}
