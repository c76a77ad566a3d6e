//! Turns with a model over HTTP: the built program between the fake model server and an ACP client.

use std::process::Stdio;
use std::time::{Duration, Instant};

use fake_model::{FakeModel, ReceivedRequest};
use serde_json::{Value, json};

use crate::agent::{Agent, Start, text_of, update_kind};
use crate::directory::Directory;

pub(crate) const ANTHROPIC: &str = "@ai-sdk/anthropic";
pub(crate) const CHAT: &str = "@ai-sdk/openai-compatible";
pub(crate) const BEDROCK: &str = "@ai-sdk/amazon-bedrock";
pub(crate) const PACKAGES: [&str; 4] = [ANTHROPIC, "@ai-sdk/openai", CHAT, "@ai-sdk/google"];
pub(crate) const CANARY: &str = "sk-ant-canary-0123456789";

/// A fake model server, and how to configure an agent for it.
pub(crate) struct Fake {
    pub(crate) url: String,
    server: FakeModel,
}

impl Fake {
    pub(crate) fn new(script: &str) -> Fake {
        let server = FakeModel::start(script).unwrap();
        Fake { url: server.url(), server }
    }

    /// Serves on a listener that already exists.
    pub(crate) fn at(listener: std::net::TcpListener, script: &str) -> Fake {
        let server = FakeModel::start_on(listener, script).unwrap();
        Fake { url: server.url(), server }
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.server.requests()
    }

    /// The requests that are not for an answer.
    pub(crate) fn document_requests(&self) -> Vec<ReceivedRequest> {
        self.server.document_requests()
    }

    /// How often the agent requested the list of models.
    pub(crate) fn model_list_requests(&self) -> usize {
        self.server.model_list_requests()
    }

    pub(crate) fn config(&self, package: &str) -> Value {
        config_at(&self.url, package)
    }

    pub(crate) fn agent(&self, package: &str) -> Start {
        Agent::configured(self.config(package)).env("FAKE_KEY", CANARY)
    }

    /// Returns the body of a request, counting from 0.
    pub(crate) fn body(&self, index: usize) -> Value {
        serde_json::from_str(&self.requests()[index].body).unwrap()
    }
}

/// The configuration of a user whose model is at `url`.
pub(crate) fn config_at(url: &str, package: &str) -> Value {
    json!({
        "limits": { "prompts_per_minute": 0, "updates_per_minute": 0, "max_requests_per_turn": 5 },
        "model": "fake/fake",
        "provider": { "fake": {
            "npm": package,
            "options": {
                "baseURL": url, "apiKey": "{env:FAKE_KEY}",
                "headerTimeout": 5000, "chunkTimeout": 500, "retryDelay": 10,
                // Two waits, of at most 20 and 40 ms.
                "retryTimeout": 60,
            },
            "models": { "fake": {
                "limit": { "context": 200_000, "output": 100 },
                "cost": { "input": 1_000_000, "output": 2_000_000, "cache_read": 100_000 },
            } },
        } },
    })
}

/// Sends a prompt and returns the reply with every update before it.
pub(crate) fn ask(agent: &mut Agent, session: &str, text: &str) -> (Value, Vec<Value>) {
    agent.take_seen();
    let id = agent.prompt(session, text);
    let reply = agent.reply(id);
    (reply, agent.take_seen())
}

pub(crate) fn updates<'a>(seen: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let of_kind = seen.iter().filter(|message| update_kind(message) == kind);
    of_kind.map(|message| &message["params"]["update"]).collect()
}

// R: P6, P2
#[test]
fn every_format_answers_over_acp() {
    let script = "thought \"Hm.\"\ntext \"Hello, \"\nwait 20\ntext \"größe 🦀\"\nusage 20 7 30 0";
    for package in PACKAGES {
        let fake = Fake::new(&format!("{script}\n---\n{script}"));
        let (mut agent, session) = fake.agent(package).session();
        let (reply, seen) = ask(&mut agent, &session, "Say it.");
        assert_eq!(reply["result"]["stopReason"], "end_turn", "{package}: {reply}");
        assert_eq!(text_of(&session, &seen), "Hello, größe 🦀", "{package}");
        let thoughts = updates(&seen, "agent_thought_chunk");
        assert_eq!(thoughts[0]["content"]["text"], "Hm.", "{package}");
        let usage = updates(&seen, "usage_update").remove(0).clone();
        assert_eq!((&usage["used"], &usage["size"]), (&json!(57), &json!(200_000)), "{package}");
        assert_eq!(usage["cost"], json!({ "amount": 37.0, "currency": "USD" }), "{package}");
        // The cost of the second answer is added. No connection is kept open on this machine.
        let (_, seen) = ask(&mut agent, &session, "Again.");
        assert_eq!(updates(&seen, "usage_update")[0]["cost"]["amount"], 74.0, "{package}");
        let asked = fake.requests();
        assert_ne!(asked[0].connection, asked[1].connection, "{package}");
    }
}

#[test]
fn tools_are_called_and_thoughts_are_sent_back_with_their_signatures() {
    let script = "thought \"A plan.\"\nsignature \"SIG\"\ntext \"First. \"\n\
                  tool plan {\"entries\":[\"Look\"]}\n---\ntext \"Done.\"";
    for package in PACKAGES {
        let fake = Fake::new(script);
        let (mut agent, session) = fake.agent(package).session();
        let (reply, seen) = ask(&mut agent, &session, "Plan.");
        assert_eq!(reply["result"]["stopReason"], "end_turn", "{package}: {reply}");
        assert_eq!(text_of(&session, &seen), "First. Done.", "{package}");
        assert_eq!(updates(&seen, "plan").len(), 1, "{package}");
        let second = fake.body(1).to_string();
        assert!(second.contains("SIG"), "{package}: {second}");
        assert!(second.contains("Look"), "{package}: {second}");
    }
}

/// Sent back as text, small models repeat it for ever.
// R: P6
#[test]
fn call_written_as_text_is_sent_back_as_a_native_call() {
    let call = r#"```json\n{\"name\":\"list\",\"arguments\":{}}\n```"#;
    let fake = Fake::new(&format!("text \"{call}\"\n---\ntext \"Done.\""));
    let (mut agent, session) = fake.agent(CHAT).session();
    let (reply, seen) = ask(&mut agent, &session, "Plan.");
    assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
    assert_eq!(text_of(&session, &seen), "Done.");
    assert_eq!(updates(&seen, "tool_call").len(), 1);
    let sent = fake.body(1)["messages"].clone();
    let sent = sent.as_array().unwrap();
    let [.., answer, result] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(answer["content"], Value::Null);
    assert_eq!(answer["tool_calls"][0]["function"]["name"], "list");
    assert_eq!(answer["tool_calls"][0]["id"], result["tool_call_id"]);
}

#[test]
fn cancel_stops_a_model_that_hangs() {
    let fake = Fake::new("text \"a\"\nhang\n---\ntext \"next\"");
    let mut config = fake.config(ANTHROPIC);
    config["provider"]["fake"]["options"]["chunkTimeout"] = json!(60_000);
    let (mut agent, session) = Agent::configured(config).session();
    let id = agent.prompt(&session, "Go.");
    agent.find(|message| update_kind(message) == "agent_message_chunk");
    let begun = Instant::now();
    agent.note("session/cancel", json!({ "sessionId": session }));
    assert_eq!(agent.reply(id)["result"]["stopReason"], "cancelled");
    assert!(begun.elapsed() < Duration::from_secs(5));
    let (_, seen) = ask(&mut agent, &session, "Again.");
    assert_eq!(text_of(&session, &seen), "next");
}

// R: I4, W8
#[test]
fn missing_key_is_reported_only_when_it_is_needed() {
    let config = json!({ "model": "anthropic/claude-sonnet-4-6" });
    let (mut agent, session) = Agent::configured(config).session();
    let (reply, _) = ask(&mut agent, &session, "Go.");
    assert_eq!(reply["error"]["code"], -32000, "{reply}");
    let details = reply["error"]["data"]["details"].as_str().unwrap();
    assert!(details.contains("Set ANTHROPIC_API_KEY or run `purlin auth login anthropic`"));
}

// R: I4
#[test]
fn key_can_be_given_with_authenticate() {
    let fake = Fake::new("text \"hi\"");
    let place = json!({ "anthropic": { "options": { "baseURL": fake.url } } });
    let config = json!({ "model": "anthropic/claude-sonnet-4-6", "provider": place });
    let mut agent = Agent::configured(config).ready();
    let login = json!({ "method": "api_key", "credentials": { "key": CANARY } });
    assert_eq!(agent.result("authenticate", login), json!({}));
    let session = agent.open();
    let (reply, seen) = ask(&mut agent, &session, "Go.");
    assert_eq!(text_of(&session, &seen), "hi", "{reply}");
    let headers = fake.requests().remove(0).headers;
    assert!(headers.contains(&("x-api-key".to_owned(), CANARY.to_owned())));
}

#[test]
fn key_in_the_environment_is_used() {
    let mut agent = Agent::configured(json!({})).env("ANTHROPIC_API_KEY", CANARY).ready();
    let params = json!({ "cwd": agent.directory(), "mcpServers": [] });
    let reply = agent.result("session/new", params);
    assert_eq!(reply["models"]["currentModelId"], "anthropic/claude-sonnet-4-6");
    let options = reply["configOptions"].as_array().unwrap();
    let thinking = options.iter().find(|option| option["id"] == "thinking").unwrap();
    assert_eq!(thinking["currentValue"], "default");
    assert!(!reply.to_string().contains(CANARY));
}

#[test]
fn thinking_level_reaches_the_model() {
    let fake = Fake::new("text \"hi\"\n---\nloop");
    let mut config = fake.config(ANTHROPIC);
    config["provider"]["fake"]["models"]["fake"]["reasoning"] = json!(true);
    let (mut agent, session) = Agent::configured(config).session();
    let set = json!({ "sessionId": session, "configId": "thinking", "value": "high" });
    agent.result("session/set_config_option", set);
    ask(&mut agent, &session, "Go.");
    assert_eq!(fake.body(0)["output_config"], json!({ "effort": "high" }));
}

#[test]
fn models_of_a_configured_server_are_listed() {
    let fake = Fake::new("text \"hi\"");
    let config = json!({ "provider": { "ollama": { "options": { "baseURL": fake.url } } } });
    let mut agent = Agent::configured(config).ready();
    let params = json!({ "cwd": agent.directory(), "mcpServers": [] });
    let reply = agent.result("session/new", params);
    assert_eq!(reply["models"]["currentModelId"], "ollama/fake");
}

// R: O1, W7
#[test]
fn keys_appear_in_no_log_no_error_and_no_update() {
    let body = Value::from(format!(r#"{{"error":{{"message":"Incorrect API key: {CANARY}"}}}}"#));
    for package in PACKAGES {
        let script = format!("status 401\nbody {body}\n---\nerror api_error {body}\n---\nloop");
        let fake = Fake::new(&script);
        let (mut agent, session) = fake.agent(package).log("trace", Stdio::piped()).session();
        for _ in 0..2 {
            let (reply, seen) = ask(&mut agent, &session, "Go.");
            assert!(reply.get("error").is_some(), "{package}: {reply}");
            assert!(!format!("{reply}{seen:?}").contains(CANARY), "{package}: {reply}");
        }
        assert!(fake.requests()[0].headers.iter().any(|(_, value)| value.contains(CANARY)));
        let mut stderr = agent.take_stderr();
        agent.close_input();
        agent.wait(Duration::from_secs(30));
        let mut log = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut log).unwrap();
        assert!(!log.is_empty());
        assert!(!log.contains(CANARY), "{package}: the log holds the key");
    }
}

/// Returns the limit for the answer in the body of a request.
fn output_limit(body: &Value) -> &Value {
    let members = ["max_tokens", "max_output_tokens"].map(|name| &body[name]);
    let gemini = &body["generationConfig"]["maxOutputTokens"];
    members.into_iter().chain([gemini]).find(|limit| !limit.is_null()).unwrap_or(&Value::Null)
}

// R: P6
#[test]
fn every_request_limits_the_length_of_its_answer() {
    for package in PACKAGES {
        let fake = Fake::new("text \"hi\"\n---\nloop");
        let mut config = fake.config(package);
        let (mut agent, session) = Agent::configured(config.clone()).session();
        ask(&mut agent, &session, "Go.");
        assert_eq!(output_limit(&fake.body(0)), 100, "{package}");
        // Without a limit of the model: what is left of the window.
        config["provider"]["fake"]["models"]["fake"]["limit"] = json!({ "context": 20_000 });
        let (mut agent, session) = Agent::configured(config).session();
        ask(&mut agent, &session, "Go.");
        let limit = output_limit(&fake.body(1)).as_u64().unwrap();
        assert!((10_000..20_000).contains(&limit), "{package}: {limit}");
    }
}

#[test]
fn server_that_rejects_the_limit_for_answers_gets_none() {
    let body = r#"{"error":{"message":"Invalid max_tokens value, the valid range is [1, 50]"}}"#;
    let fake = Fake::new(&format!("status 400\nbody {}\n---\ntext \"hi\"", Value::from(body)));
    let (mut agent, session) = fake.agent(CHAT).session();
    let (_, seen) = ask(&mut agent, &session, "Go.");
    assert_eq!(text_of(&session, &seen), "hi");
    assert!(updates(&seen, "agent_thought_chunk").is_empty(), "{seen:?}");
    assert!(fake.body(0)["max_tokens"] == 100 && fake.body(1)["max_tokens"].is_null());
}

// R: P6
#[test]
fn endless_answer_is_stopped_with_words() {
    for package in PACKAGES {
        let fake = Fake::new("text \"Tests: \"\nchunks 1000000 \".F\"\nhang\n---\ntext \"Back.\"");
        let (mut agent, session) = fake.agent(package).session();
        let (reply, seen) = ask(&mut agent, &session, "Go.");
        assert_eq!(reply["result"]["stopReason"], "max_tokens", "{package}: {reply}");
        let text = text_of(&session, &seen);
        assert!(
            text.starts_with("Tests: .F.F") && text.len() < 40_000,
            "{package}: {}",
            text.len()
        );
        let notice = updates(&seen, "agent_thought_chunk")[0]["content"]["text"].to_string();
        assert!(notice.contains("repeated the same text again and again"), "{notice}");
        let (_, seen) = ask(&mut agent, &session, "Again.");
        assert_eq!(text_of(&session, &seen), "Back.", "{package}");
    }
}

#[test]
fn twenty_thousand_chunks_arrive_complete_and_in_order() {
    const CHUNKS: usize = 20_000;
    for package in PACKAGES {
        let fake = Fake::new(&format!("chunks {CHUNKS} \"{{n}} 456789 \"\ntext \"end\""));
        let (mut agent, session) = fake.agent(package).session();
        let (reply, seen) = ask(&mut agent, &session, "Go.");
        assert_eq!(reply["result"]["stopReason"], "end_turn", "{package}: {reply}");
        let text = text_of(&session, &seen);
        let sent: String = (0..CHUNKS).map(|n| format!("{n} 456789 ")).collect();
        assert_eq!(text.len(), sent.len() + 3, "{package}");
        assert_eq!(text, sent + "end", "{package}");
    }
}

// R: I4
#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn keys_are_saved_listed_and_removed_on_the_command_line() {
    let home = Directory::new();
    let purlin = |arguments: &[&str], input: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_purlin"));
        command.args(arguments).env("HOME", home.path()).env_remove("XDG_DATA_HOME");
        command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), text.concat())
    };
    let fake = Fake::new("document /models 200 anthropic-organization-id: org-7 {}");
    let provider = json!({ "anthropic": { "options": { "baseURL": fake.url } } });
    home.write(".config/purlin/purlin.json", &json!({ "provider": provider }).to_string());
    let (is_fine, said) = purlin(&["auth", "login", "anthropic"], &format!("{CANARY}\n"));
    assert!(is_fine && said.contains("The key works and belongs to org-7."), "{said}");
    let tried = fake.document_requests().remove(0);
    assert!(tried.headers.contains(&("x-api-key".to_owned(), CANARY.to_owned())));
    let (is_fine, list) = purlin(&["auth", "list"], "");
    assert!(is_fine && list.contains("anthropic") && !list.contains(CANARY), "{list}");
    let (is_fine, models) = purlin(&["models"], "");
    assert!(is_fine && models.contains("anthropic/claude-sonnet-4-6"), "{models}");
    assert!(models.contains("key from purlin auth login") && !models.contains(CANARY), "{models}");
    assert!(purlin(&["auth", "logout", "anthropic"], "").0);
    assert!(!purlin(&["auth", "logout", "anthropic"], "").0);
}
