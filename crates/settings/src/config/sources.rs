//! The layers of the configuration, combined, and the source of each value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use engine::words::nearest;
use serde_json::{Map, Value};

use super::check::{self, check, check_value};
use super::keys::{KEYS, Kind};
use crate::Environment;
use crate::limits::Limits;

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The user's file, or the given one.
    File(PathBuf, usize),
    /// The user's OpenCode configuration.
    OpenCode(PathBuf, usize),
    /// An environment variable.
    Variable(String),
    /// A command line flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path, line) | Origin::OpenCode(path, line) => {
                write!(out, "{}:{line}", path.display())
            }
            Origin::Variable(name) => write!(out, "${name}"),
            Origin::Flag(name) => out.write_str(name),
        }
    }
}

/// All layers combined.
#[derive(Debug, Default)]
pub struct Sources {
    /// The effective values.
    pub value: Map<String, Value>,
    /// The source of each value, by path. A value without an entry has the source of what contains it.
    pub origins: BTreeMap<String, Origin>,
    /// Problems, each with its place.
    pub problems: Vec<String>,
}

/// The keys that are used from the user's OpenCode configuration.
const FROM_OPENCODE: [&str; 4] = ["provider", "permission", "model", "small_model"];

impl Sources {
    /// Reads the given file or the user's, the user's OpenCode configuration where it applies, and the variables.
    #[must_use]
    pub fn gather(file: Option<PathBuf>, environment: &Environment) -> Sources {
        let is_given = file.is_some();
        let mut sources = Sources::default();
        let file = file.or_else(|| environment.directories.config_file());
        if let Some(path) = file {
            match std::fs::read_to_string(&path) {
                Ok(text) => sources.take_file(&text, &path),
                Err(err) if err.kind() == std::io::ErrorKind::NotFound && !is_given => {}
                Err(err) => sources.problems.push(format!("cannot read {}: {err}", path.display())),
            }
        }
        if !is_given && !sources.value.contains_key("provider") {
            sources.take_opencode(&environment.directories.opencode_configs());
        }
        sources.take_variables(&environment.overrides);
        sources
    }

    /// Takes the values of a file.
    pub fn take_file(&mut self, text: &str, path: &Path) {
        let checked = check(text);
        let at = path.display();
        let problems = checked.problems.iter();
        self.problems.extend(problems.map(|(line, problem)| format!("{at}:{line}: {problem}")));
        for (key, line) in checked.lines {
            self.origins.insert(key, Origin::File(path.to_owned(), line));
        }
        self.value.extend(checked.value);
    }

    /// Takes keys from the user's OpenCode configuration that the user's file does not have. Mistakes in it are not reported.
    fn take_opencode(&mut self, files: &[PathBuf]) {
        let mut texts = files.iter().map(|path| (std::fs::read_to_string(path), path));
        let Some((Ok(text), path)) = texts.find(|(text, _)| text.is_ok()) else {
            return;
        };
        let mut checked = check(&text);
        for key in FROM_OPENCODE {
            let Some(value) = checked.value.remove(key).filter(|_| !self.value.contains_key(key))
            else {
                continue;
            };
            if value.as_str().is_some_and(|model| model.starts_with("script:")) {
                continue;
            }
            let inside = format!("{key}.");
            for (at, line) in &checked.lines {
                if at == key || at.starts_with(&inside) {
                    self.origins.insert(at.clone(), Origin::OpenCode(path.clone(), *line));
                }
            }
            self.value.insert(key.to_owned(), value);
        }
    }

    /// Overrides the files with variables.
    pub(super) fn take_variables(&mut self, variables: &[(String, String)]) {
        for (name, text) in variables {
            let Some((path, kind)) = path_of(name) else {
                self.problems.extend(unknown_limit(name));
                continue;
            };
            let value = match kind {
                Kind::Whole => {
                    text.trim().parse::<u64>().map_or_else(|_| text.clone().into(), Value::from)
                }
                _ => Value::from(text.clone()),
            };
            match check_value(kind, &value) {
                Ok(()) => self.set(&path, value, Origin::Variable(name.clone())),
                Err(why) => self.problems.push(format!("${name} {why}")),
            }
        }
    }

    /// Overrides one value.
    pub fn set(&mut self, path: &str, value: Value, origin: Origin) {
        match path.split_once('.') {
            Some((key, inner)) => {
                let members = self.value.entry(key).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(members) = members {
                    members.insert(inner.to_owned(), value);
                }
            }
            None => {
                self.value.insert(path.to_owned(), value);
            }
        }
        self.origins.insert(path.to_owned(), origin);
    }

    /// Adds the source to a problem, if it names a path.
    pub(super) fn place(&self, problem: &str) -> String {
        let path = problem.split('`').nth(1).unwrap_or_default();
        match self.origin(path) {
            Some(origin) => format!("{origin}: {problem}"),
            None => problem.to_owned(),
        }
    }

    /// Finds the source of the value at a path: its own, or that of what contains it.
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        let mut path = path;
        loop {
            if let Some(origin) = self.origins.get(path) {
                return Some(origin);
            }
            path = path.rsplit_once('.')?.0;
        }
    }
}

/// Returns the key that a variable sets, and its kind.
fn path_of(variable: &str) -> Option<(String, &'static Kind)> {
    if let Some(limit) = variable.strip_prefix(LIMIT) {
        let name = limit.to_ascii_lowercase();
        let is_known = Limits::TABLE.iter().any(|(known, _, _)| *known == name);
        return is_known.then(|| (check::join("limits", &name), &Kind::Whole));
    }
    let top = KEYS.iter().find(|top| top.variable == Some(variable))?;
    Some((top.key.name.to_owned(), &top.key.kind))
}

/// Returns the problem of a variable that names an unknown limit.
fn unknown_limit(variable: &str) -> Option<String> {
    let name = variable.strip_prefix(LIMIT)?.to_ascii_lowercase();
    let near = nearest(&name, Limits::TABLE.iter().map(|(known, _, _)| *known));
    let hint = match near {
        Some(near) => format!("Did you mean `{LIMIT}{}`?", near.to_ascii_uppercase()),
        None => "See docs/guide/limits.md.".to_owned(),
    };
    Some(format!("${variable}: unknown limit. {hint}"))
}

/// The prefix of variables that set limits.
pub const LIMIT: &str = "PURLIN_LIMITS_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_override_the_file_and_each_value_has_its_source() {
        let mut sources = Sources::default();
        let text = "{\n  \"model\": \"a/b\",\n  \"limits\": { \"expire_days\": 3 },\n}";
        sources.take_file(text, Path::new("/c/purlin.json"));
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        sources.take_variables(&[
            variable("PURLIN_MODEL", "c/d"),
            variable("PURLIN_LIMITS_MAX_SESSIONS", "7"),
            variable("PURLIN_LIMITS_EXPIRE_DAYS", "many"),
            variable("PURLIN_DIALECT", "latin"),
            variable("PURLIN_OTHER", "x"),
            variable("PURLIN_LIMITS_MAX_SESION", "7"),
        ]);
        assert_eq!(sources.value["model"], "c/d");
        assert_eq!(sources.value["limits"]["max_sessions"], 7);
        assert_eq!(sources.value["limits"]["expire_days"], 3);
        let origin = |path: &str| sources.origin(path).map(Origin::to_string);
        assert_eq!(origin("model").as_deref(), Some("$PURLIN_MODEL"));
        assert_eq!(origin("limits.expire_days").as_deref(), Some("/c/purlin.json:3"));
        assert_eq!(origin("limits.max_sessions").as_deref(), Some("$PURLIN_LIMITS_MAX_SESSIONS"));
        assert_eq!(origin("dialect"), None);
        assert_eq!(
            sources.problems,
            [
                "$PURLIN_LIMITS_EXPIRE_DAYS must be a whole number",
                "$PURLIN_DIALECT must be one of v1, message-reference, container",
                "$PURLIN_LIMITS_MAX_SESION: unknown limit. Did you mean `PURLIN_LIMITS_MAX_SESSIONS`?",
            ]
        );
    }
}
