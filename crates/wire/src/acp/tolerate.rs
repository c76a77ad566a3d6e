//! Shapes that clients send but the schema does not have, normalised before typed reading.
//!
//! They are accepted in every dialect, because none of them is ambiguous. Only parameters that do not match the schema,
//! or contain a word that the schema does not have, are read a second time. What differs in a single dialect is in
//! `acp::dialect`.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use agent_client_protocol_schema::v1 as schema;

use super::decode::read;
use super::members::{insert_meta, put_meta};
use super::{block, fault, file_uri, mcp_servers, strict};
use crate::code::RpcError;

type Members = Map<String, Value>;

/// Reads `initialize`: the version may be a string such as `0.3.1`, and the file capabilities may be `filesystem` or flat.
///
/// # Errors
/// -32602 with the invalid field.
pub fn initialize(params: Option<&RawValue>) -> Result<schema::InitializeRequest, RpcError> {
    lenient(params, &OTHER_DIALECT_WORDS, initialize_in)
}

/// The names of the file capabilities in other dialects.
pub(super) const OTHER_DIALECT_WORDS: [&str; 4] =
    ["\"filesystem\"", "\"filesRead\"", "\"filesWrite\"", "\"editWorkspace\""];

/// Reads `session/new`, also in older forms.
///
/// `mcpServers` may be missing; a server may have `type: local` with its command as a list, and `env` and
/// `headers` as an object. `workspaceUri` is `cwd` as a URI, `mode` the initial mode.
///
/// # Errors
/// -32602 with the invalid field.
pub fn new_session(params: Option<&RawValue>) -> Result<schema::NewSessionRequest, RpcError> {
    lenient(params, &["\"workspaceUri\"", "\"mode\""], new_session_in)
}

/// Reads `session/prompt`: accepts `content` for `prompt`, a string for a list of one text block, other forms of blocks,
/// and `contextFiles`.
///
/// # Errors
/// -32602 with the invalid field.
pub fn prompt(params: Option<&RawValue>) -> Result<schema::PromptRequest, RpcError> {
    lenient(params, &["\"contextFiles\""], prompt_in)
}

/// Reads parameters directly. If they are invalid or contain one of `words`, reads them again after `normalise`.
fn lenient<T: DeserializeOwned>(
    params: Option<&RawValue>,
    words: &[&str],
    normalise: impl FnOnce(&mut Members) -> Result<(), RpcError>,
) -> Result<T, RpcError> {
    let direct = read(params);
    let Some(params) = params else {
        return direct;
    };
    let text = params.get().as_bytes();
    let contains = |word: &&str| memchr::memmem::find(text, word.as_bytes()).is_some();
    if direct.is_ok() && !words.iter().any(contains) {
        return direct;
    }
    let Some(mut members) = strict::object(params.get()) else {
        return direct;
    };
    fault::reject_null_characters(params.get())?;
    normalise(&mut members)?;
    let normalised = serde_json::value::to_raw_value(&members)
        .map_err(|_| RpcError::of(crate::Code::INTERNAL_ERROR))?;
    read(Some(&normalised))
}

/// Returns whether a string is a version such as `0.3.1`, `1` or `v0.4.0-beta.1`.
pub(super) fn is_dotted_version(text: &str) -> bool {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let (numbers, rest) = bare.split_at(bare.find(['-', '+']).unwrap_or(bare.len()));
    let is_plain = rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+.".contains(&byte));
    let parts_are_numbers = numbers
        .split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    text.len() <= 32 && parts_are_numbers && is_plain
}

/// Normalises the parameters of `initialize`.
pub(super) fn initialize_in(members: &mut Members) -> Result<(), RpcError> {
    if members.get("protocolVersion").and_then(Value::as_str).is_some_and(is_dotted_version) {
        put_meta(members, "protocolVersion");
        members.insert("protocolVersion".to_owned(), json!(1));
    }
    let Some(Value::Object(offers)) = members.get_mut("clientCapabilities") else {
        return Ok(());
    };
    if offers.get("fs").is_some_and(|fs| !fs.is_null()) {
        return Ok(());
    }
    let (mut can_read, mut can_write) = (false, false);
    match offers.remove("filesystem") {
        None | Some(Value::Null) => {}
        Some(Value::Object(files)) => {
            can_read = capability(files.get("read"), "filesystem.read")?;
            can_write = capability(files.get("write"), "filesystem.write")?;
        }
        Some(_) => {
            let at = "clientCapabilities.filesystem";
            let details = format!("'{at}' has the wrong type: expected `read` and `write`");
            return Err(fault::at(at, details));
        }
    }
    can_read |= capability(offers.remove("filesRead").as_ref(), "filesRead")?;
    can_write |= capability(offers.remove("filesWrite").as_ref(), "filesWrite")?;
    can_write |= capability(offers.get("editWorkspace"), "editWorkspace")?;
    // v1 cannot express `editWorkspace` exactly, so its original value is preserved.
    put_meta(offers, "editWorkspace");
    let fs = json!({ "readTextFile": can_read, "writeTextFile": can_write });
    offers.insert("fs".to_owned(), fs);
    Ok(())
}

/// Reads a capability of the client. A missing one is false.
fn capability(value: Option<&Value>, name: &str) -> Result<bool, RpcError> {
    match value {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(is_offered)) => Ok(*is_offered),
        Some(_) => {
            let at = format!("clientCapabilities.{name}");
            let details = format!("'{at}' has the wrong type: expected true or false");
            Err(fault::at(&at, details))
        }
    }
}

/// Normalises the parameters of `session/new`.
pub(super) fn new_session_in(members: &mut Members) -> Result<(), RpcError> {
    workspace_in(members)?;
    match members.get("mode") {
        None => {}
        Some(Value::Null) => drop(members.remove("mode")),
        Some(Value::String(_)) => put_meta(members, "mode"),
        Some(_) => {
            let details = "'mode' has the wrong type: expected the id of a mode".to_owned();
            return Err(fault::at("mode", details));
        }
    }
    let mut problems = Vec::new();
    match members.entry("mcpServers").or_insert_with(|| json!([])) {
        Value::Array(servers) => problems = mcp_servers::normalise(servers),
        other if other.is_null() => *other = json!([]),
        // Typed reading rejects it.
        _ => {}
    }
    if !problems.is_empty() {
        insert_meta(members, mcp_servers::PROBLEMS, json!(problems));
    }
    Ok(())
}

/// Replaces `workspaceUri` by `cwd`.
pub(super) fn workspace_in(members: &mut Members) -> Result<(), RpcError> {
    let uri = members.remove("workspaceUri").filter(|uri| !uri.is_null());
    if let Some(uri) = uri {
        let path = match uri.as_str().map(file_uri::decode) {
            Some(Ok(path)) => path,
            Some(Err(problem)) => {
                return Err(fault::at("workspaceUri", format!("'workspaceUri' {problem}")));
            }
            None => {
                let details = "'workspaceUri' has the wrong type: expected a string".to_owned();
                return Err(fault::at("workspaceUri", details));
            }
        };
        let path = json!(path);
        if members.get("cwd").is_some_and(|cwd| !cwd.is_null() && *cwd != path) {
            let details = "'workspaceUri' and `cwd` name different directories. Send one of them.";
            return Err(fault::at("workspaceUri", details.to_owned()));
        }
        members.insert("cwd".to_owned(), path);
    }
    Ok(())
}

/// Normalises the parameters of `session/prompt`.
pub(super) fn prompt_in(members: &mut Members) -> Result<(), RpcError> {
    if !members.contains_key("prompt")
        && let Some(content) = members.remove("content")
    {
        members.insert("prompt".to_owned(), content);
    }
    if let Some(Value::String(text)) = members.get("prompt") {
        let block = json!({ "type": "text", "text": text });
        members.insert("prompt".to_owned(), json!([block]));
    }
    let files = members.remove("contextFiles").unwrap_or_default();
    let Some(Value::Array(blocks)) = members.get_mut("prompt") else {
        return Ok(());
    };
    blocks.iter_mut().for_each(block::to_v1);
    match files {
        Value::Null => Ok(()),
        Value::Array(files) => {
            for (index, file) in files.iter().enumerate() {
                let Some(path) = file.as_str().filter(|path| !path.is_empty()) else {
                    let at = format!("contextFiles[{index}]");
                    return Err(fault::at(&at, format!("'{at}' must be the path of a file")));
                };
                blocks.push(block::link(path));
            }
            Ok(())
        }
        _ => Err(fault::at("contextFiles", "'contextFiles' must be a list of paths".to_owned())),
    }
}

/// The parameters of `session/load`, `session/resume` and `session/fork`.
///
/// The schema requires `cwd` in all of them and `mcpServers` in one. Older clients send neither, and a stored session
/// has its own `cwd`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reopen {
    /// The session.
    pub session_id: schema::SessionId,
    /// Its new working directory, if it changes.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Additional directories.
    #[serde(default)]
    pub additional_directories: Option<Vec<PathBuf>>,
    /// Its MCP servers.
    #[serde(default, deserialize_with = "null_or_list")]
    pub mcp_servers: Vec<schema::McpServer>,
    /// Problems with the servers that were left out. Filled in by [`reopen_in`], not by the client.
    #[serde(default, rename = "_mcpProblems")]
    pub mcp_problems: Vec<String>,
    /// Extension data. `takeOver: true` opens the session even if a turn runs in another process.
    #[serde(default, rename = "_meta")]
    pub meta: Option<schema::Meta>,
}

/// The member that [`reopen_in`] adds.
const REOPEN_PROBLEMS: &str = "_mcpProblems";

/// Reads the parameters of a session that is reopened, also in older forms.
///
/// # Errors
/// -32602 with the invalid field.
pub fn reopen(params: Option<&RawValue>) -> Result<Reopen, RpcError> {
    lenient(params, &["\"workspaceUri\""], reopen_in)
}

/// Normalises the parameters of a session that is reopened.
pub(super) fn reopen_in(members: &mut Members) -> Result<(), RpcError> {
    workspace_in(members)?;
    if let Some(Value::Array(servers)) = members.get_mut("mcpServers") {
        let problems = mcp_servers::normalise(servers);
        if !problems.is_empty() {
            members.insert(REOPEN_PROBLEMS.to_owned(), json!(problems));
        }
    }
    Ok(())
}

fn null_or_list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<schema::McpServer>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: S2
    #[test]
    fn session_is_reopened_with_its_id_alone() {
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
        let bad = reopen(r#"{"sessionId":"s","mcpServers":[{}]}"#).unwrap();
        assert_eq!((bad.mcp_servers.len(), bad.mcp_problems.len()), (0, 1));
    }

    // R: D1, P1
    #[test]
    fn prompt_is_accepted_in_all_forms() {
        let blocks = |params: &str| {
            let raw: &RawValue = serde_json::from_str(params).unwrap();
            serde_json::to_value(prompt(Some(raw)).unwrap().prompt).unwrap()
        };
        let hi = json!([{ "type": "text", "text": "hi" }]);
        assert_eq!(blocks(r#"{"sessionId":"s","prompt":"hi"}"#), hi);
        assert_eq!(blocks(r#"{"sessionId":"s","content":"hi"}"#), hi);
        assert_eq!(blocks(r#"{"sessionId":"s","content":[{"type":"text","text":"hi"}]}"#), hi);
        assert_eq!(blocks(r#"{"sessionId":"s","content":[{"type":"text","content":"hi"}]}"#), hi);
        assert_eq!(
            blocks(r#"{"sessionId":"s","content":[{"type":"resource","uri":"file:///w/a.rs"}]}"#),
            json!([{ "type": "resource_link", "uri": "file:///w/a.rs", "name": "a.rs" }])
        );
        assert_eq!(
            blocks(r#"{"sessionId":"s","prompt":[],"contextFiles":["/w/a b.rs","src/c.rs"]}"#),
            json!([
                { "type": "resource_link", "uri": "file:///w/a%20b.rs", "name": "a b.rs" },
                { "type": "resource_link", "uri": "src/c.rs", "name": "c.rs" },
            ])
        );
    }

    // R: W18, D2, D3
    #[test]
    fn capability_that_is_not_a_boolean_is_rejected() {
        let rejected = |offers: &str| {
            let params = format!(r#"{{"protocolVersion":1,"clientCapabilities":{offers}}}"#);
            let raw: &RawValue = serde_json::from_str(&params).unwrap();
            initialize(Some(raw)).unwrap_err().data.unwrap()["path"].clone()
        };
        assert_eq!(rejected(r#"{"filesRead":"yes"}"#), "clientCapabilities.filesRead");
        assert_eq!(rejected(r#"{"editWorkspace":1}"#), "clientCapabilities.editWorkspace");
        assert_eq!(rejected(r#"{"filesystem":{"read":[]}}"#), "clientCapabilities.filesystem.read");
        assert_eq!(rejected(r#"{"filesystem":true}"#), "clientCapabilities.filesystem");
    }

    // R: W18
    #[test]
    fn invalid_workspace_uri_and_mode_are_rejected() {
        let cases = [
            (r#"{"workspaceUri":"file:///w%00"}"#, "workspaceUri"),
            (r#"{"workspaceUri":"http://h/w"}"#, "workspaceUri"),
            (r#"{"workspaceUri":7}"#, "workspaceUri"),
            (r#"{"cwd":"/w","mode":7}"#, "mode"),
        ];
        for (params, path) in cases {
            let raw: &RawValue = serde_json::from_str(params).unwrap();
            let error = new_session(Some(raw)).unwrap_err();
            assert_eq!(error.data.unwrap()["path"], path, "{params}");
        }
    }

    // R: W6, W18
    #[test]
    fn second_reading_accepts_no_other_errors() {
        let rejected = |params: &str| {
            let raw: &RawValue = serde_json::from_str(params).unwrap();
            let data = new_session(Some(raw)).unwrap_err().data.unwrap();
            format!("{}: {}", data["path"].as_str().unwrap(), data["details"].as_str().unwrap())
        };
        let cases = [
            (r#"{"cwd":"/w\u0000"}"#, "cwd: 'cwd' contains a null character"),
            (r#"{"cwd":"/w","cwd":"/x","mcpServers":[]}"#, "cwd: 'cwd' is given twice"),
            (
                r#"{"cwd":"/w","mcpServers":[{"name":"a","command":["x\u0000"]}]}"#,
                "mcpServers[0].command[0]: 'mcpServers[0].command[0]' contains a null character",
            ),
        ];
        for (params, expected) in cases {
            assert_eq!(rejected(params), expected, "{params}");
        }
    }
}
