//! The forms in which models write calls. Pure.
//!
//! | form | written by |
//! |---|---|
//! | `{"name": …, "arguments": {…}}`, one or several, or a list | Qwen Coder, Llama, Phi |
//! | the same with a brace too many, or with an imagined `<tool_response>` behind it | Qwen Coder |
//! | the same in a code fence | Qwen Coder, Gemma, DeepSeek Coder |
//! | `<tool_call>{…}</tool_call>` | Qwen, Hermes |
//! | `<function=NAME>{…}</function>`, also with `<parameter=KEY>` | Llama, Qwen 3 Coder |
//! | `[TOOL_CALLS][{…}]`, `[TOOL_CALLS]NAME{…}` | Mistral |
//! | `<tools>{…}</tools>`: the call itself, or the list of tools before a call | Qwen Coder |

use serde_json::{Map, Value};

/// A call as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WrittenCall {
    pub(super) name: String,
    pub(super) input: Value,
}

/// Finds the schema of a tool that was offered.
type Schemas<'a> = &'a dyn Fn(&str) -> Option<Value>;

/// How an answer in this form begins, and how all of it is read. Reading fails if anything else is in the text.
struct Form {
    begin: &'static str,
    may_go_on: fn(&str) -> bool,
    read: fn(&str, Schemas<'_>) -> Option<Vec<WrittenCall>>,
}

const FORMS: [Form; 7] = [
    Form { begin: "{", may_go_on: |rest| may_be_json("{", rest), read: read_json },
    Form { begin: "[", may_go_on: |rest| may_be_json("[", rest), read: read_json },
    Form { begin: "```", may_go_on: may_be_fence, read: read_fence },
    Form { begin: "<tool_call>", may_go_on: |_| true, read: read_tags },
    Form { begin: "<function=", may_go_on: |_| true, read: read_function },
    Form { begin: "[TOOL_CALLS]", may_go_on: |_| true, read: read_mistral },
    Form { begin: "<tools>", may_go_on: |_| true, read: read_tools },
];

/// Members that a call begins with. An answer that begins with another member is JSON for the user.
const MEMBERS: [&str; 15] = [
    "name",
    "arguments",
    "parameters",
    "args",
    "input",
    "function",
    "function_name",
    "tool",
    "tool_name",
    "type",
    "id",
    "tool_call",
    "tool_calls",
    "function_call",
    "action",
];
const NAMES: [&str; 5] = ["name", "tool", "tool_name", "function_name", "function"];
const ARGUMENTS: [&str; 4] = ["arguments", "parameters", "args", "input"];
/// What a fence may be labelled with.
const LABELS: [&str; 5] = ["", "json", "tool_call", "tool_calls", "xml"];

/// Tells whether an answer with this beginning may become a call. It does not begin with white space.
pub(super) fn may_be_call(begun: &str) -> bool {
    FORMS.iter().any(|form| match begun.strip_prefix(form.begin) {
        Some(rest) => (form.may_go_on)(rest),
        None => form.begin.starts_with(begun),
    })
}

/// Reads the calls of an answer. Returns none if the answer has anything beside calls.
pub(super) fn read(text: &str, schemas: Schemas<'_>) -> Vec<WrittenCall> {
    // Some models go on with the result that they expect. It is nobody's: the call is run instead.
    let text = text.split_once("\n<tool_response>").map_or(text, |(call, _)| call).trim_end();
    let mut forms = FORMS.iter().filter(|form| text.starts_with(form.begin));
    forms.find_map(|form| (form.read)(text, schemas)).unwrap_or_default()
}

/// Tells whether JSON that goes on like this may be a call, by its first member.
fn may_be_json(begin: &str, rest: &str) -> bool {
    let mut rest = rest.trim_start();
    if begin == "[" {
        let Some(inner) = rest.strip_prefix('{') else { return rest.is_empty() };
        rest = inner.trim_start();
    }
    // One brace too many.
    let rest = rest.strip_prefix('{').map_or(rest, str::trim_start);
    let Some(member) = rest.strip_prefix('"') else { return rest.is_empty() };
    match member.split_once('"') {
        Some((member, _)) => MEMBERS.contains(&member),
        None => MEMBERS.iter().any(|known| known.starts_with(member)),
    }
}

fn may_be_fence(rest: &str) -> bool {
    let Some((label, body)) = rest.split_once('\n') else {
        return LABELS.iter().any(|known| known.starts_with(rest.trim_end()));
    };
    let body = body.trim_start();
    LABELS.contains(&label.trim())
        && (body.is_empty() || !body.starts_with("```") && may_be_call(body))
}

fn read_json(text: &str, _: Schemas<'_>) -> Option<Vec<WrittenCall>> {
    read_values(text)
}

/// Reads JSON values, one after the other, that are all calls.
fn read_values(text: &str) -> Option<Vec<WrittenCall>> {
    let text = escape_controls(&plain_quotes(text));
    if text.strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('{')) {
        return read_doubled(&text);
    }
    let mut calls = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        add_calls(&value.ok()?, &mut calls)?;
    }
    (!calls.is_empty()).then_some(calls)
}

/// Reads calls that begin with a brace too many.
fn read_doubled(text: &str) -> Option<Vec<WrittenCall>> {
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        rest = rest.strip_prefix('{')?.trim_start();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        add_calls(&values.next()?.ok()?, &mut calls)?;
        rest = rest[values.byte_offset()..].trim_start_matches(['}', ' ', '\n', '\r', '\t']);
    }
    (!calls.is_empty()).then_some(calls)
}

/// Writes strings in three quotes, as Python has them, as JSON strings.
fn plain_quotes(text: &str) -> std::borrow::Cow<'_, str> {
    const THREE: &str = "\"\"\"";
    if !text.contains(": \"\"\"") {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(": \"\"\"") {
        let Some((inside, after)) = after.split_once(THREE) else { break };
        out.push_str(before);
        out.push_str(": ");
        out.push_str(&Value::from(inside).to_string());
        rest = after;
    }
    out.push_str(rest);
    out.into()
}

/// Escapes line ends and tabs inside strings: models write files as they are.
fn escape_controls(text: &str) -> String {
    let (mut out, mut is_string, mut is_escaped) =
        (String::with_capacity(text.len()), false, false);
    for character in text.chars() {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            '"' if !was_escaped => is_string = !is_string,
            '\\' if is_string && !was_escaped => is_escaped = true,
            '\n' if is_string => {
                out.push_str(if was_escaped { "n" } else { "\\n" });
                continue;
            }
            '\r' if is_string && !was_escaped => {
                out.push_str("\\r");
                continue;
            }
            '\t' if is_string && !was_escaped => {
                out.push_str("\\t");
                continue;
            }
            _ => {}
        }
        out.push(character);
    }
    out
}

/// Adds the call or calls of a value. `None` if it is anything else.
fn add_calls(value: &Value, calls: &mut Vec<WrittenCall>) -> Option<()> {
    match value {
        Value::Array(values) => values.iter().try_for_each(|value| add_calls(value, calls)),
        Value::Object(members) => {
            if let Some(inner) = members.get("tool_calls").or(members.get("tool_call")) {
                return add_calls(inner, calls);
            }
            calls.push(call_of(members)?);
            Some(())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn call_of(members: &Map<String, Value>) -> Option<WrittenCall> {
    // The description of a tool is no call of it.
    if members.contains_key("description") {
        return None;
    }
    for inner in ["function", "function_call"] {
        if let Some(Value::Object(inner)) = members.get(inner) {
            return call_of(inner);
        }
    }
    let name = NAMES.iter().find_map(|key| members.get(*key)?.as_str())?;
    let input = ARGUMENTS.iter().find_map(|key| members.get(*key))?;
    let input = match input {
        Value::Object(_) => input.clone(),
        // Arguments as a string, as the native form has them.
        Value::String(text) => {
            serde_json::from_str(&escape_controls(text)).ok().filter(Value::is_object)?
        }
        Value::Null => Value::Object(Map::new()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    let is_schema = input["type"] == "object" && input["properties"].is_object();
    (!is_schema).then(|| WrittenCall { name: name.to_owned(), input })
}

/// Reads one fence or several, and nothing else. The last one may be open.
fn read_fence(text: &str, schemas: Schemas<'_>) -> Option<Vec<WrittenCall>> {
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (label, body) = rest.strip_prefix("```")?.split_once('\n')?;
        if !LABELS.contains(&label.trim()) {
            return None;
        }
        // A fence ends at a line of its own: a file in the arguments may contain others.
        let (inside, after) = match body.split_once("\n```") {
            Some((inside, after)) if after.is_empty() || after.starts_with(char::is_whitespace) => {
                (inside, after)
            }
            Some(_) => return None,
            None => (body.trim_end().strip_suffix("```").unwrap_or(body), ""),
        };
        // No nesting: it would let a text decide how deep we go.
        let inside = inside.trim();
        if inside.starts_with("```") || inside.starts_with("<tools>") {
            return None;
        }
        let found = read(inside, schemas);
        if found.is_empty() {
            return None;
        }
        calls.extend(found);
        rest = after.trim();
    }
    (!calls.is_empty()).then_some(calls)
}

/// Reads `<tool_call>…</tool_call>`, one or several. The last one may be open.
fn read_tags(text: &str, schemas: Schemas<'_>) -> Option<Vec<WrittenCall>> {
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let inside = rest.strip_prefix("<tool_call>")?;
        let (inside, after) = inside.split_once("</tool_call>").unwrap_or((inside, ""));
        let inside = inside.trim();
        let found = match inside.starts_with("<function=") {
            true => read_function(inside, schemas)?,
            false => read_values(inside)?,
        };
        calls.extend(found);
        rest = after.trim();
    }
    Some(calls)
}

/// Reads `<function=NAME>…</function>`, one or several: with JSON inside, or with `<parameter=KEY>` for each argument.
fn read_function(text: &str, schemas: Schemas<'_>) -> Option<Vec<WrittenCall>> {
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, inside) = rest.strip_prefix("<function=")?.split_once('>')?;
        let (inside, after) = inside.split_once("</function>").unwrap_or((inside, ""));
        let name = name.trim().trim_matches('"');
        let inside = inside.trim();
        let input = if inside.is_empty() {
            Value::Object(Map::new())
        } else if inside.starts_with('{') {
            serde_json::from_str(&escape_controls(inside)).ok()?
        } else {
            parameters(inside, &schemas(name).unwrap_or_default())?
        };
        calls.push(WrittenCall { name: name.to_owned(), input });
        // Some models close a tag that they did not open.
        rest = after.trim().trim_start_matches("</tool_call>").trim();
    }
    Some(calls)
}

fn parameters(text: &str, schema: &Value) -> Option<Value> {
    let mut input = Map::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (key, value) = rest.strip_prefix("<parameter=")?.split_once('>')?;
        let (value, after) = value.split_once("</parameter>")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        // Only the schema says whether `5` is a number or a text.
        let is_text =
            schema["properties"][key]["type"].as_str().is_none_or(|kind| kind == "string");
        let value = match is_text {
            true => Value::from(value),
            false => serde_json::from_str(value.trim()).unwrap_or_else(|_| value.into()),
        };
        input.insert(key.to_owned(), value);
        rest = after.trim();
    }
    Some(input.into())
}

/// Reads `[TOOL_CALLS]` with a list, or with the name and the arguments of each call.
fn read_mistral(text: &str, _: Schemas<'_>) -> Option<Vec<WrittenCall>> {
    let mut calls = Vec::new();
    for part in text.split("[TOOL_CALLS]").skip(1) {
        let part = part.trim();
        if part.starts_with(['[', '{']) {
            calls.extend(read_values(part)?);
            continue;
        }
        let (name, input) = part.split_at(part.find('{')?);
        let name = name.trim().trim_end_matches("[ARGS]").trim();
        let input = serde_json::from_str(&escape_controls(input)).ok()?;
        calls.push(WrittenCall { name: name.to_owned(), input });
    }
    (!calls.is_empty()).then_some(calls)
}

/// Reads `<tools>…</tools>`: a call in it, or the list of tools, which is skipped, and a call after it.
fn read_tools(text: &str, schemas: Schemas<'_>) -> Option<Vec<WrittenCall>> {
    let inside = text.strip_prefix("<tools>")?;
    let (inside, after) = inside.split_once("</tools>").unwrap_or((inside, ""));
    let after = after.trim();
    match read_values(inside.trim()) {
        Some(calls) => after.is_empty().then_some(calls),
        None if after.starts_with("<tools>") => None,
        None => {
            let is_json = |value: serde_json::Result<Value>| value.is_ok();
            let mut values = serde_json::Deserializer::from_str(inside).into_iter::<Value>();
            let calls = read(after, schemas);
            (values.all(is_json) && !calls.is_empty()).then_some(calls)
        }
    }
}
