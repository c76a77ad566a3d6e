//! The official schema as a judge: every message that a test sees us send must fit it.

use std::collections::HashMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Map, Value, json};

/// What the schema says of a method: who has it, and what is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    /// The parameters of a call or note that the agent sends.
    Sent,
    /// The result of a call that the agent answers.
    Answered,
}

static VALIDATORS: LazyLock<HashMap<(String, Part), Validator>> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(include_str!("../../../../conformance/schema/acp-v1.json")).unwrap();
    let definitions = schema["$defs"].as_object().unwrap();
    let mut validators = HashMap::new();
    for (name, definition) in definitions {
        let (Some(side), Some(method)) = (definition["x-side"].as_str(), definition["x-method"].as_str()) else {
            continue;
        };
        let part = match (side, name.ends_with("Response")) {
            ("client" | "protocol", false) => Part::Sent,
            ("agent", true) => Part::Answered,
            _ => continue,
        };
        let one = json!({ "$schema": schema["$schema"], "$ref": format!("#/$defs/{name}"), "$defs": definitions });
        let validator = jsonschema::validator_for(&one).unwrap();
        validators.insert((method.to_owned(), part), validator);
    }
    validators
});

/// Checks the messages an agent sent. `asked` knows which method each id of the client belongs to.
///
/// Returns what does not fit, in words.
pub fn faults(seen: &[Value], asked: &HashMap<String, String>) -> Vec<String> {
    seen.iter().filter_map(|message| fault(message, asked).err()).collect()
}

fn fault(message: &Value, asked: &HashMap<String, String>) -> Result<(), String> {
    let object = message.as_object().ok_or_else(|| format!("not an object: {message}"))?;
    if object.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(format!("no \"jsonrpc\":\"2.0\": {message}"));
    }
    match (object.get("method").and_then(Value::as_str), object.get("result"), object.get("error")) {
        (Some(method), None, None) => {
            let validator = VALIDATORS
                .get(&(method.to_owned(), Part::Sent))
                .ok_or_else(|| format!("the schema has no {method} for clients"))?;
            fits(validator, object.get("params").unwrap_or(&Value::Null), message)
        }
        (None, Some(result), None) => {
            let id = object.get("id").ok_or("a result without an id")?.to_string();
            let Some(method) = asked.get(&id) else {
                return Err(format!("a result for nothing that was asked: {message}"));
            };
            match VALIDATORS.get(&(method.clone(), Part::Answered)) {
                Some(validator) => fits(validator, result, message),
                // `session/set_model` is older than the schema.
                None => Ok(()),
            }
        }
        (None, None, Some(error)) => {
            let error: &Map<String, Value> = error.as_object().ok_or("an error that is no object")?;
            let is_whole = error.get("code").is_some_and(Value::is_i64) && error.get("message").is_some_and(Value::is_string);
            if is_whole { Ok(()) } else { Err(format!("an error without code and message: {message}")) }
        }
        _ => Err(format!("neither a call, a note nor a reply: {message}")),
    }
}

fn fits(validator: &Validator, value: &Value, message: &Value) -> Result<(), String> {
    let faults: Vec<String> =
        validator.iter_errors(value).map(|fault| format!("{} at {}", fault, fault.instance_path())).collect();
    if faults.is_empty() { Ok(()) } else { Err(format!("{message}\n  does not fit the schema: {}", faults.join("; "))) }
}

// R: D1
#[test]
fn the_judge_can_say_no() {
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
