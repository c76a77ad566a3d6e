//! Rules of JSON-RPC and its framing.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Finding, Rule};
use crate::record::Record;
use crate::schema::{self, Part};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("wire.utf8", utf8),
    ("wire.json", json),
    ("wire.object", object),
    ("wire.version", version),
    ("wire.kind", kind),
    ("wire.result-or-error", result_or_error),
    ("wire.error-shape", error_shape),
    ("wire.answer-known", answer_known),
    ("wire.answer-once", answer_once),
    ("wire.call-ids-unique", call_ids_unique),
    ("wire.call-ids", call_ids),
    ("wire.params", params),
    ("wire.methods", methods),
    ("init.auth-required", auth_required),
];

fn utf8(record: &Record) -> Finding {
    Finding::of_all(record.sent(), |message| {
        let text = message.value.as_str()?;
        text.contains('\u{fffd}').then(|| (message.at, "a line is not UTF-8".to_owned()))
    })
}

fn json(record: &Record) -> Finding {
    Finding::of_all(record.sent(), |message| {
        let text = message.value.as_str().filter(|text| !text.contains('\u{fffd}'))?;
        Some((message.at, format!("a line is not JSON: {}", short(text))))
    })
}

fn object(record: &Record) -> Finding {
    // JSON-RPC allows a list as the answer to a list.
    if record.has_batch {
        return Finding::Nothing;
    }
    Finding::of_all(record.sent().filter(|message| !message.value.is_string()), |message| {
        (!message.value.is_object()).then(|| (message.at, "a message is no object".to_owned()))
    })
}

/// Returns the agent's messages that are objects, with their places.
fn objects(record: &Record) -> impl Iterator<Item = (usize, &Value)> {
    let objects = record.sent().filter(|message| message.value.is_object());
    objects.map(|message| (message.at, &message.value))
}

fn version(record: &Record) -> Finding {
    Finding::of_all(objects(record), |(at, value)| {
        (value["jsonrpc"] != "2.0").then(|| (at, "\"jsonrpc\" is not \"2.0\"".to_owned()))
    })
}

fn kind(record: &Record) -> Finding {
    Finding::of_all(objects(record), |(at, value)| {
        let is_reply = value.get("result").is_some() || value.get("error").is_some();
        let is_call = value.get("method").is_some_and(Value::is_string);
        let reason = "neither a call, a notification nor a reply";
        (is_reply == is_call).then(|| (at, reason.to_owned()))
    })
}

fn replies(record: &Record) -> impl Iterator<Item = (usize, &Value)> {
    objects(record).filter(|(_, value)| {
        let has_outcome = value.get("result").is_some() || value.get("error").is_some();
        has_outcome && value.get("method").is_none()
    })
}

fn result_or_error(record: &Record) -> Finding {
    Finding::of_all(replies(record), |(at, value)| {
        let has_both = value.get("result").is_some()
            && value.get("error").is_some_and(|error| !error.is_null());
        has_both.then(|| (at, "a reply has a result and an error".to_owned()))
    })
}

fn error_shape(record: &Record) -> Finding {
    let errors = replies(record).filter(|(_, value)| value.get("result").is_none());
    Finding::of_all(errors, |(at, value)| {
        let error = &value["error"];
        let is_whole = error["code"].is_i64() && error["message"].is_string();
        (!is_whole).then(|| (at, "an error without a code and a message".to_owned()))
    })
}

fn answer_known(record: &Record) -> Finding {
    Finding::of_all(replies(record), |(at, value)| {
        let Some(id) = value.get("id") else {
            return Some((at, "a reply without an id".to_owned()));
        };
        let is_known = id.is_null() || record.calls.contains_key(&id.to_string());
        (!is_known).then(|| (at, format!("a reply to {id}, which was not called")))
    })
}

fn answer_once(record: &Record) -> Finding {
    let mut seen = HashSet::new();
    let mut finding = Finding::Nothing;
    for message in &record.messages {
        let value = &message.value;
        if !message.from_agent {
            // A new handshake: the agent was started again, and ids may be used again.
            if value["method"] == "initialize" {
                seen.clear();
            }
            continue;
        }
        let is_reply = value.get("method").is_none();
        let Some(id) = value.get("id").filter(|id| is_reply && !id.is_null()) else { continue };
        finding = Finding::Holds;
        if !seen.insert(id.to_string()) {
            return Finding::broken(message.at, format!("the call {id} is answered again"));
        }
    }
    finding
}

fn call_ids_unique(record: &Record) -> Finding {
    let mut open: HashMap<String, usize> = HashMap::new();
    let mut finding = Finding::Nothing;
    for message in &record.messages {
        let Some(id) = message.value.get("id").map(ToString::to_string) else { continue };
        let is_call = message.value.get("method").is_some();
        match (message.from_agent, is_call) {
            (true, true) => {
                finding = Finding::Holds;
                if open.insert(id.clone(), message.at).is_some() {
                    return Finding::broken(
                        message.at,
                        format!("the id {id} is used by two calls"),
                    );
                }
            }
            (false, false) => drop(open.remove(&id)),
            // A new handshake: the agent was started again.
            (false, true) if message.value["method"] == "initialize" => open.clear(),
            _ => {}
        }
    }
    finding
}

fn call_ids(record: &Record) -> Finding {
    Finding::of_all(record.agent_calls(), |(message, method)| {
        let id = &message.value["id"];
        let is_good = id.is_string() || id.is_i64() || id.is_u64();
        (!is_good).then(|| (message.at, format!("{method} has the id {id}")))
    })
}

fn params(record: &Record) -> Finding {
    let calls = objects(record).filter(|(_, value)| value.get("method").is_some());
    Finding::of_all(calls, |(at, value)| {
        let params = value.get("params");
        let is_good = params.is_none_or(|params| params.is_object() || params.is_array());
        (!is_good).then(|| (at, "parameters are neither an object nor a list".to_owned()))
    })
}

fn methods(record: &Record) -> Finding {
    let calls =
        objects(record).filter_map(|(at, value)| Some((at, value.get("method")?.as_str()?)));
    Finding::of_all(calls, |(at, method)| {
        let is_good = method.starts_with('_') || schema::knows(method, Part::Sent);
        (!is_good).then(|| (at, format!("the protocol has no method {method} for clients")))
    })
}

fn auth_required(record: &Record) -> Finding {
    let offered = record.results().find(|(_, method, _)| *method == "initialize");
    let has_methods = offered.is_some_and(|(_, _, result)| {
        result["authMethods"].as_array().is_some_and(|methods| !methods.is_empty())
    });
    Finding::of_all(replies(record), |(at, value)| {
        let is_required = value["error"]["code"] == -32000;
        let reason = "-32000 means that authentication is required, but no method is offered";
        (is_required && !has_methods).then(|| (at, reason.to_owned()))
    })
}

/// Shortens a text for a report.
pub(super) fn short(text: &str) -> String {
    let short: String = text.chars().take(120).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}
