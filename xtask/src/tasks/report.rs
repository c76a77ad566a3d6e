//! What the runs have shown: a table with the agents side by side, or JSON.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::ending::BadEnd;
use super::tokens::Tokens;

/// One run of one task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    pub(crate) agent: String,
    pub(crate) task: String,
    /// What the check missed, or `None` if the task is done.
    pub(crate) missing: Option<String>,
    pub(crate) bad_end: Option<BadEnd>,
    pub(crate) requests: usize,
    pub(crate) tokens: Tokens,
    pub(crate) seconds: f64,
}

impl Run {
    /// Describes the run in a line.
    pub(crate) fn line(&self) -> String {
        let result =
            self.missing.as_ref().map_or("done".to_owned(), |why| format!("not done: {why}"));
        let end = self.bad_end.map(|end| format!("; bad end: {end}")).unwrap_or_default();
        let Run { agent, task, requests, seconds, .. } = self;
        let tokens = count(self.tokens.total(), self.tokens.is_estimated);
        format!(
            "{agent} {task}: {result}{end} ({requests} requests, {tokens} tokens, {seconds:.1} s)"
        )
    }

    fn json(&self) -> Value {
        json!({
            "agent": self.agent, "task": self.task, "done": self.missing.is_none(),
            "missing": self.missing, "badEnd": self.bad_end.map(|end| end.to_string()),
            "requests": self.requests, "inputTokens": self.tokens.input,
            "cachedTokens": self.tokens.cached, "outputTokens": self.tokens.output,
            "tokensAreEstimated": self.tokens.is_estimated, "seconds": self.seconds,
        })
    }
}

/// Returns all runs as JSON.
pub(crate) fn as_json(runs: &[Run]) -> String {
    format!("{:#}", Value::from_iter(runs.iter().map(Run::json)))
}

/// Returns a Markdown table: a row for each task and one for all, four columns for each agent. Tokens and seconds are means of
/// the runs of a task; in the last row they are sums of these means.
pub(crate) fn as_table(agents: &[String], runs: &[Run]) -> String {
    let tasks: BTreeSet<&str> = runs.iter().map(|run| run.task.as_str()).collect();
    let head = agents.iter().map(|agent| format!("{agent}: done | bad end | tokens | seconds"));
    let line = format!("|---|{}\n", "---|---|---:|---:|".repeat(agents.len()));
    let mut table = row("task", head) + &line;
    for task in &tasks {
        let of_task = runs.iter().filter(|run| run.task == *task);
        table += &row(task, agents.iter().map(|agent| cells(agent, of_task.clone(), 1)));
    }
    let all = |agent: &String| cells(agent, runs.iter(), tasks.len());
    table + &row("**all**", agents.iter().map(all))
}

fn row(first: &str, rest: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = std::iter::once(first.to_owned()).chain(rest).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Returns the four cells of an agent for its runs of this many tasks.
fn cells<'a>(agent: &str, runs: impl Iterator<Item = &'a Run>, tasks: usize) -> String {
    let runs: Vec<&Run> = runs.filter(|run| run.agent == agent).collect();
    if runs.is_empty() {
        return "– | – | – | –".to_owned();
    }
    let done = runs.iter().filter(|run| run.missing.is_none()).count();
    let kinds: BTreeSet<BadEnd> = runs.iter().filter_map(|run| run.bad_end).collect();
    let ends = kinds.iter().map(|kind| {
        let count = runs.iter().filter(|run| run.bad_end == Some(*kind)).count();
        format!("{count} {kind}")
    });
    let ends = ends.collect::<Vec<_>>().join(", ");
    let mean = |sum: f64| sum * tasks as f64 / runs.len() as f64;
    let tokens = mean(runs.iter().map(|run| run.tokens.total() as f64).sum());
    let seconds = mean(runs.iter().map(|run| run.seconds).sum());
    let is_estimated = runs.iter().any(|run| run.tokens.is_estimated);
    let tokens = count(tokens.round() as u64, is_estimated);
    format!("{done} of {} | {ends} | {tokens} | {seconds:.1}", runs.len())
}

/// Formats a number of tokens with separators; an estimate is marked.
fn count(number: u64, is_estimated: bool) -> String {
    let digits = number.to_string();
    let mut text = if is_estimated { "~".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(agent: &str, task: &str, is_done: bool, bad_end: Option<BadEnd>, tokens: u64) -> Run {
        Run {
            agent: agent.to_owned(),
            task: task.to_owned(),
            missing: (!is_done).then(|| "a.py is missing".to_owned()),
            bad_end,
            requests: 2,
            tokens: Tokens { input: tokens, ..Tokens::default() },
            seconds: 1.5,
        }
    }

    #[test]
    fn agents_stand_side_by_side() {
        let runs = [
            run("a", "x", true, None, 1000),
            run("a", "x", false, Some(BadEnd::RawCall), 2000),
            run("a", "y", true, None, 500),
            run("a", "y", true, None, 500),
            run("b", "x", false, Some(BadEnd::Error), 30),
        ];
        let table = as_table(&["a".to_owned(), "b".to_owned()], &runs);
        let expected = "\
| task | a: done | bad end | tokens | seconds | b: done | bad end | tokens | seconds |
|---|---|---|---:|---:|---|---|---:|---:|
| x | 1 of 2 | 1 raw JSON | 1,500 | 1.5 | 0 of 1 | 1 error | 30 | 1.5 |
| y | 2 of 2 |  | 500 | 1.5 | – | – | – | – |
| **all** | 3 of 4 | 1 raw JSON | 2,000 | 3.0 | 0 of 1 | 1 error | 60 | 3.0 |
";
        assert_eq!(table, expected);
    }

    #[test]
    fn run_is_described_in_a_line_and_as_json() {
        let run = run("a", "x", false, Some(BadEnd::Error), 1234);
        assert_eq!(
            run.line(),
            "a x: not done: a.py is missing; bad end: error (2 requests, 1,234 tokens, 1.5 s)"
        );
        let list: Value = serde_json::from_str(&as_json(&[run])).unwrap();
        assert_eq!((&list[0]["done"], &list[0]["inputTokens"]), (&json!(false), &json!(1234)));
    }
}
