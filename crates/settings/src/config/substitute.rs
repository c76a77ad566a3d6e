//! `{env:NAME}` and `{file:path}` in the strings of a configuration, as in OpenCode.
//!
//! Only for the user's own files: in a project's file they would let a stranger read the user's secrets.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Environment;

/// Replaces them everywhere in `value`. A missing variable or file becomes an empty string. Adds the files that are named
/// to `files`.
pub(super) fn substitute(
    value: &mut Value,
    directory: &Path,
    environment: &Environment,
    files: &mut Vec<PathBuf>,
) {
    match value {
        Value::String(text) if text.contains('{') => {
            *text = replaced(text, directory, environment, files).0;
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| substitute(item, directory, environment, files))
        }
        Value::Object(members) => {
            members
                .values_mut()
                .for_each(|member| substitute(member, directory, environment, files));
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns what a string references that does not exist.
pub(super) fn missing_in(
    text: &str,
    directory: &Path,
    environment: &Environment,
) -> Option<String> {
    let (_, missing) = replaced(text, directory, environment, &mut Vec::new());
    (!missing.is_empty()).then(|| missing.join(" and "))
}

/// Returns a string with its references replaced, and those that are missing.
fn replaced(
    text: &str,
    directory: &Path,
    environment: &Environment,
    files: &mut Vec<PathBuf>,
) -> (String, Vec<String>) {
    let mut out = String::new();
    let mut missing = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (front, back) = rest.split_at(at);
        out.push_str(front);
        let Some((inside, after)) = back[1..].split_once('}') else {
            rest = back;
            break;
        };
        match inside.split_once(':') {
            Some(("env", name)) => match (environment.variable)(name.trim()) {
                Some(value) => out.push_str(&value),
                None => missing.push(format!("the variable {} is not set", name.trim())),
            },
            Some(("file", path)) => {
                let path = locate(path.trim(), directory, environment.directories.home.as_deref());
                files.push(path.clone());
                match read(&path) {
                    Ok(text) => out.push_str(&text),
                    Err(why) => missing.push(why),
                }
            }
            _ => {
                out.push('{');
                rest = &back[1..];
                continue;
            }
        }
        rest = after;
    }
    out.push_str(rest);
    (out, missing)
}

/// Returns the path of a file. Paths are relative to the configuration.
fn locate(path: &str, directory: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(path), Some(home)) => home.join(path),
        _ => directory.join(path),
    }
}

/// Reads a file without surrounding whitespace.
fn read(path: &Path) -> Result<String, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(err) => {
            tracing::warn!("cannot read {}, which the configuration names: {err}", path.display());
            Err(format!("cannot read the file {}: {err}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Directories;

    fn environment() -> Environment {
        Environment {
            directories: Directories::default(),
            overrides: Vec::new(),
            variable: |name| (name == "HOME").then(|| "/home/me".to_owned()),
            known_providers: Vec::new(),
            builtin_model: "",
        }
    }

    #[test]
    fn variables_and_files_are_substituted() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("key"), " from a file\n").unwrap();
        let environment = environment();
        let home = "/home/me";
        let mut value = json!({ "a": ["x {env:HOME}", "{file:key}!"], "b": "{env:PURLIN_NOT_SET}", "c": "{a} {env:HOME", "d": 1 });
        let mut files = Vec::new();
        substitute(&mut value, directory.path(), &environment, &mut files);
        assert_eq!(files, [directory.path().join("key")]);
        assert_eq!(
            value,
            json!({ "a": [format!("x {home}"), "from a file!"], "b": "", "c": "{a} {env:HOME", "d": 1 })
        );
        let missing = |text: &str| missing_in(text, Path::new("/no"), &environment);
        assert_eq!(missing("{env:HOME}"), None);
        assert_eq!(
            missing("{env:PURLIN_NOT_SET}").unwrap(),
            "the variable PURLIN_NOT_SET is not set"
        );
        let file = missing("{file:key}").unwrap();
        assert!(file.starts_with("cannot read the file /no/key: "), "{file}");
    }
}
