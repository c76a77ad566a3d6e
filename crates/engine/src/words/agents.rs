//! Agents that users and projects describe: ways of working with words and limits of their own.
//!
//! An agent only narrows: its rules are held beside the session's, and the stricter of both counts. Where descriptions
//! come from is the outside's business; see [`crate::ports::Tools::agents`].

use std::path::PathBuf;

use crate::permission::pattern::{fits, weight};
use crate::permission::rules::{self, Rule, Verdict};
use crate::permission::{Access, Decision};
use crate::turn::helpers;
use crate::words::ModelId;
use crate::words::modes::Mode;

/// One agent, as it was described.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// What it is called.
    pub name: String,
    /// What it is good for.
    pub description: String,
    /// Whom it is for.
    pub role: Role,
    /// What it is told; `None` for what every agent is told.
    pub prompt: Option<String>,
    /// The model it wants.
    pub model: Option<ModelId>,
    /// What it may use, of what there is.
    pub narrowing: Narrowing,
    /// How often it may ask its model in one turn, if less than usual.
    pub max_requests: Option<usize>,
}

/// Whom an agent is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// For the user: a mode of the session.
    Mode,
    /// For other agents, which give it a part of their work.
    Helper,
    /// For both.
    Both,
}

impl Role {
    /// Tells whether the user can choose it as a mode.
    #[must_use]
    pub fn is_mode(self) -> bool {
        self != Role::Helper
    }

    /// Tells whether other agents can give it work.
    #[must_use]
    pub fn is_helper(self) -> bool {
        self != Role::Mode
    }
}

/// What an agent may use, of what there is. Can take away, never add.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Narrowing {
    /// Patterns of tools' names and whether it has such tools. The most specific counts; where none fits, it has the tool.
    pub tools: Vec<(String, bool)>,
    /// Its rules of permission.
    pub rules: Vec<Rule>,
}

impl Narrowing {
    /// Tells whether it leaves a tool.
    #[must_use]
    pub fn has_tool(&self, name: &str) -> bool {
        let fitting = self.tools.iter().filter(|(pattern, _)| fits(pattern, name));
        // Of equals the stricter.
        let counts = fitting.max_by_key(|(pattern, has)| (weight(pattern), !has));
        counts.is_none_or(|(_, has)| *has)
    }

    /// Decides about one access, with nothing but its own rules.
    #[must_use]
    pub fn decide(&self, roots: &[PathBuf], access: &Access) -> Verdict {
        let free = Access { default: Decision::Allow, ..access.clone() };
        rules::decide(self.rules.iter(), roots, &free)
    }
}

/// Tells whether a mode or a helper of ours is called so.
#[must_use]
pub fn is_built_in(name: &str) -> bool {
    Mode::find(name).is_some() || helpers::BUILT_IN.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::rules::Source;

    #[test]
    fn the_most_specific_pattern_says_which_tools_are_left() {
        let tools = |list: &[(&str, bool)]| Narrowing {
            tools: list.iter().map(|(name, has)| ((*name).to_owned(), *has)).collect(),
            rules: Vec::new(),
        };
        assert!(Narrowing::default().has_tool("bash"));
        let only_read = tools(&[("*", false), ("read", true)]);
        assert!(only_read.has_tool("read"));
        assert!(!only_read.has_tool("bash"));
        let no_github = tools(&[("github_*", false), ("github_issues", true)]);
        assert!(no_github.has_tool("bash"));
        assert!(!no_github.has_tool("github_push"));
        assert!(no_github.has_tool("github_issues"));
        assert!(!tools(&[("read", true), ("read", false)]).has_tool("read"));
    }

    #[test]
    fn rules_of_an_agent_say_nothing_of_what_they_do_not_name() {
        let rule = |key: &str, decision| Rule {
            key: key.to_owned(),
            pattern: "*".to_owned(),
            decision,
            source: Source::Agent,
        };
        let agent = Narrowing {
            tools: Vec::new(),
            rules: vec![rule("edit", Decision::Reject), rule("bash", Decision::Allow)],
        };
        let decide = |access: Access| agent.decide(&[], &access).decision;
        assert_eq!(decide(Access::ask("edit", "/w/a")), Decision::Reject);
        let unclear = Access { is_unclear: true, ..Access::ask("edit", "/w/a b") };
        let forbids = Narrowing {
            rules: vec![Rule { pattern: "x".to_owned(), ..rule("edit", Decision::Reject) }],
            ..Narrowing::default()
        };
        assert_eq!(forbids.decide(&[], &unclear).decision, Decision::Ask);
        assert_eq!(decide(Access::ask("bash", "make")), Decision::Allow);
        assert_eq!(decide(Access::ask("webfetch", "http://h")), Decision::Allow);
    }
}
