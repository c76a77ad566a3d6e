//! A project's own configuration: read, never obeyed. Its rules can only narrow; what it could run is listed for the user.
//!
//! Opening a folder runs nothing of it. Who wants to use a part asks `trust::check` first.

pub(crate) mod settings;

use std::io::Read;
use std::path::Path;

use engine::permission::Decision;
use engine::permission::rules::{Rule, Source};
use serde_json::Value;

use crate::config::permission;
use crate::custom::Additions;
use crate::custom::files::{self, Found, Sort};
use crate::custom::template;
use crate::permissions::quote_all;
use crate::servers::UserServers;
use crate::trust::{self, Trust};

/// One part of a project that could run something, or allow something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is and where it is written.
    pub name: String,
    /// The literal command, or the text that holds it.
    pub runs: String,
}

/// The files that are read, in this order.
const FILES: [&str; 4] = ["purlin.json", "purlin.jsonc", "opencode.json", "opencode.jsonc"];
/// Those of them that are ours: hooks of others are not understood.
const OURS: [&str; 2] = ["purlin.json", "purlin.jsonc"];
/// A larger file is nobody's configuration.
const LARGEST: u64 = 1024 * 1024;

/// Lists what a project could run, and what could not be read.
#[must_use]
pub fn parts(folder: &Path) -> (Vec<Part>, Vec<String>) {
    let mut problems = Vec::new();
    let configs = configs(folder, &mut problems);
    let commands = files::of_project(folder, Sort::Commands, &mut problems);
    (parts_of(&configs, &commands), problems)
}

/// Returns the MCP servers of a project that the user trusts; none of any other.
///
/// Files are read once: what is started is what the trust was checked for.
#[must_use]
pub fn servers(folder: &Path) -> (UserServers, Vec<String>) {
    let mut problems = Vec::new();
    let mut found = UserServers::default();
    let configs = configs(folder, &mut problems);
    let commands = files::of_project(folder, Sort::Commands, &mut problems);
    if configs.iter().all(|(_, value)| value.get("mcp").is_none())
        || trust::check(folder, &parts_of(&configs, &commands)) != Trust::Trusted
    {
        // Whoever makes the session's policy tells the user of both.
        return (found, Vec::new());
    }
    for (file, mut value) in configs {
        let mut wrong = Vec::new();
        if let Some(value) = value.get_mut("mcp").map(Value::take) {
            let more = UserServers::read(value, &mut wrong);
            found.servers.extend(more.servers);
            found.off.extend(more.off);
        }
        problems.extend(wrong.iter().map(|problem| format!("{file}: {problem}")));
    }
    (found, problems)
}

/// So many patterns of instructions are taken.
const MOST_PATTERNS: usize = 32;

/// Returns what a project's configuration names as instructions: paths and patterns inside it, no others.
pub(crate) fn instructions(folder: &Path) -> Vec<String> {
    // Whoever makes the session's policy tells the user what is wrong.
    let configs = configs(folder, &mut Vec::new());
    let named = configs.iter().filter_map(|(_, value)| value.get("instructions")?.as_array());
    let named = named.flatten().filter_map(Value::as_str);
    named
        .filter(|path| !path.starts_with(['/', '~']))
        .map(str::to_owned)
        .take(MOST_PATTERNS)
        .collect()
}

/// What a project adds to a session, as it is written.
pub(crate) struct Added {
    /// Agents, commands and hooks of its configurations.
    pub(crate) given: Vec<Additions>,
    /// Its files that describe commands.
    pub(crate) commands: Vec<Found>,
    /// What of all it has could run.
    pub(crate) parts: Vec<Part>,
}

/// Reads what a project adds. Files are read once: what is used is what the trust is checked for.
pub(crate) fn additions(folder: &Path) -> Added {
    // Whoever makes the session's policy tells the user what is wrong.
    let mut problems = Vec::new();
    let configs = configs(folder, &mut problems);
    let commands = files::of_project(folder, Sort::Commands, &mut problems);
    let parts = parts_of(&configs, &commands);
    let members = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let given = configs.iter().map(|(file, value)| Additions {
        agent: members(value, "agent"),
        command: members(value, "command"),
        hooks: value.get("hooks").filter(|_| OURS.contains(file)).cloned().unwrap_or_default(),
    });
    Added { given: given.collect(), commands, parts }
}

fn parts_of(configs: &[(&'static str, Value)], commands: &[Found]) -> Vec<Part> {
    let mut parts = Vec::new();
    for (file, value) in configs {
        if let Some(value) = value.get("mcp") {
            list(&format!("`mcp` in {file}"), value, &mut parts);
        }
        if let Some(value) = value.get("hooks").filter(|_| OURS.contains(file)) {
            list(&format!("`hooks` in {file}"), value, &mut parts);
        }
        for (name, command) in value.get("command").and_then(Value::as_object).into_iter().flatten()
        {
            let template = command.get("template").and_then(Value::as_str).unwrap_or_default();
            if let Some(runs) = what_runs(command, template) {
                parts.push(Part { name: format!("`command` in {file}: {name}"), runs });
            }
        }
        if let Some(value) = value.get("permission") {
            let allowed = permission::rules(value.clone(), Source::Project, &mut Vec::new());
            for rule in allowed.iter().filter(|rule| rule.decision == Decision::Allow) {
                let name = format!("`permission` in {file}");
                parts.push(Part { name, runs: format!("allows {}: {}", rule.key, rule.pattern) });
            }
        }
    }
    for file in commands {
        if let Some(runs) = what_runs(&Value::Object(file.head.clone()), &file.body) {
            parts.push(Part { name: file.shown.clone(), runs });
        }
    }
    parts
}

/// What a slash command would do beyond saying something: run commands, take another mode or model.
fn what_runs(head: &Value, template: &str) -> Option<String> {
    let setting = |key: &str| Some(format!("{key}: {}", head.get(key)?.as_str()?));
    let mut runs: Vec<String> = ["agent", "model"].into_iter().filter_map(setting).collect();
    for part in template::parse(template) {
        if let template::Part::Shell(command) = part {
            runs.push(command);
        }
    }
    (!runs.is_empty()).then(|| runs.join("\n"))
}

/// Returns the rules of a project. Without trust those that allow are left out, and the others can only narrow.
#[must_use]
pub fn rules(folder: &Path, is_trusted: bool) -> (Vec<Rule>, Vec<String>) {
    let mut problems = Vec::new();
    let mut rules = Vec::new();
    let source = if is_trusted { Source::TrustedProject } else { Source::Project };
    for (file, value) in configs(folder, &mut problems) {
        if let Some(value) = value.get("permission") {
            let mut wrong = Vec::new();
            rules.extend(permission::rules(value.clone(), source, &mut wrong));
            problems.extend(wrong.iter().map(|problem| format!("{file}: {problem}")));
        }
    }
    rules.retain(|rule| is_trusted || rule.decision != Decision::Allow);
    (rules, problems)
}

fn configs(folder: &Path, problems: &mut Vec<String>) -> Vec<(&'static str, Value)> {
    let mut found = Vec::new();
    for name in FILES {
        let text = match read(&folder.join(name)) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(why) => {
                problems.push(format!("{name}: {why}"));
                continue;
            }
        };
        let options = jsonc_parser::ParseOptions::default();
        match jsonc_parser::parse_to_serde_value::<Value>(&text, &options) {
            Ok(value) => found.push((name, value)),
            Err(err) => problems.push(format!("{name}: {err}")),
        }
    }
    found
}

/// Reads a small regular file. A pipe or a device in its place is not opened.
fn read(path: &Path) -> Result<Option<String>, String> {
    if !std::fs::metadata(path).is_ok_and(|about| about.is_file()) {
        return Ok(None);
    }
    // Counted as it is read: a link may lead to a file without an end that says it is empty.
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|err| err.to_string())?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|err| err.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err(format!("is larger than {LARGEST} bytes"));
    }
    Ok(Some(text))
}

/// Lists a value: each member of an object is a part of its own.
fn list(name: &str, value: &Value, parts: &mut Vec<Part>) {
    let Value::Object(members) = value else {
        parts.push(Part { name: name.to_owned(), runs: value.to_string() });
        return;
    };
    for (member, value) in members {
        let runs = match value.get("command") {
            Some(Value::Array(words)) => {
                let line = quote_all(words.iter().filter_map(Value::as_str));
                format!("{line}\n{value}")
            }
            _ => value.to_string(),
        };
        parts.push(Part { name: format!("{name}: {member}"), runs });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such a file says that it is empty, and has no end.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_an_end_is_given_up() {
        let endless = Path::new("/proc/self/pagemap");
        assert_eq!(std::fs::metadata(endless).unwrap().len(), 0);
        assert!(read(endless).is_err());
    }

    #[test]
    fn what_could_run_is_listed_and_what_would_widen_is_left_out() {
        let folder = std::env::temp_dir().join(format!("purlin-project-{}", std::process::id()));
        std::fs::create_dir_all(folder.join(".purlin/command")).unwrap();
        std::fs::write(folder.join(".purlin/command/x.md"), "!`id`").unwrap();
        let text = r#"{ "mcp": { "x": { "type": "local", "command": ["node", "x y.js"] } },
            "permission": { "bash": { "*": "allow", "git push *": "deny" } }, "model": "a/b" }"#;
        std::fs::write(folder.join("opencode.json"), text).unwrap();
        let (parts, problems) = parts(&folder);
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(
            names,
            ["`mcp` in opencode.json: x", "`permission` in opencode.json", ".purlin/command/x.md"]
        );
        assert!(parts[0].runs.starts_with("node 'x y.js'\n"), "{}", parts[0].runs);
        assert_eq!(problems, [""; 0]);
        let (narrow, _) = rules(&folder, false);
        assert_eq!(narrow.len(), 1);
        assert_eq!(narrow[0].decision, Decision::Reject);
        assert_eq!(rules(&folder, true).0.len(), 2);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
