//! Checks a configuration against the table of keys: invalid members are reported with their line, and removed, unless they could
//! restrict something.

use std::collections::BTreeMap;

use engine::words::nearest;
use jsonc_parser::ast;
use jsonc_parser::{CollectOptions, ParseOptions};
use serde_json::Value;

use super::keys::{self, KEYS, Key, Kind};
use crate::custom::hooks;
use crate::limits::Limits;

/// The line of each member, by its path, such as `limits.expire_days`.
pub type Lines = BTreeMap<String, usize>;

/// The most problems of a file that are reported.
const MOST_PROBLEMS: usize = 20;
/// The longest path in a problem, in bytes.
const LONGEST_PATH: usize = 200;

/// A file that was checked.
#[derive(Debug, Default)]
pub struct Checked {
    /// The valid members.
    pub value: serde_json::Map<String, Value>,
    /// Their lines.
    pub lines: Lines,
    /// Problems, each with its line.
    pub problems: Vec<(usize, String)>,
    /// Those of them that are about a restriction.
    pub unclear: Vec<(usize, String)>,
    /// Whether a hook that could reject something is lost, because it cannot be understood.
    pub has_unclear_hooks: bool,
    /// Whether what it restricts is unknown: the text cannot be parsed, or the name of the rules is misspelt.
    pub is_broken: bool,
}

/// Parses a file and removes invalid members. Problems never repeat values, which may be secret.
pub fn check(text: &str) -> Checked {
    let mut checked = Checked::default();
    let options = ParseOptions::default();
    let parsed = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &options)
        .and_then(|parsed| Ok((parsed, jsonc_parser::parse_to_serde_value(text, &options)?)));
    let (parsed, value) = match parsed {
        Ok((parsed, value)) => (parsed.value, value),
        Err(err) => {
            let line = line_at(&line_ends(text), err.range().start);
            checked.problems.push((line, err.kind().to_string()));
            checked.is_broken = true;
            return checked;
        }
    };
    if let Some(parsed) = &parsed {
        note_lines(&line_ends(text), parsed, "", &mut checked);
    }
    match value {
        Value::Object(members) => checked.value = members,
        // An empty file is valid.
        Value::Null if parsed.is_none() => {}
        _ => {
            checked.problems.push((1, "the file must contain an object".to_owned()));
            checked.is_broken = true;
        }
    }
    checked.remove_invalid();
    checked
}

impl Checked {
    /// Removes invalid members, and reports them.
    pub fn remove_invalid(&mut self) {
        let Checked { value, lines, problems, unclear, has_unclear_hooks, is_broken } = self;
        *has_unclear_hooks = value.get("hooks").is_some_and(|hooks| !hooks::are_clear(hooks));
        // Rules under a misspelt name would be lost.
        let is_misspelt = |name: &String| {
            let known = KEYS.iter().map(|top| top.key.name);
            keys::find(name).is_none()
                && name.len() <= LONGEST_PATH
                && nearest(name, known) == Some("permission")
        };
        *is_broken |= value.keys().any(is_misspelt);
        // As are restrictions that have no names.
        *is_broken |= value.get("tools").is_some_and(|tools| !tools.is_object());
        let mut walk = Walk { lines, problems, unclear };
        walk.members(value, "", |name| keys::find(name).map(|top| &top.key));
    }
}

/// Checks one value that does not come from a file.
///
/// # Errors
/// Says what the value must be.
pub fn check_value(kind: &Kind, value: &Value) -> Result<(), String> {
    if has_kind(kind, value) { Ok(()) } else { Err(format!("must be {}", words(kind))) }
}

/// Returns where the lines of a string end.
fn line_ends(text: &str) -> Vec<usize> {
    text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect()
}

fn line_at(ends: &[usize], at: usize) -> usize {
    ends.partition_point(|end| *end < at) + 1
}

fn note_lines(ends: &[usize], value: &ast::Value<'_>, path: &str, checked: &mut Checked) {
    let ast::Value::Object(object) = value else { return };
    for member in &object.properties {
        let path = join(path, member.name.as_str());
        let line = line_at(ends, member.range.start);
        if let Some(before) = checked.lines.insert(path.clone(), line)
            && checked.problems.len() < MOST_PROBLEMS
            && path.len() < LONGEST_PATH
        {
            let problem = format!("duplicate `{path}`, also on line {before}; this one is used");
            checked.problems.push((line, problem));
        }
        note_lines(ends, &member.value, &path, checked);
    }
}

/// Joins a path and a name.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

struct Walk<'a> {
    lines: &'a Lines,
    problems: &'a mut Vec<(usize, String)>,
    unclear: &'a mut Vec<(usize, String)>,
}

impl Walk<'_> {
    fn report(&mut self, path: &str, problem: &str) {
        if self.problems.len() >= MOST_PROBLEMS {
            return;
        }
        let line = self.lines.get(path).copied().unwrap_or(1);
        let path = &path[..path.floor_char_boundary(LONGEST_PATH)];
        self.problems.push((line, format!("`{path}` {problem}")));
    }

    /// Retains known and valid members.
    fn members<'k>(
        &mut self,
        members: &mut serde_json::Map<String, Value>,
        path: &str,
        find: impl Fn(&str) -> Option<&'k Key>,
    ) {
        members.retain(|name, value| {
            let path = join(path, name);
            match find(name) {
                Some(key) => self.is_right(&key.kind, value, &path),
                None => {
                    let known = names(&path);
                    let is_word = name.len() <= LONGEST_PATH;
                    let near = nearest(name, known.iter().copied().filter(|_| is_word));
                    let hint = near.map(|near| format!(". Did you mean `{near}`?"));
                    let problem = "is not a known key".to_owned() + &hint.unwrap_or_default();
                    self.report(&path, &problem);
                    false
                }
            }
        });
    }

    /// Tells whether a value is valid, after removing what is invalid inside it.
    fn is_right(&mut self, kind: &Kind, value: &mut Value, path: &str) -> bool {
        match (kind, value) {
            (Kind::Object(keys), Value::Object(members)) => {
                self.members(members, path, |name| keys.iter().find(|key| key.name == name));
                true
            }
            (Kind::Open(keys), Value::Object(members)) => {
                members.retain(|name, value| {
                    let key = keys.iter().find(|key| key.name == name);
                    key.is_none_or(|key| self.is_right(&key.kind, value, &join(path, name)))
                });
                true
            }
            (Kind::Map(kind), Value::Object(members)) => {
                members.retain(|name, value| self.is_right(kind, value, &join(path, name)));
                true
            }
            (Kind::Limits, Value::Object(members)) => {
                members.retain(|name, value| self.is_limit(name, value, &join(path, name)));
                true
            }
            // Invalid items of a list of objects are removed one by one.
            (Kind::List(kind @ (Kind::Object(_) | Kind::Open(_))), Value::Array(items)) => {
                items.retain_mut(|item| self.is_right(kind, item, path));
                true
            }
            (Kind::Either(kinds), value) => match kinds.iter().find(|kind| is_like(kind, value)) {
                Some(kind) => self.is_right(kind, value, path),
                None => {
                    self.report(path, &format!("must be {}", words(&Kind::Either(kinds))));
                    // Its reader restricts what it does not understand.
                    kinds.iter().any(|kind| matches!(kind, Kind::Map(Kind::Guard(_))))
                }
            },
            (Kind::Guard(_), Value::Bool(_)) => true,
            (Kind::Guard(until), _) => {
                let before = self.problems.len();
                self.report(path, &format!("must be true or false. {until}"));
                self.unclear.extend_from_slice(&self.problems[before..]);
                true
            }
            (kind, value) => {
                let is_right = has_kind(kind, value);
                if !is_right {
                    self.report(path, &format!("must be {}", words(kind)));
                }
                is_right
            }
        }
    }

    fn is_limit(&mut self, name: &str, value: &Value, path: &str) -> bool {
        let known = Limits::TABLE.iter().map(|(name, _, _)| *name);
        if !known.clone().any(|known| known == name) {
            let near = nearest(name, known).map(|near| format!(". Did you mean `{near}`?"));
            let hint = near.unwrap_or_else(|| ". See docs/guide/limits.md.".to_owned());
            self.report(path, &format!("is not a known limit{hint}"));
            return false;
        }
        if value.as_u64().is_none() {
            self.report(path, "must be a whole number");
        }
        value.as_u64().is_some()
    }
}

/// Returns the valid names for a key at this path.
fn names(path: &str) -> Vec<&'static str> {
    let mut keys: Vec<&'static Key> = KEYS.iter().map(|top| &top.key).collect();
    let parts: Vec<&str> = path.split('.').collect();
    let mut kind: Option<&'static Kind> = None;
    for part in &parts[..parts.len() - 1] {
        kind = match kind {
            Some(Kind::Map(inner) | Kind::List(inner)) => Some(inner),
            _ => keys.iter().find(|key| key.name == *part).map(|key| &key.kind),
        };
        if let Some(Kind::Object(inner) | Kind::Open(inner)) = kind {
            keys = inner.iter().collect();
        }
    }
    keys.iter().map(|key| key.name).collect()
}

/// Tells whether a value has the JSON type of this kind.
fn is_like(kind: &Kind, value: &Value) -> bool {
    match kind {
        Kind::Text | Kind::Secret | Kind::Word(_) => value.is_string(),
        Kind::Switch | Kind::Guard(_) => value.is_boolean(),
        Kind::Whole => value.is_u64(),
        Kind::Number => value.is_number(),
        Kind::List(_) => value.is_array(),
        Kind::Object(_) | Kind::Open(_) | Kind::Map(_) | Kind::Limits => value.is_object(),
        Kind::Either(kinds) => kinds.iter().any(|kind| is_like(kind, value)),
        Kind::Rules => true,
    }
}

fn has_kind(kind: &Kind, value: &Value) -> bool {
    match (kind, value) {
        (Kind::Word(known), Value::String(word)) => known.contains(&word.as_str()),
        (Kind::List(kind), Value::Array(items)) => items.iter().all(|item| has_kind(kind, item)),
        (kind, value) => is_like(kind, value),
    }
}

/// Describes what a value must be.
fn words(kind: &Kind) -> String {
    match kind {
        Kind::Text | Kind::Secret => "a string".to_owned(),
        Kind::Word(known) => format!("one of {}", known.join(", ")),
        Kind::Switch | Kind::Guard(_) => "true or false".to_owned(),
        Kind::Whole => "a whole number".to_owned(),
        Kind::Number => "a number".to_owned(),
        Kind::List(Kind::Text) => "a list of strings".to_owned(),
        Kind::List(_) => "a list".to_owned(),
        Kind::Object(_) | Kind::Open(_) | Kind::Map(_) | Kind::Limits => "an object".to_owned(),
        Kind::Rules => "allow, ask or deny, or an object of rules".to_owned(),
        Kind::Either(kinds) => kinds.iter().map(words).collect::<Vec<_>>().join(", or "),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mistakes_are_reported_with_their_line_and_the_nearest_name() {
        let text = r#"{
            // comments are fine
            "modle": "a/b",
            "dialect": "latin",
            "instructions": "x.md",
            "provider": {
                "near": { "options": { "baseURL": 5, "other": [1] }, "models": { "m": { "reasoning": "yes" } } },
            },
            "mcp": { "x": { "enabled": 1 }, "y": 3 },
            "limits": { "expire_day": 3, "max_sessions": -1 },
            "model": "a", "model": "b",
        }"#;
        let checked = check(text);
        let problems: Vec<String> =
            checked.problems.iter().map(|(line, problem)| format!("{line}: {problem}")).collect();
        let expected = [
            "11: duplicate `model`, also on line 11; this one is used",
            "3: `modle` is not a known key. Did you mean `model`?",
            "4: `dialect` must be one of v1, message-reference, container",
            "5: `instructions` must be a list of strings",
            "7: `provider.near.options.baseURL` must be a string",
            "7: `provider.near.models.m.reasoning` must be true or false",
            "9: `mcp.x.enabled` must be true or false. The server does not start until this is corrected.",
            "9: `mcp.y` must be an object",
            "10: `limits.expire_day` is not a known limit. Did you mean `expire_days`?",
            "10: `limits.max_sessions` must be a whole number",
        ];
        let mut sorted = problems.clone();
        sorted.sort();
        let mut wanted = expected.map(str::to_owned);
        wanted.sort();
        assert_eq!(sorted, wanted);
        assert_eq!(checked.value["model"], "b");
        assert_eq!(checked.value["provider"]["near"]["options"]["other"][0], 1);
        // Whoever reads it restricts what it does not understand.
        assert_eq!(checked.value["mcp"]["x"]["enabled"], 1);
        assert_eq!(checked.unclear.len(), 1);
    }

    #[test]
    fn invalid_json_is_reported_with_its_line() {
        let checked = check("{\n  \"model\": [\n");
        assert!(checked.value.is_empty());
        assert_eq!(checked.problems.len(), 1);
        assert!(checked.is_broken);
        assert!(check("").problems.is_empty() && !check("").is_broken);
        assert!(check("[]").is_broken && check("[]").problems.len() == 1);
        for name in ["permissions", "permision", "Permission"] {
            assert!(check(&format!("{{ \"{name}\": \"deny\" }}")).is_broken, "{name}");
        }
        assert!(!check("{ \"modle\": \"a/b\" }").is_broken);
    }

    proptest! {
        #[test]
        fn problems_of_arbitrary_text_are_on_its_lines(text in "[\\[\\]{}\":,a-z0-9 \n./*-]{0,200}") {
            let checked = check(&text);
            prop_assert!(checked.problems.iter().all(|(line, _)| *line <= text.lines().count().max(1) + 1));
        }
    }
}
