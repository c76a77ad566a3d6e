//! Hooks that were written for Claude Code: its names of tools, its input, and its answers.
//!
//! Such a hook can object and ask. It never allows anything, and if it fails before a tool is used, the user is asked.

use engine::words::pattern::matches_pattern;
use engine::words::{HookOutcome, Moment};
use serde_json::{Value, json};
use settings::custom::hooks::Hook;
use tools::bash::Ran;

use crate::hooks::{HookContext, cut};

/// Our tools, each with the names that Claude Code has for what it does.
const TOOLS: [(&str, &[&str]); 10] = [
    ("bash", &["Bash"]),
    ("edit", &["Edit", "MultiEdit"]),
    ("apply_patch", &["Edit", "MultiEdit", "Write"]),
    ("write", &["Write"]),
    ("read", &["Read"]),
    ("list", &["LS"]),
    ("glob", &["Glob"]),
    ("grep", &["Grep"]),
    ("fetch", &["WebFetch"]),
    ("task", &["Task", "Agent"]),
];

/// Returns the names of a tool. Where the name of an MCP server ends is unknown, so all readings are returned.
fn names_of(tool: &str) -> Vec<String> {
    if let Some((_, names)) = TOOLS.iter().find(|(ours, _)| *ours == tool) {
        return names.iter().map(|name| (*name).to_owned()).collect();
    }
    let splits = tool.match_indices('_');
    let mut names: Vec<String> =
        splits.map(|(at, _)| format!("mcp__{}__{}", &tool[..at], &tool[at + 1..])).collect();
    names.push(tool.to_owned());
    names
}

/// Tells whether a matcher selects a tool. It is a regular expression: of those, names, `|` and `.*` are understood; any other
/// one selects all tools, since the hook may be a guard.
pub(crate) fn selects(matcher: &str, tool: &str) -> bool {
    let names = names_of(tool);
    matcher.split('|').map(str::trim).any(|one| {
        let pattern = one.replace(".*", "*");
        let is_understood = pattern.chars().all(|c| c.is_ascii_alphanumeric() || "_-*".contains(c));
        !is_understood || names.iter().any(|name| matches_pattern(&pattern, name))
    })
}

/// Returns the input of a hook.
pub(crate) fn input(moment: &Moment<'_>, context: &HookContext) -> Value {
    let mut value = json!({
        "session_id": context.session.as_str(),
        "cwd": context.cwd,
        "transcript_path": "",
        "permission_mode": "default",
    });
    match moment {
        Moment::BeforeTurn { prompt } => {
            value["hook_event_name"] = json!("UserPromptSubmit");
            value["prompt"] = json!(prompt);
        }
        Moment::BeforeTool { tool, input } => {
            value["hook_event_name"] = json!("PreToolUse");
            value["tool_name"] = json!(names_of(tool)[0]);
            value["tool_input"] = tool_input(input);
        }
        Moment::AfterTool { tool, input, output, failed } => {
            value["hook_event_name"] = json!("PostToolUse");
            value["tool_name"] = json!(names_of(tool)[0]);
            value["tool_input"] = tool_input(input);
            value["tool_response"] = json!({ "output": cut(output), "is_error": failed });
        }
        Moment::AfterTurn(_) => {
            value["hook_event_name"] = json!("Stop");
            value["stop_hook_active"] = json!(false);
        }
    }
    value
}

/// Adds the names that Claude Code has for the fields of an input.
fn tool_input(input: &Value) -> Value {
    let mut input = input.clone();
    if let Value::Object(fields) = &mut input {
        for (ours, theirs) in
            [("filePath", "file_path"), ("oldString", "old_string"), ("newString", "new_string")]
        {
            if let Some(value) = fields.get(ours).cloned() {
                fields.entry(theirs).or_insert(value);
            }
        }
    }
    input
}

/// Adds the result of a hook to the outcome.
pub(crate) fn judge(hook: &Hook, ran: Result<Ran, String>, outcome: &mut HookOutcome) {
    let name = engine::words::visible(&hook.command);
    let ran = match ran {
        Ok(ran) if ran.is_late => Err("timed out".to_owned()),
        Ok(ran) if !matches!(ran.code, Some(0 | 2)) => {
            let code = ran.code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
            Err(format!("failed with {code}: {}", cut(&ran.errors).trim()))
        }
        Ok(ran) => Ok(ran),
        Err(why) => Err(format!("cannot run: {why}")),
    };
    let ran = match ran {
        Ok(ran) => ran,
        Err(why) => {
            outcome.problems.push(format!("The `{}` hook `{name}` {why}", hook.moment));
            if hook.moment == "before_tool" {
                outcome.ask = Some(format!("The hook `{name}` {why}, so this is asked for."));
            }
            return;
        }
    };
    if ran.code == Some(2) {
        return object(hook, outcome, cut(&ran.errors).trim().to_owned());
    }
    let said = ran.output.trim();
    let Ok(Value::Object(answer)) = serde_json::from_str::<Value>(said) else {
        if hook.moment == "before_turn" && !said.is_empty() {
            outcome.context.push(cut(said).to_owned());
        }
        return;
    };
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).map(|text| cut(text).trim().to_owned()).unwrap_or_default()
    };
    let specific = answer.get("hookSpecificOutput");
    let of_specific = |key: &str| specific.and_then(|specific| specific.get(key));
    match (of_specific("permissionDecision").and_then(Value::as_str), answer.get("decision")) {
        (Some("deny"), _) => object(hook, outcome, text(of_specific("permissionDecisionReason"))),
        (_, Some(decision)) if decision == "block" || decision == "deny" => {
            object(hook, outcome, text(answer.get("reason")));
        }
        _ if answer.get("continue") == Some(&Value::Bool(false)) => {
            object(hook, outcome, text(answer.get("stopReason")));
        }
        (Some("ask"), _) => {
            let why = text(of_specific("permissionDecisionReason"));
            outcome.ask = Some(format!("The hook `{name}` asks: {why}"));
        }
        _ => {}
    }
    let context = text(of_specific("additionalContext"));
    if !context.is_empty() {
        outcome.context.push(context);
    }
}

/// Objects to what is about to happen, or informs the model about what has happened.
fn object(hook: &Hook, outcome: &mut HookOutcome, why: String) {
    let name = engine::words::visible(&hook.command);
    let why = if why.is_empty() { format!("Denied by the hook `{name}`") } else { why };
    match hook.moment.starts_with("before") {
        true => outcome.objection = Some(why),
        false => outcome.context.push(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(moment: &'static str) -> Hook {
        Hook {
            moment,
            matcher: None,
            command: "guard".to_owned(),
            timeout: std::time::Duration::from_secs(1),
            is_project: false,
            is_claude: true,
        }
    }

    fn judged(moment: &'static str, code: i32, output: &str, errors: &str) -> HookOutcome {
        let (output, errors) = (output.to_owned(), errors.to_owned());
        let ran = Ran { code: Some(code), output, errors, ..Ran::default() };
        let mut outcome = HookOutcome::default();
        judge(&hook(moment), Ok(ran), &mut outcome);
        outcome
    }

    // R: T2
    #[test]
    fn hook_objects_or_asks_in_the_ways_of_claude_code_and_never_allows() {
        let objection = |outcome: HookOutcome| outcome.objection.unwrap();
        assert_eq!(objection(judged("before_tool", 2, "", "no rm\n")), "no rm");
        let block = r#"{"decision":"block","reason":"no"}"#;
        assert_eq!(objection(judged("before_tool", 0, block, "")), "no");
        let deny = r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"why"}}"#;
        assert_eq!(objection(judged("before_tool", 0, deny, "")), "why");
        let ask = r#"{"hookSpecificOutput":{"permissionDecision":"ask","permissionDecisionReason":"sure?"}}"#;
        assert!(judged("before_tool", 0, ask, "").ask.unwrap().ends_with("sure?"));
        let allow = r#"{"hookSpecificOutput":{"permissionDecision":"allow"},"decision":"approve"}"#;
        assert_eq!(judged("before_tool", 0, allow, ""), HookOutcome::default());
        assert_eq!(judged("before_turn", 0, "note\n", "").context, ["note"]);
        assert_eq!(judged("after_tool", 2, "", "lint").context, ["lint"]);
    }

    // R: T2
    #[test]
    fn guard_that_fails_asks() {
        let failed = judged("before_tool", 1, "", "boom");
        assert!(failed.ask.unwrap().contains("boom") && failed.problems.len() == 1);
        assert!(failed.objection.is_none());
        let mut outcome = HookOutcome::default();
        judge(&hook("before_tool"), Err("no sandbox".to_owned()), &mut outcome);
        assert!(outcome.ask.is_some());
        assert!(judged("after_tool", 1, "", "").ask.is_none());
    }

    #[test]
    fn matcher_selects_by_the_names_of_claude_code() {
        for (matcher, tool, expected) in [
            ("Bash", "bash", true),
            ("Bash", "edit", false),
            ("Edit|Write", "apply_patch", true),
            ("mcp__git_hub__.*", "git_hub_push", true),
            ("mcp__other__.*", "git_hub_push", false),
            (".*", "read", true),
            ("*", "read", true),
            ("^Ba(sh)?$", "read", true),
        ] {
            assert_eq!(selects(matcher, tool), expected, "{matcher} {tool}");
        }
    }
}
