//! Shapes that clients send and the schema does not have, put right before typed reading.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{fault, read, schema};
use crate::code::RpcError;

/// Reads `session/new`, in the forms of the older documents too.
///
/// `mcpServers` may be missing; a server may say `type: local` with its command as a list, and give `env` and
/// `headers` as an object. Costs a second reading, and only for a request that does not fit as it is.
///
/// # Errors
/// -32602 with the field, as for the form that fits best.
pub fn new_session(params: Option<&RawValue>) -> Result<schema::NewSessionRequest, RpcError> {
    let as_it_is = read(params);
    let Some(params) = params.filter(|_| as_it_is.as_ref().is_err_and(is_about_servers)) else {
        return as_it_is;
    };
    let Ok(Value::Object(mut members)) = serde_json::from_str(params.get()) else {
        return as_it_is;
    };
    fault::refuse_null_characters(params.get())?;
    match members.entry("mcpServers").or_insert_with(|| json!([])) {
        Value::Array(servers) => servers.iter_mut().for_each(mcp_server),
        other if other.is_null() => *other = json!([]),
        _ => return as_it_is,
    }
    let text = Value::Object(members).to_string();
    serde_json::from_str(&text).map_err(|_| fault::explain::<schema::NewSessionRequest>(&text))
}

/// Only servers have older forms. Whatever else is wrong, or given twice, would be lost in the second reading.
fn is_about_servers(error: &RpcError) -> bool {
    let text = |key: &str| {
        let data = error.data.as_ref();
        data.and_then(|data| data[key].as_str()).unwrap_or_default()
    };
    text("path").starts_with("mcpServers") && !text("details").ends_with("is given twice")
}

/// The parameters of `session/load`, `session/resume` and `session/fork`.
///
/// The schema wants `cwd` everywhere and `mcpServers` in one of them; the older documents have neither, and a session
/// that is kept knows its folder.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reopen {
    /// The session.
    pub session_id: schema::SessionId,
    /// Its working folder, if it is another than before.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Further folders.
    #[serde(default)]
    pub additional_directories: Option<Vec<PathBuf>>,
    /// Its MCP servers.
    #[serde(skip)]
    pub mcp_servers: Vec<schema::McpServer>,
}

/// Reads the parameters of a session that is opened again, in the forms of the older documents too.
///
/// # Errors
/// -32602 with the field.
pub fn reopen(params: Option<&RawValue>) -> Result<Reopen, RpcError> {
    let mut request: Reopen = read(params)?;
    let Some(Ok(Value::Object(mut members))) =
        params.map(|params| serde_json::from_str(params.get()))
    else {
        return Ok(request);
    };
    let Some(Value::Array(mut servers)) = members.remove("mcpServers") else {
        return Ok(request);
    };
    servers.iter_mut().for_each(mcp_server);
    let text = json!({ "cwd": "/", "mcpServers": servers }).to_string();
    let servers: schema::NewSessionRequest = serde_json::from_str(&text)
        .map_err(|_| fault::explain::<schema::NewSessionRequest>(&text))?;
    request.mcp_servers = servers.mcp_servers;
    Ok(request)
}

fn mcp_server(server: &mut Value) {
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

/// Turns `{"A": "1"}` into `[{"name": "A", "value": "1"}]`, and nothing into an empty list.
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
    use super::*;

    fn servers(params: &str) -> Value {
        let raw: &RawValue = serde_json::from_str(params).unwrap();
        serde_json::to_value(new_session(Some(raw)).unwrap().mcp_servers).unwrap()
    }

    // R: S2
    #[test]
    fn a_session_is_opened_again_with_its_id_alone() {
        let reopen = |params: &str| reopen(Some(serde_json::from_str(params).unwrap()));
        let bare = reopen(r#"{"sessionId":"s"}"#).unwrap();
        assert_eq!((bare.cwd, bare.mcp_servers.len()), (None, 0));
        let nothing = reopen(r#"{"sessionId":"s","cwd":null,"mcpServers":null}"#).unwrap();
        assert_eq!((nothing.cwd, nothing.mcp_servers.len()), (None, 0));
        let full = reopen(
            r#"{"sessionId":"s","cwd":"/w","mcpServers":[{"name":"n","command":"c"}],"additionalDirectories":["/x"]}"#,
        )
        .unwrap();
        assert_eq!(full.cwd, Some(PathBuf::from("/w")));
        assert_eq!((full.mcp_servers.len(), full.additional_directories.unwrap().len()), (1, 1));
        assert!(reopen("{}").is_err());
        assert!(reopen(r#"{"sessionId":"s","mcpServers":[{}]}"#).is_err());
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

    // R: W6, W18
    #[test]
    fn a_second_reading_forgives_nothing_else() {
        let refused = |params: &str| {
            let raw: &RawValue = serde_json::from_str(params).unwrap();
            let data = new_session(Some(raw)).unwrap_err().data.unwrap();
            format!("{}: {}", data["path"].as_str().unwrap(), data["details"].as_str().unwrap())
        };
        let cases = [
            (r#"{"cwd":"/w\u0000"}"#, "cwd: 'cwd' holds a null character"),
            (r#"{"cwd":"/w","cwd":"/x","mcpServers":[]}"#, "cwd: 'cwd' is given twice"),
            (
                r#"{"cwd":"/w","mcpServers":[{"name":"a","command":["x\u0000"]}]}"#,
                "mcpServers[0].command[0]: 'mcpServers[0].command[0]' holds a null character",
            ),
        ];
        for (params, expected) in cases {
            assert_eq!(refused(params), expected, "{params}");
        }
    }
}
