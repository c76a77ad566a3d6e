//! The layers of the configuration, combined, and the source of each value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use engine::permission::rules::AskFloor;
use engine::words::nearest;
use serde_json::{Map, Value};

use super::check::{self, Checked, check, check_value};
use super::keys::{KEYS, Kind};
use super::last_good;
use crate::Environment;
use crate::custom;
use crate::limits::Limits;

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The user's file, or the given one.
    File(PathBuf, usize),
    /// The user's OpenCode configuration.
    OpenCode(PathBuf, usize),
    /// The last valid version of a file that cannot be read.
    LastValid(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A command line flag.
    Flag(&'static str),
}

impl Origin {
    /// Returns the file that it names.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Origin::File(path, _) | Origin::OpenCode(path, _) | Origin::LastValid(path) => {
                Some(path)
            }
            Origin::Variable(_) | Origin::Flag(_) => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path, line) | Origin::OpenCode(path, line) => {
                write!(out, "{}:{line}", path.display())
            }
            Origin::LastValid(path) => write!(out, "last valid version of {}", path.display()),
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
    /// What is asked for at least, because a file cannot be read.
    pub floors: Vec<AskFloor>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// The keys of the user's OpenCode configuration that are used unless our file has providers of its own.
const MODELS: [&str; 3] = ["provider", "model", "small_model"];
/// Its keys that are used unless our file has them.
const WHOLE: [&str; 3] = ["permission", "instructions", "enabled_providers"];
/// Its keys whose members are used unless our file has them.
const MEMBERS: [&str; 4] = ["agent", "command", "mcp", "tools"];

/// Returns the names in a list, or the one name that stands for it.
pub(super) fn names(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(names) => names.clone(),
        Value::String(_) => vec![value.clone()],
        _ => Vec::new(),
    }
}

impl Sources {
    /// Reads the given file or the user's, the user's OpenCode configuration where it applies, and the variables.
    #[must_use]
    pub fn gather(file: Option<PathBuf>, environment: &Environment) -> Sources {
        let is_given = file.is_some();
        let mut sources = Sources::default();
        let file = file.or_else(|| environment.directories.config_file());
        let data = environment.directories.data.as_deref();
        if let Some(path) = file {
            match std::fs::read_to_string(&path) {
                Ok(text) => sources.take_file_or_last_valid(&text, &path, data),
                Err(err) if err.kind() == std::io::ErrorKind::NotFound && !is_given => {}
                Err(err) => {
                    sources.problems.push(format!("cannot read {}: {err}", path.display()));
                    sources.take_last_valid(&path, data);
                }
            }
            sources.files.push(path);
        }
        if !is_given {
            sources.take_opencode(&environment.directories.opencode_configs(), data);
        }
        sources.take_variables(&environment.overrides);
        sources
    }

    /// Takes the values of a file. If it is broken, the restrictions of its last valid version apply, which is in the data
    /// directory.
    fn take_file_or_last_valid(&mut self, text: &str, path: &Path, data: Option<&Path>) {
        let checked = self.take_file(text, path);
        if checked.is_broken {
            self.take_last_valid(path, data);
        } else if let Some(data) = data {
            last_good::store(data, path, &self.value);
        }
    }

    /// Takes the values of a file. Returns what else is known about it.
    pub fn take_file(&mut self, text: &str, path: &Path) -> Checked {
        let mut checked = check(text);
        let at = path.display();
        let problems = checked.problems.iter();
        self.problems.extend(problems.map(|(line, problem)| format!("{at}:{line}: {problem}")));
        for (key, line) in &checked.lines {
            self.origins.insert(key.clone(), Origin::File(path.to_owned(), *line));
        }
        if checked.has_unclear_hooks {
            self.floors.push(custom::unclear_hook(&at.to_string()));
        }
        self.value.extend(std::mem::take(&mut checked.value));
        checked
    }

    /// Applies the restrictions of the last valid version of a file that cannot be read, or asks for everything.
    fn take_last_valid(&mut self, path: &Path, data: Option<&Path>) {
        let at = path.display();
        let Some(last) = data.and_then(|data| last_good::load(data, path)) else {
            let why = unknown_restrictions(&path.to_string_lossy());
            self.problems.push(why.clone());
            self.floors.push(AskFloor::everything(why));
            return;
        };
        self.problems.push(format!(
            "{at}: the rules of its last valid version apply until this is corrected. Its other settings are ignored."
        ));
        for (key, value) in last {
            self.origins.insert(key.clone(), Origin::LastValid(path.to_owned()));
            self.value.insert(key, value);
        }
    }

    /// Takes from the user's OpenCode configuration what the user's file does not have. Of mistakes in it, only those that
    /// could hide a restriction are reported.
    fn take_opencode(&mut self, files: &[PathBuf], data: Option<&Path>) {
        let Some(path) = files.iter().find(|path| path.exists()) else { return };
        self.files.push(path.clone());
        let text = std::fs::read_to_string(path);
        let mut checked = text.as_ref().map(|text| check(text)).unwrap_or_default();
        if text.is_err() || checked.is_broken {
            let why = match (&text, checked.problems.first()) {
                (Err(err), _) => err.to_string(),
                (Ok(_), problem) => {
                    problem.map(|(line, why)| format!("line {line}: {why}")).unwrap_or_default()
                }
            };
            if !self.value.contains_key("permission") {
                self.problems.push(format!("{}: {why}", path.display()));
                self.take_last_valid(path, data);
            }
            return;
        }
        if let Some(data) = data {
            last_good::store(data, path, &checked.value);
        }
        let unclear = checked.unclear.iter();
        let at = path.display();
        self.problems.extend(unclear.map(|(line, problem)| format!("{at}:{line}: {problem}")));
        let has_providers = self.value.contains_key("provider");
        for key in MODELS.iter().filter(|_| !has_providers).chain(&WHOLE).chain(&MEMBERS) {
            let Some(value) = checked.value.remove(*key) else { continue };
            if value.as_str().is_some_and(|model| model.starts_with("script:")) {
                continue;
            }
            self.add(key, value, &checked, path);
        }
        if let Some(more) = checked.value.remove("disabled_providers") {
            let own = self.value.remove("disabled_providers").unwrap_or_default();
            let all = [own, more].iter().flat_map(names).collect();
            self.value.insert("disabled_providers".to_owned(), Value::Array(all));
        }
    }

    /// Adds a key of OpenCode's configuration, or those of its members that are missing.
    fn add(&mut self, key: &str, value: Value, checked: &Checked, path: &Path) {
        let mut added: Vec<String> = Vec::new();
        match (self.value.get_mut(key), value) {
            (None, value) => {
                self.value.insert(key.to_owned(), value);
                added.push(key.to_owned());
            }
            (Some(Value::Object(own)), Value::Object(more)) if MEMBERS.contains(&key) => {
                for (member, value) in more {
                    if !own.contains_key(&member) {
                        added.push(check::join(key, &member));
                        own.insert(member, value);
                    }
                }
            }
            (Some(_), _) => {}
        }
        for top in added {
            let inside = format!("{top}.");
            for (at, line) in &checked.lines {
                if *at == top || at.starts_with(&inside) {
                    self.origins.insert(at.clone(), Origin::OpenCode(path.to_owned(), *line));
                }
            }
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

/// Says that everything asks, because it is unknown what a file restricts.
pub(crate) fn unknown_restrictions(file: &str) -> String {
    format!(
        "{file} cannot be read as a whole, so it is unknown what it restricts: everything asks until this is corrected. \
         `purlin doctor` shows the error."
    )
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
