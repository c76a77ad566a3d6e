//! The oracle: what docs/internals/wire.md promises for a line, and whether an answer fulfils it.
//!
//! Written from the documents with serde_json alone. It shares no code with the program, so that they do not share mistakes.

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::CANARY;

/// What a line must lead to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expected {
    Silence,
    /// One answer, with exactly this id.
    Answer {
        id: String,
        codes: Codes,
    },
}

/// How a line may be answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Codes {
    Exactly(i64),
    /// A result, or any error that blames the call.
    Any,
    Result,
}

impl Codes {
    /// Returns whether an answer is allowed; `None` is a result.
    pub(super) fn contain(self, code: Option<i64>) -> bool {
        match (self, code) {
            (Codes::Exactly(expected), Some(code)) => expected == code,
            (Codes::Any, Some(code)) => CALLERS_FAULT.contains(&code),
            (Codes::Any | Codes::Result, None) => true,
            (Codes::Exactly(_), None) | (Codes::Result, Some(_)) => false,
        }
    }
}

/// The whole table of error codes.
const TABLE: [i64; 21] = [
    -32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32003, -32800, -31900, -31901,
    -31902, -31800, -31801, -31802, -31700, -31701, -31702, -31600, -31601,
];
/// The codes that a call of a known method may get without an error in Purlin.
const CALLERS_FAULT: [i64; 6] = [-32602, -32600, -32000, -32003, -31900, -31902];

const METHODS: [(&str, usize); 15] = [
    ("initialize", 10 * 1024),
    ("authenticate", 1024 * 1024),
    ("logout", 1024 * 1024),
    ("session/new", 50 * 1024),
    ("session/load", 50 * 1024),
    ("session/resume", 50 * 1024),
    ("session/fork", 50 * 1024),
    ("session/list", 1024 * 1024),
    ("session/prompt", 11 * 1024 * 1024),
    ("session/set_mode", 1024 * 1024),
    ("session/set_model", 1024 * 1024),
    ("session/set_config_option", 1024 * 1024),
    ("session/set_title", 1024 * 1024),
    ("session/close", 1024 * 1024),
    ("session/delete", 1024 * 1024),
];
const NOTES: [&str; 2] = ["session/cancel", "$/cancel_request"];
const ENVELOPE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
const LONGEST_ID: usize = 1024;

/// Returns what a line must lead to after initialize.
pub(super) fn judge(line: &[u8]) -> Expected {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let line = line.trim_ascii();
    if line.is_empty() {
        return Expected::Silence;
    }
    let Some(text) = std::str::from_utf8(line).ok().filter(|text| is_json(text)) else {
        return answer(None, -32700);
    };
    if !text.starts_with('{') {
        return answer(None, -32600);
    }
    let Some(members) = members(text) else {
        return answer(None, -32700);
    };
    envelope(&Members(members), text.len())
}

/// Returns what a line other than `initialize` must lead to before initialize.
pub(super) fn judge_early(line: &[u8]) -> Expected {
    match judge(line) {
        Expected::Answer { id, codes: Codes::Exactly(-32700) } => {
            Expected::Answer { id, codes: Codes::Exactly(-32700) }
        }
        Expected::Answer { id, .. } => Expected::Answer { id, codes: Codes::Exactly(-32600) },
        Expected::Silence => Expected::Silence,
    }
}

/// The members of an object as they were written, repeated ones included.
struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.get())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.get())
    }
}

fn envelope(members: &Members, length: usize) -> Expected {
    let is_twice = |name: &&str| members.all(name).count() > 1;
    if ENVELOPE.iter().any(is_twice) {
        return answer(members.all("id").find(|id| is_id(id)), -32600);
    }
    let id = members.get("id");
    if id.is_some_and(|id| !is_id(id)) {
        return answer(None, -32600);
    }
    let method = match members.get("method").map(serde_json::from_str::<String>) {
        Some(Err(_)) => return answer(id, -32600),
        Some(Ok(method)) => Some(method),
        None => None,
    };
    let has_outcome = members.get("result").is_some() || members.get("error").is_some();
    let is_version_two = members.get("jsonrpc") == Some("\"2.0\"");
    match (method, id) {
        (Some(_), None) => Expected::Silence,
        _ if !is_version_two => answer(id, -32600),
        (Some(_), Some(_)) if has_outcome => answer(id, -32600),
        (Some(method), Some("null")) if NOTES.contains(&&*method) => Expected::Silence,
        (Some(method), Some(id)) => call(&method, id, members.get("params"), length),
        (None, Some(_)) if has_outcome => Expected::Silence,
        (None, id) => answer(id, -32600),
    }
}

fn call(method: &str, id: &str, params: Option<&str>, length: usize) -> Expected {
    let known = METHODS.iter().find(|(name, _)| *name == method);
    let limit = match known {
        Some((_, limit)) => *limit,
        None if method.starts_with("fs/") => 10 * 1024 * 1024,
        None if method == "session/update" => 100 * 1024,
        None => 1024 * 1024,
    };
    if length > limit {
        return answer(Some(id), -32600);
    }
    if known.is_none() {
        return answer(Some(id), -32601);
    }
    let params = params.filter(|params| *params != "null");
    let is_object = params.is_none_or(|params| params.starts_with('{'));
    let value: Option<Value> = params.and_then(|params| serde_json::from_str(params).ok());
    if !is_object || value.is_some_and(|value| has_null_character(&value)) {
        return answer(Some(id), -32602);
    }
    Expected::Answer { id: id.to_owned(), codes: Codes::Any }
}

fn answer(id: Option<&str>, code: i64) -> Expected {
    Expected::Answer { id: id.unwrap_or("null").to_owned(), codes: Codes::Exactly(code) }
}

fn is_id(raw: &str) -> bool {
    let is_kind =
        raw == "null" || raw.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit());
    is_kind && raw.len() <= LONGEST_ID
}

fn has_null_character(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_null_character),
        Value::Object(members) => {
            members.iter().any(|(key, value)| key.contains('\0') || has_null_character(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

fn members(text: &str) -> Option<Vec<(String, Box<RawValue>)>> {
    struct Collect;
    impl<'de> Visitor<'de> for Collect {
        type Value = Vec<(String, Box<RawValue>)>;

        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(member) = map.next_entry()? {
                all.push(member);
            }
            Ok(all)
        }
    }
    serde_json::Deserializer::from_str(text).deserialize_map(Collect).ok()
}

/// An answer of the program; without a code it is a result.
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) code: Option<i64>,
}

/// Reads a line of the program, checks its form, and returns it if it is an answer and not an update.
pub(super) fn read_answer(line: &[u8]) -> Option<Answer> {
    let text = std::str::from_utf8(line).expect("a line that is not UTF-8");
    let message = Members(members(text).unwrap_or_else(|| panic!("no object: {text}")));
    assert_eq!(message.get("jsonrpc"), Some("\"2.0\""), "{text}");
    if let Some(method) = message.get("method") {
        assert_eq!(method, "\"session/update\"", "{text}");
        assert!(message.get("id").is_none(), "{text}");
        return None;
    }
    assert_eq!(message.0.len(), 3, "{text}");
    let id = message.get("id").unwrap_or_else(|| panic!("no id: {text}")).to_owned();
    let Some(error) = message.get("error") else {
        assert!(message.get("result").is_some(), "{text}");
        return Some(Answer { id, code: None });
    };
    assert!(!error.contains(CANARY), "an error repeats what was sent: {text}");
    let error: Value = serde_json::from_str(error).unwrap();
    let code = error["code"].as_i64().unwrap_or_else(|| panic!("no code: {text}"));
    assert!(TABLE.contains(&code), "{text}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{text}");
    assert!(text.len() < 2048 + id.len(), "an error of {} bytes", text.len());
    Some(Answer { id, code: Some(code) })
}

#[test]
fn oracle_has_the_error_codes_of_the_documentation() {
    let cases: [(&[u8], Expected); 14] = [
        (b" \t\r", Expected::Silence),
        (b"nonsense", answer(None, -32700)),
        (b"\xff", answer(None, -32700)),
        (b"{\"id\":01}", answer(None, -32700)),
        (b"[]", answer(None, -32600)),
        (b"{}", answer(None, -32600)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1.50}", answer(Some("1.50"), -32600)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":[],\"method\":\"m\"}", answer(None, -32600)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"m\"}", answer(Some("1"), -32600)),
        (b"{\"method\":\"m\",\"params\":7}", Expected::Silence),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":7}", Expected::Silence),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"session/cancel\"}", Expected::Silence),
        (
            b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"_m\"}\r",
            answer(Some("\"a\""), -32601),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"logout\",\"params\":[]}",
            answer(Some("1"), -32602),
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(judge(line), expected, "{}", String::from_utf8_lossy(line));
    }
}
