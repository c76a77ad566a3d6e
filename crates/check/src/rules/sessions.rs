//! Rules of sessions and updates.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Finding, Rule};
use crate::record::{Message, Record};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("init.auth-ids", auth_ids),
    ("init.terminal-auth", terminal_auth),
    ("session.uuid", uuid),
    ("session.modes-current", modes_current),
    ("session.modes-unique", modes_unique),
    ("session.options-current", options_current),
    ("session.options-unique", options_unique),
    ("session.options-boolean", options_boolean),
    ("session.commands-unique", commands_unique),
    ("prompt.update-session", update_session),
    ("prompt.updates-first", updates_first),
    ("order.new-first", new_first),
    ("limits.update-size", update_size),
    ("limits.message-size", message_size),
];

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the first value of a member that occurs twice in a list.
fn repeated<'a>(items: &'a [Value], member: &str) -> Option<&'a Value> {
    let mut seen = HashSet::new();
    items.iter().map(|item| &item[member]).find(|value| !seen.insert(value.to_string()))
}

fn auth_ids(record: &Record) -> Finding {
    let results = record.results().filter(|(_, method, _)| *method == "initialize");
    Finding::of_all(results, |(message, _, result)| {
        let id = repeated(list(&result["authMethods"]), "id")?;
        Some((message.at, format!("two authentication methods have the id {id}")))
    })
}

fn terminal_auth(record: &Record) -> Finding {
    let results = record.results().filter(|(_, method, _)| *method == "initialize");
    Finding::of_all(results, |(message, _, result)| {
        let is_offered =
            list(&result["authMethods"]).iter().any(|method| method["type"] == "terminal");
        let is_wanted = record.capabilities(message.at)["auth"]["terminal"] == true;
        let reason = "an authentication method of the type terminal is offered";
        (is_offered && !is_wanted).then(|| (message.at, reason.to_owned()))
    })
}

fn uuid(record: &Record) -> Finding {
    let results = record.results().filter(|(_, method, _)| *method == "session/new");
    Finding::of_all(results, |(message, _, result)| {
        let id = result["sessionId"].as_str().unwrap_or_default();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        let is_hexadecimal = id.chars().all(|digit| digit == '-' || digit.is_ascii_hexdigit());
        let is_uuid = lengths == [8, 4, 4, 4, 12] && is_hexadecimal;
        (!is_uuid).then(|| (message.at, format!("the session id {id} is no UUID")))
    })
}

fn modes(record: &Record) -> impl Iterator<Item = (&Message, &Value)> {
    let states = record.results().map(|(message, _, result)| (message, &result["modes"]));
    states.filter(|(_, modes)| modes.is_object())
}

fn modes_current(record: &Record) -> Finding {
    Finding::of_all(modes(record), |(message, modes)| {
        let current = &modes["currentModeId"];
        let is_there = list(&modes["availableModes"]).iter().any(|mode| mode["id"] == *current);
        (!is_there).then(|| (message.at, format!("the current mode {current} is not available")))
    })
}

fn modes_unique(record: &Record) -> Finding {
    Finding::of_all(modes(record), |(message, modes)| {
        let id = repeated(list(&modes["availableModes"]), "id")?;
        Some((message.at, format!("two modes have the id {id}")))
    })
}

/// Returns every list of config options: in results and in updates.
fn options(record: &Record) -> impl Iterator<Item = (&Message, &[Value])> {
    let results = record.results().map(|(message, _, result)| (message, &result["configOptions"]));
    let updates = record.updates().map(|(message, update)| (message, &update["configOptions"]));
    let all = results.chain(updates).filter(|(_, options)| options.is_array());
    all.map(|(message, options)| (message, list(options)))
}

fn options_current(record: &Record) -> Finding {
    Finding::of_all(options(record), |(message, options)| {
        let selects = options.iter().filter(|option| option["type"] == "select");
        let wrong = selects.into_iter().find(|option| {
            let choices = list(&option["options"]);
            let groups = choices.iter().flat_map(|choice| list(&choice["options"]));
            let current = &option["currentValue"];
            !choices.iter().chain(groups).any(|choice| choice["value"] == *current)
        })?;
        let reason = format!("the value {} of {} is no choice", wrong["currentValue"], wrong["id"]);
        Some((message.at, reason))
    })
}

fn options_unique(record: &Record) -> Finding {
    Finding::of_all(options(record), |(message, options)| {
        let id = repeated(options, "id")?;
        Some((message.at, format!("two options have the id {id}")))
    })
}

fn options_boolean(record: &Record) -> Finding {
    Finding::of_all(options(record), |(message, options)| {
        let capabilities = record.capabilities(message.at);
        let is_wanted = capabilities["session"]["configOptions"]["boolean"].is_object();
        let found = options.iter().find(|option| option["type"] == "boolean")?;
        (!is_wanted).then(|| (message.at, format!("the option {} is boolean", found["id"])))
    })
}

fn commands_unique(record: &Record) -> Finding {
    let updates = record.updates();
    let lists =
        updates.filter(|(_, update)| update["sessionUpdate"] == "available_commands_update");
    Finding::of_all(lists, |(message, update)| {
        let name = repeated(list(&update["availableCommands"]), "name")?;
        Some((message.at, format!("two commands have the name {name}")))
    })
}

fn update_session(record: &Record) -> Finding {
    Finding::of_all(record.updates(), |(message, _)| {
        let id = message.value["params"]["sessionId"].as_str().unwrap_or_default();
        // A session may be announced a moment before its answer, which `order.new-first` is about.
        let is_known = record.known_sessions(usize::MAX).contains(id);
        (!is_known).then(|| (message.at, format!("an update for the unknown session {id:?}")))
    })
}

/// Updates that are part of a turn. Others may come at any time.
const OF_A_TURN: [&str; 5] =
    ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"];

fn updates_first(record: &Record) -> Finding {
    // Per session: how many prompts are open. Between turns, nothing of a turn may come, unless history is replayed.
    let mut open: HashMap<String, i32> = HashMap::new();
    let mut had_turn = HashSet::new();
    let mut finding = Finding::Nothing;
    for message in &record.messages {
        let value = &message.value;
        let id = value.get("id").map(ToString::to_string);
        match (message.from_agent, value["method"].as_str()) {
            (false, Some("session/prompt" | "session/load" | "session/fork")) => {
                *open.entry(session_of(&value["params"])).or_default() += 1;
            }
            (true, None) => {
                let call = id.and_then(|id| record.calls.get(&id));
                let method = call.and_then(|call| call.method.as_deref()).unwrap_or_default();
                if ["session/prompt", "session/load", "session/fork"].contains(&method) {
                    let session = session_of(call.map_or(&Value::Null, |call| &call.params));
                    *open.entry(session.clone()).or_default() -= 1;
                    had_turn.insert(session);
                    finding = Finding::Holds;
                }
            }
            (true, Some("session/update")) => {
                let kind = value["params"]["update"]["sessionUpdate"].as_str().unwrap_or_default();
                let session = session_of(&value["params"]);
                let is_open = open.get(&session).is_some_and(|open| *open > 0);
                if OF_A_TURN.contains(&kind) && !is_open && had_turn.contains(&session) {
                    return Finding::broken(
                        message.at,
                        format!("{kind} after the turn was answered"),
                    );
                }
            }
            _ => {}
        }
    }
    finding
}

fn session_of(params: &Value) -> String {
    params["sessionId"].as_str().unwrap_or_default().to_owned()
}

fn new_first(record: &Record) -> Finding {
    let created: HashMap<&str, usize> = record
        .results()
        .filter(|(_, method, _)| *method == "session/new")
        .filter_map(|(message, _, result)| Some((result["sessionId"].as_str()?, message.at)))
        .collect();
    Finding::of_all(record.updates(), |(message, _)| {
        let id = message.value["params"]["sessionId"].as_str()?;
        let is_early = created.get(id).is_some_and(|at| message.at < *at);
        is_early.then(|| (message.at, "an update before session/new was answered".to_owned()))
    })
}

fn update_size(record: &Record) -> Finding {
    Finding::of_all(record.updates(), |(message, _)| {
        let size = message.value.to_string().len();
        (size > 100 * 1024).then(|| (message.at, format!("an update of {size} bytes")))
    })
}

fn message_size(record: &Record) -> Finding {
    let messages = record.sent().filter(|message| {
        let method = message.value["method"].as_str().unwrap_or_default();
        !method.starts_with("fs/")
    });
    Finding::of_all(messages, |message| {
        let size = message.value.to_string().len();
        (size > 1024 * 1024).then(|| (message.at, format!("a message of {size} bytes")))
    })
}
