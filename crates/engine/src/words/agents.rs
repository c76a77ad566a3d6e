//! Custom agents: ways of working with their own instructions and limits, defined by users and projects.
//!
//! An agent can only restrict: its rules apply beside the session's, and the stricter of both wins. Where definitions
//! come from is up to the outside; see [`Extension::agents`](crate::ports::Extension::agents).

use serde::{Deserialize, Serialize};

use super::ids::ModelId;
use super::pattern::{matches_pattern, weight};
use super::rule::Rule;

/// One agent, as it was defined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// What it is good for.
    pub description: String,
    /// Who can use it.
    pub role: Role,
    /// Its system prompt; `None` for the default one.
    pub prompt: Option<String>,
    /// The model it prefers.
    pub model: Option<ModelId>,
    /// What it may use.
    pub restrictions: Restrictions,
    /// How many requests it may make in one turn, if fewer than usual.
    pub max_requests: Option<usize>,
}

/// Who can use an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The user: as a mode of the session.
    Mode,
    /// Other agents, which give it tasks.
    Helper,
    /// Both.
    Both,
}

impl Role {
    /// Tells whether the user can choose it as a mode.
    #[must_use]
    pub fn is_mode(self) -> bool {
        self != Role::Helper
    }

    /// Tells whether other agents can give it tasks.
    #[must_use]
    pub fn is_helper(self) -> bool {
        self != Role::Mode
    }
}

/// What an agent may use. It can remove tools and permissions, never add any.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Restrictions {
    /// Patterns of tool names, each with whether the agent has such tools. The most specific pattern applies; a tool
    /// that matches none is available.
    pub tools: Vec<(String, bool)>,
    /// Its permission rules.
    pub rules: Vec<Rule>,
}

impl Restrictions {
    /// Tells whether a tool is available.
    #[must_use]
    pub fn has_tool(&self, name: &str) -> bool {
        let matching = self.tools.iter().filter(|(pattern, _)| matches_pattern(pattern, name));
        // Of equally specific patterns the stricter applies.
        let applies = matching.max_by_key(|(pattern, has)| (weight(pattern), !has));
        applies.is_none_or(|(_, has)| *has)
    }
}

/// The names of the helpers that every session has.
pub(crate) const BUILT_IN_HELPERS: [&str; 2] = ["general", "explore"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_pattern_decides_which_tools_are_available() {
        let tools = |list: &[(&str, bool)]| Restrictions {
            tools: list.iter().map(|(name, has)| ((*name).to_owned(), *has)).collect(),
            rules: Vec::new(),
        };
        assert!(Restrictions::default().has_tool("bash"));
        let only_read = tools(&[("*", false), ("read", true)]);
        assert!(only_read.has_tool("read"));
        assert!(!only_read.has_tool("bash"));
        let no_github = tools(&[("github_*", false), ("github_issues", true)]);
        assert!(no_github.has_tool("bash"));
        assert!(!no_github.has_tool("github_push"));
        assert!(no_github.has_tool("github_issues"));
        assert!(!tools(&[("read", true), ("read", false)]).has_tool("read"));
    }
}
