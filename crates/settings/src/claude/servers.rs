//! Claude Code's MCP servers: those of the user in `~/.claude.json`, and those of a project in `.mcp.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Environment;
use crate::claude::{NOT_NAMES, are_names};
use crate::mcp_servers::McpServers;
use crate::moving::{Row, State};

/// The servers that the user added for one project each.
pub(crate) type LocalServers = BTreeMap<PathBuf, McpServers>;

/// The largest file that is read: it also holds the history of all conversations.
const LARGEST: u64 = 8 * 1024 * 1024;

/// Reads the user's servers, and those for single projects.
pub(crate) fn of_user(
    file: &Path,
    environment: &Environment,
    problems: &mut Vec<String>,
    rows: &mut Vec<Row>,
) -> (McpServers, LocalServers) {
    let shown = file.display().to_string();
    let nothing = (McpServers::default(), LocalServers::new());
    let Ok(about) = file.metadata() else { return nothing };
    if about.len() > LARGEST {
        problems
            .push(format!("{shown} is larger than {LARGEST} bytes: its MCP servers are not used"));
        return nothing;
    }
    let value = std::fs::read_to_string(file).map_err(|err| err.to_string());
    let value = value.and_then(|text| {
        serde_json::from_str::<Value>(&text)
            .map_err(|err| format!("line {}: invalid JSON", err.line()))
    });
    let mut value = match value {
        Ok(value) => value,
        Err(why) => {
            problems.push(format!("{shown}: {why}. Its MCP servers are not used."));
            return nothing;
        }
    };
    let mut read = |servers: Value, setting: &str, rows: &mut Vec<Row>| {
        let mut servers = servers;
        expand(&mut servers, environment.variable);
        let mut wrong = Vec::new();
        let found = McpServers::read(servers, &mut wrong);
        let names = found.servers.iter().map(|server| server.name.clone());
        rows.extend(
            names.map(|name| Row::new(&shown, format!("{setting}.{name}"), State::Taken, "")),
        );
        rows.extend(wrong.iter().map(|why| Row::new(&shown, setting, State::NotSupported, why)));
        problems.extend(wrong.iter().map(|why| format!("{shown}: {why}")));
        found
    };
    let user = match value.get_mut("mcpServers").map(Value::take) {
        Some(servers) if servers.is_object() => read(servers, "mcpServers", rows),
        _ => McpServers::default(),
    };
    let mut local = LocalServers::new();
    let mut wrong = Vec::new();
    let projects = value.get_mut("projects").map(Value::take).unwrap_or_default();
    if let Value::Object(projects) = projects {
        for (directory, mut project) in projects {
            let mut found = McpServers::default();
            let servers = project.get_mut("mcpServers").map(Value::take).unwrap_or_default();
            if servers.as_object().is_some_and(|servers| !servers.is_empty()) {
                found = read(servers, &format!("projects.{directory}.mcpServers"), rows);
            }
            for key in ["disabledMcpServers", "disabledMcpjsonServers"] {
                let Some(names) = project.get(key) else { continue };
                if !are_names(names) {
                    wrong.push(format!("{shown}: `projects.{directory}.{key}` {NOT_NAMES}"));
                }
                let names = names.as_array().into_iter().flatten();
                found.disabled.extend(names.filter_map(Value::as_str).map(str::to_owned));
            }
            if found != McpServers::default() {
                local.insert(PathBuf::from(directory), found);
            }
        }
    }
    problems.extend(wrong);
    (user, local)
}

/// Reads the servers of a project's `.mcp.json`. Variables are not replaced: they would give the user's secrets away.
pub(crate) fn of_project(value: &Value, problems: &mut Vec<String>) -> McpServers {
    let Some(servers) = value.get("mcpServers").filter(|servers| servers.is_object()) else {
        return McpServers::default();
    };
    if servers.to_string().contains("${") {
        problems.push(
            "uses variables (`${…}`), which are not replaced in a project's file. Add the server to your own purlin.json."
                .to_owned(),
        );
    }
    McpServers::read(servers.clone(), problems)
}

/// Replaces `${NAME}` and `${NAME:-default}` in all strings.
fn expand(value: &mut Value, variable: fn(&str) -> Option<String>) {
    match value {
        Value::String(text) if text.contains("${") => *text = expanded(text, variable),
        Value::Array(items) => items.iter_mut().for_each(|item| expand(item, variable)),
        Value::Object(members) => members.values_mut().for_each(|item| expand(item, variable)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn expanded(text: &str, variable: fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((front, back)) = rest.split_once("${") {
        out.push_str(front);
        let Some((inside, after)) = back.split_once('}') else {
            out.push_str("${");
            rest = back;
            continue;
        };
        let (name, default) = inside.split_once(":-").unwrap_or((inside, ""));
        out.push_str(&variable(name).unwrap_or_else(|| default.to_owned()));
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_with_their_defaults() {
        let variable = |name: &str| (name == "A").then(|| "one".to_owned());
        assert_eq!(expanded("x ${A} ${B:-two} ${B}.", variable), "x one two .");
        assert_eq!(expanded("${A", variable), "${A");
    }
}
