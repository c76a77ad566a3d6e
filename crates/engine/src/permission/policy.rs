//! The policy of a session: its rules, what was answered, and what that means for a call.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::rules::{self, Forbidden, Rule, Source, Verdict};
use super::{Access, Answer, Decision};
use crate::words::agents::Narrowing;
use crate::words::modes::Mode;
use crate::words::pattern::fits;
use crate::words::visible::visible;

/// What decides in a session.
#[derive(Default)]
pub struct Policy {
    rules: Vec<Rule>,
    roots: Vec<PathBuf>,
    kept: Option<Arc<dyn Kept>>,
    /// What was answered for the session alone. Calls that run at once share it; never held across an await.
    answered: Mutex<Vec<Rule>>,
}

/// Keeps answers beyond a session. Implemented outside, since the engine has no files.
pub trait Kept: Send + Sync {
    /// Returns what is kept, as it is now: another process may have added or taken away.
    fn rules(&self) -> Vec<Rule>;

    /// Keeps one more.
    ///
    /// # Errors
    /// Says in words why it could not be kept.
    fn keep(&self, rule: &Rule) -> Result<(), String>;
}

/// What is decided about all that a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The strictest of all.
    pub decision: Decision,
    /// What must be asked, where that is the decision.
    pub asked: Vec<Access>,
    /// What is refused and by which rule, where that is the decision.
    pub refused: Option<(Access, Option<Rule>)>,
}

impl Policy {
    /// Makes the policy of a session in these folders. Without `kept`, answers for good hold for the session alone.
    #[must_use]
    pub fn new(rules: Vec<Rule>, roots: Vec<PathBuf>, kept: Option<Arc<dyn Kept>>) -> Policy {
        Policy { rules, roots, kept, answered: Mutex::default() }
    }

    /// Decides about all that a call needs leave for, with what the agents of these modes leave: the strictest counts.
    #[must_use]
    pub fn judge_within(&self, access: &[Access], modes: &[Mode]) -> Judgement {
        let mut judgement = self.judge(access);
        let narrowings = modes.iter().filter_map(Mode::narrowing);
        for (narrowing, access) in narrowings.flat_map(|one| access.iter().map(move |it| (one, it)))
        {
            match narrowing.decide(&self.roots, access) {
                Verdict { decision: Decision::Ask, .. } => {
                    if !judgement.asked.contains(access) {
                        judgement.asked.push(access.clone());
                    }
                    judgement.decision = judgement.decision.max(Decision::Ask);
                }
                Verdict { decision: Decision::Reject, by } => {
                    judgement.decision = Decision::Reject;
                    judgement.refused.get_or_insert((access.clone(), by));
                }
                Verdict { decision: Decision::Allow, .. } => {}
            }
        }
        judgement
    }

    /// Decides about all that a call needs leave for: the strictest counts.
    #[must_use]
    pub fn judge(&self, access: &[Access]) -> Judgement {
        let kept = self.kept.as_ref().map(|kept| kept.rules()).unwrap_or_default();
        let mut judgement =
            Judgement { decision: Decision::Allow, asked: Vec::new(), refused: None };
        for access in access {
            let verdict = self.decide(&kept, access);
            judgement.decision = judgement.decision.max(verdict.decision);
            match verdict.decision {
                Decision::Allow => {}
                Decision::Ask => judgement.asked.push(access.clone()),
                Decision::Reject if judgement.refused.is_some() => {}
                Decision::Reject => judgement.refused = Some((access.clone(), verdict.by)),
            }
        }
        judgement
    }

    /// Returns what is denied of a key, also by the agents of these modes: a rule that denies wins over all others.
    #[must_use]
    pub fn forbidden(&self, key: &str, modes: &[Mode]) -> Forbidden {
        let kept = self.kept.as_ref().map(|kept| kept.rules()).unwrap_or_default();
        let answered = self.answered();
        let narrowings = modes.iter().filter_map(Mode::narrowing);
        let rules = self.rules.iter().chain(&kept).chain(&*answered);
        let rules = rules.chain(narrowings.flat_map(|narrowing| &narrowing.rules));
        let denies = |rule: &&Rule| rule.decision == Decision::Reject && fits(&rule.key, key);
        Forbidden { rules: rules.filter(denies).cloned().collect(), roots: self.roots.clone() }
    }

    /// Decides about one access, and says by which rule.
    #[must_use]
    pub fn explain(&self, access: &Access) -> Verdict {
        let kept = self.kept.as_ref().map(|kept| kept.rules()).unwrap_or_default();
        self.decide(&kept, access)
    }

    fn decide(&self, kept: &[Rule], access: &Access) -> Verdict {
        let answered = self.answered();
        rules::decide(self.rules.iter().chain(kept).chain(&*answered), &self.roots, access)
    }

    fn answered(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what is allowed here and by whom, the strictest first.
    #[must_use]
    pub fn describe(&self, narrowing: Option<&Narrowing>) -> String {
        let kept = self.kept.as_ref().map(|kept| kept.rules()).unwrap_or_default();
        let mut rules: Vec<Rule> = self.rules.iter().cloned().chain(kept).collect();
        rules.extend(self.answered().iter().cloned());
        rules.extend(narrowing.into_iter().flat_map(|narrowing| narrowing.rules.iter().cloned()));
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.decision));
        let mut text = String::from(match rules.is_empty() {
            true => "There are no rules.\n",
            false => "Rules; deny wins, else the most specific counts:\n",
        });
        for rule in &rules {
            let Rule { key, pattern, decision, source } = rule;
            let (key, pattern) = (visible(key), visible(pattern));
            text.push_str(&format!(
                "- {} `{key}: {pattern}`, by {}\n",
                decision.word(),
                source.words()
            ));
        }
        text.push_str(
            "\nWithout a rule: reading inside the session's folders and commands that are known to read only are allowed; \
             what changes, runs or leaves the folders is asked for. `purlin permissions explain -- COMMAND` says why for \
             one command, `purlin permissions revoke` takes answers back.",
        );
        text
    }

    /// Says how long an answer for good holds.
    #[must_use]
    pub fn reach(&self) -> &'static str {
        if self.kept.is_some() { "for this folder" } else { "in this session" }
    }

    /// Keeps an answer as it was meant. Returns what it means for the call in hand, and what went wrong with keeping it.
    pub fn keep(&self, asked: &[Access], answer: Answer) -> (Decision, Option<String>) {
        let decision = match answer {
            Answer::AllowOnce | Answer::AllowAlways => Decision::Allow,
            Answer::RejectOnce | Answer::RejectAlways | Answer::Cancelled => Decision::Reject,
        };
        let mut problem = None;
        if matches!(answer, Answer::AllowAlways | Answer::RejectAlways) {
            for access in asked {
                let Some(pattern) = access.always.clone() else { continue };
                let source = Source::Kept;
                let rule = Rule { key: access.key.clone(), pattern, decision, source };
                match self.kept.as_ref().map(|kept| kept.keep(&rule)) {
                    Some(Ok(())) => {}
                    Some(Err(err)) => {
                        problem = Some(err);
                        self.answered().push(Rule { source: Source::Session, ..rule });
                    }
                    None => self.answered().push(Rule { source: Source::Session, ..rule }),
                }
            }
        }
        (decision, problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(policy: &Policy, access: &[Access]) -> Decision {
        policy.judge(access).decision
    }

    // R: T2
    #[test]
    fn answers_are_kept_as_they_were_meant() {
        let policy = Policy::default();
        let read = [Access::allow("read", "a.rs")];
        let edit = [Access::ask("edit", "a.rs")];
        assert_eq!(decide(&policy, &read), Decision::Allow);
        assert_eq!(decide(&policy, &edit), Decision::Ask);
        assert_eq!(policy.keep(&edit, Answer::AllowOnce).0, Decision::Allow);
        assert_eq!(decide(&policy, &edit), Decision::Ask);
        assert_eq!(policy.keep(&edit, Answer::RejectAlways).0, Decision::Reject);
        assert_eq!(decide(&policy, &edit), Decision::Reject);
        assert_eq!(decide(&policy, &[Access::ask("edit", "b.rs")]), Decision::Ask);
        let make = [Access::ask("bash", "make")];
        assert_eq!(policy.keep(&make, Answer::Cancelled).0, Decision::Reject);
        assert_eq!(decide(&policy, &make), Decision::Ask);
    }

    #[test]
    fn the_strictest_access_decides() {
        let policy = Policy::default();
        let make = Access::ask("bash", "make");
        policy.keep(std::slice::from_ref(&make), Answer::AllowAlways);
        assert_eq!(decide(&policy, std::slice::from_ref(&make)), Decision::Allow);
        let remove = Access::ask("bash", "rm x");
        let judgement = policy.judge(&[make, remove.clone()]);
        assert_eq!(judgement.decision, Decision::Ask);
        assert_eq!(judgement.asked, [remove]);
        assert_eq!(decide(&policy, &[]), Decision::Allow);
    }

    #[test]
    fn a_subject_with_a_star_in_it_is_kept_as_itself() {
        let policy = Policy::default();
        policy.keep(&[Access::ask("bash", "rm *.o")], Answer::AllowAlways);
        assert_eq!(decide(&policy, &[Access::ask("bash", "rm *.o")]), Decision::Allow);
        assert_eq!(decide(&policy, &[Access::ask("bash", "rm -rf / x.o")]), Decision::Ask);
    }

    #[derive(Default)]
    struct Full(Mutex<Vec<Rule>>);

    impl Kept for Full {
        fn rules(&self) -> Vec<Rule> {
            self.0.lock().unwrap().clone()
        }

        fn keep(&self, rule: &Rule) -> Result<(), String> {
            let mut rules = self.0.lock().unwrap();
            if rules.is_empty() {
                rules.push(rule.clone());
                return Ok(());
            }
            Err("the disk is full".to_owned())
        }
    }

    #[test]
    fn what_cannot_be_kept_holds_for_the_session_and_is_told() {
        let kept: Arc<dyn Kept> = Arc::new(Full::default());
        let policy = Policy { kept: Some(Arc::clone(&kept)), ..Policy::default() };
        let (make, test) = ([Access::ask("bash", "make")], [Access::ask("bash", "test")]);
        assert_eq!(policy.keep(&make, Answer::AllowAlways), (Decision::Allow, None));
        let problem = Some("the disk is full".to_owned());
        assert_eq!(policy.keep(&test, Answer::AllowAlways), (Decision::Allow, problem));
        assert_eq!(decide(&policy, &test), Decision::Allow);
        let other = Policy { kept: Some(kept), ..Policy::default() };
        assert_eq!(decide(&other, &make), Decision::Allow);
        assert_eq!(decide(&other, &test), Decision::Ask);
    }
}
