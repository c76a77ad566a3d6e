//! Rules of what the agent may ask of its client.

use std::collections::HashSet;

use serde_json::Value;

use super::{Finding, Rule};
use crate::record::{Message, Record};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("client.no-read", no_read),
    ("client.no-write", no_write),
    ("client.no-terminal", no_terminal),
    ("client.no-elicitation", no_elicitation),
    ("client.no-notice", no_notice),
    ("client.no-compaction", no_compaction),
    ("client.paths", paths),
    ("client.lines", lines),
    ("client.session", session),
    ("client.terminal-known", terminal_known),
    ("client.terminal-released", terminal_released),
];

/// Judges that a method is not called without a capability. Cases in which a turn took place count as evidence.
fn gated(record: &Record, prefix: &str, pointer: &str) -> Finding {
    let call = record.agent_calls().find(|(message, method)| {
        let offered = record.capabilities(message.at).pointer(pointer);
        let is_offered = offered.is_some_and(|value| *value == true || value.is_object());
        method.starts_with(prefix) && !is_offered
    });
    match call {
        Some((message, method)) => Finding::broken(
            message.at,
            format!("{method} was called, but the client has no {pointer}"),
        ),
        None => had_turn(record, pointer),
    }
}

/// Holds if there was a turn with a client that does not offer something.
fn had_turn(record: &Record, pointer: &str) -> Finding {
    let answers = record.results().filter(|(_, method, _)| *method == "session/prompt");
    let mut without = answers.filter(|(message, _, _)| {
        let offered = record.capabilities(message.at).pointer(pointer);
        !offered.is_some_and(|value| *value == true || value.is_object())
    });
    if without.next().is_some() { Finding::Holds } else { Finding::Nothing }
}

fn no_read(record: &Record) -> Finding {
    gated(record, "fs/read_text_file", "/fs/readTextFile")
}

fn no_write(record: &Record) -> Finding {
    gated(record, "fs/write_text_file", "/fs/writeTextFile")
}

fn no_terminal(record: &Record) -> Finding {
    gated(record, "terminal/", "/terminal")
}

fn no_elicitation(record: &Record) -> Finding {
    gated(record, "elicitation/", "/elicitation/form")
}

/// Judges that updates of a kind are not sent without a capability.
fn gated_update(record: &Record, prefix: &str, pointer: &str) -> Finding {
    let found = record.updates().find(|(message, update)| {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        kind.starts_with(prefix) && record.capabilities(message.at).pointer(pointer).is_none()
    });
    match found {
        Some((message, update)) => {
            let kind = &update["sessionUpdate"];
            Finding::broken(message.at, format!("{kind} was sent, but the client has no {pointer}"))
        }
        None => had_turn(record, pointer),
    }
}

fn no_notice(record: &Record) -> Finding {
    gated_update(record, "notice", "/session/notices")
}

fn no_compaction(record: &Record) -> Finding {
    gated_update(record, "compaction", "/session/compaction")
}

/// Returns the calls for files and terminals.
fn calls(record: &Record) -> impl Iterator<Item = (&Message, &str, &Value)> {
    let calls = record
        .agent_calls()
        .filter(|(_, method)| method.starts_with("fs/") || method.starts_with("terminal/"));
    calls.map(|(message, method)| (message, method, &message.value["params"]))
}

fn paths(record: &Record) -> Finding {
    let with_paths = calls(record).filter_map(|(message, method, params)| {
        let path = if method.starts_with("fs/") { &params["path"] } else { &params["cwd"] };
        Some((message, path.as_str()?))
    });
    Finding::of_all(with_paths, |(message, path)| {
        let is_absolute = std::path::Path::new(path).is_absolute();
        (!is_absolute).then(|| (message.at, format!("the path {path:?} is not absolute")))
    })
}

fn lines(record: &Record) -> Finding {
    let reads = calls(record).filter(|(_, method, _)| *method == "fs/read_text_file");
    Finding::of_all(reads, |(message, _, params)| {
        (params["line"] == 0).then(|| (message.at, "the line 0 was asked for".to_owned()))
    })
}

fn session(record: &Record) -> Finding {
    Finding::of_all(calls(record), |(message, method, params)| {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let is_known = record.known_sessions(message.at).contains(id);
        (!is_known).then(|| (message.at, format!("{method} for the unknown session {id:?}")))
    })
}

/// Returns the ids of the terminals that the client created, with the place of the answer.
fn created(record: &Record) -> Vec<(&str, usize)> {
    let answers = record.messages.iter().filter(|message| !message.from_agent);
    let ids = answers.filter_map(|message| {
        Some((message.value.pointer("/result/terminalId")?.as_str()?, message.at))
    });
    ids.collect()
}

fn terminal_known(record: &Record) -> Finding {
    let created: HashSet<&str> = created(record).into_iter().map(|(id, _)| id).collect();
    let uses = calls(record)
        .filter(|(_, method, _)| method.starts_with("terminal/") && *method != "terminal/create");
    Finding::of_all(uses, |(message, method, params)| {
        let id = params["terminalId"].as_str().unwrap_or_default();
        let is_known = created.contains(id);
        (!is_known).then(|| (message.at, format!("{method} for the unknown terminal {id:?}")))
    })
}

fn terminal_released(record: &Record) -> Finding {
    // A case that ends in the middle of a turn shows nothing.
    let answered = record.results().filter(|(_, method, _)| *method == "session/prompt").count();
    let prompts = record.calls.values();
    let asked = prompts.filter(|call| call.method.as_deref() == Some("session/prompt")).count();
    if answered < asked {
        return Finding::Nothing;
    }
    let released: HashSet<&str> = calls(record)
        .filter(|(_, method, _)| *method == "terminal/release")
        .filter_map(|(_, _, params)| params["terminalId"].as_str())
        .collect();
    Finding::of_all(created(record), |(id, at)| {
        (!released.contains(id)).then(|| (at, format!("the terminal {id:?} is not released")))
    })
}
