//! Permission: what may be done without asking, what was answered before, and the question otherwise.

use std::collections::HashMap;

use crate::words::ToolCall;

/// One thing that a call needs leave for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Which rules it falls under: `read`, `edit`, `bash`, `webfetch`, `external_directory`, or a tool's own name.
    pub key: String,
    /// What their patterns are held against: a path, one simple command, an address.
    pub subject: String,
    /// What happens where no rule says anything.
    pub default: Decision,
    /// The pattern that an answer for good is kept as; `None` where it can be given for this call alone.
    pub always: Option<String>,
}

impl Access {
    /// Makes an access that is asked for unless a rule says otherwise, and whose answer can be kept for its subject.
    pub fn ask(key: impl Into<String>, subject: impl Into<String>) -> Access {
        let subject = subject.into();
        Access { key: key.into(), always: Some(subject.clone()), subject, default: Decision::Ask }
    }

    /// Makes an access that goes through unless a rule says otherwise.
    pub fn allow(key: impl Into<String>, subject: impl Into<String>) -> Access {
        Access { default: Decision::Allow, ..Access::ask(key, subject) }
    }
}

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
    /// Yes, and do not ask again for this in this session.
    AllowAlways,
    /// No, this time.
    RejectOnce,
    /// No, and do not ask again for this in this session.
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

/// What is to be done with a call. The stricter, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Run it.
    Allow,
    /// Ask the user.
    Ask,
    /// Do not.
    Reject,
}

/// The answers that are to be kept for a session.
#[derive(Debug, Default)]
pub struct Memory {
    kept: HashMap<(String, String), Decision>,
}

impl Memory {
    /// Decides about all that a call needs leave for: the strictest answer counts.
    #[must_use]
    pub fn decide(&self, access: &[Access]) -> Decision {
        access.iter().map(|access| self.decide_one(access)).max().unwrap_or(Decision::Allow)
    }

    fn decide_one(&self, access: &Access) -> Decision {
        let kept = |rule: &String| self.kept.get(&(access.key.clone(), rule.clone())).copied();
        access.always.as_ref().and_then(kept).unwrap_or(access.default)
    }

    /// Keeps an answer as it was meant, and returns what it means for the call in hand.
    pub fn keep(&mut self, access: &[Access], answer: Answer) -> Decision {
        let decision = match answer {
            Answer::AllowOnce | Answer::AllowAlways => Decision::Allow,
            Answer::RejectOnce | Answer::RejectAlways | Answer::Cancelled => Decision::Reject,
        };
        if matches!(answer, Answer::AllowAlways | Answer::RejectAlways) {
            for access in access.iter().filter(|access| access.default != Decision::Allow) {
                if let Some(rule) = &access.always {
                    self.kept.insert((access.key.clone(), rule.clone()), decision);
                }
            }
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
        let read = [Access::allow("read", "a.rs")];
        let edit = [Access::ask("edit", "a.rs")];
        assert_eq!(memory.decide(&read), Decision::Allow);
        assert_eq!(memory.decide(&edit), Decision::Ask);
        assert_eq!(memory.keep(&edit, Answer::AllowOnce), Decision::Allow);
        assert_eq!(memory.decide(&edit), Decision::Ask);
        assert_eq!(memory.keep(&edit, Answer::RejectAlways), Decision::Reject);
        assert_eq!(memory.decide(&edit), Decision::Reject);
        assert_eq!(memory.decide(&[Access::ask("edit", "b.rs")]), Decision::Ask);
        assert_eq!(
            memory.keep(&[Access::ask("bash", "make")], Answer::Cancelled),
            Decision::Reject
        );
        assert_eq!(memory.decide(&[Access::ask("bash", "make")]), Decision::Ask);
    }

    #[test]
    fn the_strictest_access_decides() {
        let mut memory = Memory::default();
        let make = Access::ask("bash", "make");
        memory.keep(std::slice::from_ref(&make), Answer::AllowAlways);
        assert_eq!(memory.decide(std::slice::from_ref(&make)), Decision::Allow);
        assert_eq!(memory.decide(&[make, Access::ask("bash", "rm x")]), Decision::Ask);
        assert_eq!(memory.decide(&[]), Decision::Allow);
    }

    #[test]
    fn an_answer_that_was_not_offered_is_no() {
        assert_eq!(Answer::from_id("root"), Answer::Cancelled);
        assert_eq!(Answer::from_id("once"), Answer::AllowOnce);
    }
}
