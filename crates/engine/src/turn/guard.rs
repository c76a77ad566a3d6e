//! Guard rails: detects a turn that repeats itself, by its calls and their results.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::words::{Message, ToolRequest};

/// How many times the same call may fail in the same way; the model is reminded one failure earlier.
const FAILURES: usize = 3;
/// After this many answers without anything new the model is reminded.
const STALE_REMINDER: usize = 4;
/// After this many the turn stops.
const STALE: usize = 8;

/// What to do with the turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Continue,
    /// Send the model this reminder.
    Remind(String),
    /// Stop the turn; the reason is for the user.
    Stop(String),
}

/// What was observed in one turn.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// Calls with their results, by hash, and how often each failed since the last new result.
    seen: HashMap<u64, usize>,
    /// How many answers in a row repeated known calls only.
    stale: usize,
}

impl Guard {
    /// Judges the calls of the last answer by their results.
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
        let mut verdict = Verdict::Continue;
        for (key, failed, call) in keys {
            let failures = self.seen.entry(key).or_default();
            *failures += usize::from(failed);
            match *failures {
                FAILURES.. => {
                    return Verdict::Stop(format!(
                        "Stopped: `{}` failed {FAILURES} times in the same way.",
                        call.name
                    ));
                }
                failures if failures == FAILURES - 1 && failed => {
                    verdict = Verdict::Remind(format!(
                        "The same call of `{}` failed in the same way again. If it fails once more, the turn is stopped. Try something else, or say what blocks you.",
                        call.name
                    ));
                }
                _ => {}
            }
        }
        match self.stale {
            STALE.. => Verdict::Stop(format!(
                "Stopped: the last {STALE} answers repeated the same calls with the same results."
            )),
            STALE_REMINDER => Verdict::Remind(
                "You repeat the same calls and their results do not change. Try something else, or stop and say what blocks you. If you are waiting for something, wait longer each time.".to_owned(),
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
                Verdict::Continue => '.',
                Verdict::Remind(_) => 't',
                Verdict::Stop(_) => 's',
            });
        }
        verdicts
    }

    #[test]
    fn repeated_failure_reminds_then_stops() {
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
    fn alternating_calls_without_news_stop() {
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
