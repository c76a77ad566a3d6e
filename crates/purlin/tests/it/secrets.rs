//! API keys from every possible source, searched for everywhere they must not appear.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, update_kind};
use crate::directory::Directory;
use crate::models::{ANTHROPIC, Fake};

const IN_ENVIRONMENT: &str = "sk-ant-canary-environment";
const IN_CONFIG: &str = "sk-canary-config-1";
const IN_HEADER: &str = "canary-header-2";
const IN_AUTH_FILE: &str = "sk-canary-auth-file-3";
const IN_OPENCODE: &str = "sk-canary-opencode-4";
const ALL: [&str; 5] = [IN_ENVIRONMENT, IN_CONFIG, IN_HEADER, IN_AUTH_FILE, IN_OPENCODE];

fn holds(text: &[u8]) -> Option<&'static str> {
    let is_in = |key: &&&str| text.windows(key.len()).any(|window| window == key.as_bytes());
    ALL.iter().find(is_in).copied()
}

/// Returns every file below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the descendants of a process with the content of their files in /proc.
fn below(pid: u32) -> Vec<(u32, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(child) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        if parent != Some(pid) {
            continue;
        }
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        found.push((child, [read("cmdline"), read("environ")].concat()));
        found.extend(below(child));
    }
    found
}

// R: O1, W7
#[test]
fn keys_are_sent_only_to_their_provider() {
    let refused = Value::from(format!(r#"{{"error":{{"message":"no: {IN_CONFIG}"}}}}"#));
    let fake = Fake::new(&format!(
        "tool bash {{\"command\":\"env\"}}\n---\ntext \"Done.\"\n---\n\
         tool bash {{\"command\":\"sleep 60\"}}\n---\nstatus 401\nbody {refused}\n---\nloop"
    ));
    let home = Directory::new();
    let key = |key: &str| json!({ "openai": { "type": "api", "key": key } }).to_string();
    home.write("data/purlin/auth.json", &key(IN_AUTH_FILE));
    home.write("data/opencode/auth.json", &key(IN_OPENCODE));
    home.write("state/purlin/choices.json", r#"{"opencode_keys":true}"#);
    let dump = home.join("server");
    // A server that writes its environment and arguments to a file and sends nothing.
    let server =
        format!("(env; tr '\\0' ' ' </proc/self/cmdline) >{}; exec cat >/dev/null", dump.display());
    let mut config = fake.config(ANTHROPIC);
    config["provider"]["fake"]["options"]["headers"] = json!({ "x-team": IN_HEADER });
    config["mcp"] = json!({ "nosy": { "type": "local", "command": ["/bin/sh", "-c", server] } });
    let start = Agent::configured(config).env("FAKE_KEY", IN_CONFIG);
    let start = start.env("ANTHROPIC_API_KEY", IN_ENVIRONMENT).storing_in(&home.join("data"));
    let start = start.env("XDG_DATA_HOME", home.join("data").to_str().unwrap());
    let start = start.env("XDG_STATE_HOME", home.join("state").to_str().unwrap());
    let (mut agent, session) = start.log("trace", Stdio::piped()).session();
    let mut stderr = agent.take_stderr();
    let log = std::thread::spawn(move || {
        let mut log = Vec::new();
        std::io::Read::read_to_end(&mut stderr, &mut log).unwrap();
        log
    });

    let id = agent.prompt(&session, "one");
    agent.reply(id);
    let id = agent.prompt(&session, "two");
    let is_running = |message: &Value| {
        update_kind(message) == "tool_call_update"
            && message["params"]["update"]["status"] == "in_progress"
    };
    agent.find(is_running);
    let children = below(agent.pid());
    assert!(!children.is_empty());
    for (child, observed) in &children {
        assert_eq!(holds(observed), None, "process {child}");
    }
    agent.note("session/cancel", json!({ "sessionId": session }));
    agent.reply(id);
    let id = agent.prompt(&session, "three");
    let reply = agent.reply(id);
    assert_eq!(reply["error"]["code"], -32000, "{reply}");
    let seen = agent.take_seen();
    let environment = seen.iter().find(|message| message.to_string().contains("PATH="));
    assert!(environment.is_some(), "the command showed its environment");
    agent.close_input();
    agent.wait(Duration::from_secs(30));

    assert_eq!(holds(format!("{reply}{seen:?}").as_bytes()), None, "what the client was sent");
    let log = log.join().unwrap();
    assert!(!log.is_empty());
    assert_eq!(holds(&log), None, "the log");
    let observed = std::fs::read(&dump).unwrap();
    assert!(!observed.is_empty());
    assert_eq!(holds(&observed), None, "the MCP server's environment");
    let stored: Vec<PathBuf> =
        files(&home).into_iter().filter(|path| !path.ends_with("auth.json")).collect();
    assert!(stored.len() > 2, "{stored:?}");
    for path in stored {
        assert_eq!(holds(&std::fs::read(&path).unwrap()), None, "{}", path.display());
    }
    // The keys do reach their provider.
    let headers = &fake.requests()[0].headers;
    assert!(headers.contains(&("x-api-key".to_owned(), IN_CONFIG.to_owned())));
    assert!(headers.contains(&("x-team".to_owned(), IN_HEADER.to_owned())));
}
