//! Decides where a conversation is cut. Pure: a history in, a place out.

use std::collections::HashSet;

use crate::words::{Cut, History, Message, ToolCallId};

/// A result is never cut to less than this, in bytes.
const LEAST_RESULT: u64 = 200;

/// How a history is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// How many messages the summary replaces.
    pub(super) cut: usize,
    /// The same place, in a form that the journal can find again.
    pub(super) from: Cut,
    /// How many bytes of each later result remain, if there is too little room for all of them.
    pub(super) cap: Option<usize>,
}

/// Decides where to cut, so that about `tail` tokens remain. `None` if nothing can be removed.
///
/// A call is never separated from its result, and a call without a result always remains.
pub(super) fn plan(history: &History, tail: u64) -> Option<Plan> {
    let bounds = bounds(history);
    let fits = bounds.iter().find(|(at, _)| history.tokens_from(*at) <= tail);
    if let Some((cut, from)) = fits.filter(|(at, _)| *at < history.len()) {
        return Some(Plan { cut: *cut, from: from.clone(), cap: None });
    }
    // The last step alone is too long: its results are cut, and if that is not enough, it is removed, too.
    let before_end = bounds.iter().rev().find(|(at, _)| *at < history.len());
    if let Some((cut, from)) = before_end {
        let (results, other) = weigh(history, *cut);
        let share = tail.saturating_sub(other) * 2 / results.max(1);
        if fits.is_none() || (results > 0 && share >= LEAST_RESULT) {
            let cap = usize::try_from(share.max(LEAST_RESULT)).ok();
            return Some(Plan { cut: *cut, from: from.clone(), cap });
        }
    }
    fits.map(|(cut, from)| Plan { cut: *cut, from: from.clone(), cap: None })
}

/// Places where a conversation may be cut, the earliest first.
fn bounds(history: &History) -> Vec<(usize, Cut)> {
    let messages = history.messages();
    let first = 1 + usize::from(history.has_summary());
    let mut open: HashSet<&ToolCallId> = HashSet::new();
    let mut found = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if at >= first && open.is_empty() {
            let call = match &**message {
                Message::Agent { calls, .. } => {
                    calls.first().map(|call| Cut::Call(call.id.clone()))
                }
                Message::User(_) | Message::ToolResult { .. } => None,
            };
            let turn = history.turn_at(at).map(|turn| Cut::Turn(turn.clone()));
            found.extend(turn.or(call).map(|from| (at, from)));
        }
        match &**message {
            Message::Agent { calls, .. } => open.extend(calls.iter().map(|call| &call.id)),
            Message::ToolResult { id, .. } => {
                open.remove(id);
            }
            Message::User(_) => {}
        }
    }
    if open.is_empty() && messages.len() >= first {
        found.push((messages.len(), Cut::End));
    }
    found
}

/// Counts the results from a place on, and the tokens of everything else.
fn weigh(history: &History, from: usize) -> (u64, u64) {
    let (mut results, mut of_results) = (0, 0);
    for (at, message) in history.messages().iter().enumerate().skip(from) {
        if let Message::ToolResult { .. } = &**message {
            results += 1;
            of_results += history.tokens_from(at) - history.tokens_from(at + 1);
        }
    }
    (results, history.tokens_from(from) - of_results)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::turn::context::Room;
    use crate::words::{Block, MessageId, Prompt, ToolRequest};

    /// A turn: bytes of the prompt, then of each answer with the bytes of its calls' results.
    type Said = (usize, Vec<(usize, Vec<usize>)>);

    fn history(turns: &[Said], open: usize) -> History {
        let mut history = History::default();
        let mut next = 0;
        for (number, (prompt, answers)) in turns.iter().enumerate() {
            history.begin_turn(&MessageId::new(format!("m{number}")));
            history.push(Message::User(Prompt::from(vec![Block::Text("p".repeat(*prompt))])));
            for (text, results) in answers {
                let first = next;
                let calls = results.iter().map(|_| {
                    next += 1;
                    let id = ToolCallId::new(format!("t{next}"));
                    ToolRequest { id, name: "read".to_owned(), input: json!({}).into() }
                });
                let (calls, text) = (calls.collect(), "a".repeat(*text));
                history.push(Message::Agent { thoughts: Vec::new(), text, calls });
                for (at, bytes) in results.iter().enumerate() {
                    let id = ToolCallId::new(format!("t{}", first + at + 1));
                    history.push(Message::ToolResult {
                        id,
                        text: "r".repeat(*bytes),
                        failed: false,
                    });
                }
            }
        }
        if open > 0 {
            let call = |at| ToolRequest {
                id: ToolCallId::new(format!("open{at}")),
                name: "read".to_owned(),
                input: json!({}).into(),
            };
            let (thoughts, text) = (Vec::new(), String::new());
            history.push(Message::Agent { thoughts, text, calls: (0..open).map(call).collect() });
        }
        history
    }

    fn ids(history: &History) -> (Vec<String>, Vec<String>) {
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        for message in history.messages() {
            match &**message {
                Message::Agent { calls: asked, .. } => {
                    calls.extend(asked.iter().map(|call| call.id.to_string()));
                }
                Message::ToolResult { id, .. } => results.push(id.to_string()),
                Message::User(_) => {}
            }
        }
        (calls, results)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For any conversation: after a compaction the rest fits, calls and results are paired, and no open call is lost.
        #[test]
        fn rest_fits_and_no_open_call_is_lost(
            turns in prop::collection::vec(
                (1..6_000_usize, prop::collection::vec((0..2_000_usize, prop::collection::vec(0..40_000_usize, 0..4)), 0..6)),
                1..12,
            ),
            open in 0..3_usize,
            window in 8_000..200_000_u64,
        ) {
            let room = Room::of(window);
            let mut history = history(&turns, open);
            let Some(plan) = plan(&history, room.tail) else {
                prop_assert!(bounds(&history).is_empty(), "there is a place to cut");
                return Ok(());
            };
            prop_assert_eq!(history.find(&plan.from), Some(plan.cut));
            history.compact(plan.cut, "s".repeat(room.summary), plan.cap);
            let (calls, results) = ids(&history);
            prop_assert_eq!(calls.len(), results.len() + open, "{:?}", plan);
            prop_assert!(results.iter().all(|id| calls.contains(id)));
            let kept = calls.iter().filter(|id| id.starts_with("open")).count();
            prop_assert_eq!(kept, open);
            prop_assert!(history.tokens() < room.limit / 2, "{} of {window}: {plan:?}", history.tokens());
        }
    }

    #[test]
    fn newest_turns_stay_complete() {
        let turn: Said = (4_000, vec![(400, vec![])]);
        let history = history(&vec![turn; 5], 0);
        let plan = plan(&history, 3_000).unwrap();
        assert_eq!((plan.cut, plan.from, plan.cap), (6, Cut::Turn(MessageId::new("m3")), None));
    }

    #[test]
    fn last_steps_of_a_long_turn_stay() {
        let history = history(&[(100, vec![(10, vec![8_000]); 10])], 0);
        let plan = plan(&history, 6_000).unwrap();
        assert_eq!((plan.cut, plan.from), (17, Cut::Call(ToolCallId::new("t9"))));
    }
}
