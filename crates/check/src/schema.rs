//! The official schema: whether the messages of an agent are valid against it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

/// The part of a method that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The parameters of a call or notification that the agent sends.
    Sent,
    /// The result of a call that the agent answers.
    Answered,
}

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../conformance/schema/acp-v1.json"))
        .unwrap_or_default()
});

/// The validators compiled so far; `None` for methods that are not in the schema.
type Compiled = HashMap<(String, Part), Option<Arc<Validator>>>;

static COMPILED: LazyLock<Mutex<Compiled>> = LazyLock::new(Mutex::default);

/// Returns the validator of one part of a method. Compiled when it is needed: all of them take seconds.
fn validator(method: &str, part: Part) -> Option<Arc<Validator>> {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = compiled.entry((method.to_owned(), part));
    entry.or_insert_with(|| compile(method, part).map(Arc::new)).clone()
}

/// Returns the definition of one part of a method, with its name.
fn definition(method: &str, wanted: Part) -> Option<(&'static String, &'static Value)> {
    SCHEMA["$defs"].as_object()?.iter().find(|(name, definition)| {
        let part = match (definition["x-side"].as_str(), name.ends_with("Response")) {
            (Some("client" | "protocol"), false) => Some(Part::Sent),
            (Some("agent"), true) => Some(Part::Answered),
            _ => None,
        };
        definition["x-method"] == method && part == Some(wanted)
    })
}

fn compile(method: &str, wanted: Part) -> Option<Validator> {
    let definitions = SCHEMA["$defs"].as_object()?;
    let (name, _) = definition(method, wanted)?;
    let reference = format!("#/$defs/{name}");
    let one = json!({ "$schema": SCHEMA["$schema"], "$ref": reference, "$defs": definitions });
    jsonschema::validator_for(&one).ok()
}

/// Returns whether the schema has this part of a method.
#[must_use]
pub fn knows(method: &str, part: Part) -> bool {
    validator(method, part).is_some()
}

/// Returns what is wrong with a value, or `None` if it is valid or the schema does not have the method.
#[must_use]
pub fn fault(method: &str, part: Part, value: &Value) -> Option<String> {
    let validator = validator(method, part)?;
    let faults: Vec<String> = validator
        .iter_errors(value)
        .take(3)
        .map(|fault| {
            let text: String = fault.to_string().chars().take(300).collect();
            format!("{text} at {}", fault.instance_path())
        })
        .collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// Returns the names of the members that one part of a method may have. Empty if the schema does not have it.
#[must_use]
pub fn members(method: &str, part: Part) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if let Some((_, definition)) = definition(method, part) {
        add_members(definition, &mut names);
    }
    names
}

/// Returns the names of the members that an update of this kind may have. Empty for an unknown kind.
#[must_use]
pub fn update_members(kind: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let variants = SCHEMA["$defs"]["SessionUpdate"]["oneOf"].as_array().into_iter().flatten();
    for variant in variants {
        if variant["properties"]["sessionUpdate"]["const"] == kind {
            add_members(variant, &mut names);
        }
    }
    names
}

/// Adds the members of a definition and of all that it refers to or chooses from.
fn add_members(definition: &Value, names: &mut BTreeSet<String>) {
    names.extend(
        definition["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()),
    );
    if let Some(name) = definition["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        add_members(&SCHEMA["$defs"][name], names);
    }
    for parts in ["allOf", "anyOf", "oneOf"] {
        for part in definition[parts].as_array().into_iter().flatten() {
            add_members(part, names);
        }
    }
}

/// Checks the messages of an agent and returns a sentence for each that is not valid.
///
/// `asked` has the method of each call of the client, by its id.
#[must_use]
pub fn faults(seen: &[Value], asked: &HashMap<String, String>) -> Vec<String> {
    seen.iter().filter_map(|message| check(message, asked).err()).collect()
}

fn check(message: &Value, asked: &HashMap<String, String>) -> Result<(), String> {
    let object = message.as_object().ok_or_else(|| format!("not an object: {message}"))?;
    if object.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(format!("no \"jsonrpc\":\"2.0\": {message}"));
    }
    let of = |method: &str, part, value: &Value| match fault(method, part, value) {
        Some(fault) => Err(format!("{message}\n  does not fit the schema: {fault}")),
        None => Ok(()),
    };
    match (object.get("method").and_then(Value::as_str), object.get("result"), object.get("error"))
    {
        (Some(method), None, None) if knows(method, Part::Sent) => {
            of(method, Part::Sent, object.get("params").unwrap_or(&Value::Null))
        }
        (Some(method), None, None) => Err(format!("the schema has no {method} for clients")),
        (None, Some(result), None) => {
            let id = object.get("id").ok_or("a result without an id")?.to_string();
            match asked.get(&id) {
                // A method without a schema, such as `session/set_model`, is older than the schema.
                Some(method) => of(method, Part::Answered, result),
                None => Err(format!("a result for nothing that was asked: {message}")),
            }
        }
        (None, None, Some(error)) => {
            let error: &Map<String, Value> =
                error.as_object().ok_or("an error that is no object")?;
            let is_whole = error.get("code").is_some_and(Value::is_i64)
                && error.get("message").is_some_and(Value::is_string);
            match is_whole {
                true => Ok(()),
                false => Err(format!("an error without code and message: {message}")),
            }
        }
        _ => Err(format!("neither a call, a notification nor a reply: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_through_references() {
        assert!(members("session/new", Part::Answered).contains("configOptions"));
        assert!(members("elicitation/create", Part::Sent).contains("requestedSchema"));
        assert!(update_members("tool_call").contains("rawInput"));
        assert!(update_members("nonsense").is_empty());
    }

    // R: D1
    #[test]
    fn invalid_messages_are_found() {
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
}
