//! The policy of a session: its rules, the answers of the user, and the decision about a call.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::rules::{self, Denied, Verdict, decide_for_agent, is_below, matches_key};
use crate::ports::AnswerStore;
use crate::words::pattern::weight;
use crate::words::{
    Access, Answer, AskFloor, Decision, Mode, PermissionKey, Restrictions, Rule, Source, ToolKind,
    saved_words, visible,
};

/// Decides for a session.
#[derive(Default)]
pub struct Policy {
    rules: Vec<Rule>,
    floors: Vec<AskFloor>,
    roots: Vec<PathBuf>,
    store: Option<Arc<dyn AnswerStore>>,
    /// Answers that apply to this session only. Shared by calls that run at the same time; never locked across an await.
    answered: Mutex<Vec<Rule>>,
    /// What the slash command of the turn allows. Never locked across an await.
    granted: Mutex<Vec<Rule>>,
}

/// What is decided about everything that a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The strictest decision.
    pub decision: Decision,
    /// What the user must be asked for, if the decision is [`Decision::Ask`].
    pub asked: Vec<Asked>,
    /// What is refused and by which rule, if the decision is [`Decision::Reject`].
    pub refused: Option<(Access, Option<Rule>)>,
    /// Whether the call needs no question once commands that only read are allowed.
    pub only_reads: bool,
    /// Why the user is asked about the call as a whole, whatever it needs.
    pub why: Option<String>,
}

impl Judgement {
    /// Asks about the call as a whole for this reason, unless it is refused.
    pub(crate) fn ask_anyway(&mut self, why: &str) {
        self.decision = self.decision.max(Decision::Ask);
        self.only_reads = false;
        self.why = Some(why.to_owned());
    }
}

/// What the user must be asked for, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What it is.
    pub access: Access,
    /// The rule that asks; `None` if no rule is about it.
    pub by: Option<Rule>,
    /// Why it is asked for whatever the user answers; `None` if an answer can be stored.
    pub floor: Option<String>,
}

/// Where the answer "always" applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerScope {
    /// In the project: answers are stored.
    Project,
    /// In the session: there is no store.
    Session,
}

impl Policy {
    /// Makes the policy of a session in these directories. Without a store, "always" applies to the session only.
    #[must_use]
    pub fn new(
        rules: Vec<Rule>,
        roots: Vec<PathBuf>,
        store: Option<Arc<dyn AnswerStore>>,
    ) -> Policy {
        Policy { rules, roots, store, ..Policy::default() }
    }

    /// Adds what is asked for at least, whatever rules and answers allow.
    #[must_use]
    pub fn with_floors(self, floors: Vec<AskFloor>) -> Policy {
        Policy { floors, ..self }
    }

    /// Replaces the store of answers by one that is made of it.
    #[must_use]
    pub fn map_store(
        self,
        map: impl FnOnce(Arc<dyn AnswerStore>) -> Arc<dyn AnswerStore>,
    ) -> Policy {
        Policy { store: self.store.map(map), ..self }
    }

    /// Returns the rules, the floors, the directories, and whether answers are stored: what a policy is made from.
    #[must_use]
    pub fn parts(&self) -> (Vec<Rule>, Vec<AskFloor>, Vec<PathBuf>, bool) {
        let (rules, floors) = (self.rules.clone(), self.floors.clone());
        (rules, floors, self.roots.clone(), self.store.is_some())
    }

    /// Adds one more of them.
    pub fn add_floor(&mut self, floor: Option<AskFloor>) {
        self.floors.extend(floor);
    }

    /// Makes the policy of a turn in another directory, with the same rules. Answers are not stored.
    pub(crate) fn for_directory(&self, directory: PathBuf) -> Policy {
        Policy::new(self.rules.clone(), vec![directory], None).with_floors(self.floors.clone())
    }

    /// Replaces what the slash command of the turn allows.
    pub(crate) fn grant(&self, rules: Vec<Rule>) {
        *self.granted.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Decides about a call of this kind of tool, also by the agents of these modes, the user's mode first. The strictest
    /// decision wins.
    #[must_use]
    pub fn judge_within(&self, access: &[Access], kind: ToolKind, modes: &[Mode]) -> Judgement {
        let accepts_edits = modes.first().is_some_and(|mode| mode.accepts(kind));
        let mut judgement = self.judge_all(access, accepts_edits);
        let restricted = modes.iter().filter_map(Mode::restrictions);
        for (restrictions, access) in
            restricted.flat_map(|one| access.iter().map(move |it| (one, it)))
        {
            match decide_for_agent(restrictions, &self.roots, access) {
                Verdict { decision: Decision::Ask, by } => {
                    judgement.only_reads = false;
                    if !judgement.asked.iter().any(|asked| asked.access == *access) {
                        judgement.asked.push(Asked { access: access.clone(), by, floor: None });
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
        self.judge_all(access, false)
    }

    fn judge_all(&self, access: &[Access], accepts_edits: bool) -> Judgement {
        let rules = self.all_rules();
        let mut judgement = Judgement {
            decision: Decision::Allow,
            asked: Vec::new(),
            refused: None,
            only_reads: true,
            why: None,
        };
        for access in access {
            let mut verdict = match accepts_edits && is_edit(access) {
                true => {
                    let accepted = Access { default: Decision::Allow, ..access.clone() };
                    let specific = rules.iter().filter(|rule| !asks_for_all(rule));
                    rules::decide(specific, &self.roots, &accepted)
                }
                false => rules::decide(rules.iter(), &self.roots, access),
            };
            let floor = self.floor(access).map(|floor| floor.why.clone());
            if floor.is_some() {
                verdict.decision = verdict.decision.max(Decision::Ask);
            }
            judgement.decision = judgement.decision.max(verdict.decision);
            match verdict.decision {
                Decision::Allow => {}
                Decision::Ask => {
                    judgement.only_reads &= floor.is_none() && self.reads(&rules, access);
                    let (access, by) = (access.clone(), verdict.by);
                    judgement.asked.push(Asked { access, by, floor });
                }
                Decision::Reject if judgement.refused.is_some() => {}
                Decision::Reject => judgement.refused = Some((access.clone(), verdict.by)),
            }
        }
        judgement.only_reads &= judgement.decision == Decision::Ask;
        judgement
    }

    /// Tells whether an access would be allowed if commands that only read were.
    fn reads(&self, rules: &[Rule], access: &Access) -> bool {
        let reading = reading_rule(Source::Stored);
        let verdict = rules::decide(rules.iter().chain([&reading]), &self.roots, access);
        access.is_reading_command() && verdict.decision == Decision::Allow
    }

    /// Finds what is asked for at least.
    fn floor(&self, access: &Access) -> Option<&AskFloor> {
        self.floors.iter().find(|floor| is_below(floor, &self.roots, access))
    }

    /// Returns what is denied for a key, also by the agents of these modes. A rule that denies wins over all others.
    pub(crate) fn denied(&self, key: &PermissionKey, modes: &[Mode]) -> Denied {
        let all = self.all_rules();
        let restricted = modes.iter().filter_map(Mode::restrictions);
        let rules = all.iter().chain(restricted.flat_map(|restrictions| &restrictions.rules));
        let denies = |rule: &&Rule| rule.decision == Decision::Reject && matches_key(rule, key);
        Denied { rules: rules.filter(denies).cloned().collect(), roots: self.roots.clone() }
    }

    /// Decides about one access and names the rule.
    #[must_use]
    pub fn explain(&self, access: &Access) -> Verdict {
        let mut verdict = rules::decide(self.all_rules().iter(), &self.roots, access);
        if self.floor(access).is_some() {
            verdict.decision = verdict.decision.max(Decision::Ask);
        }
        verdict
    }

    /// Lists why something is asked for whatever rules and answers allow.
    pub fn floors(&self) -> impl Iterator<Item = &str> {
        self.floors.iter().map(|floor| floor.why.as_str())
    }

    /// Returns the rules of files, of answers and of the slash command in use.
    fn all_rules(&self) -> Vec<Rule> {
        let stored = self.store.as_ref().map(|store| store.rules()).unwrap_or_default();
        let mut rules: Vec<Rule> = self.rules.iter().cloned().chain(stored).collect();
        rules.extend(self.answered().iter().cloned());
        let granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        rules.extend(granted.iter().cloned());
        rules
    }

    fn answered(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists the rules with their sources, the strictest first.
    #[must_use]
    pub fn describe(&self, restrictions: Option<&Restrictions>) -> String {
        let mut rules = self.all_rules();
        rules.extend(
            restrictions.into_iter().flat_map(|restrictions| restrictions.rules.iter().cloned()),
        );
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.decision));
        let mut text = String::new();
        for why in self.floors() {
            text.push_str(&format!("- {}\n", visible(why)));
        }
        if !text.is_empty() {
            text = format!("Asked for, whatever rules and answers allow:\n{text}\n");
        }
        text.push_str(match rules.is_empty() {
            true => "No rules are set.\n",
            false => "Rules (deny wins; otherwise the most specific rule applies):\n",
        });
        for rule in &rules {
            let words = saved_words(&rule.key, &rule.pattern);
            text.push_str(&format!(
                "- {} `{words}`, from {}\n",
                rule.decision.word(),
                rule.source.words()
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
    pub fn scope(&self) -> AnswerScope {
        if self.store.is_some() { AnswerScope::Project } else { AnswerScope::Session }
    }

    /// Applies an answer of the user. Returns the decision about the call, and why an answer could not be stored.
    pub fn apply(&self, asked: &[Asked], answer: Answer) -> (Decision, Option<String>) {
        let decision = match answer {
            Answer::AllowOnce
            | Answer::AllowSession
            | Answer::AllowAlways
            | Answer::AllowReading => Decision::Allow,
            Answer::RejectOnce | Answer::RejectAlways | Answer::Cancelled => Decision::Reject,
        };
        let source = match answer {
            Answer::AllowOnce | Answer::RejectOnce | Answer::Cancelled => return (decision, None),
            Answer::AllowSession => Source::Session,
            Answer::AllowAlways | Answer::AllowReading | Answer::RejectAlways => Source::Stored,
        };
        let rules: Vec<Rule> = match answer {
            Answer::AllowReading => vec![reading_rule(source)],
            _ => {
                asked.iter().filter_map(|asked| rule_of(&asked.access, decision, source)).collect()
            }
        };
        let mut problem = None;
        for rule in rules {
            let store = self.store.as_ref().filter(|_| source == Source::Stored);
            let stored = store.map(|store| store.add(&rule));
            if let Some(Ok(())) = stored {
                continue;
            }
            problem = stored.and_then(Result::err).or(problem);
            self.answered().push(Rule { source: Source::Session, ..rule });
        }
        (decision, problem)
    }
}

/// Returns the rule that an answer stores for an access.
fn rule_of(access: &Access, decision: Decision, source: Source) -> Option<Rule> {
    if access.can_destroy && decision == Decision::Allow {
        return None;
    }
    let pattern = access.always.clone()?;
    Some(Rule { key: access.key.to_string(), pattern, decision, source })
}

/// Returns the rule that allows commands that only read.
fn reading_rule(source: Source) -> Rule {
    let key = PermissionKey::RunReadingCommand.to_string();
    Rule { key, pattern: "*".to_owned(), decision: Decision::Allow, source }
}

/// Tells whether an access is an edit that a mode can accept.
fn is_edit(access: &Access) -> bool {
    access.key == PermissionKey::Edit && access.default == Decision::Ask && !access.is_unclear
}

/// Tells whether a rule of the user asks for everything, which is what a mode that accepts edits replaces.
fn asks_for_all(rule: &Rule) -> bool {
    let is_users = !matches!(rule.source, Source::Project | Source::Agent);
    is_users && rule.decision == Decision::Ask && weight(&rule.pattern) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(policy: &Policy, access: &[Access]) -> Decision {
        policy.judge(access).decision
    }

    fn answer(policy: &Policy, access: &[Access], answer: Answer) -> (Decision, Option<String>) {
        let asked = |access: &Access| Asked { access: access.clone(), by: None, floor: None };
        policy.apply(&access.iter().map(asked).collect::<Vec<_>>(), answer)
    }

    // R: T2
    #[test]
    fn always_is_stored_and_once_is_not() {
        let policy = Policy::default();
        let read = [Access::allow(PermissionKey::Read, "a.rs")];
        let edit = [Access::ask(PermissionKey::Edit, "a.rs")];
        assert_eq!(decide(&policy, &read), Decision::Allow);
        assert_eq!(decide(&policy, &edit), Decision::Ask);
        assert_eq!(answer(&policy, &edit, Answer::AllowOnce).0, Decision::Allow);
        assert_eq!(decide(&policy, &edit), Decision::Ask);
        assert_eq!(answer(&policy, &edit, Answer::RejectAlways).0, Decision::Reject);
        assert_eq!(decide(&policy, &edit), Decision::Reject);
        assert_eq!(decide(&policy, &[Access::ask(PermissionKey::Edit, "b.rs")]), Decision::Ask);
        let make = [Access::ask(PermissionKey::RunCommand, "make")];
        assert_eq!(answer(&policy, &make, Answer::Cancelled).0, Decision::Reject);
        assert_eq!(decide(&policy, &make), Decision::Ask);
    }

    #[test]
    fn strictest_access_decides() {
        let policy = Policy::default();
        let make = Access::ask(PermissionKey::RunCommand, "make");
        answer(&policy, std::slice::from_ref(&make), Answer::AllowAlways);
        assert_eq!(decide(&policy, std::slice::from_ref(&make)), Decision::Allow);
        let remove = Access::ask(PermissionKey::RunCommand, "rm x");
        let judgement = policy.judge(&[make, remove.clone()]);
        assert_eq!(judgement.decision, Decision::Ask);
        let asked: Vec<&Access> = judgement.asked.iter().map(|asked| &asked.access).collect();
        assert_eq!(asked, [&remove]);
        assert_eq!(decide(&policy, &[]), Decision::Allow);
    }

    #[test]
    fn subject_with_a_star_is_stored_literally() {
        let policy = Policy::default();
        answer(&policy, &[Access::ask(PermissionKey::RunCommand, "rm *.o")], Answer::AllowAlways);
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
        assert_eq!(answer(&policy, &make, Answer::AllowAlways), (Decision::Allow, None));
        let problem = Some("the disk is full".to_owned());
        assert_eq!(answer(&policy, &test, Answer::AllowAlways), (Decision::Allow, problem));
        assert_eq!(decide(&policy, &test), Decision::Allow);
        let other = Policy { store: Some(store), ..Policy::default() };
        assert_eq!(decide(&other, &make), Decision::Allow);
        assert_eq!(decide(&other, &test), Decision::Ask);
    }

    fn rule(text: &str) -> Rule {
        let [decision, key, pattern] = text.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let (key, pattern) = (key.to_owned(), pattern.to_owned());
        Rule {
            key,
            pattern,
            decision: Decision::from_word(decision).unwrap(),
            source: Source::User,
        }
    }

    // R: T2
    #[test]
    fn answer_for_the_session_is_not_stored() {
        let store: Arc<dyn AnswerStore> = Arc::new(Full::default());
        let policy = Policy { store: Some(Arc::clone(&store)), ..Policy::default() };
        let make = [Access::ask(PermissionKey::RunCommand, "make")];
        assert_eq!(answer(&policy, &make, Answer::AllowSession), (Decision::Allow, None));
        assert_eq!(decide(&policy, &make), Decision::Allow);
        assert_eq!(store.rules(), []);
        assert_eq!(
            decide(&Policy { store: Some(store), ..Policy::default() }, &make),
            Decision::Ask
        );
    }

    // R: T2
    #[test]
    fn what_can_destroy_is_never_allowed_for_good_but_can_be_rejected_for_good() {
        let remove = Access::ask(PermissionKey::RunCommand, "rm -rf /");
        let remove = [Access { can_destroy: true, ..remove }];
        let policy = Policy::default();
        for allow in [Answer::AllowAlways, Answer::AllowSession] {
            answer(&policy, &remove, allow);
            assert_eq!(decide(&policy, &remove), Decision::Ask);
        }
        answer(&policy, &remove, Answer::RejectAlways);
        assert_eq!(decide(&policy, &remove), Decision::Reject);
    }

    // R: T2
    #[test]
    fn mode_that_accepts_edits_leaves_specific_rules_and_everything_else_as_they_are() {
        let accept = [Mode::find("accept_edits").unwrap().clone()];
        let within = |rules: &[&str], access: Access, kind: ToolKind| {
            let policy =
                Policy::new(rules.iter().map(|text| rule(text)).collect(), Vec::new(), None);
            policy.judge_within(&[access], kind, &accept).decision
        };
        let edit = || Access::ask(PermissionKey::Edit, "src/a.rs");
        let table: [(&[&str], Access, ToolKind, Decision); 9] = [
            (&[], edit(), ToolKind::Edit, Decision::Allow),
            (&["ask edit *"], edit(), ToolKind::Edit, Decision::Allow),
            (&["ask * *"], edit(), ToolKind::Edit, Decision::Allow),
            (&["ask edit src/*"], edit(), ToolKind::Edit, Decision::Ask),
            (&["deny edit *"], edit(), ToolKind::Edit, Decision::Reject),
            // A command that writes a file, and an MCP tool.
            (&[], edit(), ToolKind::Execute, Decision::Ask),
            (&[], edit(), ToolKind::Other, Decision::Ask),
            (&[], Access::ask(PermissionKey::Git, ".git/config"), ToolKind::Edit, Decision::Ask),
            (&[], Access::ask(PermissionKey::WriteOutside, "/x"), ToolKind::Edit, Decision::Ask),
        ];
        for (rules, access, kind, expected) in table {
            let words = format!("{rules:?} {access:?} {kind:?}");
            assert_eq!(within(rules, access, kind), expected, "{words}");
        }
        let project = Rule { source: Source::Project, ..rule("ask edit *") };
        let policy = Policy::new(vec![project], Vec::new(), None);
        let judgement = policy.judge_within(&[edit()], ToolKind::Edit, &accept);
        assert_eq!(judgement.decision, Decision::Ask);
    }

    // R: T2
    #[test]
    fn floor_asks_whatever_rules_answers_modes_and_grants_allow() {
        let floors = vec![AskFloor::everything("Broken.".to_owned())];
        let rules = vec![rule("allow * *"), rule("deny bash rm *")];
        let policy = Policy::new(rules, Vec::new(), None).with_floors(floors);
        let accept = [Mode::find("accept_edits").unwrap().clone()];
        policy.grant(vec![Rule { source: Source::Command, ..rule("allow bash make") }]);
        let make = Access::ask(PermissionKey::RunCommand, "make");
        answer(&policy, std::slice::from_ref(&make), Answer::AllowAlways);
        for access in [
            make,
            Access::allow(PermissionKey::Read, "a"),
            Access::ask(PermissionKey::Edit, "a"),
            Access::ask(PermissionKey::mcp("s_t", "s", "t"), "s_t 0"),
        ] {
            let judgement = policy.judge_within(&[access], ToolKind::Edit, &accept);
            assert_eq!(judgement.decision, Decision::Ask);
            assert_eq!(judgement.asked[0].floor.as_deref(), Some("Broken."));
        }
        let remove = [Access::ask(PermissionKey::RunCommand, "rm x")];
        assert_eq!(decide(&policy, &remove), Decision::Reject);
    }

    // R: T2
    #[test]
    fn reading_commands_can_be_allowed_by_a_rule_of_their_own() {
        let policy = Policy::new(vec![rule("ask bash *")], Vec::new(), None);
        let list = [Access::allow(PermissionKey::RunCommand, "ls")];
        let judgement = policy.judge(&list);
        assert_eq!(judgement.asked[0].by, Some(rule("ask bash *")));
        assert!(judgement.only_reads);
        let make = Access::ask(PermissionKey::RunCommand, "make");
        assert!(!policy.judge(&[list[0].clone(), make.clone()]).only_reads);
        policy.apply(&judgement.asked, Answer::AllowReading);
        assert_eq!(decide(&policy, &list), Decision::Allow);
        assert_eq!(decide(&policy, &[make]), Decision::Ask);
        let specific = Policy::new(vec![rule("ask bash ls *")], Vec::new(), None);
        assert!(!specific.judge(&list).only_reads);
    }
}
