//! Hooks: commands that run when tools and turns begin and end. `serve` runs them.

use std::time::Duration;

use serde_json::Value;

/// The time-out of a hook that sets none, and the longest one, in seconds.
const TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const LONGEST: u64 = 60;
/// The most hooks of one event.
pub(crate) const MOST_HOOKS: usize = 16;

/// The names of the events, in the configuration.
pub const MOMENTS: [&str; 4] = ["before_turn", "before_tool", "after_tool", "after_turn"];

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// When it runs: one of [`MOMENTS`].
    pub moment: &'static str,
    /// The tools it runs for; `None` for all tools.
    pub matcher: Option<String>,
    /// The command, for the shell.
    pub command: String,
    /// How long it may run.
    pub timeout: Duration,
    /// Whether it belongs to a project, which the user trusts.
    pub is_project: bool,
    /// Whether it was written for Claude Code, and knows its input and answers.
    pub is_claude: bool,
}

/// Tells whether every hook that could reject something can be understood.
pub(crate) fn are_clear(value: &Value) -> bool {
    let is_clear =
        |row: &Value| row["command"].is_string() && row.get("matcher").is_none_or(Value::is_string);
    let Value::Object(moments) = value else { return false };
    moments.iter().all(|(moment, rows)| match moment.as_str() {
        "after_tool" | "after_turn" => true,
        known if MOMENTS.contains(&known) => rows
            .as_array()
            .is_some_and(|rows| rows.len() <= MOST_HOOKS && rows.iter().all(is_clear)),
        _ => false,
    })
}

/// Reads `hooks` of a configuration.
pub fn read(value: &Value, is_project: bool, problems: &mut Vec<String>) -> Vec<Hook> {
    let mut hooks = Vec::new();
    for moment in MOMENTS {
        let Some(rows) = value.get(moment).and_then(Value::as_array) else { continue };
        if rows.len() > MOST_HOOKS {
            problems.push(format!(
                "`hooks.{moment}` has more than {MOST_HOOKS} hooks: only the first {MOST_HOOKS} run"
            ));
        }
        for row in rows.iter().take(MOST_HOOKS) {
            let Some(command) = row.get("command").and_then(Value::as_str) else {
                problems.push(format!("`hooks.{moment}` has a hook without a `command`"));
                continue;
            };
            let seconds = row.get("timeout").and_then(Value::as_u64);
            hooks.push(Hook {
                moment,
                matcher: row.get("matcher").and_then(Value::as_str).map(str::to_owned),
                command: command.to_owned(),
                timeout: seconds.map_or(TIMEOUT, |s| Duration::from_secs(s.clamp(1, LONGEST))),
                is_project,
                is_claude: false,
            });
        }
    }
    hooks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // R: T2
    #[test]
    fn hook_that_is_not_understood_is_noticed() {
        let clear =
            json!({ "before_tool": [{ "command": "x", "matcher": "bash" }], "after_tool": 5 });
        assert!(are_clear(&clear));
        for unclear in [
            json!({ "before_tools": [] }),
            json!({ "before_tool": "guard" }),
            json!({ "before_tool": ["guard"] }),
            json!({ "before_turn": [{ "command": "x", "matcher": ["bash"] }] }),
            json!("guard"),
            json!({ "before_tool": vec![json!({ "command": "x" }); MOST_HOOKS + 1] }),
        ] {
            assert!(!are_clear(&unclear), "{unclear}");
        }
    }

    #[test]
    fn time_out_of_a_hook_is_limited() {
        let value =
            json!({ "before_tool": [{ "command": "x", "timeout": 900 }, { "matcher": "x" }] });
        let mut problems = Vec::new();
        let hooks = read(&value, false, &mut problems);
        assert_eq!((hooks.len(), problems.len()), (1, 1));
        assert_eq!(hooks[0].timeout, Duration::from_secs(LONGEST));
    }
}
