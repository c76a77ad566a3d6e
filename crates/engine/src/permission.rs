//! Permission: what may be done without asking, what was answered before, and the question otherwise.

use std::collections::HashMap;

use crate::words::{ToolCall, ToolKind};

/// The question that goes to the user.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The call it is about, as it was shown.
    pub call: ToolCall,
}

/// What the user answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Yes, this time.
    AllowOnce,
    /// Yes, and do not ask again for this tool in this session.
    AllowAlways,
    /// No, this time.
    RejectOnce,
    /// No, and do not ask again for this tool in this session.
    RejectAlways,
    /// The question was closed, which counts as no.
    Cancelled,
}

impl Answer {
    /// The answers that can be chosen, with the ids and words that clients get.
    pub const CHOICES: [(Answer, &'static str, &'static str); 4] = [
        (Answer::AllowOnce, "once", "Allow once"),
        (Answer::AllowAlways, "always", "Always allow"),
        (Answer::RejectOnce, "reject", "Reject"),
        (Answer::RejectAlways, "never", "Always reject"),
    ];

    /// Finds the answer that goes with a chosen id. An id that was never offered counts as no.
    #[must_use]
    pub fn from_id(id: &str) -> Answer {
        Answer::CHOICES
            .iter()
            .find(|(_, known, _)| *known == id)
            .map_or(Answer::Cancelled, |(answer, _, _)| *answer)
    }
}

/// What is to be done with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Run it.
    Allow,
    /// Do not.
    Reject,
    /// Ask the user.
    Ask,
}

/// The answers that are to be kept for a session.
#[derive(Debug, Default)]
pub struct Memory {
    by_tool: HashMap<String, Decision>,
}

impl Memory {
    /// Decides about a call: what only looks needs no question, the rest is asked unless it was answered for good.
    #[must_use]
    pub fn decide(&self, tool: &str, kind: ToolKind) -> Decision {
        if !kind.changes_things() {
            return Decision::Allow;
        }
        self.by_tool.get(tool).copied().unwrap_or(Decision::Ask)
    }

    /// Keeps an answer as it was meant, and returns what it means for the call in hand.
    pub fn keep(&mut self, tool: &str, answer: Answer) -> Decision {
        let decision = match answer {
            Answer::AllowOnce | Answer::AllowAlways => Decision::Allow,
            Answer::RejectOnce | Answer::RejectAlways | Answer::Cancelled => Decision::Reject,
        };
        if matches!(answer, Answer::AllowAlways | Answer::RejectAlways) {
            self.by_tool.insert(tool.to_owned(), decision);
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_as_they_were_meant() {
        let mut memory = Memory::default();
        assert_eq!(memory.decide("read", ToolKind::Read), Decision::Allow);
        assert_eq!(memory.decide("edit", ToolKind::Edit), Decision::Ask);
        assert_eq!(memory.keep("edit", Answer::AllowOnce), Decision::Allow);
        assert_eq!(memory.decide("edit", ToolKind::Edit), Decision::Ask);
        assert_eq!(memory.keep("edit", Answer::RejectAlways), Decision::Reject);
        assert_eq!(memory.decide("edit", ToolKind::Edit), Decision::Reject);
        assert_eq!(memory.keep("run", Answer::Cancelled), Decision::Reject);
        assert_eq!(memory.decide("run", ToolKind::Execute), Decision::Ask);
    }

    #[test]
    fn an_answer_that_was_not_offered_is_no() {
        assert_eq!(Answer::from_id("root"), Answer::Cancelled);
        assert_eq!(Answer::from_id("once"), Answer::AllowOnce);
    }
}
