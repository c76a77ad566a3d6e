//! Corrects calls that a model made with other names: of the tool, or of its arguments. Pure.
//!
//! Models mix up the tools of different agents. What a call means is clear in these cases, so it need not fail.

use serde_json::{Map, Value};

use engine::words::distance;

/// Other names of arguments, without case and underscores.
const ARGUMENTS: &[(&str, &[&str])] = &[
    (
        "filePath",
        &[
            "path",
            "file",
            "filename",
            "filepath",
            "name",
            "target",
            "targetfile",
            "uri",
            "fullpath",
        ],
    ),
    (
        "path",
        &[
            "dir",
            "directory",
            "folder",
            "dirpath",
            "directorypath",
            "folderpath",
            "filepath",
            "file",
        ],
    ),
    (
        "content",
        &["contents", "text", "filetext", "body", "code", "data", "filecontent", "newcontent"],
    ),
    (
        "oldString",
        &[
            "old",
            "oldstr",
            "oldtext",
            "oldcontent",
            "oldcode",
            "search",
            "find",
            "original",
            "before",
            "from",
        ],
    ),
    (
        "newString",
        &[
            "new",
            "newstr",
            "newtext",
            "newcontent",
            "newcode",
            "replace",
            "replacement",
            "after",
            "with",
            "to",
            "replacewith",
        ],
    ),
    ("command", &["cmd", "commands", "script", "shell", "bash", "run", "input", "commandline"]),
    (
        "pattern",
        &[
            "query",
            "regex",
            "regexp",
            "search",
            "text",
            "keyword",
            "searchterm",
            "searchtext",
            "glob",
            "string",
        ],
    ),
    ("patchText", &["patch", "diff", "input", "text"]),
];

/// Returns a name as it is compared: `functions.Read_File` is `readfile`.
pub(crate) fn plain(name: &str) -> String {
    let name = name.rsplit(['.', ':', '/']).next().unwrap_or(name);
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Gives arguments the names that the tool has. `fields` are all of them.
pub(crate) fn correct(input: &Value, fields: &Map<String, Value>, required: &[&str]) -> Value {
    let mut given = match input {
        Value::Object(given) => given.clone(),
        // Only one thing can be meant.
        Value::String(text) if required.len() == 1 => {
            Map::from_iter([(required[0].to_owned(), Value::from(text.clone()))])
        }
        other => return other.clone(),
    };
    for name in names(&given, fields) {
        if let Some(field) = meant(&name, &given, fields) {
            rename(&mut given, &name, field);
        }
    }
    let mut missing = required.iter().filter(|field| !given.contains_key(**field));
    if let (Some(field), None) = (missing.next(), missing.next())
        && let [name] = &names(&given, fields)[..]
        && given[name].is_string()
    {
        rename(&mut given, name, field);
    }
    Value::Object(given)
}

/// Returns the names that are not fields.
fn names(given: &Map<String, Value>, fields: &Map<String, Value>) -> Vec<String> {
    given.keys().filter(|name| !fields.contains_key(*name)).cloned().collect()
}

/// Returns the field that a name means, if it is not given yet.
fn meant<'a>(
    name: &str,
    given: &Map<String, Value>,
    fields: &'a Map<String, Value>,
) -> Option<&'a str> {
    let name = plain(name);
    let free = || fields.keys().map(String::as_str).filter(|field| !given.contains_key(*field));
    let is_synonym = |field: &&str| {
        ARGUMENTS.iter().any(|(known, others)| known == field && others.contains(&name.as_str()))
    };
    let is_like = |field: &&str| name.len() > 4 && distance(&name, &plain(field)) <= 2;
    let same = free().find(|field| plain(field) == name);
    same.or_else(|| free().find(is_synonym)).or_else(|| free().find(is_like))
}

fn rename(given: &mut Map<String, Value>, name: &str, field: &str) {
    if let Some(value) = given.remove(name) {
        given.insert(field.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn corrected(input: &Value, fields: &[&str], required: &[&str]) -> Value {
        let fields = fields.iter().map(|field| ((*field).to_owned(), Value::Null)).collect();
        correct(input, &fields, required)
    }

    // R: T4
    #[test]
    fn arguments_get_the_names_that_the_tool_has() {
        let edit = ["filePath", "oldString", "newString", "replaceAll"];
        for (given, expected) in [
            (
                json!({ "path": "a", "old_str": "b", "new_str": "c" }),
                json!({ "filePath": "a", "oldString": "b", "newString": "c" }),
            ),
            (
                json!({ "file": "a", "search": "b", "replace": "c" }),
                json!({ "filePath": "a", "oldString": "b", "newString": "c" }),
            ),
            (
                json!({ "FilePath": "a", "oldstring": "b", "new": "c", "replace_all": true }),
                json!({ "filePath": "a", "oldString": "b", "newString": "c", "replaceAll": true }),
            ),
            // A name that is right is never replaced by another one.
            (
                json!({ "filePath": "a", "path": "z", "oldString": "b", "newString": "c" }),
                json!({ "filePath": "a", "path": "z", "oldString": "b", "newString": "c" }),
            ),
        ] {
            assert_eq!(corrected(&given, &edit, &edit[..3]), expected);
        }
        let write = ["filePath", "content"];
        assert_eq!(
            corrected(&json!({ "filename": "a", "html": "<p>" }), &write, &write),
            json!({ "filePath": "a", "content": "<p>" })
        );
        assert_eq!(
            corrected(&json!("make"), &["command"], &["command"]),
            json!({ "command": "make" })
        );
        assert_eq!(corrected(&json!("a"), &write, &write), json!("a"));
        // Two unknown names for two fields: nothing is guessed.
        let two = json!({ "x": "a", "y": "b" });
        assert_eq!(corrected(&two, &write, &write), two);
    }

    #[test]
    fn names_are_compared_without_case_and_namespace() {
        assert_eq!(plain("functions.Read_File"), "readfile");
        assert_eq!(plain("default_api:ls"), "ls");
    }
}
