//! Claude Code's hooks. `serve` runs them, with the input and the answers that they know.

use std::time::Duration;

use engine::permission::rules::AskFloor;
use serde_json::Value;

use super::ClaudeSettings;
use crate::custom::hooks::{Hook, LONGEST, MOST_HOOKS};
use crate::moving::{Row, State};

/// Its events that we have, each with ours.
const EVENTS: [(&str, &str); 4] = [
    ("UserPromptSubmit", "before_turn"),
    ("PreToolUse", "before_tool"),
    ("PostToolUse", "after_tool"),
    ("Stop", "after_turn"),
];

/// Reads `hooks` of a settings file.
pub(super) fn read(value: &Value, shown: &str, is_project: bool, found: &mut ClaudeSettings) {
    let Value::Object(events) = value else {
        return unsupported(shown, "hooks", "before_tool", "must be an object", found);
    };
    for (event, groups) in events {
        let setting = format!("hooks.{event}");
        let Some((_, moment)) = EVENTS.iter().find(|(known, _)| known == event) else {
            found.rows.push(Row::new(shown, setting, State::NotSupported, ""));
            continue;
        };
        let moment: &'static str = moment;
        let Value::Array(groups) = groups else {
            unsupported(shown, &setting, moment, "must be a list", found);
            continue;
        };
        for group in groups {
            let matcher =
                group.get("matcher").and_then(Value::as_str).filter(|one| !one.is_empty());
            let Some(entries) = group.get("hooks").and_then(Value::as_array) else {
                unsupported(shown, &setting, moment, "has an entry without a list `hooks`", found);
                continue;
            };
            for entry in entries {
                let command = entry.get("command").and_then(Value::as_str);
                let is_command = entry.get("type").is_none_or(|kind| kind == "command");
                let Some(command) =
                    command.filter(|_| is_command && found.hooks.len() < MOST_HOOKS)
                else {
                    unsupported(shown, &setting, moment, "only commands can run", found);
                    continue;
                };
                let seconds = entry.get("timeout").and_then(Value::as_u64).unwrap_or(LONGEST);
                found.parts.push(("hooks", format!("{event}: {command}")));
                found.rows.push(Row::new(
                    shown,
                    format!("{setting}: {command}"),
                    State::Changed,
                    "runs in the sandbox; it can object, but not allow",
                ));
                found.hooks.push(Hook {
                    moment,
                    matcher: matcher.map(str::to_owned),
                    command: command.to_owned(),
                    timeout: Duration::from_secs(seconds.clamp(1, LONGEST)),
                    is_project,
                    is_claude: true,
                });
            }
        }
    }
}

/// A hook that cannot run may be a guard: what it would guard asks.
fn unsupported(shown: &str, setting: &str, moment: &str, note: &str, found: &mut ClaudeSettings) {
    found.rows.push(Row::new(shown, setting, State::NotSupported, note));
    if moment.starts_with("before") {
        let why =
            format!("{shown}: a hook of `{setting}` cannot run here. It is enforced as `ask`.");
        found.problems.push(why.clone());
        found.floors.push(AskFloor::everything(why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // R: T2
    #[test]
    fn hooks_are_read_and_a_guard_that_cannot_run_asks() {
        let mut found = ClaudeSettings::default();
        let value = json!({
            "PreToolUse": [{ "matcher": "Bash|Edit", "hooks": [
                { "type": "command", "command": "guard.sh", "timeout": 900 },
            ] }],
            "Stop": [{ "hooks": [{ "type": "prompt", "prompt": "Done?" }] }],
            "SessionStart": [],
        });
        read(&value, "s", false, &mut found);
        assert_eq!(found.hooks.len(), 1);
        assert_eq!(found.hooks[0].matcher.as_deref(), Some("Bash|Edit"));
        assert_eq!(found.hooks[0].timeout, Duration::from_secs(LONGEST));
        assert!(found.floors.is_empty() && found.rows.len() == 3, "{:?}", found.rows);
        for guard in [
            json!({ "PreToolUse": [{ "hooks": [{ "type": "http", "url": "http://x" }] }] }),
            json!({ "UserPromptSubmit": [{ "hooks": [{ "type": "prompt", "prompt": "Ok?" }] }] }),
            json!({ "PreToolUse": "guard.sh" }),
            json!({ "PreToolUse": [{ "command": "guard.sh" }] }),
            json!(["guard.sh"]),
        ] {
            for is_project in [false, true] {
                let mut found = ClaudeSettings::default();
                read(&guard, "s", is_project, &mut found);
                assert_eq!((found.floors.len(), found.problems.len()), (1, 1), "{guard}");
            }
        }
    }
}
