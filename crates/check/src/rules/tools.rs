//! Rules of tool calls and permission requests.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Finding, Rule};
use crate::record::{Message, Record};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("tool.announced", announced),
    ("tool.id-unique", id_unique),
    ("tool.title", title),
    ("tool.ends", ends),
    ("tool.status-order", status_order),
    ("tool.paths", paths),
    ("tool.lines", lines),
    ("tool.diff-new", diff_new),
    ("tool.terminal-known", terminal_known),
    ("permission.options", options),
    ("permission.option-ids", option_ids),
    ("permission.tool-call", tool_call),
    ("permission.session", session),
];

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the updates about tool calls: the message, the update, and whether it announces the call.
fn calls(record: &Record) -> impl Iterator<Item = (&Message, &Value, bool)> {
    record.updates().filter_map(|(message, update)| match update["sessionUpdate"].as_str() {
        Some("tool_call") => Some((message, update, true)),
        Some("tool_call_update") => Some((message, update, false)),
        _ => None,
    })
}

/// Names a tool call: the session and the id.
fn key(message: &Message, update: &Value) -> (String, String) {
    (message.value["params"]["sessionId"].to_string(), update["toolCallId"].to_string())
}

fn announced(record: &Record) -> Finding {
    let mut known = HashSet::new();
    let mut finding = Finding::Nothing;
    for (message, update, is_new) in calls(record) {
        finding = Finding::Holds;
        let key = key(message, update);
        if is_new {
            known.insert(key);
        } else if !known.contains(&key) {
            let id = &update["toolCallId"];
            return Finding::broken(
                message.at,
                format!("an update of {id}, which was not announced"),
            );
        }
    }
    finding
}

/// Returns whether history may be replayed: then calls are announced again.
fn is_replayed(record: &Record) -> bool {
    record.calls.values().any(|call| call.method.as_deref() == Some("session/load"))
}

fn id_unique(record: &Record) -> Finding {
    if is_replayed(record) {
        return Finding::Nothing;
    }
    // Some agents announce a call again when more of it is known. A call that has ended is another one.
    let mut ended = HashSet::new();
    let mut finding = Finding::Nothing;
    for (message, update, is_new) in calls(record) {
        finding = Finding::Holds;
        let key = key(message, update);
        if is_new && ended.contains(&key) {
            let reason = format!("two tool calls have the id {}", update["toolCallId"]);
            return Finding::broken(message.at, reason);
        }
        if is_end(update) {
            ended.insert(key);
        }
    }
    finding
}

fn is_end(update: &Value) -> bool {
    update["status"] == "completed" || update["status"] == "failed"
}

fn title(record: &Record) -> Finding {
    Finding::of_all(calls(record).filter(|(_, _, is_new)| *is_new), |(message, update, _)| {
        let is_empty = update["title"].as_str().is_none_or(|title| title.trim().is_empty());
        is_empty.then(|| (message.at, "a tool call without a title".to_owned()))
    })
}

fn ends(record: &Record) -> Finding {
    let mut finding = Finding::Nothing;
    let mut open: HashMap<(String, String), usize> = HashMap::new();
    for message in record.sent() {
        let value = &message.value;
        let update = &value["params"]["update"];
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        if kind.starts_with("tool_call") {
            let key = key(message, update);
            // An update without a status does not change it.
            let is_open =
                ["pending", "in_progress"].iter().any(|status| update["status"] == *status);
            if is_end(update) {
                open.remove(&key);
            } else if kind == "tool_call" || is_open {
                open.entry(key).or_insert(message.at);
            }
        }
        let call = value.get("id").and_then(|id| record.calls.get(&id.to_string()));
        let is_prompt = call.is_some_and(|call| call.method.as_deref() == Some("session/prompt"));
        if is_prompt
            && value.get("result").is_some()
            && value["result"]["stopReason"] != "cancelled"
        {
            let session = call.map_or(String::new(), |call| call.params["sessionId"].to_string());
            finding = if finding == Finding::Nothing { Finding::Holds } else { finding };
            let left = open.iter().find(|((of, _), _)| *of == session);
            if let Some(((_, id), _)) = left {
                let reason = format!("the turn has ended, but the tool call {id} has not");
                return Finding::broken(message.at, reason);
            }
        }
    }
    finding
}

fn status_order(record: &Record) -> Finding {
    if is_replayed(record) {
        return Finding::Nothing;
    }
    let mut ended = HashSet::new();
    let mut finding = Finding::Nothing;
    for (message, update, is_new) in calls(record) {
        let key = key(message, update);
        finding = Finding::Holds;
        let is_open = ["pending", "in_progress"].iter().any(|status| update["status"] == *status);
        if !is_new && is_open && ended.contains(&key) {
            let reason = format!("the tool call {} runs after its end", update["toolCallId"]);
            return Finding::broken(message.at, reason);
        }
        if is_end(update) {
            ended.insert(key);
        }
    }
    finding
}

/// Returns the paths in locations and diffs.
fn paths_of(update: &Value) -> impl Iterator<Item = &str> {
    let locations = list(&update["locations"]).iter();
    let diffs = list(&update["content"]).iter().filter(|content| content["type"] == "diff");
    locations.chain(diffs).filter_map(|item| item["path"].as_str())
}

fn paths(record: &Record) -> Finding {
    let with_paths = calls(record).filter(|(_, update, _)| paths_of(update).next().is_some());
    Finding::of_all(with_paths, |(message, update, _)| {
        let relative = paths_of(update).find(|path| !std::path::Path::new(path).is_absolute())?;
        Some((message.at, format!("the path {relative:?} is not absolute")))
    })
}

fn lines(record: &Record) -> Finding {
    let with_lines = calls(record).filter(|(_, update, _)| {
        list(&update["locations"]).iter().any(|location| location["line"].is_number())
    });
    Finding::of_all(with_lines, |(message, update, _)| {
        let is_zero = list(&update["locations"]).iter().any(|location| location["line"] == 0);
        is_zero.then(|| (message.at, "a location has the line 0".to_owned()))
    })
}

fn diff_new(record: &Record) -> Finding {
    let diffs = calls(record).filter(|(_, update, _)| {
        list(&update["content"]).iter().any(|content| content["type"] == "diff")
    });
    Finding::of_all(diffs, |(message, update, _)| {
        let contents = list(&update["content"]).iter();
        let is_empty = contents.into_iter().any(|content| content["oldText"] == "");
        is_empty.then(|| (message.at, "the diff of a new file has an empty old text".to_owned()))
    })
}

fn terminal_known(record: &Record) -> Finding {
    // Ids in the client's answers to terminal/create. Terminals that the agent shows by itself carry `_meta`.
    let created: HashSet<&str> = record
        .messages
        .iter()
        .filter(|message| !message.from_agent)
        .filter_map(|message| message.value.pointer("/result/terminalId")?.as_str())
        .collect();
    let shown = calls(record).flat_map(|(message, update, _)| {
        let contents = list(&update["content"]).iter().map(move |content| (message, content));
        contents.filter(|(_, content)| content["type"] == "terminal")
    });
    let plain = shown.filter(|(message, _)| message.value["params"]["update"]["_meta"].is_null());
    Finding::of_all(plain, |(message, content)| {
        let id = content["terminalId"].as_str().unwrap_or_default();
        (!created.contains(id)).then(|| (message.at, format!("the terminal {id:?} does not exist")))
    })
}

fn requests(record: &Record) -> impl Iterator<Item = (&Message, &Value)> {
    let calls = record.agent_calls();
    let requests = calls.filter(|(_, method)| *method == "session/request_permission");
    requests.map(|(message, _)| (message, &message.value["params"]))
}

fn options(record: &Record) -> Finding {
    Finding::of_all(requests(record), |(message, params)| {
        let is_empty = list(&params["options"]).is_empty();
        is_empty.then(|| (message.at, "a permission request without options".to_owned()))
    })
}

fn option_ids(record: &Record) -> Finding {
    Finding::of_all(requests(record), |(message, params)| {
        let mut seen = HashSet::new();
        let ids = list(&params["options"]).iter().map(|option| option["optionId"].to_string());
        let repeated = ids.into_iter().find(|id| !seen.insert(id.clone()))?;
        Some((message.at, format!("two options have the id {repeated}")))
    })
}

fn tool_call(record: &Record) -> Finding {
    Finding::of_all(requests(record), |(message, params)| {
        let tool_call = &params["toolCall"];
        let is_described = tool_call["title"].as_str().is_some_and(|title| !title.is_empty());
        let is_announced = calls(record).any(|(update, call, is_new)| {
            is_new && update.at < message.at && call["toolCallId"] == tool_call["toolCallId"]
        });
        let reason = "the tool call of the request was not announced and has no title";
        (!is_described && !is_announced).then(|| (message.at, reason.to_owned()))
    })
}

fn session(record: &Record) -> Finding {
    Finding::of_all(requests(record), |(message, params)| {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let is_known = record.known_sessions(message.at).contains(id);
        (!is_known).then(|| (message.at, format!("a request for the unknown session {id:?}")))
    })
}
