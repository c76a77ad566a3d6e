//! Permission: what a call needs leave for, the question to the user, and the answer.
//!
//! `permission::rules` says which rule counts, `permission::policy` what a session decides, `permission::pattern` what a
//! pattern fits.

pub mod policy;
pub mod rules;

pub use crate::words::pattern;
use crate::words::visible::visible;
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
    /// Whether it may be more than its subject says. Then it is asked for where a rule of its key forbids anything,
    /// whatever allows it.
    pub is_unclear: bool,
    /// What the question tells besides, a line each, such as where links in it lead.
    pub notes: Vec<String>,
}

impl Access {
    /// Makes an access that is asked for unless a rule says otherwise, and whose answer can be kept for its subject.
    pub fn ask(key: impl Into<String>, subject: impl Into<String>) -> Access {
        let subject = subject.into();
        let always = Some(pattern::literal(&subject));
        Access {
            key: key.into(),
            always,
            subject,
            default: Decision::Ask,
            is_unclear: false,
            notes: Vec::new(),
        }
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

    /// Says what an answer for good would keep of it, in words.
    #[must_use]
    pub fn always_words(&self) -> Option<String> {
        self.always.as_deref().map(|pattern| words(&self.key, pattern))
    }
}

/// What a command may be given beyond the sandbox: the key, and how it is named behind the command.
const WISHES: [(&str, &str); 3] =
    [("network", "the network"), ("git", "changes of .git"), ("unsandboxed", "no sandbox")];

/// Says what keys and subjects or patterns mean, each with what it is given: a command and its wish are one thing.
fn things<'a>(all: &[(&'a str, &'a str)]) -> Vec<(String, String)> {
    let mut things = Vec::new();
    for (key, subject) in all {
        let has = |key: &str| all.contains(&(key, subject));
        let is_wish = WISHES.iter().any(|(wish, _)| wish == key);
        if is_wish && has("bash") {
            continue;
        }
        let given = WISHES.iter().filter(|(wish, _)| *key == "bash" && has(wish));
        let given: Vec<&str> = given.map(|(_, name)| *name).collect();
        let thing = (words(key, subject), given.join(" and "));
        if !things.contains(&thing) {
            things.push(thing);
        }
    }
    things
}

/// Begins the subject of a command that cannot be analysed, so that no rule for a program matches it.
pub const UNANALYSED: &str = "(cannot be analysed) ";

/// Says what a key and a subject or pattern of it mean.
fn words(key: &str, subject: &str) -> String {
    // In one line: a name with a line end in it is not to look like two things.
    let subject = visible(subject).replace('\n', "\\n").replace('\t', "\\t");
    let is_all = subject == "*";
    match key {
        "bash" if is_all => "all commands".to_owned(),
        "bash" => match subject.strip_prefix(UNANALYSED) {
            Some(command) => format!("`{command}` (cannot be analysed)"),
            None => format!("`{subject}`"),
        },
        "edit" if is_all => "all edits".to_owned(),
        "edit" => format!("edits of `{subject}`"),
        "read" if is_all => "all reads".to_owned(),
        "read" => format!("reads of `{subject}`"),
        "external_directory" => format!("access to `{subject}`"),
        "webfetch" => format!("fetching `{subject}`"),
        "webfetch_private" => {
            format!("fetching from `{subject}`, on this machine or in a private network,")
        }
        "network" => format!("the network for `{subject}`"),
        "git" => format!("changes of .git: `{subject}`"),
        "write_outside" => format!("writing to `{subject}`"),
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
        // The tool's own words name the folders of `write_outside`.
        let is_told = |access: &Access| {
            (call.name == "bash" && access.key == "write_outside")
                || tells(&call.title, &visible(&access.subject))
        };
        let untold = asked.iter().filter(|access| !is_told(access));
        let untold: Vec<(&str, &str)> =
            untold.map(|access| (access.key.as_str(), access.subject.as_str())).collect();
        if !untold.is_empty() {
            let mut text = "This needs leave for:".to_owned();
            for (thing, given) in things(&untold) {
                text.push_str(&format!("\n- {thing}"));
                if !given.is_empty() {
                    text.push_str(&format!(" with {given}"));
                }
            }
            call.content.push(ToolContent::Block(Block::Text(text)));
        }
        call.content.extend(notes(asked).map(|text| ToolContent::Block(Block::Text(text))));
        let choice = |answer, id, name| Choice { answer, id, name };
        let mut choices = vec![choice(Answer::AllowOnce, "once", "Allow once".to_owned())];
        let kept = kept_words(asked);
        if let Some([kept, _]) = &kept {
            let name = format!("Always allow {kept} {reach}");
            choices.push(choice(Answer::AllowAlways, "always", name));
        }
        choices.push(choice(Answer::RejectOnce, "reject", "Reject".to_owned()));
        if let Some([_, kept]) = kept {
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

/// How many notes a question tells.
const MOST_NOTES: usize = 10;

/// Writes what is told besides, each thing once and in a line of its own.
fn notes(asked: &[Access]) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    for note in asked.iter().flat_map(|access| &access.notes) {
        let line = visible(note).replace('\n', "\\n").replace('\t', "\\t");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let more = lines.len().saturating_sub(MOST_NOTES);
    lines.truncate(MOST_NOTES);
    if more > 0 {
        lines.push(format!("… and {more} more"));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
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

/// Says what an answer for good would keep, one that allows and one that rejects; `None` where it cannot be kept, or not be
/// read. A command that is rejected is so whatever it is given.
#[must_use]
pub fn kept_words(asked: &[Access]) -> Option<[String; 2]> {
    let kept = asked.iter().map(|access| Some((access.key.as_str(), access.always.as_deref()?)));
    let things = things(&kept.collect::<Option<Vec<_>>>()?);
    let rejected: Vec<&str> = things.iter().map(|(thing, _)| thing.as_str()).collect();
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (thing, given) in &things {
        match groups.iter_mut().find(|group| group.0 == given) {
            Some((_, group)) => group.push(thing),
            None => groups.push((given, vec![thing])),
        }
    }
    let group_words = |(given, group): &(&str, Vec<&str>)| match (*given, group.join(" and ")) {
        ("", names) => names,
        (given, names) if group.len() == 1 => format!("{names} with {given}"),
        (given, names) => format!("{names}, each with {given},"),
    };
    let allowed = groups.iter().map(group_words).collect::<Vec<_>>().join(" and ");
    let can_be_read = !allowed.is_empty() && allowed.len() <= LONGEST_RULE;
    can_be_read.then(|| [allowed, rejected.join(" and ")])
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

    /// A command and what it is given beyond the sandbox are one thing, said once.
    // R: T2
    #[test]
    fn a_wish_is_told_with_its_command() {
        let of = |key: &str, subject: &str, always: &str| Access {
            always: Some(always.to_owned()),
            ..Access::ask(key, subject)
        };
        let kept = |asked: &[Access]| kept_words(asked).unwrap()[0].clone();
        let (bash, git) = ("git commit -m x", "git commit *");
        let commit = [of("bash", bash, git), of("git", bash, git)];
        assert_eq!(kept(&commit), "`git commit *` with changes of .git");
        assert_eq!(kept_words(&commit).unwrap()[1], "`git commit *`");
        assert_eq!(kept(&commit[1..]), "changes of .git: `git commit *`");
        let asked = question("git  commit  -m x", &commit);
        let text = "This needs leave for:\n- `git commit -m x` with changes of .git";
        assert_eq!(asked.call.content, [ToolContent::Block(Block::Text(text.to_owned()))]);
        assert!(question(bash, &commit).call.content.is_empty());
        let make = |key: &str| Access::ask(key, "make");
        let all = [make("bash"), make("network"), make("unsandboxed")];
        assert_eq!(kept(&all), "`make` with the network and no sandbox");
        let add = |key: &str| of(key, "git add .", "git add *");
        let edit = Access::ask("edit", "log");
        let [commit, to_git] = commit;
        let chain = [add("bash"), commit, edit, add("git"), to_git];
        assert_eq!(
            kept(&chain),
            "`git add *` and `git commit *`, each with changes of .git, and edits of `log`"
        );
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
    fn notes_are_told_once_and_not_for_long() {
        let of = |key: &str, notes: &[&str]| Access {
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
            ..Access::ask(key, "cp a b")
        };
        let told = |asked: &[Access]| match question("cp a b", asked).call.content.pop() {
            Some(ToolContent::Block(Block::Text(text))) => text,
            other => panic!("{other:?}"),
        };
        let asked = [of("bash", &["`b` is /x\n\u{202e}"]), of("network", &["`b` is /x\n\u{202e}"])];
        assert_eq!(told(&asked), "`b` is /x\\n\\u{202e}");
        let many: Vec<String> = (0..12).map(|number| format!("`{number}` is /x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let text = told(&[of("bash", &many)]);
        assert_eq!((text.lines().count(), text.lines().last()), (11, Some("… and 2 more")));
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
