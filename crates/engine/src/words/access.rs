//! Permission as plain values: what a call needs, what can be decided, the question to the user and the answer.
//!
//! How a decision is made is in `permission`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::markdown::code_span;
use super::pattern;
use super::permission_key::PermissionKey;
use super::tool_call::ToolCall;
use super::visible::one_line;

/// One thing that a call needs permission for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Which rules apply to it.
    pub key: PermissionKey,
    /// What the patterns of rules are matched against: a resolved path, one simple command, an address.
    pub subject: String,
    /// What is decided if no rule matches.
    pub default: Decision,
    /// The pattern that is stored when the user answers "always"; `None` if the answer applies to this call only.
    pub always: Option<String>,
    /// Whether the access may include more than its subject says. If any rule of its key denies something, the user is
    /// asked, even if another rule allows it.
    pub is_unclear: bool,
    /// Whether it can destroy what cannot be restored. No answer that allows it is stored.
    pub can_destroy: bool,
    /// Whether the call's own content already names it, so the question need not.
    pub is_shown: bool,
    /// More lines for the question, such as where links lead.
    pub notes: Vec<String>,
}

impl Access {
    /// Makes an access that asks the user unless a rule says otherwise. "Always" is stored for its exact subject.
    pub fn ask(key: PermissionKey, subject: impl Into<String>) -> Access {
        let subject = subject.into();
        let always = Some(pattern::literal(&subject));
        Access {
            key,
            always,
            subject,
            default: Decision::Ask,
            is_unclear: false,
            can_destroy: false,
            is_shown: false,
            notes: Vec::new(),
        }
    }

    /// Makes an access that is allowed unless a rule says otherwise.
    pub fn allow(key: PermissionKey, subject: impl Into<String>) -> Access {
        Access { default: Decision::Allow, ..Access::ask(key, subject) }
    }

    /// Tells whether it is a command that is known to only read.
    #[must_use]
    pub fn is_reading_command(&self) -> bool {
        self.key == PermissionKey::RunCommand && self.default == Decision::Allow && !self.is_unclear
    }

    /// Describes the access for the user.
    #[must_use]
    pub fn words(&self) -> String {
        describe(&self.key, &self.subject)
    }

    /// Describes what the answer "always" would store.
    #[must_use]
    pub fn always_words(&self) -> Option<String> {
        self.always.as_deref().map(|pattern| describe(&self.key, pattern))
    }
}

/// Begins the subject of a command that cannot be analysed, so that no rule for a program matches it.
pub const UNANALYSED: &str = "(cannot be analysed) ";

/// Describes a key with a subject or a pattern.
pub(crate) fn describe(key: &PermissionKey, subject: &str) -> String {
    let subject = one_line(subject);
    let is_all = subject == "*";
    let command = subject.strip_prefix(UNANALYSED);
    let subject = code_span(command.unwrap_or(&subject));
    match key {
        PermissionKey::RunCommand if is_all => "all commands".to_owned(),
        PermissionKey::RunCommand if command.is_some() => format!("{subject} (cannot be analysed)"),
        PermissionKey::RunCommand => subject,
        PermissionKey::RunReadingCommand if is_all => "commands that only read".to_owned(),
        PermissionKey::RunReadingCommand => format!("{subject} where it only reads"),
        PermissionKey::Edit if is_all => "all edits".to_owned(),
        PermissionKey::Edit => format!("edits of {subject}"),
        PermissionKey::Read if is_all => "all reads".to_owned(),
        PermissionKey::Read => format!("reads of {subject}"),
        PermissionKey::ExternalDirectory => format!("access to {subject}"),
        PermissionKey::Fetch => format!("fetching {subject}"),
        PermissionKey::FetchPrivate => {
            format!("fetching from {subject}, on this machine or in a private network,")
        }
        PermissionKey::WebSearch if is_all => "searching the web".to_owned(),
        PermissionKey::WebSearch => format!("searching the web for {subject}"),
        PermissionKey::Network => format!("the network for {subject}"),
        PermissionKey::Git => format!("changes of .git: {subject}"),
        PermissionKey::AutoRun => {
            format!(
                "changing {subject}, which editors, shells or other agents may run by themselves"
            )
        }
        PermissionKey::WriteOutside => format!("writing to {subject}"),
        PermissionKey::Unsandboxed => format!("running {subject} without a sandbox"),
        PermissionKey::GitHub => format!("GitHub: {subject}"),
        PermissionKey::GitHubMerge => format!("merging pull requests of {subject}"),
        PermissionKey::GitPush => format!("pushing to {subject}"),
        PermissionKey::Mcp(tool) => tool.words(),
        PermissionKey::ListDirectory
        | PermissionKey::FindFiles
        | PermissionKey::SearchText
        | PermissionKey::Task
        | PermissionKey::Skill
            if is_all =>
        {
            format!("`{key}`")
        }
        PermissionKey::ListDirectory
        | PermissionKey::FindFiles
        | PermissionKey::SearchText
        | PermissionKey::Task
        | PermissionKey::Skill => format!("`{key}` with {subject}"),
    }
}

/// Returns the key and the pattern of a rule for the user. The answer about an MCP tool is stored with a checksum of the
/// tool's description, which says nothing to people.
#[must_use]
pub fn saved_words(key: &str, pattern: &str) -> String {
    let is_built_in = PermissionKey::BUILT_IN.iter().any(|known| known.as_str() == key);
    let is_checksum = |(_, end): (&str, &str)| {
        end.len() == 16 && end.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if !is_built_in && pattern.rsplit_once(' ').is_some_and(is_checksum) {
        return one_line(key);
    }
    format!("{}: {}", one_line(key), one_line(pattern))
}

/// What is decided about a call. The stricter, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Decision {
    /// Run it.
    Allow,
    /// Ask the user.
    Ask,
    /// Refuse it.
    Reject,
}

impl Decision {
    /// Every decision, with its word in a configuration.
    pub const ALL: [(Decision, &'static str); 3] =
        [(Decision::Allow, "allow"), (Decision::Ask, "ask"), (Decision::Reject, "deny")];

    /// Finds the decision by its word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Decision> {
        Decision::ALL.iter().find(|(_, known)| *known == word).map(|(decision, _)| *decision)
    }

    /// Returns its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::Reject => "deny",
        }
    }
}

/// The question to the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The call, as it was shown. Its content also names what needs permission and is not in its title.
    pub call: ToolCall,
    /// What the user can choose.
    pub choices: Vec<Choice>,
}

impl Question {
    /// Returns the answer of the choice with this id. An id that was not offered means no.
    #[must_use]
    pub fn answer(&self, id: &str) -> Answer {
        let chosen = self.choices.iter().find(|choice| choice.id == id);
        chosen.map_or(Answer::Cancelled, |choice| choice.answer)
    }
}

/// One answer that the user can choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// What it means.
    pub answer: Answer,
    /// Its id in the protocol.
    pub id: Cow<'static, str>,
    /// What the user reads.
    pub name: String,
}

/// What the user answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Yes, this time.
    AllowOnce,
    /// Yes, and do not ask again in this session for what the choice named.
    AllowSession,
    /// Yes, and do not ask again for what the choice named.
    AllowAlways,
    /// Yes, and do not ask again for any command that only reads.
    AllowReading,
    /// No, this time.
    RejectOnce,
    /// No, and never for what the choice named.
    RejectAlways,
    /// The question was closed without an answer, which means no.
    Cancelled,
}
