//! Parses the lines of a script into answers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::words::{StopReason, Usage};

/// A line of a script that is invalid.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ScriptError {
    /// Which line, counting from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

pub(super) type Answer = Vec<Item>;

/// One thing a scripted model does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item {
    Text(String),
    Thought(String),
    Chunks(usize, String),
    Echo,
    Tool { name: String, input: Arc<Value> },
    Usage(Usage),
    Wait(Duration),
    Hang,
    Stop(StopReason),
    Fail(Failure),
    Panic,
}

/// How a scripted model fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Failure {
    Auth,
    Overloaded,
    Broken,
    Full,
}

/// What the other lines of a transcript start with. They end an answer and are otherwise ignored.
const OTHERS: [&str; 8] = [">", "<", "tag", "use", "config", "fs", "eof", "exit"];

#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) answers: Vec<Answer>,
    pub(super) is_endless: bool,
    pub(super) window: Option<u64>,
}

pub(super) fn parse(text: &str) -> Result<Script, ScriptError> {
    let mut script = Script::default();
    let mut answer = Answer::new();
    for (index, line) in text.lines().enumerate() {
        let line_end = |answer: &mut Answer, script: &mut Script| {
            if !answer.is_empty() {
                script.answers.push(std::mem::take(answer));
            }
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, words) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if OTHERS.contains(&word) || line.starts_with(">!") {
            line_end(&mut answer, &mut script);
            continue;
        }
        if word != "model" {
            let problem = format!("unknown line `{word}`; lines of a model start with `model`");
            return Err(ScriptError { line: index + 1, problem });
        }
        match words.trim() {
            "end" => line_end(&mut answer, &mut script),
            "loop" => script.is_endless = true,
            words if words.starts_with("window ") => {
                let tokens = number(words["window ".len()..].trim());
                let tokens = tokens.map_err(|problem| ScriptError { line: index + 1, problem })?;
                script.window = Some(tokens as u64);
            }
            words => {
                let item =
                    item(words).map_err(|problem| ScriptError { line: index + 1, problem })?;
                let is_tool = |item: &Item| matches!(item, Item::Tool { .. });
                if answer.last().is_some_and(is_tool) && !is_tool(&item) {
                    line_end(&mut answer, &mut script);
                }
                answer.push(item);
            }
        }
    }
    if !answer.is_empty() {
        script.answers.push(answer);
    }
    Ok(script)
}

fn item(words: &str) -> Result<Item, String> {
    let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
    let rest = rest.trim();
    Ok(match verb {
        "text" => Item::Text(json(rest)?),
        "thought" => Item::Thought(json(rest)?),
        "chunks" => {
            let (count, text) = rest.split_once(' ').ok_or("chunks needs a number and a string")?;
            Item::Chunks(number(count)?, json(text.trim())?)
        }
        "echo" => Item::Echo,
        "tool" => {
            let (name, input) = rest.split_once(' ').unwrap_or((rest, "{}"));
            Item::Tool { name: name.to_owned(), input: Arc::new(json(input.trim())?) }
        }
        "usage" => {
            let usage: Value = json(rest)?;
            let tokens = |key: &str| usage[key].as_u64().unwrap_or(0);
            Item::Usage(Usage {
                input: tokens("input"),
                output: tokens("output"),
                cache_read: tokens("cacheRead"),
                cache_write: tokens("cacheWrite"),
            })
        }
        "wait" => Item::Wait(Duration::from_millis(number(rest)? as u64)),
        "hang" => Item::Hang,
        "panic" => Item::Panic,
        "stop" => Item::Stop(match rest {
            "end_turn" => StopReason::EndTurn,
            "max_tokens" => StopReason::MaxTokens,
            "refusal" => StopReason::Refusal,
            other => return Err(format!("unknown stop reason {other}")),
        }),
        "fail" => Item::Fail(match rest {
            "auth" => Failure::Auth,
            "overloaded" => Failure::Overloaded,
            "broken" => Failure::Broken,
            "full" => Failure::Full,
            other => return Err(format!("unknown failure {other}")),
        }),
        "" => return Err("the line does not say what the model does".to_owned()),
        other => return Err(format!("unknown action `{other}`")),
    })
}

fn json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|err| format!("invalid JSON: {err}"))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_after_tools_and_at_other_lines() {
        let script = parse(
            "# words\nmodel text \"a\"\nmodel tool t {}\nmodel tool u {\"x\":1}\nmodel text \"b\"\n> {}\nmodel text \"c\"\nmodel end\nmodel hang\n",
        )
        .unwrap();
        let lengths: Vec<usize> = script.answers.iter().map(Vec::len).collect();
        assert_eq!(lengths, [3, 1, 1, 1]);
        assert!(!script.is_endless);
    }

    #[test]
    fn invalid_line_is_named() {
        assert_eq!(
            parse("model text \"a\"\nmodel sing").unwrap_err().to_string(),
            "line 2: unknown action `sing`"
        );
        assert_eq!(parse("model text a").unwrap_err().line, 1);
        assert_eq!(
            parse("# R\n\nmodle text \"a\"").unwrap_err().to_string(),
            "line 3: unknown line `modle`; lines of a model start with `model`"
        );
        assert_eq!(
            parse("model").unwrap_err().to_string(),
            "line 1: the line does not say what the model does"
        );
    }
}
