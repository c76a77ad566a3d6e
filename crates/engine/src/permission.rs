//! Permission: what a call needs leave for, the question to the user, and the answer.
//!
//! `permission::rules` says which rule counts, `permission::policy` what a session decides, `permission::pattern` what a
//! pattern fits.

pub mod pattern;
pub mod policy;
pub mod rules;

use crate::visible::visible;
use crate::words::{Block, ToolCall, ToolContent};

/// One thing that a call needs leave for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Which rules it falls under: `read`, `edit`, `bash`, `webfetch`, `external_directory`, or a tool's own name.
    pub key: String,
    /// What their patterns are held against: a resolved path, one simple command, an address.
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
        let always = Some(pattern::literal(&subject));
        Access { key: key.into(), always, subject, default: Decision::Ask }
    }

    /// Makes an access that goes through unless a rule says otherwise.
    pub fn allow(key: impl Into<String>, subject: impl Into<String>) -> Access {
        Access { default: Decision::Allow, ..Access::ask(key, subject) }
    }

    /// Says what it is, in words.
    #[must_use]
    pub fn words(&self) -> String {
        words(&self.key, &self.subject)
    }
}

/// Says what a key and a subject or pattern of it mean.
fn words(key: &str, subject: &str) -> String {
    // In one line: a name with a line end in it is not to look like two things.
    let subject = visible(subject).replace('\n', "\\n").replace('\t', "\\t");
    let is_all = subject == "*";
    match key {
        "bash" if is_all => "all commands".to_owned(),
        "bash" => format!("`{subject}`"),
        "edit" if is_all => "all edits".to_owned(),
        "edit" => format!("edits of `{subject}`"),
        "read" if is_all => "all reads".to_owned(),
        "read" => format!("reads of `{subject}`"),
        "external_directory" => format!("access to `{subject}`"),
        "webfetch" => format!("fetching `{subject}`"),
        "network" => format!("the network for `{subject}`"),
        "git" => format!("changes of .git: `{subject}`"),
        "unsandboxed" => format!("running `{subject}` without a sandbox"),
        other if is_all => format!("`{}`", visible(other)),
        other => format!("`{}` with `{subject}`", visible(other)),
    }
}

/// The question that goes to the user.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The call it is about, as it was shown; its content also says what is asked for that its title does not.
    pub call: ToolCall,
    /// What the user can choose.
    pub choices: Vec<Choice>,
}

/// One answer that the user can choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What it means.
    pub answer: Answer,
    /// What a client names it by.
    pub id: &'static str,
    /// What the user reads.
    pub name: String,
}

/// A rule longer than this cannot be read on a button, so it is not offered.
const LONGEST_RULE: usize = 300;

impl Question {
    /// Makes the question about what must be asked of a call. `reach` says how long an answer for good holds.
    #[must_use]
    pub fn new(mut call: ToolCall, asked: &[Access], reach: &str) -> Question {
        let mut untold: Vec<String> = Vec::new();
        for access in asked.iter().filter(|access| !tells(&call.title, &visible(&access.subject))) {
            let line = format!("- {}", access.words());
            if !untold.contains(&line) {
                untold.push(line);
            }
        }
        if !untold.is_empty() {
            let text = format!("This needs leave for:\n{}", untold.join("\n"));
            call.content.push(ToolContent::Block(Block::Text(text)));
        }
        let choice = |answer, id, name| Choice { answer, id, name };
        let mut choices = vec![choice(Answer::AllowOnce, "once", "Allow once".to_owned())];
        let kept = kept_words(asked);
        if let Some(kept) = &kept {
            let name = format!("Always allow {kept} {reach}");
            choices.push(choice(Answer::AllowAlways, "always", name));
        }
        choices.push(choice(Answer::RejectOnce, "reject", "Reject".to_owned()));
        if let Some(kept) = kept {
            let name = format!("Always reject {kept} {reach}");
            choices.push(choice(Answer::RejectAlways, "never", name));
        }
        Question { call, choices }
    }

    /// Finds the answer that goes with a chosen id. An id that was never offered counts as no.
    #[must_use]
    pub fn answer(&self, id: &str) -> Answer {
        let chosen = self.choices.iter().find(|choice| choice.id == id);
        chosen.map_or(Answer::Cancelled, |choice| choice.answer)
    }
}

/// Tells whether a title names this very thing. `./etc/passwd` does not name `/etc/passwd`: with a link it may be it.
fn tells(title: &str, subject: &str) -> bool {
    let ends = |character: char| character.is_whitespace() || "'\"`;|&()<>=,".contains(character);
    !subject.is_empty()
        && title.match_indices(subject).any(|(at, _)| {
            let before = title[..at].chars().next_back();
            let behind = title[at + subject.len()..].chars().next();
            before.is_none_or(ends) && behind.is_none_or(ends)
        })
}

/// Says what an answer for good would keep; `None` where it cannot be kept, or not be read.
fn kept_words(asked: &[Access]) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    for access in asked {
        let one = words(&access.key, access.always.as_deref()?);
        if !all.contains(&one) {
            all.push(one);
        }
    }
    let text = all.join(" and ");
    (!text.is_empty() && text.len() <= LONGEST_RULE).then_some(text)
}

/// What the user answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Yes, this time.
    AllowOnce,
    /// Yes, and do not ask again for what the choice named.
    AllowAlways,
    /// No, this time.
    RejectOnce,
    /// No, and never for what the choice named.
    RejectAlways,
    /// The question was closed, which counts as no.
    Cancelled,
}

/// What is to be done with a call. The stricter, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    /// Run it.
    Allow,
    /// Ask the user.
    Ask,
    /// Do not.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::words::{ToolCallId, ToolKind, ToolStatus};

    fn question(title: &str, asked: &[Access]) -> Question {
        let call = ToolCall {
            id: ToolCallId::new("t"),
            name: "bash".to_owned(),
            title: title.to_owned(),
            kind: ToolKind::Execute,
            status: ToolStatus::Pending,
            content: Vec::new(),
            locations: Vec::new(),
            raw_input: json!({}),
        };
        Question::new(call, asked, "for this folder")
    }

    fn names(question: &Question) -> Vec<&str> {
        question.choices.iter().map(|choice| choice.name.as_str()).collect()
    }

    // R: T2
    #[test]
    fn a_question_says_what_would_be_kept() {
        let test =
            Access { always: Some("cargo test *".to_owned()), ..Access::ask("bash", "cargo test") };
        let asked = question("cargo test", &[test]);
        assert_eq!(
            names(&asked),
            [
                "Allow once",
                "Always allow `cargo test *` for this folder",
                "Reject",
                "Always reject `cargo test *` for this folder"
            ]
        );
        assert!(asked.call.content.is_empty());
        assert_eq!(asked.answer("always"), Answer::AllowAlways);
        assert_eq!(asked.answer("root"), Answer::Cancelled);
    }

    #[test]
    fn what_cannot_be_kept_is_not_offered() {
        let once = Access { always: None, ..Access::ask("bash", "x $(y)") };
        let asked = question("x $(y)", &[once, Access::ask("bash", "z")]);
        assert_eq!(names(&asked), ["Allow once", "Reject"]);
        assert_eq!(asked.answer("always"), Answer::Cancelled);
        let long = Access::ask("bash", "y".repeat(LONGEST_RULE));
        assert_eq!(names(&question("y", &[long])), ["Allow once", "Reject"]);
    }

    #[test]
    fn what_the_title_does_not_say_is_told_with_the_real_place() {
        let asked = question("cp a b\u{202e}", &[Access::ask("edit", "/etc/\u{202e}passwd")]);
        let text = "This needs leave for:\n- edits of `/etc/\\u{202e}passwd`";
        assert_eq!(asked.call.content, [ToolContent::Block(Block::Text(text.to_owned()))]);
    }

    #[test]
    fn a_place_that_only_looks_like_a_part_of_the_title_is_told() {
        let passwd = [Access::ask("external_directory", "/etc/passwd")];
        for title in
            ["cat ./etc/passwd", "cat a/etc/passwd", "cat /etc/passwd-", "cat /etc/passwd/x"]
        {
            assert_eq!(question(title, &passwd).call.content.len(), 1, "{title}");
        }
        for title in
            ["cat /etc/passwd", "cat '/etc/passwd'; ls", "cat</etc/passwd", "Read /etc/passwd"]
        {
            assert!(question(title, &passwd).call.content.is_empty(), "{title}");
        }
    }
}
