//! Which model a session gets: local servers, OpenCode's keys, the last choice, and the lists of providers.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{Agent, Start, text_of, update_kind, wait_until};
use crate::directory::Directory;
use crate::models::{CHAT, Fake, ask, updates};

fn host(fake: &Fake) -> String {
    fake.url.trim_start_matches("http://").trim_end_matches("/v1").to_owned()
}

/// Opens a session and returns the id of its model.
fn model_of(agent: &mut Agent) -> String {
    let params = json!({ "cwd": agent.directory(), "mcpServers": [] });
    let opened = agent.result("session/new", params);
    opened["models"]["currentModelId"].as_str().unwrap().to_owned()
}

// R: P6
#[test]
fn local_server_is_found_when_a_session_needs_it() {
    let fake = Fake::new("text \"hi\"");
    let mut agent = Agent::configured(json!({})).env("OLLAMA_HOST", &host(&fake)).ready();
    assert_eq!(fake.model_list_requests(), 0, "initialize looks for nothing");
    assert_eq!(model_of(&mut agent), "ollama/fake");
    assert_eq!(fake.model_list_requests(), 1);
    // The server is searched for only once.
    assert_eq!(model_of(&mut agent), "ollama/fake");
    assert_eq!(fake.model_list_requests(), 1);
}

#[test]
fn no_local_server_is_searched_for_if_a_key_is_set() {
    let fake = Fake::new("text \"hi\"");
    let start = Agent::configured(json!({})).env("OLLAMA_HOST", &host(&fake));
    let mut agent = start.env("ANTHROPIC_API_KEY", "sk-ant-x").ready();
    assert!(model_of(&mut agent).starts_with("anthropic/"));
    assert_eq!(fake.model_list_requests(), 0);
}

#[test]
fn silent_local_server_delays_no_session() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut agent = Agent::configured(json!({})).env("OLLAMA_HOST", &address).ready();
    assert_eq!(model_of(&mut agent), "purlin/guide");
}

/// Runs `purlin` for a user with this home directory and returns its output.
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn purlin(home: &Path, arguments: &[&str], input: &str) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(arguments).env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
}

// R: I4
#[test]
fn keys_of_opencode_are_used_only_after_the_user_agrees() {
    const CANARY: &str = "sk-canary-of-opencode";
    let home = Directory::new();
    let keys = json!({
        "openai": { "type": "api", "key": CANARY },
        "anthropic": { "type": "oauth", "access": CANARY, "refresh": CANARY, "expires": 1 },
    });
    home.write(".local/share/opencode/auth.json", &keys.to_string());
    let agent = || Agent::configured(json!({})).env("HOME", &home.text("")).ready();
    let mut before = agent();
    assert_eq!(model_of(&mut before), "purlin/guide");
    let session = before.open();
    let (_, seen) = ask(&mut before, &session, "hello");
    assert!(text_of(&session, &seen).contains("`purlin auth import`"));

    let said = purlin(&home, &["auth", "import"], "n\n");
    assert!(said.contains("OpenCode has API keys for openai."), "{said}");
    assert_eq!(model_of(&mut agent()), "purlin/guide");
    purlin(&home, &["auth", "import"], "y\n");
    assert!(model_of(&mut agent()).starts_with("openai/"));
    let list = purlin(&home, &["auth", "list"], "");
    assert_eq!(list, "openai\tfrom OpenCode\n");
    assert!(!said.contains(CANARY));
}

/// A configuration with two models of the fake server, none of them selected.
fn two_models(fake: &Fake) -> Value {
    let mut config = fake.config(CHAT);
    config.as_object_mut().unwrap().remove("model");
    let model = json!({ "limit": { "context": 1000 }, "reasoning": true });
    config["provider"]["fake"]["models"] = json!({ "one": model, "two": model });
    config
}

fn storing_in(config: &Value, home: &Directory) -> Start {
    let start = Agent::configured(config.clone()).storing_in(&home.join("data"));
    start.env("XDG_STATE_HOME", &home.text("state"))
}

// R: S4
#[test]
fn new_session_uses_the_model_selected_last() {
    let (fake, home) = (Fake::new("text \"hi\"\n---\nloop"), Directory::new());
    let mut config = two_models(&fake);
    let (mut agent, session) = storing_in(&config, &home).session();
    agent.result("session/set_model", json!({ "sessionId": session, "modelId": "fake/two" }));
    let set = json!({ "sessionId": session, "configId": "thinking", "value": "high" });
    agent.result("session/set_config_option", set);
    agent.result("session/set_mode", json!({ "sessionId": session, "modeId": "plan" }));
    drop(agent);

    let mut agent = storing_in(&config, &home).ready();
    let params = json!({ "cwd": agent.directory(), "mcpServers": [] });
    let opened = agent.result("session/new", params);
    assert_eq!(opened["models"]["currentModelId"], "fake/two");
    assert_eq!(opened["modes"]["currentModeId"], "build");
    let options = opened["configOptions"].as_array().unwrap();
    let thinking = options.iter().find(|option| option["id"] == "thinking").unwrap();
    assert_eq!(thinking["currentValue"], "high");
    // The configuration takes precedence.
    config["model"] = json!("fake/one");
    assert_eq!(model_of(&mut storing_in(&config, &home).ready()), "fake/one");
}

#[test]
fn small_model_writes_the_title_of_a_session() {
    let script = "text \"\\\"Sail the ship.\\\"\"\nusage 7 1 0 0\n---\nloop";
    let (fake, home) = (Fake::new(script), Directory::new());
    let mut config = two_models(&fake);
    config["small_model"] = json!("fake/two");
    config["provider"]["fake"]["models"]["two"]["cost"] =
        json!({ "input": 1_000_000, "output": 0 });
    let (mut agent, session) = storing_in(&config, &home).session();
    agent.take_seen();
    let id = agent.prompt(&session, "How do I get this thing onto the water?");
    let (mut titles, mut cost) = (Vec::new(), json!(null));
    let mut is_answered = false;
    while titles.len() < 2 || !is_answered {
        let message = agent.next();
        is_answered |= message["id"] == id;
        if update_kind(&message) == "session_info_update" {
            titles.push(message["params"]["update"]["title"].clone());
        }
        if update_kind(&message) == "usage_update" {
            cost = message["params"]["update"]["cost"]["amount"].clone();
        }
    }
    assert_eq!(titles, ["How do I get this thing onto the water?", "Sail the ship"]);
    let asked = fake.requests();
    let models: Vec<Value> = asked
        .iter()
        .map(|asked| serde_json::from_str::<Value>(&asked.body).unwrap()["model"].clone())
        .collect();
    assert!(models.contains(&json!("two")) && models.contains(&json!("one")), "{models:?}");
    // The cost of the title is part of the cost of the session.
    assert_eq!(cost, 7.0);
    let (_, seen) = ask(&mut agent, &session, "/cost");
    let bill = text_of(&session, &seen);
    assert!(bill.contains("| `fake/two` | 1 | 7 | 0 | 0 | 1 | $7.0000 |"), "{bill}");
}

/// Nothing follows the answer to a cancelled turn, and the request for its title is cancelled too.
// R: S5
#[test]
fn cancelled_turn_is_quiet() {
    // Both requests are answered in part and then wait; whichever comes first asks for the title.
    let script = "text \"Sail\"\nusage 7 1 0 0\nhang\n---\nloop";
    let (fake, home) = (Fake::new(script), Directory::new());
    let mut config = two_models(&fake);
    config["small_model"] = json!("fake/two");
    let (mut agent, session) = storing_in(&config, &home).session();
    let id = agent.prompt(&session, "How do I get this thing onto the water?");
    agent.find(|message| update_kind(message) == "agent_message_chunk");
    wait_until("both requests", Duration::from_secs(60), || fake.requests().len() == 2);
    let during = sockets(agent.pid());
    agent.note("session/cancel", json!({ "sessionId": session }));
    assert_eq!(agent.reply(id)["result"]["stopReason"], "cancelled");
    agent.take_seen();
    // The small model may take 20 s.
    wait_until("both connections are closed", Duration::from_secs(15), || {
        sockets(agent.pid()) + 2 <= during
    });
    let listed = agent.result("session/list", json!({}));
    assert_eq!(listed["sessions"][0]["title"], "How do I get this thing onto the water?");
    let (_, seen) = ask(&mut agent, &session, "/cost");
    let kinds: Vec<&str> = seen.iter().map(update_kind).filter(|kind| !kind.is_empty()).collect();
    assert_eq!(kinds, ["agent_message_chunk"], "{seen:?}");
}

/// Counts the open sockets of a process.
fn sockets(pid: u32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

#[test]
fn refreshed_model_list_is_used_later() {
    let (fake, home) = (Fake::new("text \"hi\""), Directory::new());
    let place = json!({ "openai": { "options": { "baseURL": fake.url, "apiKey": "sk-x" } } });
    home.write(".config/purlin/purlin.json", &json!({ "provider": place }).to_string());
    let before = purlin(&home, &["models"], "");
    assert!(before.contains("openai/gpt-5") && !before.contains("openai/fake"), "{before}");
    let fresh = purlin(&home, &["models", "--refresh"], "");
    assert!(fresh.contains("openai/fake  64000 tokens"), "{fresh}");
    let after = purlin(&home, &["models"], "");
    assert!(after.contains("openai/fake  64000 tokens"), "{after}");
    assert!(!after.contains("openai/gpt-5"), "{after}");
    assert_eq!(fake.model_list_requests(), 1);
}

#[test]
fn image_is_not_sent_to_a_model_without_image_support() {
    const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUg";
    let fake = Fake::new("text \"hi\"\n---\nloop");
    let mut config = fake.config(CHAT);
    config["provider"]["fake"]["models"]["fake"]["modalities"] = json!({ "input": ["text"] });
    let (mut agent, session) = Agent::configured(config).session();
    agent.take_seen();
    let prompt = json!([
        { "type": "text", "text": "What is this?" },
        { "type": "image", "data": PICTURE, "mimeType": "image/png" },
    ]);
    let id = agent.call("session/prompt", json!({ "sessionId": session, "prompt": prompt }));
    agent.reply(id);
    let seen = agent.take_seen();
    let observed = updates(&seen, "agent_thought_chunk")[0]["content"]["text"].to_string();
    assert!(observed.contains("does not accept images"), "{observed}");
    let body = fake.body(0).to_string();
    assert!(!body.contains(PICTURE) && body.contains("The user sent an image here"), "{body}");
}

/// Editors embed a picture as a resource too. Of other files the user is told that the model gets only their names.
// R: I2
#[test]
fn embedded_image_reaches_the_model_and_other_files_are_reported() {
    const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let fake = Fake::new("text \"hi\"\n---\nloop");
    let (mut agent, session) = Agent::configured(fake.config(CHAT)).session();
    agent.take_seen();
    let resource = |uri: &str, mime: &str, blob: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "blob": blob } });
    let prompt = json!([
        { "type": "text", "text": "What is this?" },
        resource("file:///dot.png", "image/png", PICTURE),
        resource("file:///a.wav", "audio/wav", "MDEyMw=="),
    ]);
    let id = agent.call("session/prompt", json!({ "sessionId": session, "prompt": prompt }));
    agent.reply(id);
    let seen = agent.take_seen();
    let observed = updates(&seen, "agent_thought_chunk")[0]["content"]["text"].to_string();
    assert!(observed.contains("Not sent to the model"), "{observed}");
    assert!(observed.contains("file:///a.wav (audio/wav)"), "{observed}");
    let body = fake.body(0).to_string();
    assert!(body.contains("image_url") && body.contains(PICTURE), "{body}");
    assert!(body.contains("4 bytes of audio/wav"), "{body}");
}

// R: P6
#[test]
fn retries_are_counted_for_the_whole_turn() {
    // A different plan each time: a turn that repeats itself would be stopped.
    let step =
        |n: usize| format!("status 503\n---\ntool plan {{\"entries\":[\"step {n}\"]}}\n---\n");
    let fake = Fake::new(&(0..40).map(step).collect::<String>());
    let mut config = fake.config(CHAT);
    config["limits"]["max_requests_per_turn"] = json!(100);
    let (mut agent, session) = Agent::configured(config).session();
    let (reply, _) = ask(&mut agent, &session, "Go.");
    assert_eq!(reply["error"]["data"]["kind"], "model_unavailable", "{reply}");
    let details = reply["error"]["data"]["details"].as_str().unwrap();
    assert!(details.contains("Gave up after 30 retries in this turn"), "{details}");
    assert_eq!(fake.requests().len(), 61);
}

/// Runs `purlin doctor` and returns its output and whether it found no problem.
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn doctor(home: &Directory) -> (String, bool) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.arg("doctor").env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

#[test]
fn doctor_reports_problems_of_the_model_with_advice() {
    let home = Directory::new();
    let (none, is_well) = doctor(&home);
    assert!(none.contains("! models: none available") && !is_well, "{none}");
    assert!(none.contains("    add a key with `purlin auth login anthropic`"), "{none}");
    let provider = json!({ "openai": { "options": { "apiKey": "sk-x" } } });
    let config = |model: &str| {
        let config = json!({ "provider": provider, "model": model });
        home.write(".config/purlin/purlin.json", &config.to_string());
        doctor(&home).0
    };
    let right = config("openai/gpt-5");
    assert!(right.contains("✓ configuration") && right.contains("✓ models"), "{right}");
    let unknown = config("opnai/gpt-5");
    let file = home.text(".config/purlin/purlin.json");
    let place =
        format!("{file}:1: `model` has an unknown provider `opnai`. Did you mean `openai`?");
    assert!(unknown.contains("! configuration") && unknown.contains(&place), "{unknown}");
    let misspelt = config("openai/gtp-5");
    assert!(
        misspelt.contains("! models: ") && misspelt.contains("Did you mean `openai/gpt-5`?"),
        "{misspelt}"
    );
}

#[test]
fn unknown_provider_is_reported_and_the_session_works() {
    let fake = Fake::new("text \"hi\"\n---\nloop");
    let mut config = fake.config(CHAT);
    config["model"] = json!("fkae/fake");
    let (mut agent, session) = Agent::configured(config).env("FAKE_KEY", "k").session();
    let (reply, seen) = ask(&mut agent, &session, "Hello.");
    assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
    assert_eq!(text_of(&session, &seen), "hi");
    let observed = updates(&seen, "agent_thought_chunk")[0]["content"]["text"].to_string();
    let words = "user.json:1: `model` has an unknown provider `fkae`. Did you mean `fake`?";
    assert!(observed.contains(words), "{observed}");
}

// R: I4
#[test]
fn login_tries_the_key_and_saves_only_one_that_is_not_rejected() {
    const KEY: &str = "sk-or-canary-0123456789";
    let label = r#"document /key 200 {"data":{"label":"sk-or-...789 (work)","usage":1}}"#;
    let rejected = r#"document /key 401 {"error":{"message":"No auth credentials found"}}"#;
    // Closed at once, so nothing listens there.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = format!("http://{closed}/v1");
    let login = |url: &str| {
        let home = Directory::new();
        let provider = json!({ "openrouter": { "options": { "baseURL": url } } });
        home.write(".config/purlin/purlin.json", &json!({ "provider": provider }).to_string());
        let said = purlin(&home, &["auth", "login", "openrouter"], &format!("{KEY}\n"));
        assert!(!said.contains(KEY), "{said}");
        (said, purlin(&home, &["auth", "list"], ""))
    };
    let (said, list) = login(&Fake::new(label).url);
    assert!(said.contains("The key works and belongs to sk-or-...789 (work)."), "{said}");
    assert!(list.contains("openrouter"), "{list}");
    let (said, list) = login(&Fake::new(rejected).url);
    assert!(
        said.contains("the key was not saved") && said.contains("No auth credentials"),
        "{said}"
    );
    assert!(list.contains("No keys"), "{list}");
    let (said, list) = login(&closed);
    assert!(said.contains("Saved the key") && said.contains("It could not be tried"), "{said}");
    assert!(list.contains("openrouter"), "{list}");
}
