//! Rules: who said what about which key and which pattern, and which of them counts.
//!
//! One pool, one order, whoever wrote the rule:
//!
//! 1. A rule that denies wins over everything.
//! 2. Otherwise the most specific rule counts: first by its key, then by its pattern; the more characters stand for
//!    themselves, the more specific.
//! 3. Between equals what the user answered counts before what a file says, and the stricter before the laxer.
//! 4. Where no rule fits, the default of the access counts.
//! 5. What is not understood may be what a rule forbids, so where there is such a rule it is asked for, whatever allows it.
//!
//! A project that is not trusted can only make things stricter: its rules never allow, and never soften a default.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Access, Decision};
use crate::words::pattern::{fits, weight};

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which accesses it is about: a key, or a pattern of keys.
    pub key: String,
    /// Which subjects of them.
    pub pattern: String,
    /// What happens then.
    pub decision: Decision,
    /// Who says so.
    pub source: Source,
}

/// Who made a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The user's configuration.
    User,
    /// The configuration of a project that is not trusted.
    Project,
    /// The configuration of a project that the user trusts.
    TrustedProject,
    /// An answer of the user that is kept for the folder.
    Kept,
    /// An answer of the user in this session.
    Session,
    /// The description of the agent that works.
    Agent,
}

impl Source {
    /// Says who it is, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Source::User => "your configuration",
            Source::Project => "the project's configuration",
            Source::TrustedProject => "the trusted project's configuration",
            Source::Kept => "an answer kept for this folder",
            Source::Session => "an answer in this session",
            Source::Agent => "the agent that works",
        }
    }

    fn is_answer(self) -> bool {
        matches!(self, Source::Kept | Source::Session)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { key, pattern, decision, source } = self;
        write!(out, "{key}: {pattern} = {} ({})", decision.word(), source.words())
    }
}

/// What is decided about one access, and by which rule; no rule where the default counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What happens.
    pub decision: Decision,
    /// The rule that decided. One that is stricter than the decision forbids what an unclear access may be.
    pub by: Option<Rule>,
}

/// Decides about one access. `roots` are the folders of the session: a path inside one of them is also held against
/// patterns as a path from there, so `src/*` fits, and one from the first of them also as the whole path.
#[must_use]
pub fn decide<'a>(
    rules: impl Iterator<Item = &'a Rule> + Clone,
    roots: &[PathBuf],
    access: &Access,
) -> Verdict {
    let verdict = by_subject(rules.clone(), roots, access);
    if !access.is_unclear || verdict.decision != Decision::Allow {
        return verdict;
    }
    let mut rules = rules;
    let forbids = |rule: &&Rule| rule.decision == Decision::Reject && fits(&rule.key, &access.key);
    match rules.find(forbids) {
        Some(rule) => Verdict { decision: Decision::Ask, by: Some(rule.clone()) },
        None => verdict,
    }
}

/// Decides by what the subject says.
fn by_subject<'a>(
    rules: impl Iterator<Item = &'a Rule> + Clone,
    roots: &[PathBuf],
    access: &Access,
) -> Verdict {
    let fitting = rules.filter(|rule| {
        let is_widening = rule.source == Source::Project && rule.decision == Decision::Allow;
        !is_widening && fits(&rule.key, &access.key) && fits_subject(rule, roots, access)
    });
    let strongest = fitting.clone().max_by_key(|rule| {
        let denies = rule.decision == Decision::Reject;
        (denies, weight(&rule.key), weight(&rule.pattern), rule.source.is_answer(), rule.decision)
    });
    let Some(rule) = strongest else {
        return Verdict { decision: access.default, by: None };
    };
    if rule.source == Source::Project {
        let without = fitting.filter(|rule| rule.source != Source::Project);
        let others: Vec<Rule> = without.cloned().collect();
        let laxer = by_subject(others.iter(), roots, access);
        if laxer.decision >= rule.decision {
            return laxer;
        }
    }
    Verdict { decision: rule.decision, by: Some(rule.clone()) }
}

fn fits_subject(rule: &Rule, roots: &[PathBuf], access: &Access) -> bool {
    if fits(&rule.pattern, &access.subject) {
        return true;
    }
    let subject = Path::new(&access.subject);
    let is_path = ["read", "edit"].contains(&access.key.as_str());
    if is_path && let Some(root) = roots.first().filter(|_| subject.is_relative()) {
        return fits(&rule.pattern, &root.join(subject).to_string_lossy());
    }
    let inside = roots.iter().filter_map(|root| subject.strip_prefix(root).ok());
    inside.into_iter().any(|path| fits(&rule.pattern, &path.to_string_lossy()))
}

/// What rules forbid, for tools that come upon things by themselves and need not be told why they may not have them.
#[derive(Debug, Clone, Default)]
pub struct Forbidden {
    /// Those that deny.
    pub(crate) rules: Vec<Rule>,
    pub(crate) roots: Vec<PathBuf>,
}

impl Forbidden {
    /// Tells whether nothing is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Tells whether this is.
    #[must_use]
    pub fn has(&self, access: &Access) -> bool {
        decide(self.rules.iter(), &self.roots, access).decision == Decision::Reject
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Decision::{Allow, Ask, Reject};

    fn rule(source: Source, text: &str) -> Rule {
        let (decision, rest) = text.split_once(' ').unwrap();
        let (key, pattern) = rest.split_once(' ').unwrap();
        let decision = Decision::from_word(decision).unwrap();
        Rule { key: key.to_owned(), pattern: pattern.to_owned(), decision, source }
    }

    // The order in which rules count, written down once. R: T2
    #[test]
    fn which_rule_counts() {
        use Source::{Kept, Project, TrustedProject, User};
        let git_push = Access::ask("bash", "git push origin");
        let read = Access::allow("read", "/w/src/a.rs");
        let by_name = Access::allow("read", "src/a.rs");
        type Row<'a> = (&'a str, &'a [(Source, &'a str)], &'a Access, Decision);
        let table: [Row<'_>; 19] = [
            (
                "a path from the folder by its whole path",
                &[(User, "deny read /w/src/*")],
                &by_name,
                Reject,
            ),
            ("and not by another", &[(User, "deny read /x/src/*")], &by_name, Allow),
            ("no rule: the default", &[], &git_push, Ask),
            ("a rule for another key", &[(User, "allow edit *")], &git_push, Ask),
            ("a general allow", &[(User, "allow bash *")], &git_push, Allow),
            ("any key", &[(User, "allow * *")], &git_push, Allow),
            (
                "deny wins over a more specific allow",
                &[(User, "deny bash *"), (User, "allow bash git push *")],
                &git_push,
                Reject,
            ),
            (
                "deny wins over a kept answer",
                &[(User, "deny bash git *"), (Kept, "allow bash git push origin")],
                &git_push,
                Reject,
            ),
            (
                "a specific allow wins over a general ask",
                &[(User, "ask bash *"), (User, "allow bash git push *")],
                &git_push,
                Allow,
            ),
            (
                "a specific ask wins over a general allow",
                &[(User, "ask bash git push *"), (User, "allow bash *")],
                &git_push,
                Ask,
            ),
            (
                "a key wins over a pattern of keys",
                &[(User, "ask bash *"), (User, "allow * *")],
                &git_push,
                Ask,
            ),
            (
                "of equals the stricter",
                &[(User, "ask bash git *"), (User, "allow bash git *")],
                &git_push,
                Ask,
            ),
            (
                "of equals the answer",
                &[(User, "ask bash git *"), (Kept, "allow bash git *")],
                &git_push,
                Allow,
            ),
            (
                "a specific ask wins over a general answer",
                &[(User, "ask bash git push *"), (Kept, "allow bash git *")],
                &git_push,
                Ask,
            ),
            ("a project cannot allow", &[(Project, "allow bash *")], &git_push, Ask),
            ("a trusted project can", &[(TrustedProject, "allow bash *")], &git_push, Allow),
            (
                "a trusted project cannot undo a deny",
                &[(TrustedProject, "allow bash git push *"), (User, "deny bash git *")],
                &git_push,
                Reject,
            ),
            ("a project can ask", &[(Project, "ask read src/*")], &read, Ask),
            (
                "a project can deny",
                &[(Project, "deny read *.rs"), (User, "allow read *")],
                &read,
                Reject,
            ),
        ];
        for (name, rules, access, expected) in table {
            let rules: Vec<Rule> = rules.iter().map(|(source, text)| rule(*source, text)).collect();
            let verdict = decide(rules.iter(), &[PathBuf::from("/w")], access);
            assert_eq!(verdict.decision, expected, "{name}");
        }
    }

    // R: T2
    #[test]
    fn what_is_not_understood_is_asked_where_anything_is_forbidden() {
        use Source::{Kept, Project, User};
        let unclear = |key: &str| Access {
            is_unclear: true,
            ..Access::ask(key, "(cannot be analysed) $(echo rm) x")
        };
        type Row<'a> = (&'a [(Source, &'a str)], &'a str, Decision);
        let table: [Row<'_>; 9] = [
            (&[(User, "allow bash *")], "bash", Allow),
            (&[(User, "allow bash *"), (User, "deny bash rm *")], "bash", Ask),
            (&[(User, "allow bash (not *"), (Kept, "deny bash rm *")], "bash", Ask),
            (&[(User, "allow * *"), (Project, "deny b* rm *")], "bash", Ask),
            (&[(User, "allow bash *"), (User, "ask bash rm *")], "bash", Allow),
            (&[(User, "allow bash *"), (User, "deny edit *")], "bash", Allow),
            (&[(User, "allow bash *"), (User, "deny bash *")], "bash", Reject),
            (&[(User, "allow network *"), (User, "deny network curl *")], "network", Ask),
            (&[(User, "allow network *"), (User, "deny bash curl *")], "network", Allow),
        ];
        for (rules, key, expected) in table {
            let list: Vec<Rule> = rules.iter().map(|(source, text)| rule(*source, text)).collect();
            let verdict = decide(list.iter(), &[], &unclear(key));
            assert_eq!(verdict.decision, expected, "{rules:?}");
        }
        let rules = [rule(User, "allow bash *"), rule(User, "deny bash rm *")];
        let clear = Access::ask("bash", "make");
        assert_eq!(decide(rules.iter(), &[], &clear).decision, Allow);
        assert_eq!(decide(rules.iter(), &[], &unclear("bash")).by.as_ref(), Some(&rules[1]));
    }

    #[test]
    fn a_project_never_softens() {
        let access = Access { default: Reject, ..Access::ask("read", "/w/.env") };
        let asks = [rule(Source::Project, "ask read *.env")];
        assert_eq!(decide(asks.iter(), &[], &access).decision, Reject);
        let both = [rule(Source::Project, "ask read *.env"), rule(Source::User, "allow read *")];
        assert_eq!(decide(both.iter(), &[], &access).decision, Ask);
    }

    #[test]
    fn a_path_is_meant_from_the_folder_or_from_the_root() {
        let access = Access::ask("edit", "/w/src/a.rs");
        let roots = [PathBuf::from("/w")];
        for pattern in ["src/*", "/w/src/*", "*.rs", "src/a.rs"] {
            let rules = [rule(Source::User, &format!("allow edit {pattern}"))];
            assert_eq!(decide(rules.iter(), &roots, &access).decision, Allow, "{pattern}");
        }
        for pattern in ["a.rs", "w/src/*", "/src/*"] {
            let rules = [rule(Source::User, &format!("allow edit {pattern}"))];
            assert_eq!(decide(rules.iter(), &roots, &access).decision, Ask, "{pattern}");
        }
    }
}
