//! What the user's OpenCode configuration has that we understand, and how to write it into our own file.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use engine::permission::rules::Source;
use serde_json::Value;

use super::check::check;
use super::{edit, permission};
use crate::Directories;
use crate::moving::{Row, State};

/// The keys that are imported.
const KEYS: [&str; 11] = [
    "provider",
    "model",
    "small_model",
    "agent",
    "command",
    "permission",
    "tools",
    "mcp",
    "instructions",
    "enabled_providers",
    "disabled_providers",
];

/// One setting of OpenCode.
#[derive(Debug, PartialEq)]
pub struct Item {
    /// The key, and the member of it, if its members are imported one by one.
    key: &'static str,
    member: Option<String>,
    /// The line it is on.
    pub line: usize,
    value: Value,
    /// Whether our file has it already; then it is not imported.
    pub is_there: bool,
}

/// The settings of an OpenCode configuration that can be imported.
#[derive(Debug)]
pub struct Import {
    /// The file it is in.
    pub source: PathBuf,
    /// The settings.
    pub items: Vec<Item>,
    /// What is wrong with them, each with its line.
    pub problems: Vec<String>,
    /// The keys that have no effect here.
    pub unsupported: Vec<String>,
}

impl Import {
    /// Reads the given OpenCode configuration, or the user's, and compares it with our file.
    ///
    /// # Errors
    /// Says what cannot be read.
    pub fn read(
        from: Option<PathBuf>,
        file: Option<&Path>,
        directories: &Directories,
    ) -> anyhow::Result<Import> {
        let files = from.map_or_else(|| directories.opencode_configs(), |file| vec![file]);
        let Some(source) = files.iter().find(|file| file.is_file()) else {
            let looked: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            bail!("no configuration of OpenCode found; looked for {}", looked.join(" and "));
        };
        let text = std::fs::read_to_string(source).with_context(|| source.display().to_string())?;
        let own = file.map(Path::to_owned).or_else(|| directories.config_file());
        let own = own.and_then(|own| std::fs::read_to_string(own).ok()).unwrap_or_default();
        let (items, problems) = items(&text, &own, source.parent().unwrap_or(Path::new("/")));
        let options = jsonc_parser::ParseOptions::default();
        let all = jsonc_parser::parse_to_serde_value::<Value>(&text, &options).unwrap_or_default();
        let keys = all.as_object().into_iter().flatten().map(|(key, _)| key.clone());
        let is_unsupported = |key: &String| !KEYS.contains(&key.as_str()) && key != "$schema";
        let unsupported = keys.filter(is_unsupported).collect();
        Ok(Import { source: source.clone(), items, problems, unsupported })
    }

    /// Writes the settings to our file, without changing existing ones. Returns which file.
    ///
    /// # Errors
    /// Says what cannot be written.
    pub fn write(
        self,
        file: Option<PathBuf>,
        directories: &Directories,
    ) -> anyhow::Result<PathBuf> {
        edit::change(file, directories, |object| put(object, self.items))
    }
}

impl Import {
    /// Lists what becomes of each setting.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let source = self.source.display().to_string();
        let of_item = |item: &Item| {
            let (at, inside) = (format!("`{}`", item.path()), format!("`{}.", item.path()));
            let is_about = |problem: &&String| problem.contains(&at) || problem.contains(&inside);
            let problem = self.problems.iter().find(is_about);
            let problem = problem.and_then(|problem| Some(problem.split_once(": ")?.1));
            let (state, note) = match (item.is_there, problem, item.key) {
                (true, ..) => (State::NotSupported, "your purlin.json sets it"),
                (false, Some(problem), _) => (State::Changed, problem),
                (false, None, "permission") => {
                    (State::Changed, "deny always wins; OpenCode uses the last rule that matches")
                }
                (false, None, _) => (State::Taken, ""),
            };
            Row::new(&format!("{source}:{}", item.line), item.path(), state, note)
        };
        let mut rows: Vec<Row> = self.items.iter().map(of_item).collect();
        let unsupported = self.unsupported.iter();
        rows.extend(unsupported.map(|key| Row::new(&source, key, State::NotSupported, "")));
        rows
    }
}

impl Item {
    /// Returns the path of the setting.
    #[must_use]
    pub fn path(&self) -> String {
        match &self.member {
            Some(member) => format!("{}.{member}", self.key),
            None => self.key.to_owned(),
        }
    }
}

/// Lists the settings of an OpenCode file, compared with our file.
fn items(text: &str, own: &str, directory: &Path) -> (Vec<Item>, Vec<String>) {
    let (mut theirs, own) = (check(text), check(own).value);
    let mut items = Vec::new();
    for key in KEYS {
        let Some(mut value) = theirs.value.remove(key) else { continue };
        make_absolute(&mut value, directory);
        let line = |path: &str| theirs.lines.get(path).copied().unwrap_or(1);
        match value {
            // Rules depend on each other, so they are imported as a whole.
            Value::Object(members) if key != "permission" => {
                for (member, value) in members {
                    let is_there = own.get(key).is_some_and(|own| own.get(&member).is_some());
                    let line = line(&format!("{key}.{member}"));
                    items.push(Item { key, member: Some(member), line, value, is_there });
                }
            }
            value => {
                let is_there = own.contains_key(key);
                items.push(Item { key, member: None, line: line(key), value, is_there });
            }
        }
    }
    let about_ours = |problem: &&(usize, String)| {
        KEYS.iter().any(|key| problem.1.starts_with(&format!("`{key}.")))
    };
    let mut problems: Vec<(usize, String)> =
        theirs.problems.iter().filter(about_ours).cloned().collect();
    for Item { value, line, .. } in items.iter().filter(|item| item.key == "permission") {
        let mut wrong = Vec::new();
        permission::rules(value.clone(), Source::User, None, &mut wrong);
        problems.extend(wrong.into_iter().map(|problem| (*line, problem)));
    }
    (items, problems.into_iter().map(|(line, problem)| format!("{line}: {problem}")).collect())
}

fn put(object: &jsonc_parser::cst::CstObject, items: Vec<Item>) -> anyhow::Result<()> {
    for item in items.into_iter().filter(|item| !item.is_there) {
        match item.member {
            Some(member) => {
                let place = object.object_value_or_create(item.key);
                let place = place.with_context(|| format!("`{}` is not an object", item.key))?;
                place.append(&member, edit::input(item.value));
            }
            None => {
                object.append(item.key, edit::input(item.value));
            }
        }
    }
    Ok(())
}

/// Makes relative paths in `{file:path}` absolute.
fn make_absolute(value: &mut Value, directory: &Path) {
    match value {
        Value::String(text) => {
            let Some((front, rest)) = text.split_once("{file:") else { return };
            let path = rest.trim_start();
            if !path.starts_with(['/', '~']) {
                let path = path.strip_prefix("./").unwrap_or(path);
                *text = format!("{front}{{file:{}/{path}", directory.display());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| make_absolute(item, directory)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| make_absolute(member, directory))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_writes_new_settings_and_leaves_existing_ones() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().to_owned();
        let (theirs, ours) = (directory.join("opencode.json"), directory.join("purlin.json"));
        let text = r#"{
            "theme": "dark",
            "model": "a/b",
            "agent": { "look": { "prompt": "{file:./look.md}" }, "mine": { "prompt": "theirs" } },
            "mcp": { "x": { "type": "local", "command": ["x"] } },
            "permission": { "edit": "ask" },
        }"#;
        std::fs::write(&theirs, text).unwrap();
        let before = "{\n  // mine\n  \"model\": \"c/d\",\n  \"agent\": { \"mine\": { \"prompt\": \"ours\" } }\n}\n";
        std::fs::write(&ours, before).unwrap();
        let (found, problems) = items(text, before, &directory);
        let mut paths: Vec<String> =
            found.iter().map(|item| format!("{} {}", item.path(), item.is_there)).collect();
        paths.sort();
        assert_eq!(
            paths,
            [
                "agent.look false",
                "agent.mine true",
                "mcp.x false",
                "model true",
                "permission false"
            ]
        );
        assert_eq!(problems, [""; 0]);
        let directories = Directories::default();
        let import = Import::read(Some(theirs), Some(&ours), &directories).unwrap();
        assert_eq!(std::fs::read_to_string(&ours).unwrap(), before);
        import.write(Some(ours.clone()), &directories).unwrap();
        let after = std::fs::read_to_string(&ours).unwrap();
        assert!(after.contains("// mine") && after.contains("\"c/d\""), "{after}");
        assert!(after.contains(&format!("{{file:{}/look.md}}", directory.display())), "{after}");
        assert!(after.contains("\"ours\"") && !after.contains("theirs"), "{after}");
        assert_eq!(check(&after).problems, []);
    }
}
