//! The MCP servers that a session is opened with, in all forms that clients send.
//!
//! An invalid server is left out and reported. The session is opened with the others.

use serde_json::{Map, Value, json};

use agent_client_protocol_schema::v1 as schema;

/// The key in `_meta.purlin` for problems with the servers of `session/new`.
pub const PROBLEMS: &str = "mcpProblems";

/// At most this many characters of a server's name are repeated in a problem.
const MAX_NAME: usize = 60;

/// Reads one server, in any form.
///
/// # Errors
/// Describes what is wrong, without repeating values: they may be secret.
pub fn read(mut server: Value) -> Result<schema::McpServer, String> {
    normalise_one(&mut server);
    serde_json::from_value(server.clone()).map_err(|_| problem(&server))
}

/// Normalises a list of servers, removes the invalid ones and returns their problems.
pub(super) fn normalise(servers: &mut Vec<Value>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut index = 0;
    servers.retain_mut(|server| {
        normalise_one(server);
        let is_good = serde_json::from_value::<schema::McpServer>(server.clone()).is_ok();
        if !is_good {
            problems.push(format!("`mcpServers[{index}]` {}", problem(server)));
        }
        index += 1;
        is_good
    });
    problems
}

/// Describes what is wrong with an invalid server.
fn problem(server: &Value) -> String {
    let Some(members) = server.as_object() else {
        return "is not an object".to_owned();
    };
    let Some(name) = members.get("name").and_then(Value::as_str) else {
        return "has no `name`".to_owned();
    };
    let name: String = name.chars().filter(|letter| !letter.is_control()).take(MAX_NAME).collect();
    let is_string = |key: &str| members.get(key).is_some_and(Value::is_string);
    let what = match members.get("type").and_then(Value::as_str) {
        Some("http" | "sse") if !is_string("url") => "has no `url`",
        Some("http" | "sse") => "has `headers` that are not strings",
        Some(_) => "has an unknown `type` (expected local, remote, http or sse)",
        None if !is_string("command") => "has neither a `command` nor a `url`",
        None if !is_list_of_strings(members.get("args")) => {
            "has `args` that are not a list of strings"
        }
        None => "has an `env` whose values are not strings",
    };
    format!("(`{name}`) {what}")
}

fn is_list_of_strings(value: Option<&Value>) -> bool {
    value.and_then(Value::as_array).is_some_and(|list| list.iter().all(Value::is_string))
}

fn normalise_one(server: &mut Value) {
    let Value::Object(members) = server else {
        return;
    };
    match members.get("type").and_then(Value::as_str) {
        Some("local" | "stdio") => {
            members.remove("type");
        }
        Some("remote") => {
            members.insert("type".to_owned(), json!("http"));
        }
        None if members.contains_key("url") && !members.contains_key("command") => {
            members.insert("type".to_owned(), json!("http"));
        }
        _ => {}
    }
    if members.contains_key("url") {
        named_list(members, "headers");
        return;
    }
    if let Some(Value::Array(words)) = members.get("command").cloned() {
        let mut words = words.into_iter();
        members.insert("command".to_owned(), words.next().unwrap_or(Value::Null));
        let given = members.get("args").and_then(Value::as_array).cloned().unwrap_or_default();
        members.insert("args".to_owned(), words.chain(given).collect());
    }
    members.entry("args").or_insert_with(|| json!([]));
    if let Some(environment) = members.remove("environment") {
        members.entry("env").or_insert(environment);
    }
    named_list(members, "env");
}

/// Turns `{"A": "1"}` into `[{"name": "A", "value": "1"}]`, and a missing value into an empty list.
fn named_list(members: &mut Map<String, Value>, key: &str) {
    match members.get(key) {
        None | Some(Value::Null) => {
            members.insert(key.to_owned(), json!([]));
        }
        Some(Value::Object(pairs)) => {
            let list =
                pairs.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
            members.insert(key.to_owned(), list);
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::super::tolerate::new_session;
    use super::*;

    fn servers(params: &str) -> Value {
        let raw: &RawValue = serde_json::from_str(params).unwrap();
        serde_json::to_value(new_session(Some(raw)).unwrap().mcp_servers).unwrap()
    }

    // R: S1
    #[test]
    fn the_older_forms_of_mcp_servers_are_read() {
        assert_eq!(servers(r#"{"cwd":"/w"}"#), json!([]));
        assert_eq!(
            servers(
                r#"{"cwd":"/w","mcpServers":[{"name":"weather","type":"local","command":["bun","x","@h1deya/mcp-server-weather"],"env":{"A":"1"}}]}"#
            ),
            json!([{ "name": "weather", "command": "bun", "args": ["x", "@h1deya/mcp-server-weather"], "env": [{ "name": "A", "value": "1" }] }])
        );
        assert_eq!(
            servers(
                r#"{"cwd":"/w","mcpServers":[{"name":"far","type":"remote","url":"http://h/","headers":{"K":"v"}}]}"#
            ),
            json!([{ "type": "http", "name": "far", "url": "http://h/", "headers": [{ "name": "K", "value": "v" }] }])
        );
    }

    // R: M1
    #[test]
    fn invalid_server_is_left_out_and_reported() {
        let mut servers = vec![
            json!({ "name": "good", "command": "c" }),
            json!(7),
            json!({ "command": "c" }),
            json!({ "name": "empty" }),
            json!({ "name": "odd\u{1b}", "type": "carrier-pigeon" }),
            json!({ "name": "far", "type": "remote", "url": 7 }),
            json!({ "name": "args", "command": "c", "args": [1] }),
            json!({ "name": "env", "command": "c", "env": { "SECRET": 1 } }),
            json!({ "name": "also good", "url": "http://h/" }),
        ];
        let problems = normalise(&mut servers);
        assert_eq!(servers.len(), 2);
        assert_eq!(
            problems,
            [
                "`mcpServers[1]` is not an object",
                "`mcpServers[2]` has no `name`",
                "`mcpServers[3]` (`empty`) has neither a `command` nor a `url`",
                "`mcpServers[4]` (`odd`) has an unknown `type` (expected local, remote, http or sse)",
                "`mcpServers[5]` (`far`) has no `url`",
                "`mcpServers[6]` (`args`) has `args` that are not a list of strings",
                "`mcpServers[7]` (`env`) has an `env` whose values are not strings",
            ]
        );
    }
}
