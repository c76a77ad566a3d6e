//! Child agents and steering: the built program with the fake model server.
//!
//! `conformance/agents` and `conformance/prompt` show each message to the client.

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, text_of, update_kind, wait_until};
use crate::models::{CHAT, Fake, updates};

fn task(title: &str, agent: &str) -> String {
    let input = json!({ "description": title, "prompt": "Do it.", "subagent_type": agent });
    format!("tool task {input}\n")
}

fn begin(fake: &Fake, permission: Value) -> (Agent, String) {
    let mut config = fake.config(CHAT);
    config["permission"] = permission;
    config["limits"]["max_requests_per_turn"] = json!(20);
    Agent::configured(config).env("FAKE_KEY", "k").with_files().session()
}

/// Returns the last status of each call, in the order in which the calls were shown.
fn statuses(seen: &[Value]) -> Vec<(String, String)> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for message in seen {
        let update = &message["params"]["update"];
        let Some(status) = update["status"].as_str() else { continue };
        let id = update["toolCallId"].as_str().unwrap();
        match (update_kind(message), calls.iter_mut().find(|(known, _)| known == id)) {
            ("tool_call", None) => calls.push((id.to_owned(), status.to_owned())),
            ("tool_call_update", Some(call)) => call.1 = status.to_owned(),
            other => panic!("{other:?}: {message}"),
        }
    }
    calls
}

#[test]
fn two_tasks_run_in_parallel_and_their_cost_adds_up() {
    let usage = "usage 10 1 0 0\n";
    let read = format!("tool read {{\"filePath\":\"a.txt\"}}\n{usage}---\n");
    let said = format!("text \"It says a.\"\n{usage}---\n");
    let both = [task("Look here", "explore"), task("Look there", "explore")].concat();
    let fake =
        Fake::new(&format!("{both}{usage}---\n{read}{read}{said}{said}text \"Both.\"\n{usage}"));
    let (mut agent, session) = begin(&fake, json!({}));
    let id = agent.prompt(&session, "Look.");
    // Both children send a request before either gets its answer.
    let reads = [agent.asked("fs/read_text_file"), agent.asked("fs/read_text_file")];
    for read in &reads {
        agent.answer(&read["id"], json!({ "content": "a\n" }));
    }
    assert_eq!(agent.reply(id)["result"]["stopReason"], "end_turn");
    let seen = agent.take_seen();
    assert_eq!(text_of(&session, &seen), "Both.");
    let ended = statuses(&seen);
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert!(ended.iter().all(|(_, status)| status == "completed"), "{ended:?}");
    // Six answers of 12 dollars each; the context is that of the conversation with the user.
    let costs = updates(&seen, "usage_update");
    assert_eq!(costs.last().unwrap()["cost"]["amount"], 72.0);
    assert!(costs.iter().all(|usage| usage["used"] == 11), "{costs:?}");
    // The model gets the answers of both children and nothing else of them.
    let last = fake.body(5).to_string();
    assert_eq!(last.matches("It says a.").count(), 2, "{last}");
    assert!(!last.contains("a.txt"), "{last}");
    // A child starts with an empty conversation and cannot start tasks.
    let first_of_child = fake.body(1);
    assert!(!first_of_child["messages"].to_string().contains("Look."), "{first_of_child}");
    assert!(!first_of_child["tools"].to_string().contains("subagent_type"), "{first_of_child}");
}

// R: T2
#[test]
fn child_requests_permission_and_does_what_is_allowed() {
    let write = "tool write {\"filePath\":\"new.txt\",\"content\":\"new\\n\"}\n---\n";
    let fake = Fake::new(&format!(
        "{}---\n{write}text \"Written.\"\n---\ntext \"Done.\"\n",
        task("Write it", "general")
    ));
    let (mut agent, session) = begin(&fake, json!({}));
    let id = agent.prompt(&session, "Write.");
    let read = agent.asked("fs/read_text_file");
    agent.refuse(&read["id"], -32002);
    let question = agent.asked("session/request_permission");
    let call = &question["params"]["toolCall"];
    assert_eq!(call["title"], "Write it: Write new.txt");
    let shown = agent.find(|message| {
        update_kind(message) == "tool_call"
            && message["params"]["update"]["toolCallId"] == call["toolCallId"]
    });
    assert_eq!(shown["params"]["update"]["title"], call["title"]);
    agent.answer(
        &question["id"],
        json!({ "outcome": { "outcome": "selected", "optionId": "once" } }),
    );
    let read = agent.asked("fs/read_text_file");
    agent.refuse(&read["id"], -32002);
    let write = agent.asked("fs/write_text_file");
    assert_eq!(write["params"]["content"], "new\n");
    agent.answer(&write["id"], json!({}));
    assert_eq!(agent.reply(id)["result"]["stopReason"], "end_turn");
    assert!(fake.body(3).to_string().contains("Written."));
}

// R: T2
#[cfg(target_os = "linux")]
#[test]
fn hooks_run_for_tool_calls_of_children() {
    let write = "tool write {\"filePath\":\"new.txt\",\"content\":\"new\\n\"}\n";
    let fake = Fake::new(&format!(
        "{}---\ntool list {{\"path\":\".\"}}\n{write}---\ntext \"Not written.\"\n---\ntext \"Done.\"\n",
        task("Write it", "general")
    ));
    let mut config = fake.config(CHAT);
    config["permission"] = json!({ "edit": "allow" });
    let deny = json!({ "decision": "deny", "reason": "that file is not yours" });
    let add = json!({ "context": "Seen by the hook." });
    config["hooks"] = json!({
        "before_tool": [{ "matcher": "write", "command": format!("echo '{deny}'") }],
        "after_tool": [{ "matcher": "list", "command": format!("echo '{add}'") }],
    });
    let (mut agent, session) = Agent::configured(config).env("FAKE_KEY", "k").session();
    let id = agent.prompt(&session, "Write.");
    assert_eq!(agent.reply(id)["result"]["stopReason"], "end_turn");
    assert!(!agent.directory().join("new.txt").exists());
    let observed = fake.body(2)["messages"].to_string();
    assert!(
        observed.contains("that file is not yours") && observed.contains("Seen by the hook."),
        "{observed}"
    );
    assert!(fake.body(3)["messages"].to_string().contains("Not written."));
}

// R: S5
#[cfg(target_os = "linux")]
#[test]
fn cancel_ends_the_children_and_their_commands() {
    let fake = Fake::new(&format!(
        "{}---\ntool bash {{\"command\":\"touch started; sleep 1000; touch late\"}}\n",
        task("Wait", "general")
    ));
    let (mut agent, session) = begin(&fake, json!({ "bash": "allow" }));
    let id = agent.prompt(&session, "Wait.");
    let started = agent.directory().join("started");
    wait_until("the command starts", DEADLINE, || started.exists());
    agent.note("session/cancel", json!({ "sessionId": session }));
    assert_eq!(agent.reply(id)["result"]["stopReason"], "cancelled");
    let ended = statuses(&agent.take_seen());
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!(ended[0].1, "failed");
    // No command is left, and the session still works.
    assert_eq!(Agent::children(agent.pid()), Vec::<u32>::new());
    assert_eq!(agent.result("session/close", json!({ "sessionId": session })), json!({}));
}

// R: W15
#[test]
fn message_steers_a_running_turn() {
    let fake = Fake::new("text \"First. \"\nwait 300\ntext \"Done.\"\n---\ntext \"And that.\"\n");
    let (mut agent, session) = begin(&fake, json!({}));
    let id = agent.prompt(&session, "Begin.");
    agent.find(|message| update_kind(message) == "agent_message_chunk");
    let steering = json!({
        "sessionId": session, "prompt": [{ "type": "text", "text": "One more thing." }],
    });
    assert_eq!(
        agent.result("_session/steering", steering.clone()),
        json!({ "outcome": "injected" })
    );
    assert_eq!(agent.reply(id)["result"]["stopReason"], "end_turn");
    let seen = agent.take_seen();
    assert_eq!(updates(&seen, "user_message_chunk")[0]["content"]["text"], "One more thing.");
    assert!(text_of(&session, &seen).ends_with("And that."));
    let messages = fake.body(1)["messages"].to_string();
    let at = |text: &str| messages.find(text).unwrap_or_else(|| panic!("{text}: {messages}"));
    assert!(at("Begin.") < at("First. Done.") && at("First. Done.") < at("One more thing."));
    let error = agent.error("_session/steering", steering);
    assert_eq!(error["data"]["kind"], "no_running_turn");
}
