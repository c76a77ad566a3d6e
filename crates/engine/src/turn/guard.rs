//! Guard rails: notices when a turn goes round in circles. Looks at calls and what came of them; stops nothing itself.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::words::{Message, ToolRequest};

/// How often the same call may fail in the same way; the model is told one time before.
const FAILURES: usize = 3;
/// After so many answers that learned nothing new the model is told.
const STALE_TOLD: usize = 4;
/// After so many the turn stops.
const STALE: usize = 8;

/// What to do with the turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    GoOn,
    /// Tell the model this.
    Tell(String),
    /// Stop, and tell the user why.
    Stop(String),
}

/// What was seen of one turn.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// Calls with what came of them, by their hash, and how often they failed since something new was learned.
    seen: HashMap<u64, usize>,
    /// How many answers in a row asked only for what was known.
    stale: usize,
}

impl Guard {
    /// Takes the calls of the last answer with what came of them.
    pub(crate) fn step(&mut self, messages: &[Arc<Message>]) -> Verdict {
        let done = last_step(messages);
        let mut keys: Vec<(u64, bool, &ToolRequest)> =
            done.iter().map(|(call, text, failed)| (key(call, text), *failed, *call)).collect();
        keys.sort_by_key(|(key, _, _)| *key);
        keys.dedup_by_key(|(key, _, _)| *key);
        let has_new = keys.iter().any(|(key, failed, _)| !failed && !self.seen.contains_key(key));
        let is_stale = keys.iter().all(|(key, _, _)| self.seen.contains_key(key));
        if has_new {
            self.seen.values_mut().for_each(|failures| *failures = 0);
        }
        self.stale = if is_stale && !keys.is_empty() { self.stale + 1 } else { 0 };
        let mut verdict = Verdict::GoOn;
        for (key, failed, call) in keys {
            let failures = self.seen.entry(key).or_default();
            *failures += usize::from(failed);
            match *failures {
                FAILURES.. => {
                    return Verdict::Stop(format!(
                        "`{}` failed {FAILURES} times in the same way, so the turn was stopped.",
                        call.name
                    ));
                }
                failures if failures == FAILURES - 1 && failed => {
                    verdict = Verdict::Tell(format!(
                        "The same call of `{}` failed in the same way again. Once more, and the turn is stopped: do something else, or say what is in the way.",
                        call.name
                    ));
                }
                _ => {}
            }
        }
        match self.stale {
            STALE.. => Verdict::Stop(format!(
                "The last {STALE} answers asked for the same calls and learned nothing new, so the turn was stopped."
            )),
            STALE_TOLD => Verdict::Tell(
                "You ask for the same calls again and again, and what comes of them does not change. Do something else, or end and say what is in the way. If you wait for something, wait longer at a time.".to_owned(),
            ),
            _ => verdict,
        }
    }
}

/// Returns the calls of the last answer that had any, with the text of each result and whether it failed.
fn last_step(messages: &[Arc<Message>]) -> Vec<(&ToolRequest, &str, bool)> {
    let mut results: HashMap<&str, (&str, bool)> = HashMap::new();
    for message in messages.iter().rev() {
        match &**message {
            Message::ToolResult { id, text, failed } => {
                results.insert(id.as_str(), (text, *failed));
            }
            Message::Agent { calls, .. } if !calls.is_empty() => {
                let done = calls.iter().filter_map(|call| {
                    let (text, failed) = results.get(call.id.as_str())?;
                    Some((call, *text, *failed))
                });
                return done.collect();
            }
            Message::Agent { .. } | Message::User(_) => {}
        }
    }
    Vec::new()
}

fn key(call: &ToolRequest, result: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&call.name, &call.input, result).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::words::ToolCallId;

    /// Plays steps, each a list of tool, result and whether it failed, and returns the verdicts.
    fn play(steps: &[&[(&str, &str, bool)]]) -> Vec<char> {
        let mut guard = Guard::default();
        let mut messages: Vec<Arc<Message>> = Vec::new();
        let mut verdicts = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            let id = |at: usize| ToolCallId::new(format!("{number}-{at}"));
            let call = |(at, (name, _, _)): (usize, &(&str, &str, bool))| ToolRequest {
                id: id(at),
                name: (*name).to_owned(),
                input: json!({}).into(),
            };
            let calls = step.iter().enumerate().map(call).collect();
            let (thoughts, text) = (Vec::new(), String::new());
            messages.push(Arc::new(Message::Agent { thoughts, text, calls }));
            for (at, (_, text, failed)) in step.iter().enumerate() {
                let (text, failed) = ((*text).to_owned(), *failed);
                messages.push(Arc::new(Message::ToolResult { id: id(at), text, failed }));
            }
            verdicts.push(match guard.step(&messages) {
                Verdict::GoOn => '.',
                Verdict::Tell(_) => 't',
                Verdict::Stop(_) => 's',
            });
        }
        verdicts
    }

    #[test]
    fn the_same_failure_is_told_then_stops() {
        let fail: &[_] = &[("edit", "no match", true)];
        assert_eq!(play(&[fail, fail, fail]), ['.', 't', 's']);
        // Looking at the same thing in between is no progress.
        let look: &[_] = &[("read", "a", false)];
        let verdicts = play(&[fail, look, fail, look, fail, look, fail]);
        assert_eq!(verdicts.iter().collect::<String>(), "....tts");
        // Another message of failure, or something new, is.
        let other: &[_] = &[("edit", "two matches", true)];
        assert_eq!(play(&[fail, other, fail]), ['.', '.', 't']);
        let new: &[_] = &[("write", "done", false)];
        assert_eq!(play(&[fail, fail, new, fail]), ['.', 't', '.', '.']);
    }

    #[test]
    fn calls_that_take_turns_and_learn_nothing_stop() {
        let (a, b): (&[_], &[_]) = (&[("a", "1", false)], &[("b", "2", false)]);
        let verdicts = play(&[a, b, a, b, a, b, a, b, a, b]);
        assert_eq!(verdicts.iter().collect::<String>(), ".....t...s");
    }

    #[test]
    fn many_calls_at_once_are_one_step() {
        let many: Vec<(&str, &str, bool)> = vec![("plan", "seen", false); 50];
        assert_eq!(play(&[&many, &many]), ['.', '.']);
    }
}
