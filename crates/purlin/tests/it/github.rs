//! GitHub: an emulator made by others as the server, and a bare repository that is pushed to.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::directory::Directory;

pub(crate) const TOKEN: &str = "ghp_canary0123456789abcdefghijklmnop";

/// A running emulator with the repository `octocat/hello`.
pub(crate) struct Emulator {
    child: Child,
    pub(crate) port: u16,
}

impl Emulator {
    #[expect(clippy::disallowed_methods, reason = "a server that the program under test talks to")]
    pub(crate) fn start(directory: &Path) -> Emulator {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let seed = json!({
            "tokens": { TOKEN: { "login": "octocat", "scopes": ["repo"] } },
            "github": {
                "users": [{ "login": "octocat", "name": "Octo", "email": "o@example.com" }],
                "repos": [{ "owner": "octocat", "name": "hello", "auto_init": true }],
            },
        });
        let file = directory.join("seed.json");
        std::fs::write(&file, seed.to_string()).unwrap();
        let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/github/node_modules");
        let mut command = Command::new(modules.join("node/bin/node"));
        command.arg(modules.join(".bin/emulate")).args(["start", "--service", "github"]);
        command.args(["--port", &port.to_string(), "--seed"]).arg(&file).current_dir(directory);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let is_ready = |line: &String| line.contains("Ready");
        assert!(output.lines().map_while(Result::ok).any(|line| is_ready(&line)));
        Emulator { child, port }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "a real git makes the repository")]
pub(crate) fn git(directory: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=u", "-c", "user.email=u@example.com"]).args(args);
    let output =
        command.current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Makes a clone on the branch `topic`, and the bare repository that it pushes to.
fn repository(top: &Path, port: u16) {
    let clone = top.join("clone");
    std::fs::create_dir(&clone).unwrap();
    git(top, &["init", "-q", "--bare", "bare"]);
    git(&clone, &["init", "-q", "-b", "topic"]);
    std::fs::write(clone.join("file"), "one\n").unwrap();
    git(&clone, &["add", "."]);
    git(&clone, &["commit", "-q", "-m", "first"]);
    let url = format!("http://localhost:{port}/octocat/hello.git");
    git(&clone, &["remote", "add", "origin", &url]);
    let bare = top.join("bare");
    // The user's own configuration may lead elsewhere; that of the repository may not.
    let own = format!("[url \"{}\"]\n\tpushInsteadOf = {url}\n", bare.display());
    std::fs::write(top.join("gitconfig"), own).unwrap();
    // What the repository configures must not run.
    let mark = top.join("ran");
    let program = format!("touch {}", mark.display());
    git(&clone, &["config", "core.fsmonitor", &program]);
    let hook = clone.join(".git/hooks/pre-push");
    std::fs::write(&hook, format!("#!/bin/sh\n{program}\nexit 1\n")).unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// What a turn showed.
pub(crate) struct Seen {
    pub(crate) asked: Vec<Value>,
    pub(crate) all: String,
}

/// Runs calls of tools in the clone, and allows everything that is asked for.
pub(crate) fn play(
    top: &Path,
    config: Value,
    token: Option<&str>,
    calls: &[(&str, Value)],
) -> Seen {
    play_with(top, config, token, None, calls)
}

fn play_with(
    top: &Path,
    config: Value,
    token: Option<&str>,
    path: Option<&str>,
    calls: &[(&str, Value)],
) -> Seen {
    let call = |(tool, input): &(&str, Value)| format!("model tool {tool} {input}\nmodel end\n");
    let script: String = calls.iter().map(call).collect();
    // With the most detailed log, which must have no secrets either.
    let mut start = Agent::playing(&script).config(config).storing_in(&top.join("data"));
    start = start.log("trace", Stdio::null());
    start = start.env("GIT_CONFIG_GLOBAL", top.join("gitconfig").to_str().unwrap());
    if let Some(token) = token {
        start = start.env("GH_ENTERPRISE_TOKEN", token);
    }
    if let Some(path) = path {
        start = start.env("PATH", path);
    }
    let mut agent = start.ready();
    let params = json!({ "cwd": top.join("clone"), "mcpServers": [] });
    let session = agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
    let mut seen = Seen { asked: Vec::new(), all: String::new() };
    let turn = agent.prompt(&session, "go");
    loop {
        let message = agent.next();
        seen.all += &format!("{message}\n");
        if message["method"] == "session/request_permission" {
            seen.asked.push(message["params"]["toolCall"].clone());
            let outcome = json!({ "outcome": "selected", "optionId": "once" });
            agent.answer(&message["id"], json!({ "outcome": outcome }));
        } else if message["id"] == turn {
            return seen;
        }
    }
}

pub(crate) fn config(port: u16) -> Value {
    let host = format!("localhost:{port}");
    json!({ "github": { "host": host, "apiUrl": format!("http://{host}") } })
}

pub(crate) fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

// R: T6
#[test]
fn issues_and_pull_requests_are_created_and_read() {
    let top = Directory::outside_of_tmp();
    let emulator = Emulator::start(&top);
    repository(&top, emulator.port);
    let calls = [
        (
            "github_write",
            json!({ "action": "create_issue", "title": "It breaks", "body": "When?\ntitle: Always." }),
        ),
        ("github_write", json!({ "action": "comment", "number": 1, "body": "Seen here, too" })),
        ("github_read", json!({ "action": "issues" })),
        ("github_read", json!({ "action": "issue", "number": 1 })),
        ("github_write", json!({ "action": "close_issue", "number": 1 })),
        ("github_write", json!({ "action": "reopen_issue", "number": 1 })),
        (
            "github_write",
            json!({ "action": "create_pull", "title": "Fix it", "body": "Closes #1", "base": "main" }),
        ),
        ("github_write", json!({ "action": "update_pull", "number": 2, "title": "Fix it well" })),
        ("github_read", json!({ "action": "pull", "number": 2 })),
        ("github_read", json!({ "action": "checks", "number": 2 })),
        (
            "github_write",
            json!({ "action": "review", "number": 2, "event": "comment", "body": "Looks right" }),
        ),
        ("github_write", json!({ "action": "merge", "number": 2 })),
        ("bash", json!({ "command": "env" })),
    ];
    let seen = play(&top, config(emulator.port), Some(TOKEN), &calls);

    // Every write asked, with what was sent.
    let asked: Vec<String> = seen.asked.iter().map(Value::to_string).collect();
    assert_eq!(asked.len(), 7, "{asked:#?}");
    assert!(asked[0].contains("POST /repos/octocat/hello/issues"), "{}", asked[0]);
    assert!(asked[0].contains("title: It breaks\\n"), "{}", asked[0]);
    // No line of a text looks like a field.
    assert!(asked[0].contains("body:\\n  When?\\n  title: Always."), "{}", asked[0]);
    let commit = git(&top.join("clone"), &["-c", "core.fsmonitor=false", "rev-parse", "HEAD"]);
    assert!(asked[4].contains(&format!("{commit}:refs/heads/topic")), "{}", asked[4]);
    assert!(asked[4].contains("head: topic") && asked[4].contains("base: main"), "{}", asked[4]);

    assert!(seen.all.contains("Seen here, too\\n"), "{}", seen.all);
    assert!(seen.all.contains("#1 open It breaks"), "{}", seen.all);
    assert!(seen.all.contains("#2 open Fix it well (topic)"), "{}", seen.all);
    // The branch was pushed, and nothing of the repository ran.
    assert_eq!(git(&top.join("bare"), &["rev-parse", "refs/heads/topic"]), commit);
    assert!(!top.join("ran").exists());
    let left = std::fs::read_dir(top.join("clone/.git")).unwrap();
    let is_ours = |name: String| name.starts_with("purlin-");
    assert!(!left.flatten().any(|entry| is_ours(entry.file_name().to_string_lossy().into_owned())));
    // A merge needs a rule, so it was refused without a question.
    assert!(seen.all.contains("needs a rule in the user's configuration"), "{}", seen.all);

    // The token is nowhere.
    assert!(seen.all.contains("PATH="), "the command showed its environment");
    assert!(!seen.all.contains(TOKEN));
    let stored = files(&top.join("data"));
    assert!(!stored.is_empty());
    for path in stored {
        let bytes = std::fs::read(&path).unwrap();
        let is_in = bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
        assert!(!is_in, "{}", path.display());
    }
}

/// A repository on this machine has hooks, which would run outside the sandbox.
// R: T6
#[test]
fn push_goes_nowhere_else_whatever_the_repository_configures() {
    let top = Directory::outside_of_tmp();
    repository(&top, 1);
    let (clone, bare) = (top.join("clone"), top.join("bare"));
    let hook = bare.join("hooks/pre-receive");
    std::fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", top.join("ran").display())).unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let call = [("github_write", json!({ "action": "push" }))];
    let bare = bare.to_str().unwrap();
    let places = [
        bare.to_owned(),
        format!("file://{bare}"),
        "http://localhost:2/x@localhost:1/o/r".to_owned(),
    ];
    for place in &places {
        git(&clone, &["-c", "core.fsmonitor=false", "config", "remote.origin.pushurl", place]);
        let seen = play(&top, config(1), Some(TOKEN), &call);
        assert!(seen.asked.is_empty() && seen.all.contains("names another place"), "{}", seen.all);
        assert!(!top.join("ran").exists(), "{place}");
    }
    eprintln!("attempts: {}", places.len());
}

// R: T6
#[test]
fn merge_runs_if_a_rule_allows_it() {
    let top = Directory::outside_of_tmp();
    let emulator = Emulator::start(&top);
    repository(&top, emulator.port);
    let mut config = config(emulator.port);
    config["permission"] =
        json!({ "github": "allow", "git_push": "allow", "github_merge": "allow" });
    let calls = [
        ("github_write", json!({ "action": "create_pull", "title": "Fix it", "base": "main" })),
        ("github_write", json!({ "action": "merge", "number": 1 })),
        ("github_read", json!({ "action": "pulls", "state": "all" })),
    ];
    let seen = play(&top, config, Some(TOKEN), &calls);
    assert!(seen.asked.is_empty(), "{:?}", seen.asked);
    assert!(seen.all.contains("#1 closed Fix it"), "{}", seen.all);
}

// R: T6
#[test]
fn tools_are_offered_only_with_a_token_and_on_github() {
    let top = Directory::outside_of_tmp();
    repository(&top, 1);
    let call = [("github_read", json!({ "action": "issues" }))];
    for (config, token) in [(config(1), None), (json!({}), Some(TOKEN))] {
        let seen = play(&top, config, token, &call);
        assert!(!seen.all.contains("List issues of octocat/hello"), "{}", seen.all);
    }
    let seen = play(&top, config(1), Some(TOKEN), &call);
    assert!(seen.all.contains("List issues of octocat/hello"), "{}", seen.all);
    // `/pr` and `/issue` are listed where they work.
    assert!(seen.all.contains("Work on an issue of the repository"), "{}", seen.all);
}

// R: D3, T6
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the program under test, in a directory of the test's"
)]
fn container_dialect_announces_github_only_where_it_works() {
    let top = Directory::outside_of_tmp();
    repository(&top, 1);
    std::fs::write(top.join("user.json"), config(1).to_string()).unwrap();
    let announced = |directory: &Path, token: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
        command.args(["acp", "--config"]).arg(top.join("user.json")).current_dir(directory);
        command.env("XDG_DATA_HOME", top.join("data")).env_remove("GH_ENTERPRISE_TOKEN");
        command
            .env_remove("GITHUB_ENTERPRISE_TOKEN")
            .envs(token.map(|it| ("GH_ENTERPRISE_TOKEN", it)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let params = json!({ "protocolVersion": "0.3.1", "clientCapabilities": {} });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, format!("{call}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        drop(input);
        child.wait().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["result"]["protocolVersion"], "0.3.1", "{answer}");
        answer["result"]["agentCapabilities"]["githubIntegration"].clone()
    };
    let clone = top.join("clone");
    assert_eq!(announced(&clone, Some(TOKEN)), json!(true));
    assert_eq!(announced(&clone, None), Value::Null);
    assert_eq!(announced(&top.join("bare"), Some(TOKEN)), Value::Null);
}

// R: T6
#[cfg(unix)]
#[test]
fn token_of_gh_is_used() {
    let top = Directory::outside_of_tmp();
    repository(&top, 1);
    let gh = top.join("bin/gh");
    std::fs::create_dir(top.join("bin")).unwrap();
    // Answers as `gh auth token --hostname HOST` does.
    let script =
        format!("#!/bin/sh\n[ \"$*\" = 'auth token --hostname localhost:1' ] && echo {TOKEN}\n");
    std::fs::write(&gh, script).unwrap();
    std::fs::set_permissions(&gh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", top.join("bin").display());
    let calls =
        [("bash", json!({ "command": "sleep 1" })), ("github_read", json!({ "action": "issues" }))];
    let seen = play_with(&top, config(1), None, Some(&path), &calls);
    assert!(seen.all.contains("List issues of octocat/hello"), "{}", seen.all);
    assert!(!seen.all.contains(TOKEN));
}

/// The whole way: a code on the terminal, a token in our own file, and a session that uses it.
// R: T6
#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn device_login_saves_a_token_that_sessions_use() {
    let code = json!({ "device_code": "d", "user_code": "AB-12", "interval": 0,
        "verification_uri": "https://x/device" });
    let answers = format!(
        "document /login/device/code 200 {code}\n\
         document /login/oauth/access_token 200 {}\n\
         document /issues/7 404 {{}}\n",
        json!({ "access_token": TOKEN })
    );
    let server = fake_model::FakeModel::start(&answers).unwrap();
    let origin = server.origin();
    let host = origin.trim_start_matches("http://");
    let top = Directory::outside_of_tmp();
    repository(&top, 1);
    let url = format!("{origin}/octocat/hello.git");
    git(&top.join("clone"), &["-c", "core.fsmonitor=false", "remote", "set-url", "origin", &url]);
    let config = json!({ "github": { "host": host, "apiUrl": origin, "clientId": "client" } });
    top.write("config/purlin/purlin.json", &config.to_string());

    let call = [("github_read", json!({ "action": "issue", "number": 7 }))];
    let before = play(&top, config.clone(), None, &call);
    assert!(!before.all.contains("Read issue octocat/hello#7"), "{}", before.all);
    let login = Command::new(env!("CARGO_BIN_EXE_purlin"))
        .args(["auth", "login", "github"])
        .env("XDG_CONFIG_HOME", top.join("config"))
        .env("XDG_DATA_HOME", top.join("data"))
        .output()
        .unwrap();
    let said = String::from_utf8(login.stderr).unwrap();
    assert!(login.status.success(), "{said}");
    assert!(said.contains("Open https://x/device and enter the code AB-12"), "{said}");
    assert!(!said.contains(TOKEN) && login.stdout.is_empty(), "{said}");

    let seen = play(&top, config, None, &call);
    assert!(seen.all.contains("Read issue octocat/hello#7"), "{}", seen.all);
    assert!(seen.all.contains("not found, or the token has no access"), "{}", seen.all);
    assert!(!seen.all.contains(TOKEN));
    let requests = server.document_requests();
    let of_session = requests.iter().find(|request| request.path.ends_with("/issues/7")).unwrap();
    let bearer = ("authorization".to_owned(), format!("Bearer {TOKEN}"));
    assert!(of_session.headers.contains(&bearer));
}
