//! What the tour says, step by step, and what it asks for. Pure.

use std::path::Path;

use serde_json::{Value, json};

/// The file of the tour.
pub(super) const FILE: &str = "greet.sh";
/// What is in it.
pub(super) const TEXT: &str =
    "#!/bin/sh\n# Greets whoever is named.\nname=${1:-world}\necho \"Helo, $name!\"\n";

/// Said behind the command that the tour stopped by itself.
pub(super) const LAST: &str = "\nStopped: the command is gone, and so is everything it started. You can do that at any time.\n\
\n\
That was the tour, and its folder is removed. Nothing in your project was touched. To work with a model, run `purlin auth login anthropic` \
(or `openai`, `google`, `openrouter`), or start Ollama; `purlin models` lists what can be used, `/help` the commands.\n";

/// One step.
pub(super) struct Step {
    pub(super) text: String,
    /// The tool that is asked for, and its input.
    pub(super) call: Option<(&'static str, Value)>,
    /// Whether it is the command that is there to be stopped.
    pub(super) is_last: bool,
}

/// Returns the step behind these results, each of which may have failed for a reason.
pub(super) fn step(results: &[Option<String>], folder: &Path) -> Step {
    let file = folder.join(FILE);
    let failed = results.last().and_then(Option::as_deref);
    let call = match results.len() {
        0 => Some(("plan", plan(results))),
        1 => Some(("read", json!({ "filePath": file }))),
        2 => Some((
            "edit",
            json!({ "filePath": file, "oldString": "Helo, ", "newString": "Hello, " }),
        )),
        3 => Some(("bash", json!({ "command": format!("sh {FILE} you") }))),
        4 => Some(("plan", plan(results))),
        5 => Some(("bash", json!({ "command": "sleep 60" }))),
        _ => None,
    };
    Step { text: text(results.len(), failed, folder), call, is_last: results.len() == 5 }
}

fn text(results: usize, failed: Option<&str>, folder: &Path) -> String {
    match (results, failed) {
        (0, _) => format!(
            "This is a tour, in a folder made for it: `{}`. What I say was written down beforehand, and no model is asked. The rest is \
             real: the tools, the questions, and what is kept.\n\nLonger work begins with a plan.\n",
            folder.display()
        ),
        (1, _) => "\nFirst I read the file.\n".to_owned(),
        (2, _) => "\nIt greets with `Helo`. I correct that: you see the change before it is made, and nothing is written unless you \
                   allow it.\n"
            .to_owned(),
        (3, None) => "\nYou allowed it, so it is written. Now I run the file. A command runs without network and without a way to \
                      change anything outside the folder, where this machine can hold it so; else you are asked.\n"
            .to_owned(),
        (3, Some(why)) => format!(
            "\nIt was not changed: {}. A model is told the same, and has to find another way. I run the file as it is.\n",
            reason(why)
        ),
        (4, None) => "\nIt ran; its output stands with the call.\n".to_owned(),
        (4, Some(why)) => format!("\nIt did not run: {}.\n", reason(why)),
        (5, _) => "\nLast, a command that takes too long. Stop it: with the stop button of your editor, or with Ctrl-C. If you do not, I \
                   stop it in five seconds.\n"
            .to_owned(),
        (_, Some(why)) => format!("\nIt did not run: {}, so there is nothing to stop.\n{LAST}", reason(why)),
        (_, None) => LAST.to_owned(),
    }
}

/// The first line of a failure, without its full stop.
fn reason(why: &str) -> &str {
    why.lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("it failed")
        .trim_end_matches('.')
}

/// The plan behind these results: its own first, then one for each step. What failed is said to be skipped: a step that is
/// given up would vanish from the list.
fn plan(results: &[Option<String>]) -> Value {
    const STEPS: [&str; 4] =
        ["Read the file", "Correct its greeting", "Run it", "Stop a command that takes too long"];
    let next = results.len().saturating_sub(1);
    let entry = |(at, step): (usize, &&str)| match results.get(at + 1) {
        Some(None) => json!({ "content": step, "status": "completed" }),
        Some(Some(_)) => json!({ "content": format!("{step} (skipped)"), "status": "completed" }),
        None if at == next => json!({ "content": step, "status": "in_progress" }),
        None => json!({ "content": step, "status": "pending" }),
    };
    let steps: Vec<Value> = STEPS.iter().enumerate().map(entry).collect();
    json!({ "todos": steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_said_and_the_tour_goes_on() {
        let folder = Path::new("/t");
        let no = || Some("the user did not allow this\n".to_owned());
        let refused = step(&[None, None, no()], folder);
        assert!(refused.text.contains("not changed: the user did not allow this. A model"));
        assert!(refused.call.is_some());
        assert!(step(&[None, None, None], folder).text.contains("You allowed it"));
        let plan = step(&[None, None, no(), None], folder).call.unwrap().1;
        let status = |at: usize| plan["todos"][at]["status"].as_str().unwrap().to_owned();
        let all = [0, 1, 2, 3].map(status);
        assert_eq!(all, ["completed", "completed", "completed", "in_progress"]);
        assert_eq!(plan["todos"][1]["content"], "Correct its greeting (skipped)");
        assert!(
            step(&[None, None, None, None, None, no()], folder).text.contains("nothing to stop")
        );
        assert!(step(&[None, None, None, None, None, None], folder).call.is_none());
    }
}
