//! Calls that are meant for `bash`: other names of it, and programs called as if they were tools. Pure.

use serde_json::{Map, Value, json};

use super::project_tests;
use crate::adopt;

/// Other names of the tool, as `adopt::plain` writes them.
const NAMES: [&str; 16] = [
    "bash",
    "shell",
    "sh",
    "exec",
    "execute",
    "run",
    "runcommand",
    "executecommand",
    "execcommand",
    "runshellcommand",
    "runterminalcommand",
    "runinterminal",
    "runbash",
    "terminal",
    "cmd",
    "command",
];
/// Programs that models call as if they were tools.
const PROGRAMS: [&str; 12] = [
    "python", "python3", "node", "npm", "npx", "pip", "pytest", "make", "go", "cargo", "git",
    "ruby",
];
/// Programs that run code from their command line, with the option for that.
const INTERPRETERS: [(&str, &str); 4] =
    [("python", "-c"), ("python3", "-c"), ("node", "-e"), ("ruby", "-e")];

/// Reads a call under any of these names.
pub(super) fn adopt(name: &str, input: &Value) -> Option<Value> {
    let plain = adopt::plain(name);
    let fields = [
        "command",
        "timeout",
        "description",
        "network",
        "git",
        "write_outside",
        "reason",
        "background",
    ];
    let fields: Map<String, Value> =
        fields.iter().map(|field| ((*field).to_owned(), Value::Null)).collect();
    if NAMES.contains(&plain.as_str()) {
        let corrected = adopt::correct(&joined(input), &fields, &["command"]);
        return (name == "bash" || corrected["command"].is_string()).then_some(corrected);
    }
    let is_tests = project_tests::NAMES.contains(&plain.as_str());
    if !is_tests && !PROGRAMS.contains(&plain.as_str()) {
        return None;
    }
    let corrected = adopt::correct(&joined(input), &fields, &[]);
    if let Some(command) = corrected["command"].as_str() {
        // `python3 {"command": "python3 a.py"}` names the program twice.
        let is_whole = is_tests || command.split_whitespace().next() == Some(name);
        let command = if is_whole { command.to_owned() } else { format!("{name} {command}") };
        return Some(json!({ "command": command }));
    }
    let program = if is_tests { project_tests::NAME } else { name };
    Some(json!({ "command": with_arguments(program, input) }))
}

/// Writes a command that is a list of words as one string.
fn joined(input: &Value) -> Value {
    let mut input = input.clone();
    if let Value::Object(members) = &mut input {
        for value in members.values_mut() {
            let words = value.as_array().map(|words| words.iter().map(Value::as_str).collect());
            if let Some(Some(words)) = words as Option<Option<Vec<&str>>> {
                let quoted: Vec<String> = words.into_iter().map(quote).collect();
                *value = quoted.join(" ").into();
            }
        }
    }
    input
}

/// Writes a program with what it was called with: a file, code or other words.
fn with_arguments(program: &str, input: &Value) -> String {
    let mut command = program.to_owned();
    let option = INTERPRETERS.iter().find(|(name, _)| *name == program).map(|(_, option)| *option);
    let members: Vec<(&String, &Value)> = input.as_object().into_iter().flatten().collect();
    for (name, value) in members {
        let words: Vec<&str> = match value {
            Value::String(text) => vec![text],
            Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
            _ => continue,
        };
        let is_code = matches!(adopt::plain(name).as_str(), "code" | "source" | "program");
        if let (true, Some(option)) = (is_code, option) {
            command.push_str(&format!(" {option}"));
        }
        // `args` is often one string with several words.
        let is_words = adopt::plain(name).starts_with("arg") && value.is_string();
        for word in words.iter().filter(|word| !word.is_empty()) {
            command.push(' ');
            command.push_str(&if is_words { (*word).to_owned() } else { quote(word) });
        }
    }
    command
}

/// Quotes a word for the shell, if it needs that.
fn quote(word: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "-_./=:,+@%".contains(character);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T4
    #[test]
    fn programs_and_other_names_become_commands() {
        let command = |name: &str, input: Value| {
            adopt(name, &input)
                .map(|input| input["command"].as_str().unwrap_or_default().to_owned())
        };
        for (name, input, expected) in [
            ("bash", json!({ "cmd": "make" }), Some("make")),
            ("run_command", json!({ "command": "make" }), Some("make")),
            ("shell", json!({ "command": ["ls", "a b"] }), Some("ls 'a b'")),
            ("python3", json!({ "file": "a.py" }), Some("python3 a.py")),
            ("python3", json!({ "code": "print('x')" }), Some("python3 -c 'print('\\''x'\\'')'")),
            ("python3", json!({ "command": "python3 a.py" }), Some("python3 a.py")),
            ("python3", json!({ "command": "a.py" }), Some("python3 a.py")),
            ("pytest", json!({ "args": "-q tests" }), Some("pytest -q tests")),
            ("run_tests", json!({}), Some("run_tests")),
            ("run_tests", json!({ "path": "test_a.py" }), Some("run_tests test_a.py")),
            ("run_tests", json!({ "command": "make test" }), Some("make test")),
            ("execute", json!({}), None),
            ("frobnicate", json!({ "command": "x" }), None),
        ] {
            assert_eq!(command(name, input.clone()).as_deref(), expected, "{name} {input}");
        }
    }
}
