//! Hooks: commands of the user's configuration that are asked when tools and turns begin and end.
//!
//! A hook gets JSON and answers with JSON. Before something happens, a hook that does not answer properly counts as an
//! objection: a guard that cannot speak has not agreed. Afterwards it is only told.

use std::path::PathBuf;

use engine::words::pattern::fits;
use engine::words::{Moment, Ruling};
use engine::words::{SessionId, StopReason};
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serde_json::{Value, json};
use settings::custom::hooks::{Hook, MOMENTS};
use tools::bash::{Bash, CapturedRun, Ran};

/// How much of a tool's output a hook is told.
const MOST_OUTPUT: usize = 32 * 1024;
/// How much is heard of a hook.
const MOST_HEARD: usize = 64 * 1024;
/// How much of what a hook says reaches the model or the user.
const MOST_TOLD: usize = 8 * 1024;
/// The session that hooks belong to.
#[derive(Debug)]
pub(crate) struct HookPlace {
    pub(crate) session: SessionId,
    pub(crate) cwd: PathBuf,
}

fn is_for(hook: &Hook, moment: &Moment<'_>) -> bool {
    let tool = match moment {
        Moment::BeforeTool { tool, .. } | Moment::AfterTool { tool, .. } => *tool,
        Moment::BeforeTurn { .. } | Moment::AfterTurn(_) => "",
    };
    let fits_one = |matcher: &String| matcher.split('|').any(|one| fits(one.trim(), tool));
    hook.moment == name_of(moment) && hook.matcher.as_ref().is_none_or(fits_one)
}

fn name_of(moment: &Moment<'_>) -> &'static str {
    match moment {
        Moment::BeforeTurn { .. } => MOMENTS[0],
        Moment::BeforeTool { .. } => MOMENTS[1],
        Moment::AfterTool { .. } => MOMENTS[2],
        Moment::AfterTurn(_) => MOMENTS[3],
    }
}

/// Asks the hooks of a moment, one after the other, until one objects.
pub(crate) fn ask<'a>(
    hooks: &'a [Hook],
    moment: Moment<'a>,
    bash: &'a Bash,
    place: &'a HookPlace,
) -> BoxFuture<'a, Ruling> {
    let asked: Vec<&Hook> = hooks.iter().filter(|hook| is_for(hook, &moment)).collect();
    if asked.is_empty() {
        return future::ready(Ruling::default()).boxed();
    }
    ask_all(asked, moment, bash, place).boxed()
}

async fn ask_all(asked: Vec<&Hook>, moment: Moment<'_>, bash: &Bash, place: &HookPlace) -> Ruling {
    let mut ruling = Ruling::default();
    let told = told(&moment, place).to_string().into_bytes();
    for hook in asked {
        let run = CapturedRun {
            command: hook.command.clone(),
            args: Vec::new(),
            environment: Vec::new(),
            cwd: place.cwd.clone(),
            input: told.clone(),
            timeout: hook.timeout,
            limit: MOST_HEARD,
            must_be_confined: hook.is_project,
        };
        judge(hook, bash.run_captured(run).await, &mut ruling);
        if ruling.objection.is_some() {
            break;
        }
    }
    ruling
}

/// What a hook reads.
fn told(moment: &Moment<'_>, place: &HookPlace) -> Value {
    let mut told = json!({
        "event": name_of(moment),
        "session": place.session.as_str(),
        "cwd": place.cwd,
    });
    match moment {
        Moment::BeforeTurn { prompt } => told["prompt"] = json!(prompt),
        Moment::BeforeTool { tool, input } => {
            told["tool"] = json!(tool);
            told["input"] = (*input).clone();
        }
        Moment::AfterTool { tool, input, output, failed } => {
            told["tool"] = json!(tool);
            told["input"] = (*input).clone();
            told["output"] = json!(&output[..output.floor_char_boundary(MOST_OUTPUT)]);
            told["failed"] = json!(failed);
        }
        Moment::AfterTurn(stop) => told["stop"] = json!(stop.map(StopReason::id)),
    }
    told
}

/// Adds what came of one hook to the ruling.
fn judge(hook: &Hook, ran: Result<Ran, String>, ruling: &mut Ruling) {
    let name = engine::words::visible(&hook.command);
    match answer(ran) {
        Ok(Answer { objection, context }) => {
            ruling.objection = objection
                .map(|why| if why.is_empty() { format!("the hook `{name}` objects") } else { why });
            ruling.context.extend(context);
        }
        Err(why) => {
            ruling.problems.push(format!("the hook `{name}` of `{}` {why}", hook.moment));
            if hook.moment.starts_with("before") {
                ruling.objection = Some(format!("the hook `{name}` {why}, so this was not done"));
            }
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct Answer {
    objection: Option<String>,
    context: Option<String>,
}

/// Reads what a hook answered: nothing, or an object with `decision`, `reason` and `context`.
fn answer(ran: Result<Ran, String>) -> Result<Answer, String> {
    let ran = ran.map_err(|why| format!("did not run: {why}"))?;
    if ran.is_late {
        return Err("took too long and was ended".to_owned());
    }
    let cut = |text: &str| text[..text.floor_char_boundary(MOST_TOLD)].trim().to_owned();
    if ran.code != Some(0) {
        let code = ran.code.map_or("a signal".to_owned(), |code| format!("code {code}"));
        return Err(match cut(&ran.errors) {
            errors if errors.is_empty() => format!("ended with {code}"),
            errors => format!("ended with {code}: {errors}"),
        });
    }
    if ran.output.trim().is_empty() {
        return Ok(Answer::default());
    }
    let Ok(Value::Object(said)) = serde_json::from_str(ran.output.trim()) else {
        return Err("answered with something that is no object of JSON".to_owned());
    };
    let text = |key: &str| said.get(key).and_then(Value::as_str).map(cut);
    let objection = match said.get("decision").map(|decision| decision.as_str()) {
        None | Some(Some("allow")) => None,
        Some(Some("deny")) => Some(text("reason").unwrap_or_default()),
        Some(_) => {
            return Err("answered with a `decision` that is neither allow nor deny".to_owned());
        }
    };
    Ok(Answer { objection, context: text("context").filter(|context| !context.is_empty()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i32, output: &str) -> Result<Ran, String> {
        Ok(Ran { code: Some(code), output: output.to_owned(), ..Ran::default() })
    }

    #[test]
    fn a_hook_answers_with_nothing_or_with_a_decision() {
        assert_eq!(answer(said(0, " \n")), Ok(Answer::default()));
        assert_eq!(answer(said(0, r#"{"decision":"allow"}"#)), Ok(Answer::default()));
        let denied = answer(said(0, r#"{"decision":"deny","reason":"no"}"#)).unwrap();
        assert_eq!(denied.objection.as_deref(), Some("no"));
        let more = answer(said(0, r#"{"context":"know this"}"#)).unwrap();
        assert_eq!(more.context.as_deref(), Some("know this"));
    }

    #[test]
    fn a_hook_that_fails_objects_before_and_is_only_told_after() {
        let late = || Ok(Ran { is_late: true, ..Ran::default() });
        let failures = [
            said(2, ""),
            said(0, "yes"),
            said(0, r#"{"decision":"maybe"}"#),
            late(),
            Err("x".to_owned()),
        ];
        for (moment, objects) in [("before_tool", true), ("after_tool", false)] {
            let value = json!({ moment: [{ "command": "guard" }] });
            let hook = settings::custom::hooks::read(&value, false, &mut Vec::new()).remove(0);
            for ran in failures.clone() {
                let mut ruling = Ruling::default();
                judge(&hook, ran.clone(), &mut ruling);
                assert_eq!(ruling.problems.len(), 1, "{ran:?}");
                assert_eq!(ruling.objection.is_some(), objects, "{ran:?}");
            }
        }
    }

    #[test]
    fn a_hook_is_told_how_a_turn_ended_in_the_words_of_the_protocol() {
        let place = HookPlace { session: SessionId::new("s"), cwd: PathBuf::new() };
        let stop = |stop| told(&Moment::AfterTurn(stop), &place)["stop"].clone();
        assert_eq!(stop(Some(StopReason::MaxTurnRequests)), "max_turn_requests");
        assert_eq!(stop(None), Value::Null);
    }

    #[test]
    fn a_matcher_names_tools() {
        let value = json!({ "before_tool": [{ "command": "x", "matcher": "bash|github_*" }] });
        let hook = settings::custom::hooks::read(&value, false, &mut Vec::new()).remove(0);
        let input = json!({});
        let is_for = |tool| super::is_for(&hook, &Moment::BeforeTool { tool, input: &input });
        assert!(is_for("bash") && is_for("github_push") && !is_for("edit"));
        assert!(!super::is_for(&hook, &Moment::BeforeTurn { prompt: "" }));
    }
}
