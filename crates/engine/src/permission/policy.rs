//! The policy of a session: its rules, the answers of the user, and the decision about a call.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::rules::{self, Denied, Verdict, decide_for_agent, matches_key};
use crate::ports::AnswerStore;
use crate::words::{
    Access, Answer, Decision, Mode, PermissionKey, Restrictions, Rule, Source, visible,
};

/// Decides for a session.
#[derive(Default)]
pub struct Policy {
    rules: Vec<Rule>,
    roots: Vec<PathBuf>,
    store: Option<Arc<dyn AnswerStore>>,
    /// Answers that apply to this session only. Shared by calls that run at the same time; never locked across an await.
    answered: Mutex<Vec<Rule>>,
}

/// What is decided about everything that a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The strictest decision.
    pub decision: Decision,
    /// What the user must be asked for, if the decision is [`Decision::Ask`].
    pub asked: Vec<Access>,
    /// What is refused and by which rule, if the decision is [`Decision::Reject`].
    pub refused: Option<(Access, Option<Rule>)>,
}

impl Policy {
    /// Makes the policy of a session in these folders. Without a store, "always" applies to the session only.
    #[must_use]
    pub fn new(
        rules: Vec<Rule>,
        roots: Vec<PathBuf>,
        store: Option<Arc<dyn AnswerStore>>,
    ) -> Policy {
        Policy { rules, roots, store, answered: Mutex::default() }
    }

    /// Makes the policy of a turn in another folder, with the same rules. Answers are not stored.
    pub(crate) fn for_folder(&self, folder: PathBuf) -> Policy {
        Policy::new(self.rules.clone(), vec![folder], None)
    }

    /// Decides about a call, also by the agents of these modes. The strictest decision wins.
    #[must_use]
    pub fn judge_within(&self, access: &[Access], modes: &[Mode]) -> Judgement {
        let mut judgement = self.judge(access);
        let restricted = modes.iter().filter_map(Mode::restrictions);
        for (restrictions, access) in
            restricted.flat_map(|one| access.iter().map(move |it| (one, it)))
        {
            match decide_for_agent(restrictions, &self.roots, access) {
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

    /// Decides about a call. The strictest decision wins.
    #[must_use]
    pub fn judge(&self, access: &[Access]) -> Judgement {
        let stored = self.stored();
        let mut judgement =
            Judgement { decision: Decision::Allow, asked: Vec::new(), refused: None };
        for access in access {
            let verdict = self.decide(&stored, access);
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

    /// Returns what is denied for a key, also by the agents of these modes. A rule that denies wins over all others.
    pub(crate) fn denied(&self, key: &PermissionKey, modes: &[Mode]) -> Denied {
        let stored = self.stored();
        let answered = self.answered();
        let restricted = modes.iter().filter_map(Mode::restrictions);
        let rules = self.rules.iter().chain(&stored).chain(&*answered);
        let rules = rules.chain(restricted.flat_map(|restrictions| &restrictions.rules));
        let denies = |rule: &&Rule| rule.decision == Decision::Reject && matches_key(rule, key);
        Denied { rules: rules.filter(denies).cloned().collect(), roots: self.roots.clone() }
    }

    /// Decides about one access and names the rule.
    #[must_use]
    pub fn explain(&self, access: &Access) -> Verdict {
        self.decide(&self.stored(), access)
    }

    fn decide(&self, stored: &[Rule], access: &Access) -> Verdict {
        let answered = self.answered();
        rules::decide(self.rules.iter().chain(stored).chain(&*answered), &self.roots, access)
    }

    fn stored(&self) -> Vec<Rule> {
        self.store.as_ref().map(|store| store.rules()).unwrap_or_default()
    }

    fn answered(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists the rules with their sources, the strictest first.
    #[must_use]
    pub fn describe(&self, restrictions: Option<&Restrictions>) -> String {
        let mut rules: Vec<Rule> = self.rules.iter().cloned().chain(self.stored()).collect();
        rules.extend(self.answered().iter().cloned());
        rules.extend(
            restrictions.into_iter().flat_map(|restrictions| restrictions.rules.iter().cloned()),
        );
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.decision));
        let mut text = String::from(match rules.is_empty() {
            true => "No rules are set.\n",
            false => "Rules (deny wins; otherwise the most specific rule applies):\n",
        });
        for rule in &rules {
            let Rule { key, pattern, decision, source } = rule;
            let (key, pattern) = (visible(key), visible(pattern));
            text.push_str(&format!(
                "- {} `{key}: {pattern}`, from {}\n",
                decision.word(),
                source.words()
            ));
        }
        text.push_str(
            "\nWithout a rule, reading inside the session's folders and commands known to be read-only are allowed. \
             Everything that changes files, runs programs or leaves the folders asks first. \
             `purlin permissions explain -- COMMAND` explains one command, `purlin permissions revoke` removes stored \
             answers.",
        );
        text
    }

    /// Says where the answer "always" applies.
    #[must_use]
    pub fn scope(&self) -> &'static str {
        if self.store.is_some() { "in this project" } else { "in this session" }
    }

    /// Applies an answer of the user. Returns the decision about the call, and why "always" could not be stored.
    pub fn apply(&self, asked: &[Access], answer: Answer) -> (Decision, Option<String>) {
        let decision = match answer {
            Answer::AllowOnce | Answer::AllowAlways => Decision::Allow,
            Answer::RejectOnce | Answer::RejectAlways | Answer::Cancelled => Decision::Reject,
        };
        let mut problem = None;
        if matches!(answer, Answer::AllowAlways | Answer::RejectAlways) {
            for access in asked {
                let Some(pattern) = access.always.clone() else { continue };
                let source = Source::Stored;
                let rule = Rule { key: access.key.to_string(), pattern, decision, source };
                match self.store.as_ref().map(|store| store.add(&rule)) {
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
    fn always_is_stored_and_once_is_not() {
        let policy = Policy::default();
        let read = [Access::allow(PermissionKey::Read, "a.rs")];
        let edit = [Access::ask(PermissionKey::Edit, "a.rs")];
        assert_eq!(decide(&policy, &read), Decision::Allow);
        assert_eq!(decide(&policy, &edit), Decision::Ask);
        assert_eq!(policy.apply(&edit, Answer::AllowOnce).0, Decision::Allow);
        assert_eq!(decide(&policy, &edit), Decision::Ask);
        assert_eq!(policy.apply(&edit, Answer::RejectAlways).0, Decision::Reject);
        assert_eq!(decide(&policy, &edit), Decision::Reject);
        assert_eq!(decide(&policy, &[Access::ask(PermissionKey::Edit, "b.rs")]), Decision::Ask);
        let make = [Access::ask(PermissionKey::RunCommand, "make")];
        assert_eq!(policy.apply(&make, Answer::Cancelled).0, Decision::Reject);
        assert_eq!(decide(&policy, &make), Decision::Ask);
    }

    #[test]
    fn strictest_access_decides() {
        let policy = Policy::default();
        let make = Access::ask(PermissionKey::RunCommand, "make");
        policy.apply(std::slice::from_ref(&make), Answer::AllowAlways);
        assert_eq!(decide(&policy, std::slice::from_ref(&make)), Decision::Allow);
        let remove = Access::ask(PermissionKey::RunCommand, "rm x");
        let judgement = policy.judge(&[make, remove.clone()]);
        assert_eq!(judgement.decision, Decision::Ask);
        assert_eq!(judgement.asked, [remove]);
        assert_eq!(decide(&policy, &[]), Decision::Allow);
    }

    #[test]
    fn subject_with_a_star_is_stored_literally() {
        let policy = Policy::default();
        policy.apply(&[Access::ask(PermissionKey::RunCommand, "rm *.o")], Answer::AllowAlways);
        assert_eq!(
            decide(&policy, &[Access::ask(PermissionKey::RunCommand, "rm *.o")]),
            Decision::Allow
        );
        assert_eq!(
            decide(&policy, &[Access::ask(PermissionKey::RunCommand, "rm -rf / x.o")]),
            Decision::Ask
        );
    }

    #[derive(Default)]
    struct Full(Mutex<Vec<Rule>>);

    impl AnswerStore for Full {
        fn rules(&self) -> Vec<Rule> {
            self.0.lock().unwrap().clone()
        }

        fn add(&self, rule: &Rule) -> Result<(), String> {
            let mut rules = self.0.lock().unwrap();
            if rules.is_empty() {
                rules.push(rule.clone());
                return Ok(());
            }
            Err("the disk is full".to_owned())
        }
    }

    #[test]
    fn answer_that_cannot_be_stored_applies_to_the_session_and_is_reported() {
        let store: Arc<dyn AnswerStore> = Arc::new(Full::default());
        let policy = Policy { store: Some(Arc::clone(&store)), ..Policy::default() };
        let (make, test) = (
            [Access::ask(PermissionKey::RunCommand, "make")],
            [Access::ask(PermissionKey::RunCommand, "test")],
        );
        assert_eq!(policy.apply(&make, Answer::AllowAlways), (Decision::Allow, None));
        let problem = Some("the disk is full".to_owned());
        assert_eq!(policy.apply(&test, Answer::AllowAlways), (Decision::Allow, problem));
        assert_eq!(decide(&policy, &test), Decision::Allow);
        let other = Policy { store: Some(store), ..Policy::default() };
        assert_eq!(decide(&other, &make), Decision::Allow);
        assert_eq!(decide(&other, &test), Decision::Ask);
    }
}
