//! The official schema: every message of the agent in a v1 transcript must fit it.

use std::collections::HashMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Map, Value, json};

/// The part of a method that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    /// The parameters of a call or note that the agent sends.
    Sent,
    /// The result of a call that the agent answers.
    Answered,
}

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../conformance/schema/acp-v1.json")).unwrap()
});

/// Compiles the schema of one part of a method, when it is needed: compiling all of them takes seconds.
fn validator(method: &str, wanted: Part) -> Option<Validator> {
    let definitions = SCHEMA["$defs"].as_object().unwrap();
    let (name, _) = definitions.iter().find(|(name, definition)| {
        let part = match (definition["x-side"].as_str(), name.ends_with("Response")) {
            (Some("client" | "protocol"), false) => Some(Part::Sent),
            (Some("agent"), true) => Some(Part::Answered),
            _ => None,
        };
        definition["x-method"] == method && part == Some(wanted)
    })?;
    let reference = format!("#/$defs/{name}");
    let one = json!({ "$schema": SCHEMA["$schema"], "$ref": reference, "$defs": definitions });
    Some(jsonschema::validator_for(&one).unwrap())
}

/// Checks the messages of an agent and returns a sentence for each that does not fit.
///
/// `asked` has the method of each call of the client, by its id.
pub(crate) fn faults(seen: &[Value], asked: &HashMap<String, String>) -> Vec<String> {
    let mut made = Made::new();
    seen.iter().filter_map(|message| fault(message, asked, &mut made).err()).collect()
}

/// The validators compiled so far; `None` for methods that are not in the schema.
type Made = HashMap<(String, Part), Option<Validator>>;

fn fault(message: &Value, asked: &HashMap<String, String>, made: &mut Made) -> Result<(), String> {
    let object = message.as_object().ok_or_else(|| format!("not an object: {message}"))?;
    if object.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(format!("no \"jsonrpc\":\"2.0\": {message}"));
    }
    match (object.get("method").and_then(Value::as_str), object.get("result"), object.get("error"))
    {
        (Some(method), None, None) => {
            let validator = made
                .entry((method.to_owned(), Part::Sent))
                .or_insert_with(|| validator(method, Part::Sent))
                .as_ref()
                .ok_or_else(|| format!("the schema has no {method} for clients"))?;
            fits(validator, object.get("params").unwrap_or(&Value::Null), message)
        }
        (None, Some(result), None) => {
            let id = object.get("id").ok_or("a result without an id")?.to_string();
            let Some(method) = asked.get(&id) else {
                return Err(format!("a result for nothing that was asked: {message}"));
            };
            let known = made
                .entry((method.clone(), Part::Answered))
                .or_insert_with(|| validator(method, Part::Answered));
            match known {
                Some(validator) => fits(validator, result, message),
                // `session/set_model` is older than the schema.
                None => Ok(()),
            }
        }
        (None, None, Some(error)) => {
            let error: &Map<String, Value> =
                error.as_object().ok_or("an error that is no object")?;
            let is_whole = error.get("code").is_some_and(Value::is_i64)
                && error.get("message").is_some_and(Value::is_string);
            if is_whole {
                Ok(())
            } else {
                Err(format!("an error without code and message: {message}"))
            }
        }
        _ => Err(format!("neither a call, a note nor a reply: {message}")),
    }
}

fn fits(validator: &Validator, value: &Value, message: &Value) -> Result<(), String> {
    let faults: Vec<String> = validator
        .iter_errors(value)
        .map(|fault| format!("{} at {}", fault, fault.instance_path()))
        .collect();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(format!("{message}\n  does not fit the schema: {}", faults.join("; ")))
    }
}

// R: D1
pub(crate) fn bad_messages_do_not_fit() {
    let asked = HashMap::from([("1".to_owned(), "session/prompt".to_owned())]);
    let good = json!({ "jsonrpc": "2.0", "id": 1, "result": { "stopReason": "end_turn" } });
    let bad = [
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "stopReason": "error" } }),
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 2, "result": {} }),
        json!({ "id": 1, "result": { "stopReason": "end_turn" } }),
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": { "sessionUpdate": "nonsense" } } }),
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": { "sessionUpdate": "plan", "entries": [{ "content": "x" }] } } }),
        json!({ "jsonrpc": "2.0", "method": "nonsense", "params": {} }),
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": "x" } }),
    ];
    assert_eq!(faults(&[good], &asked), Vec::<String>::new());
    for message in bad {
        assert_eq!(faults(std::slice::from_ref(&message), &asked).len(), 1, "{message}");
    }
}
