//! The table of keys, printed: as a JSON Schema for editors, and as docs/guide/config-keys.md for people.

use serde_json::{Map, Value, json};

use super::keys::{KEYS, Key, Kind};
use crate::limits::Limits;

/// Returns the JSON Schema of `purlin.json`.
#[must_use]
pub fn schema() -> Value {
    let keys = KEYS.iter().map(|top| &top.key);
    let mut schema = object(keys, false);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("purlin.json");
    schema["description"] = json!("The configuration of Purlin, a coding agent for editors.");
    schema
}

fn object<'a>(keys: impl Iterator<Item = &'a Key>, is_open: bool) -> Value {
    let properties: Map<String, Value> = keys
        .map(|key| {
            let mut schema = of(&key.kind);
            schema["description"] = json!(key.about);
            (key.name.to_owned(), schema)
        })
        .collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": is_open })
}

fn of(kind: &Kind) -> Value {
    match kind {
        Kind::Text | Kind::Secret => json!({ "type": "string" }),
        Kind::Word(known) => json!({ "type": "string", "enum": known }),
        Kind::Switch | Kind::Guard(_) => json!({ "type": "boolean" }),
        Kind::Whole => json!({ "type": "integer", "minimum": 0 }),
        Kind::Number => json!({ "type": "number" }),
        Kind::List(kind) => json!({ "type": "array", "items": of(kind) }),
        Kind::Object(keys) => object(keys.iter(), false),
        Kind::Open(keys) => object(keys.iter(), true),
        Kind::Map(kind) => json!({ "type": "object", "additionalProperties": of(kind) }),
        Kind::Either(kinds) => json!({ "anyOf": kinds.iter().map(of).collect::<Vec<_>>() }),
        Kind::Rules => rules(),
        Kind::Limits => limits(),
    }
}

fn rules() -> Value {
    let word = json!({ "type": "string", "enum": ["allow", "ask", "deny"] });
    let patterns = json!({ "type": "object", "additionalProperties": word });
    let keys = json!({ "type": "object", "additionalProperties": { "anyOf": [word, patterns] } });
    json!({ "anyOf": [word, keys] })
}

fn limits() -> Value {
    let one = |(name, default, about): &(&str, u64, &str)| {
        let schema = json!({ "type": "integer", "minimum": 0, "default": default, "description": about.trim() });
        ((*name).to_owned(), schema)
    };
    let properties: Map<String, Value> = Limits::TABLE.iter().map(one).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::super::keys::ProjectUse;
    use super::*;

    const HEAD: &str = "\
# Configuration keys

<!-- Generated from the table of keys; see the test next to the schema. Do not edit. -->

Every key of `purlin.json`. [configuration.md](configuration.md) explains how the file is read.
";

    fn kind_words(kind: &Kind) -> String {
        match kind {
            Kind::Text => "string".to_owned(),
            Kind::Secret => "string, masked".to_owned(),
            Kind::Word(known) => known.join(", "),
            Kind::Switch | Kind::Guard(_) => "true, false".to_owned(),
            Kind::Whole => "integer".to_owned(),
            Kind::Number => "number".to_owned(),
            Kind::List(kind) => format!("list of: {}", kind_words(kind)),
            Kind::Object(_) | Kind::Open(_) => "object".to_owned(),
            Kind::Map(kind) => format!("map of name to: {}", kind_words(kind)),
            Kind::Either(kinds) => kinds.iter().map(kind_words).collect::<Vec<_>>().join("; or "),
            Kind::Rules => "allow, ask, deny; or by key".to_owned(),
            Kind::Limits => "object, see [limits](limits.md)".to_owned(),
        }
    }

    fn rows(path: &str, key: &Key, out: &mut String) {
        let path =
            if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
        let (kind, about) = (kind_words(&key.kind), key.about);
        out.push_str(&format!("| `{path}` | {kind} | {about} |\n"));
        inner(&path, &key.kind, out);
    }

    fn inner(path: &str, kind: &Kind, out: &mut String) {
        match kind {
            Kind::Object(keys) | Kind::Open(keys) => {
                keys.iter().for_each(|key| rows(path, key, out));
            }
            Kind::Map(kind) => inner(&format!("{path}.NAME"), kind, out),
            Kind::List(kind) => inner(&format!("{path}[]"), kind, out),
            Kind::Either(kinds) => kinds.iter().for_each(|kind| inner(path, kind, out)),
            Kind::Text
            | Kind::Secret
            | Kind::Word(_)
            | Kind::Switch
            | Kind::Guard(_)
            | Kind::Whole
            | Kind::Number
            | Kind::Rules
            | Kind::Limits => {}
        }
    }

    /// The documentation is generated from the code: `UPDATE_EXPECT=1` updates it.
    #[test]
    fn documented_keys_are_those_in_force() {
        let mut text = format!("{HEAD}\n## Keys\n\n| key | value | meaning |\n|---|---|---|\n");
        KEYS.iter().for_each(|top| rows("", &top.key, &mut text));
        text.push_str("\n## Who may set what\n\n| key | environment variable | flag | in a project's file |\n|---|---|---|---|\n");
        for top in &KEYS {
            let code = |name: Option<&str>| name.map_or(String::new(), |name| format!("`{name}`"));
            let project = match top.project {
                ProjectUse::May(how) => format!("yes: {how}"),
                ProjectUse::Trusted(why) => format!("only in a trusted project: {why}"),
                ProjectUse::Never(why) => format!("no: {why}"),
            };
            text.push_str(&format!(
                "| `{}` | {} | {} | {project} |\n",
                top.key.name,
                code(top.variable),
                code(top.flag)
            ));
        }
        text.push_str(
            "\nEach limit has a variable of its own, for example `PURLIN_LIMITS_EXPIRE_DAYS`.\n",
        );
        expect_test::expect_file!["../../../../docs/guide/config-keys.md"].assert_eq(&text);
    }

    /// Every example in the documentation is valid by the schema and the table. R: P1
    #[test]
    fn documented_examples_match_the_schema() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
        let mut pages = vec![include_str!("../../../../README.md").to_owned()];
        for page in std::fs::read_dir(guide).unwrap() {
            pages.push(std::fs::read_to_string(page.unwrap().path()).unwrap());
        }
        let mut count = 0;
        for page in pages {
            let blocks = page.split("```").skip(1).step_by(2);
            let of_ours = blocks.filter_map(|block| {
                let (language, text) = block.split_once('\n')?;
                let is_ours =
                    KEYS.iter().any(|top| text.contains(&format!("\"{}\":", top.key.name)));
                (language.starts_with("json") && is_ours).then_some(text)
            });
            for text in of_ours {
                let options = jsonc_parser::ParseOptions::default();
                let value: Value = jsonc_parser::parse_to_serde_value(text, &options).unwrap();
                if !value.as_object().is_some_and(|members| {
                    members.keys().any(|key| super::super::keys::find(key).is_some())
                }) {
                    continue;
                }
                let faults: Vec<String> =
                    validator.iter_errors(&value).map(|fault| fault.to_string()).collect();
                assert_eq!(faults, [""; 0], "{text}");
                assert_eq!(check(text).problems, [], "{text}");
                count += 1;
            }
        }
        assert!(count >= 8, "only {count} examples were found");
    }

    /// The table and the schema reject the same values.
    #[test]
    fn schema_and_table_agree() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        for (text, is_right) in [
            (r#"{}"#, true),
            (r#"{"model":5}"#, false),
            (r#"{"modle":"a"}"#, false),
            (r#"{"limits":{"expire_days":1}}"#, true),
            (r#"{"limits":{"expire_days":-1}}"#, false),
            (r#"{"limits":{"x":1}}"#, false),
            (r#"{"provider":{"a":{"other":1}}}"#, true),
            (r#"{"provider":{"a":{"models":[]}}}"#, false),
            (r#"{"mcp":{"a":{"command":["x"],"enabled":true}}}"#, true),
            (r#"{"mcp":{"a":{"command":[1]}}}"#, false),
            (r#"{"permission":"ask"}"#, true),
            (r#"{"instructions":["a.md"]}"#, true),
            (r#"{"instructions":[1]}"#, false),
            (r#"{"dialect":"v1"}"#, true),
            (r#"{"dialect":"v9"}"#, false),
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(validator.is_valid(&value), is_right, "the schema: {text}");
            assert_eq!(check(text).problems.is_empty(), is_right, "the table: {text}");
        }
    }
}
