//! Claude Code's settings: permission rules, hooks and MCP servers, as far as they apply here.
//!
//! A restriction is never dropped: what cannot be translated asks, and is reported.

mod hooks;
pub(crate) mod rules;
mod servers;

use std::path::Path;

use engine::permission::Decision;
use engine::permission::rules::{AskFloor, Rule, Source};
use serde_json::{Map, Value};

use crate::config::sources::unknown_restrictions;
use crate::custom::hooks::Hook;
use crate::moving::{Row, State};
use rules::{Effect, translate};

pub(crate) use servers::{of_project, of_user as servers_of_user};

/// The names of the settings files in a project.
pub(crate) const IN_PROJECT: [&str; 2] = [".claude/settings.json", ".claude/settings.local.json"];

/// What a settings file means.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClaudeSettings {
    /// Rules that deny and allow.
    pub(crate) rules: Vec<Rule>,
    /// What asks in any case: its rules that ask, and what cannot be translated.
    pub(crate) floors: Vec<AskFloor>,
    /// Its hooks.
    pub(crate) hooks: Vec<Hook>,
    /// The rules that allow, and the hooks, as they are written: what needs trust in a project.
    pub(crate) parts: Vec<(&'static str, String)>,
    /// The servers of `.mcp.json` that it turns off.
    pub(crate) disabled: Vec<String>,
    /// What is wrong with it.
    pub(crate) problems: Vec<String>,
    /// What becomes of each setting.
    pub(crate) rows: Vec<Row>,
}

/// Reads a settings file. `shown` is its name for people, `source` whose it is.
pub(crate) fn read(text: &str, shown: &str, source: Source, home: Option<&Path>) -> ClaudeSettings {
    let options = jsonc_parser::ParseOptions::default();
    let members = match jsonc_parser::parse_to_serde_value::<Value>(text, &options) {
        Ok(Value::Object(members)) => members,
        Ok(Value::Null) if text.trim().is_empty() => Map::new(),
        Ok(_) => return unreadable(shown, "the file must contain an object"),
        Err(err) => return unreadable(shown, &err.to_string()),
    };
    let mut found = ClaudeSettings::default();
    let reader = Reader { shown, source, home };
    let is_without_hooks = members.get("disableAllHooks") == Some(&Value::Bool(true));
    for (key, value) in &members {
        let (state, note) = match key.as_str() {
            "$schema" => continue,
            "permissions" => {
                reader.permissions(value, &mut found);
                continue;
            }
            "hooks" if is_without_hooks => (State::Taken, "turned off by `disableAllHooks`"),
            "hooks" => {
                hooks::read(value, shown, source != Source::User, &mut found);
                continue;
            }
            "disableAllHooks" => (State::Taken, ""),
            "disabledMcpjsonServers" => {
                let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
                found.disabled.extend(names.map(str::to_owned));
                if are_names(value) {
                    (State::Taken, "")
                } else {
                    found.problems.push(format!("{shown}: `{key}` {NOT_NAMES}"));
                    (State::Changed, NOT_NAMES)
                }
            }
            "enabledMcpjsonServers" | "enableAllProjectMcpServers" => {
                (State::Changed, "a project's servers start after `purlin trust`")
            }
            "model" => {
                (State::NotSupported, "set `model` in purlin.json, or choose one in the editor")
            }
            "env" => (State::NotSupported, "commands get a fixed environment"),
            _ => (State::NotSupported, ""),
        };
        found.rows.push(Row::new(shown, key, state, note));
    }
    found
}

/// What is wrong with a list of servers to turn off. Every call of a server's tool asks, so nothing is allowed by it.
pub(super) const NOT_NAMES: &str =
    "must be a list of strings; servers that it does not name stay on";

/// Tells whether a value is a list of names.
pub(super) fn are_names(value: &Value) -> bool {
    value.as_array().is_some_and(|names| names.iter().all(Value::is_string))
}

/// What a settings file means that cannot be read: everything asks.
pub(crate) fn unreadable(shown: &str, why: &str) -> ClaudeSettings {
    ClaudeSettings {
        floors: vec![AskFloor::everything(unknown_restrictions(shown))],
        problems: vec![format!("{shown}: {why}")],
        rows: vec![Row::new(
            shown,
            "(the whole file)",
            State::Changed,
            "everything asks: it cannot be read",
        )],
        ..ClaudeSettings::default()
    }
}

struct Reader<'a> {
    shown: &'a str,
    source: Source,
    home: Option<&'a Path>,
}

impl Reader<'_> {
    fn permissions(&self, value: &Value, found: &mut ClaudeSettings) {
        let Value::Object(members) = value else {
            *found = ClaudeSettings {
                rows: std::mem::take(&mut found.rows),
                ..unreadable(self.shown, "`permissions` must be an object")
            };
            return;
        };
        for (key, value) in members {
            match key.as_str() {
                "allow" | "ask" | "deny" => self.list(key, value, found),
                "defaultMode" => found.rows.push(self.row(
                    "permissions.defaultMode",
                    State::Changed,
                    "choose the mode in the editor; until then edits and commands ask",
                )),
                "additionalDirectories" => found.rows.push(self.row(
                    "permissions.additionalDirectories",
                    State::NotSupported,
                    "open the session with more folders, or use the key `write_outside`",
                )),
                "disableBypassPermissionsMode" => found.rows.push(self.row(
                    "permissions.disableBypassPermissionsMode",
                    State::Taken,
                    "there is no such mode",
                )),
                // It may be a misspelt restriction.
                other => {
                    let setting = format!("permissions.{other}");
                    self.ask_for("*", &setting, "is unknown", found);
                }
            }
        }
    }

    fn row(&self, setting: &str, state: State, note: &str) -> Row {
        Row::new(self.shown, setting, state, note)
    }

    /// Reads one list of rules.
    fn list(&self, key: &str, value: &Value, found: &mut ClaudeSettings) {
        let Value::Array(entries) = value else {
            return self.ask_for("*", &format!("permissions.{key}"), "must be a list", found);
        };
        for entry in entries {
            let Some(text) = entry.as_str() else {
                self.ask_for(
                    "*",
                    &format!("permissions.{key}"),
                    "has an entry that is no string",
                    found,
                );
                continue;
            };
            self.rule(key, text, found);
        }
    }

    fn rule(&self, key: &str, text: &str, found: &mut ClaudeSettings) {
        let setting = format!("{key}: {text}");
        let effect = if key == "allow" { Effect::Allows } else { Effect::Restricts };
        let targets = match translate(text, effect, self.home) {
            Ok(targets) => targets,
            Err(unclear) if effect == Effect::Restricts => {
                return self.ask_for(&unclear.key, &setting, &unclear.why, found);
            }
            Err(unclear) => {
                let note = format!("{}, so it asks", unclear.why);
                found.rows.push(self.row(&setting, State::NotSupported, &note));
                return;
            }
        };
        let (state, note) = match (targets.is_empty(), key) {
            (true, _) => (State::Taken, "Purlin has no such tool"),
            (_, "ask") => (State::Taken, "asks every time, whatever else allows it"),
            _ => (State::Taken, ""),
        };
        found.rows.push(self.row(&setting, state, note));
        if key == "allow" {
            found.parts.push(("permissions", format!("allows {text}")));
        }
        for (target, pattern) in targets {
            let decision = match key {
                "ask" => {
                    let why = format!("Claude Code's rule `{text}` asks ({}).", self.shown);
                    found.floors.push(AskFloor { key: target, pattern, why });
                    continue;
                }
                "allow" => Decision::Allow,
                _ => Decision::Reject,
            };
            found.rules.push(Rule { key: target, pattern, decision, source: self.source });
        }
    }

    /// Enforces what cannot be understood as a question.
    fn ask_for(&self, key: &str, setting: &str, why: &str, found: &mut ClaudeSettings) {
        let problem = format!("{}: `{setting}` {why}. It is enforced as `ask`.", self.shown);
        found.floors.push(AskFloor {
            key: key.to_owned(),
            pattern: "*".to_owned(),
            why: problem.clone(),
        });
        found.problems.push(problem);
        found.rows.push(self.row(setting, State::Changed, &format!("{why}; enforced as `ask`")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> ClaudeSettings {
        read(text, "settings.json", Source::User, None)
    }

    // R: T2
    #[test]
    fn rules_are_translated_and_what_cannot_be_understood_asks() {
        let found = read_text(
            r#"{ "permissions": {
                "allow": ["Bash(npm test:*)", "Edit(src/*.rs)"],
                "ask": ["Bash(git push:*)"],
                "deny": ["Read(./.env)", "Bsh(rm:*)", 7],
                "denny": ["Bash"]
            }, "model": "opus" }"#,
        );
        let rules: Vec<String> = found.rules.iter().map(Rule::to_string).collect();
        assert!(rules.iter().any(|rule| rule.starts_with("bash: npm test * = allow")), "{rules:?}");
        assert!(rules.iter().any(|rule| rule.starts_with("read: .env = deny")), "{rules:?}");
        assert!(!rules.iter().any(|rule| rule.starts_with("edit")), "{rules:?}");
        let floor = |key: &str, pattern: &str| {
            found.floors.iter().any(|floor| floor.key == key && floor.pattern == pattern)
        };
        assert!(floor("bash", "git push *") && floor("*", "*"));
        assert_eq!(found.problems.len(), 3, "{:?}", found.problems);
        let states: Vec<(&str, State)> =
            found.rows.iter().map(|row| (row.setting.as_str(), row.state)).collect();
        assert!(states.contains(&("allow: Edit(src/*.rs)", State::NotSupported)), "{states:?}");
        assert!(states.contains(&("deny: Bsh(rm:*)", State::Changed)), "{states:?}");
        assert!(states.contains(&("model", State::NotSupported)), "{states:?}");
    }

    // R: T2
    #[test]
    fn broken_file_asks_for_everything() {
        for text in ["{", "[]", "{ \"permissions\": [] }", "7"] {
            let found = read_text(text);
            assert_eq!(found.floors.len(), 1, "{text}");
            assert_eq!(found.floors[0].key, "*", "{text}");
            assert!(!found.problems.is_empty(), "{text}");
        }
        assert_eq!(read_text(""), ClaudeSettings::default());
    }

    // R: T2
    #[test]
    fn servers_to_turn_off_that_are_no_list_are_reported() {
        let found = read_text("{ \"disabledMcpjsonServers\": [\"web\"] }");
        assert!(found.disabled == ["web"] && found.problems.is_empty());
        for text in ["\"web\"", "[\"web\", 1]", "{ \"web\": true }"] {
            let found = read_text(&format!("{{ \"disabledMcpjsonServers\": {text} }}"));
            assert_eq!(found.problems.len(), 1, "{text}");
            assert!(found.problems[0].contains("must be a list of strings"), "{text}");
        }
    }
}
