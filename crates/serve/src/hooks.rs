//! Runs hooks: commands of the user or a trusted project that run when tools and turns begin and end.
//!
//! A hook reads JSON and answers with JSON. If a hook fails before an action, the action is blocked; after an action, the
//! failure is only reported.

use std::path::PathBuf;
use std::sync::Arc;

use engine::words::pattern::matches_pattern;
use engine::words::{HookOutcome, Moment};
use engine::words::{SessionId, StopReason};
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serde_json::{Value, json};
use settings::custom::hooks::{Hook, MOMENTS};
use tools::bash::{Bash, CapturedRun, Ran};

use crate::claude_hooks;

/// How much of a tool's output a hook gets.
const MOST_OUTPUT: usize = 32 * 1024;
/// The most output of a hook that is read.
const MAX_ANSWER: usize = 64 * 1024;
/// The longest text of a hook for the model or the user.
const MAX_TEXT: usize = 8 * 1024;
/// The session that hooks belong to.
#[derive(Debug)]
pub(crate) struct HookContext {
    pub(crate) session: SessionId,
    pub(crate) cwd: PathBuf,
}

fn is_for(hook: &Hook, moment: &Moment<'_>) -> bool {
    let tool = match moment {
        Moment::BeforeTool { tool, .. } | Moment::AfterTool { tool, .. } => *tool,
        Moment::BeforeTurn { .. } | Moment::AfterTurn(_) => "",
    };
    let matches_one = |matcher: &String| match (hook.is_claude, tool) {
        // Of Claude Code's hooks, only those of tools have a matcher.
        (true, "") => true,
        (true, tool) => claude_hooks::selects(matcher, tool),
        (false, tool) => matcher.split('|').any(|one| matches_pattern(one.trim(), tool)),
    };
    hook.moment == name_of(moment) && hook.matcher.as_ref().is_none_or(matches_one)
}

fn name_of(moment: &Moment<'_>) -> &'static str {
    match moment {
        Moment::BeforeTurn { .. } => MOMENTS[0],
        Moment::BeforeTool { .. } => MOMENTS[1],
        Moment::AfterTool { .. } => MOMENTS[2],
        Moment::AfterTurn(_) => MOMENTS[3],
    }
}

/// Runs the hooks of an event one after the other, until one denies.
pub(crate) fn ask<'a>(
    hooks: &'a [Hook],
    moment: Moment<'a>,
    bash: &'a Arc<Bash>,
    context: &'a HookContext,
) -> BoxFuture<'a, HookOutcome> {
    let asked: Vec<&Hook> = hooks.iter().filter(|hook| is_for(hook, &moment)).collect();
    if asked.is_empty() {
        return future::ready(HookOutcome::default()).boxed();
    }
    ask_all(asked, moment, bash, context).boxed()
}

async fn ask_all(
    asked: Vec<&Hook>,
    moment: Moment<'_>,
    bash: &Arc<Bash>,
    context: &HookContext,
) -> HookOutcome {
    let mut outcome = HookOutcome::default();
    for hook in asked {
        let input = match hook.is_claude {
            true => claude_hooks::input(&moment, context),
            false => input(&moment, context),
        };
        let directory = context.cwd.to_string_lossy().into_owned();
        let environment = hook.is_claude.then(|| ("CLAUDE_PROJECT_DIR".to_owned(), directory));
        let run = CapturedRun {
            on_host: true,
            command: hook.command.clone(),
            args: Vec::new(),
            environment: environment.into_iter().collect(),
            cwd: context.cwd.clone(),
            input: input.to_string().into_bytes(),
            timeout: hook.timeout,
            limit: MAX_ANSWER,
            must_be_confined: hook.is_project,
        };
        let ran = bash.run_captured(run).await;
        match hook.is_claude {
            true => claude_hooks::judge(hook, ran, &mut outcome),
            false => judge(hook, ran, &mut outcome),
        }
        if outcome.objection.is_some() {
            break;
        }
    }
    outcome.problems.extend(bash.take_warnings());
    outcome
}

/// Returns the input of a hook.
fn input(moment: &Moment<'_>, context: &HookContext) -> Value {
    let mut value = json!({
        "event": name_of(moment),
        "session": context.session.as_str(),
        "cwd": context.cwd,
    });
    match moment {
        Moment::BeforeTurn { prompt } => value["prompt"] = json!(prompt),
        Moment::BeforeTool { tool, input } => {
            value["tool"] = json!(tool);
            value["input"] = (*input).clone();
        }
        Moment::AfterTool { tool, input, output, failed } => {
            value["tool"] = json!(tool);
            value["input"] = (*input).clone();
            value["output"] = json!(&output[..output.floor_char_boundary(MOST_OUTPUT)]);
            value["failed"] = json!(failed);
        }
        Moment::AfterTurn(stop) => value["stop"] = json!(stop.map(StopReason::id)),
    }
    value
}

/// Adds the result of a hook to the outcome.
fn judge(hook: &Hook, ran: Result<Ran, String>, outcome: &mut HookOutcome) {
    let name = engine::words::visible(&hook.command);
    match answer(ran) {
        Ok(Answer { objection, context }) => {
            outcome.objection = objection.map(|why| {
                if why.is_empty() { format!("Denied by the hook `{name}`") } else { why }
            });
            outcome.context.extend(context);
        }
        Err(why) => {
            outcome.problems.push(format!("The `{}` hook `{name}` {why}", hook.moment));
            if hook.moment.starts_with("before") {
                outcome.objection = Some(format!("Blocked: the hook `{name}` {why}"));
            }
        }
    }
}

/// Cuts a text of a hook to its limit.
pub(crate) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

#[derive(Debug, Default, PartialEq)]
struct Answer {
    objection: Option<String>,
    context: Option<String>,
}

/// Reads the answer of a hook: nothing, or an object with `decision`, `reason` and `context`.
fn answer(ran: Result<Ran, String>) -> Result<Answer, String> {
    let ran = ran.map_err(|why| format!("cannot run: {why}"))?;
    if ran.is_late {
        return Err("timed out".to_owned());
    }
    let cut = |text: &str| cut(text).trim().to_owned();
    if ran.code != Some(0) {
        let code = ran.code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
        return Err(match cut(&ran.errors) {
            errors if errors.is_empty() => format!("failed with {code}"),
            errors => format!("failed with {code}: {errors}"),
        });
    }
    if ran.output.trim().is_empty() {
        return Ok(Answer::default());
    }
    let Ok(Value::Object(members)) = serde_json::from_str(ran.output.trim()) else {
        return Err("answered with invalid JSON".to_owned());
    };
    let text = |key: &str| members.get(key).and_then(Value::as_str).map(cut);
    let objection = match members.get("decision").map(|decision| decision.as_str()) {
        None | Some(Some("allow")) => None,
        Some(Some("deny")) => Some(text("reason").unwrap_or_default()),
        Some(_) => {
            return Err("answered with an invalid `decision`: expected allow or deny".to_owned());
        }
    };
    Ok(Answer { objection, context: text("context").filter(|context| !context.is_empty()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: i32, output: &str) -> Result<Ran, String> {
        Ok(Ran { code: Some(code), output: output.to_owned(), ..Ran::default() })
    }

    #[test]
    fn hook_answers_with_nothing_or_a_decision() {
        assert_eq!(answer(ran(0, " \n")), Ok(Answer::default()));
        assert_eq!(answer(ran(0, r#"{"decision":"allow"}"#)), Ok(Answer::default()));
        let denied = answer(ran(0, r#"{"decision":"deny","reason":"no"}"#)).unwrap();
        assert_eq!(denied.objection.as_deref(), Some("no"));
        let more = answer(ran(0, r#"{"context":"know this"}"#)).unwrap();
        assert_eq!(more.context.as_deref(), Some("know this"));
    }

    #[test]
    fn failed_hook_blocks_before_an_action_and_is_only_reported_after() {
        let late = || Ok(Ran { is_late: true, ..Ran::default() });
        let failures = [
            ran(2, ""),
            ran(0, "yes"),
            ran(0, r#"{"decision":"maybe"}"#),
            late(),
            Err("x".to_owned()),
        ];
        for (moment, objects) in [("before_tool", true), ("after_tool", false)] {
            let value = json!({ moment: [{ "command": "guard" }] });
            let hook = settings::custom::hooks::read(&value, false, &mut Vec::new()).remove(0);
            for ran in failures.clone() {
                let mut outcome = HookOutcome::default();
                judge(&hook, ran.clone(), &mut outcome);
                assert_eq!(outcome.problems.len(), 1, "{ran:?}");
                assert_eq!(outcome.objection.is_some(), objects, "{ran:?}");
            }
        }
    }

    #[test]
    fn hook_gets_the_stop_reason_of_the_protocol() {
        let context = HookContext { session: SessionId::new("s"), cwd: PathBuf::new() };
        let stop = |stop| super::input(&Moment::AfterTurn(stop), &context)["stop"].clone();
        assert_eq!(stop(Some(StopReason::MaxTurnRequests)), "max_turn_requests");
        assert_eq!(stop(None), Value::Null);
    }

    #[test]
    fn matcher_selects_tools() {
        let value = json!({ "before_tool": [{ "command": "x", "matcher": "bash|github_*" }] });
        let hook = settings::custom::hooks::read(&value, false, &mut Vec::new()).remove(0);
        let input = json!({});
        let is_for = |tool| super::is_for(&hook, &Moment::BeforeTool { tool, input: &input });
        assert!(is_for("bash") && is_for("github_push") && !is_for("edit"));
        assert!(!super::is_for(&hook, &Moment::BeforeTurn { prompt: "" }));
    }
}
