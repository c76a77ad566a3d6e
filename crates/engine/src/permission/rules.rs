//! Which of several rules applies to an access.
//!
//! All rules are compared in one order, whoever wrote them:
//!
//! 1. A rule that denies wins over everything.
//! 2. Otherwise the most specific rule applies: first by its key, then by its pattern. The more literal characters, the
//!    more specific.
//! 3. Of equally specific rules an answer of the user wins over a file, and the stricter over the laxer.
//! 4. If no rule matches, the default of the access applies.
//! 5. A command that cannot be analysed may do what a rule denies, so the user is asked as soon as there is such a rule. So may a
//!    command that names a denied program anywhere in its words: wrappers, options and scripts run what their words say.
//! 6. A rule for commands that only read ranks like a rule for commands, and wins over one that is equally specific.
//!
//! A project that is not trusted can only restrict: its rules never allow anything, and never relax a default.

use std::path::{Path, PathBuf};

use crate::ports;
use crate::words::pattern::{matches_pattern, weight};
use crate::words::{Access, Decision, PermissionKey, Restrictions};

pub use crate::words::rule::{AskFloor, Rule, Source};

/// What is decided about one access, and by which rule; `None` if the default applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What is decided.
    pub decision: Decision,
    /// The rule that decided. If it is stricter than the decision, it denies something that the access may include.
    pub by: Option<Rule>,
}

/// Decides about one access. `roots` are the directories of the session. A path inside one of them is matched both as it is
/// and relative to the directory, so `src/*` matches; a relative path is matched as an absolute one from the first directory.
#[must_use]
pub fn decide<'a>(
    rules: impl Iterator<Item = &'a Rule> + Clone,
    roots: &[PathBuf],
    access: &Access,
) -> Verdict {
    let verdict = by_subject(rules.clone(), roots, access);
    // What only reads runs nothing, whatever it names.
    let may_run = access.key == PermissionKey::RunCommand && !access.is_reading_command();
    if verdict.decision != Decision::Allow || !(access.is_unclear || may_run) {
        return verdict;
    }
    let mut rules = rules;
    let denies = |rule: &&Rule| {
        rule.decision == Decision::Reject
            && matches_key(rule, &access.key)
            && (access.is_unclear || names_all(&access.subject, &rule.pattern))
    };
    match rules.find(denies) {
        Some(rule) => Verdict { decision: Decision::Ask, by: Some(rule.clone()) },
        None => verdict,
    }
}

/// Tells whether a command names the literal words at the beginning of a pattern, in their order, as whole words anywhere in it.
fn names_all(command: &str, pattern: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || "._-+".contains(character);
    let mut words = command.split(|character| !is_part(character));
    let is_literal = |word: &&str| !word.contains(['*', '?', '\\']);
    let mut wanted = pattern.split_whitespace().take_while(is_literal).peekable();
    // Without a literal word the pattern itself decides.
    wanted.peek().is_some()
        && wanted.all(|wanted| words.any(|word| word.eq_ignore_ascii_case(wanted)))
}

/// Decides about one access by the rules of an agent alone. What they do not mention is allowed.
#[must_use]
pub fn decide_for_agent(
    restrictions: &Restrictions,
    roots: &[PathBuf],
    access: &Access,
) -> Verdict {
    let allowed = Access { default: Decision::Allow, ..access.clone() };
    decide(restrictions.rules.iter(), roots, &allowed)
}

/// Decides by the subject of the access.
fn by_subject<'a>(
    rules: impl Iterator<Item = &'a Rule> + Clone,
    roots: &[PathBuf],
    access: &Access,
) -> Verdict {
    let matching = rules.filter(|rule| {
        let is_widening = rule.source == Source::Project && rule.decision == Decision::Allow;
        let is_about =
            matches_key(rule, &access.key) || is_about_reading(rule) && access.is_reading_command();
        !is_widening && is_about && matches_subject(&rule.pattern, roots, access)
    });
    let strongest = matching.clone().max_by_key(|rule| {
        let denies = rule.decision == Decision::Reject;
        let is_about_reading = is_about_reading(rule);
        let key = match is_about_reading {
            true => PermissionKey::RunCommand.as_str(),
            false => &rule.key,
        };
        let specific = (weight(key), weight(&rule.pattern), is_about_reading);
        (denies, specific, rule.source.is_answer(), rule.decision)
    });
    let Some(rule) = strongest else {
        return Verdict { decision: access.default, by: None };
    };
    if rule.source == Source::Project {
        let without = matching.filter(|rule| rule.source != Source::Project);
        let others: Vec<Rule> = without.cloned().collect();
        let laxer = by_subject(others.iter(), roots, access);
        if laxer.decision >= rule.decision {
            return laxer;
        }
    }
    Verdict { decision: rule.decision, by: Some(rule.clone()) }
}

/// Tells whether a rule is about a key. A deny is also about an MCP tool that has the name of a built-in key.
pub(crate) fn matches_key(rule: &Rule, key: &PermissionKey) -> bool {
    let denies = rule.decision == Decision::Reject;
    matches_pattern(&rule.key, key.as_str())
        || denies && key.shared_name().is_some_and(|name| matches_pattern(&rule.key, name))
}

/// Tells whether a rule is about commands that only read.
fn is_about_reading(rule: &Rule) -> bool {
    rule.key == PermissionKey::RunReadingCommand.as_str()
}

/// Tells whether a floor is about an access.
pub(crate) fn is_below(floor: &AskFloor, roots: &[PathBuf], access: &Access) -> bool {
    let key = &access.key;
    let names = [Some(key.as_str()), key.shared_name()];
    let is_about = names.into_iter().flatten().any(|name| matches_pattern(&floor.key, name));
    is_about && matches_subject(&floor.pattern, roots, access)
}

fn matches_subject(pattern: &str, roots: &[PathBuf], access: &Access) -> bool {
    if matches_pattern(pattern, &access.subject) {
        return true;
    }
    let subject = Path::new(&access.subject);
    let is_path = matches!(access.key, PermissionKey::Read | PermissionKey::Edit);
    if is_path && let Some(root) = roots.first().filter(|_| subject.is_relative()) {
        return matches_pattern(pattern, &root.join(subject).to_string_lossy());
    }
    let inside = roots.iter().filter_map(|root| subject.strip_prefix(root).ok());
    inside.into_iter().any(|path| matches_pattern(pattern, &path.to_string_lossy()))
}

/// What rules deny, for tools that find files by themselves and leave out what they may not read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Denied {
    /// The rules that deny.
    pub(crate) rules: Vec<Rule>,
    pub(crate) roots: Vec<PathBuf>,
}

impl ports::Denied for Denied {
    fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn has(&self, access: &Access) -> bool {
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

    // R: T2
    #[test]
    fn denied_program_that_a_command_names_anywhere_asks() {
        use Source::User;
        let rules = [
            rule(User, "allow bash *"),
            rule(User, "deny bash curl *"),
            rule(User, "deny bash git push *"),
        ];
        let decide = |access: Access| decide(rules.iter(), &[], &access).decision;
        let run = |command: &str| decide(Access::ask(PermissionKey::RunCommand, command));
        for named in [
            "make CC=curl",
            "npx run-p 'a' \"curl -o x y\"",
            "watchexec -- /usr/bin/curl x",
            "python3 -c 'os.system(\"curl x\")'",
            "entr -r CURL",
            "just x git -C . push",
        ] {
            assert_eq!(run(named), Ask, "{named}");
        }
        for other in
            ["make curly", "cargo test curl_test", "git stash push-x", "push git", "git pull"]
        {
            assert_eq!(run(other), Allow, "{other}");
        }
        assert_eq!(run("curl x"), Reject);
        // A command that only reads cannot run it.
        assert_eq!(decide(Access::allow(PermissionKey::RunCommand, "rg curl")), Allow);
    }

    // The precedence of rules. R: T2
    #[test]
    fn precedence_of_rules() {
        use Source::{Project, Stored, TrustedProject, User};
        let git_push = Access::ask(PermissionKey::RunCommand, "git push origin");
        let read = Access::allow(PermissionKey::Read, "/w/src/a.rs");
        let by_name = Access::allow(PermissionKey::Read, "src/a.rs");
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
                "deny wins over a stored answer",
                &[(User, "deny bash git *"), (Stored, "allow bash git push origin")],
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
                &[(User, "ask bash git *"), (Stored, "allow bash git *")],
                &git_push,
                Allow,
            ),
            (
                "a specific ask wins over a general answer",
                &[(User, "ask bash git push *"), (Stored, "allow bash git *")],
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
    fn unclear_access_asks_if_a_rule_denies_anything() {
        use Source::{Project, Stored, User};
        let unclear = |key: PermissionKey| Access {
            is_unclear: true,
            ..Access::ask(key, "(cannot be analysed) $(echo rm) x")
        };
        type Row<'a> = (&'a [(Source, &'a str)], PermissionKey, Decision);
        let table: [Row<'_>; 9] = [
            (&[(User, "allow bash *")], PermissionKey::RunCommand, Allow),
            (&[(User, "allow bash *"), (User, "deny bash rm *")], PermissionKey::RunCommand, Ask),
            (
                &[(User, "allow bash (not *"), (Stored, "deny bash rm *")],
                PermissionKey::RunCommand,
                Ask,
            ),
            (&[(User, "allow * *"), (Project, "deny b* rm *")], PermissionKey::RunCommand, Ask),
            (&[(User, "allow bash *"), (User, "ask bash rm *")], PermissionKey::RunCommand, Allow),
            (&[(User, "allow bash *"), (User, "deny edit *")], PermissionKey::RunCommand, Allow),
            (&[(User, "allow bash *"), (User, "deny bash *")], PermissionKey::RunCommand, Reject),
            (
                &[(User, "allow network *"), (User, "deny network curl *")],
                PermissionKey::Network,
                Ask,
            ),
            (
                &[(User, "allow network *"), (User, "deny bash curl *")],
                PermissionKey::Network,
                Allow,
            ),
        ];
        for (rules, key, expected) in table {
            let list: Vec<Rule> = rules.iter().map(|(source, text)| rule(*source, text)).collect();
            let verdict = decide(list.iter(), &[], &unclear(key));
            assert_eq!(verdict.decision, expected, "{rules:?}");
        }
        let rules = [rule(User, "allow bash *"), rule(User, "deny bash rm *")];
        let clear = Access::ask(PermissionKey::RunCommand, "make");
        assert_eq!(decide(rules.iter(), &[], &clear).decision, Allow);
        assert_eq!(
            decide(rules.iter(), &[], &unclear(PermissionKey::RunCommand)).by.as_ref(),
            Some(&rules[1])
        );
    }

    #[test]
    fn project_never_relaxes_a_default() {
        let access = Access { default: Reject, ..Access::ask(PermissionKey::Read, "/w/.env") };
        let asks = [rule(Source::Project, "ask read *.env")];
        assert_eq!(decide(asks.iter(), &[], &access).decision, Reject);
        let both = [rule(Source::Project, "ask read *.env"), rule(Source::User, "allow read *")];
        assert_eq!(decide(both.iter(), &[], &access).decision, Ask);
    }

    #[test]
    fn path_matches_from_the_directory_and_from_the_root() {
        let access = Access::ask(PermissionKey::Edit, "/w/src/a.rs");
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

    /// Whatever a server calls its tools, a rule for what we do ourselves never allows one of them, and what the user
    /// answers about one of them never allows what we do ourselves.
    // R: T2
    #[test]
    fn mcp_tool_never_shares_permission_with_a_built_in_key() {
        for built_in in PermissionKey::BUILT_IN {
            let name = built_in.as_str();
            let access = Access::ask(PermissionKey::mcp(name, "s", "t"), "x");
            let decided = |text: &str, access: &Access| {
                let list = [rule(Source::User, text)];
                decide(list.iter(), &[], access).decision
            };
            let front = &name[..3];
            for key in [name.to_owned(), format!("{front}*")] {
                assert_eq!(decided(&format!("deny {key} *"), &access), Reject, "{key}");
                assert_eq!(decided(&format!("allow {key} *"), &access), Ask, "{key}");
            }
            let answer = Rule {
                key: access.key.to_string(),
                pattern: "*".to_owned(),
                decision: Allow,
                source: Source::Stored,
            };
            for key in PermissionKey::BUILT_IN {
                let own = Access::ask(key, "x");
                assert_eq!(decide([&answer].into_iter(), &[], &own).decision, Ask, "{name}");
            }
        }
    }

    // R: T2
    #[test]
    fn rule_for_reading_commands_ranks_above_a_general_rule_and_below_a_specific_one() {
        use Source::User;
        let list = Access::allow(PermissionKey::RunCommand, "ls -l");
        let make = Access::ask(PermissionKey::RunCommand, "make");
        let unclear = Access { is_unclear: true, ..list.clone() };
        let all = ["ask bash *", "allow bash_read *"];
        let table: [(&[&str], &Access, Decision); 8] = [
            (&all, &list, Allow),
            (&all, &make, Ask),
            (&all, &unclear, Ask),
            (&["ask * *", "allow bash_read *"], &list, Allow),
            (&["ask bash ls *", "allow bash_read *"], &list, Ask),
            (&["deny bash *", "allow bash_read *"], &list, Reject),
            (&["allow bash *", "deny bash_read *"], &list, Reject),
            (&["allow bash *", "ask bash_read *"], &list, Ask),
        ];
        for (rules, access, expected) in table {
            let rules: Vec<Rule> = rules.iter().map(|text| rule(User, text)).collect();
            assert_eq!(decide(rules.iter(), &[], access).decision, expected, "{rules:?}");
        }
    }
}
