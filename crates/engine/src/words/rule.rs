//! A permission rule as a plain value. `permission::rules` decides which of several rules applies.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::access::Decision;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Which accesses it is about: a key, or a pattern of keys.
    pub key: String,
    /// Which subjects of them.
    pub pattern: String,
    /// What is decided if it applies.
    pub decision: Decision,
    /// Where it comes from.
    pub source: Source,
}

/// Something that is asked for at least, whatever rules and answers allow: a restriction that is known only in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskFloor {
    /// Which accesses it is about: a key, or a pattern of keys.
    pub key: String,
    /// Which subjects of them.
    pub pattern: String,
    /// The reason, as a sentence for the user.
    pub why: String,
}

impl AskFloor {
    /// Asks for everything.
    #[must_use]
    pub fn everything(why: String) -> AskFloor {
        AskFloor { key: "*".to_owned(), pattern: "*".to_owned(), why }
    }
}

/// Where a rule comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The user's configuration.
    User,
    /// The configuration of a project that is not trusted.
    Project,
    /// The configuration of a project that the user trusts.
    TrustedProject,
    /// An answer of the user that is stored for the project.
    Stored,
    /// An answer of the user in this session.
    Session,
    /// A flag of the command line.
    Flag,
    /// The definition of the agent in use.
    Agent,
    /// The slash command in use, which the user wrote or trusts.
    Command,
}

impl Source {
    /// Names the source for the user.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Source::User => "your configuration",
            Source::Project => "the project's configuration",
            Source::TrustedProject => "the trusted project's configuration",
            Source::Stored => "an answer stored for this folder",
            Source::Session => "an answer in this session",
            Source::Flag => "a flag of the command line",
            Source::Agent => "the agent in use",
            Source::Command => "the slash command in use",
        }
    }

    /// Tells whether the user gave it as an answer, or as a flag of this run.
    pub(crate) fn is_answer(self) -> bool {
        matches!(self, Source::Stored | Source::Session | Source::Flag)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { key, pattern, decision, source } = self;
        write!(out, "{key}: {pattern} = {} ({})", decision.word(), source.words())
    }
}
