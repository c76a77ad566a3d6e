//! The rows of the official schema: one for each kind of message.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Finding;
use crate::record::Record;
use crate::schema::{self, Part};

/// Results by method.
const RESULTS: [(&str, &str); 12] = [
    ("initialize", "schema.initialize"),
    ("authenticate", "schema.authenticate"),
    ("logout", "schema.logout"),
    ("session/new", "schema.new"),
    ("session/load", "schema.load"),
    ("session/resume", "schema.resume"),
    ("session/list", "schema.list"),
    ("session/close", "schema.close"),
    ("session/delete", "schema.delete"),
    ("session/prompt", "schema.prompt"),
    ("session/set_mode", "schema.set-mode"),
    ("session/set_config_option", "schema.set-option"),
];

/// Updates by kind.
const UPDATES: [(&str, &str); 11] = [
    ("agent_message_chunk", "schema.update.agent_message_chunk"),
    ("agent_thought_chunk", "schema.update.agent_thought_chunk"),
    ("user_message_chunk", "schema.update.user_message_chunk"),
    ("tool_call", "schema.update.tool_call"),
    ("tool_call_update", "schema.update.tool_call_update"),
    ("plan", "schema.update.plan"),
    ("available_commands_update", "schema.update.available_commands_update"),
    ("current_mode_update", "schema.update.current_mode_update"),
    ("config_option_update", "schema.update.config_option_update"),
    ("session_info_update", "schema.update.session_info_update"),
    ("usage_update", "schema.update.usage_update"),
];

/// Calls by method.
const CALLS: [(&str, &str); 8] = [
    ("session/request_permission", "schema.permission"),
    ("fs/read_text_file", "schema.fs-read"),
    ("fs/write_text_file", "schema.fs-write"),
    ("terminal/create", "schema.terminal-create"),
    ("terminal/output", "schema.terminal-output"),
    ("terminal/wait_for_exit", "schema.terminal-wait"),
    ("terminal/kill", "schema.terminal-kill"),
    ("terminal/release", "schema.terminal-release"),
];

const OTHER_UPDATES: &str = "schema.update.other";
const OTHER_CALLS: &str = "schema.other-calls";
const OWN_MEMBERS: &str = "schema.own-members";

pub(super) fn ids() -> impl Iterator<Item = &'static str> {
    let named = RESULTS.iter().chain(&UPDATES).chain(&CALLS).map(|(_, row)| *row);
    named.chain([OTHER_UPDATES, OTHER_CALLS, OWN_MEMBERS])
}

pub(super) fn apply(record: &Record) -> Vec<(&'static str, Finding)> {
    let mut found: BTreeMap<&'static str, Finding> =
        ids().map(|id| (id, Finding::Nothing)).collect();
    // Another version of the protocol has another schema.
    let mut welcomes = record.results().filter(|(_, method, _)| *method == "initialize");
    let is_other = |result: &Value| result["protocolVersion"].as_u64().is_some_and(|it| it != 1);
    if welcomes.any(|(_, _, result)| is_other(result)) {
        return found.into_iter().collect();
    }
    let mut add = |row: &'static str, at: usize, fault: Option<String>| {
        let finding = found.entry(row).or_insert(Finding::Nothing);
        match fault {
            Some(reason) if !matches!(finding, Finding::Broken { .. }) => {
                *finding = Finding::broken(at, reason);
            }
            None if *finding == Finding::Nothing => *finding = Finding::Holds,
            _ => {}
        }
    };
    let row = |table: &[(&str, &'static str)], name: &str| {
        table.iter().find(|(known, _)| *known == name).map(|(_, row)| *row)
    };
    for (message, method, result) in record.results() {
        if let Some(row) = row(&RESULTS, method) {
            add(row, message.at, schema::fault(method, Part::Answered, result));
            let known = schema::members(method, Part::Answered);
            add(
                OWN_MEMBERS,
                message.at,
                own_member(&format!("the result of {method}"), result, &known),
            );
        }
    }
    for message in record.sent() {
        let Some(method) = message.value["method"].as_str() else { continue };
        if method.starts_with('_') || !schema::knows(method, Part::Sent) {
            continue;
        }
        let params = &message.value["params"];
        let row = if method == "session/update" {
            let kind = params["update"]["sessionUpdate"].as_str().unwrap_or_default();
            row(&UPDATES, kind).unwrap_or(OTHER_UPDATES)
        } else {
            row(&CALLS, method).unwrap_or(OTHER_CALLS)
        };
        add(row, message.at, schema::fault(method, Part::Sent, params));
        let known = schema::members(method, Part::Sent);
        add(OWN_MEMBERS, message.at, own_member(method, params, &known));
        if let Some(kind) = params["update"]["sessionUpdate"].as_str() {
            let known = schema::update_members(kind);
            let what = format!("the update {kind}");
            add(OWN_MEMBERS, message.at, own_member(&what, &params["update"], &known));
        }
    }
    found.into_iter().collect()
}

/// Members that v1 had once, or has in drafts: no inventions of an agent.
const FORMER: [&str; 3] = ["models", "usage", "userMessageId"];

/// Returns a member that the protocol does not have. Nothing is known about what is not in the schema.
fn own_member(what: &str, value: &Value, known: &BTreeSet<String>) -> Option<String> {
    let mut names = value.as_object()?.keys().filter(|_| !known.is_empty());
    let name = names.find(|name| !known.contains(*name) && !FORMER.contains(&name.as_str()))?;
    Some(format!("{what} has the member {name}"))
}
