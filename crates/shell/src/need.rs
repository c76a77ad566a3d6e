//! What a command needs permission for. Plain data: who decides, and what rules look like, is known elsewhere.

use std::path::PathBuf;

/// One thing that a command needs permission for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// What it does.
    pub kind: NeedKind,
    /// What it does it to: one simple command in its normal form, or a path.
    pub subject: String,
    /// How much of the command the subject stands for.
    pub form: Form,
    /// What happens where the user has no rule for it.
    pub default: Verdict,
    /// What a permanent answer would cover; `None` if the answer can be for this command only.
    pub always: Option<Always>,
    /// Whether it may do more than its subject says, so that no rule can rule out what is forbidden.
    pub is_opaque: bool,
    /// What the user should also know, a line each, such as where links lead.
    pub notes: Vec<String>,
    /// The reason for the default.
    pub why: String,
    /// Whether it is, or may be, done in another directory than the command starts in.
    pub is_elsewhere: bool,
}

/// What a need is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NeedKind {
    /// Running a program.
    Run,
    /// Reading a file inside the session's directories.
    Read,
    /// Writing a file.
    Write,
    /// Reading outside the session's directories.
    Outside,
    /// Writing outside the session's directories.
    WriteOutside,
    /// Changing a repository's `.git`.
    Git,
    /// Using the network.
    Network,
    /// Running without a sandbox.
    Unsandboxed,
}

/// How much of a command a subject stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// For itself: rules for it apply.
    Exact,
    /// For text that cannot be analysed: no rule that allows a program may match it.
    Unanalysed,
    /// For a whole command that works in another directory: no rule for this directory may match it.
    Elsewhere,
}

/// What happens to a need, from the mildest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// It is allowed.
    Allow,
    /// The user is asked.
    Ask,
    /// It is refused, even with permission.
    Reject,
}

/// What a permanent answer covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Always {
    /// The subject and nothing else.
    Exact,
    /// Every command that begins with these words.
    StartingWith(String),
    /// Everything directly or deeper in this directory.
    Below(PathBuf),
}

impl Need {
    /// Makes a need that is asked for, with an answer that can be saved for its subject.
    pub(crate) fn ask(kind: NeedKind, subject: impl Into<String>) -> Need {
        Need {
            kind,
            subject: subject.into(),
            form: Form::Exact,
            default: Verdict::Ask,
            always: Some(Always::Exact),
            is_opaque: false,
            notes: Vec::new(),
            why: String::new(),
            is_elsewhere: false,
        }
    }

    /// Makes a need that is allowed by default, but falls under rules that forbid it.
    pub(crate) fn allow(kind: NeedKind, subject: impl Into<String>) -> Need {
        Need { default: Verdict::Allow, ..Need::ask(kind, subject) }
    }

    /// Makes the answer hold for this command only.
    pub(crate) fn once(self) -> Need {
        Need { always: None, ..self }
    }
}

/// Adds the needs of a command that runs with an extra permission, such as the network: one for each simple command in it.
///
/// A simple command that only reads is not asked about if another one is. If all of them only read, all are asked about:
/// an extra permission is never granted without a question.
pub fn require_extra(needs: &mut Vec<Need>, command: &str, kind: NeedKind, why: &str) {
    let commands = needs.iter().filter(|need| need.kind == NeedKind::Run);
    let mut extra: Vec<Need> = commands.cloned().collect();
    if extra.is_empty() {
        extra.push(Need::ask(kind, command).once());
    }
    // A rule that allows git commands is meant for the repository of the working directory. In another directory git may
    // use a repository that came with the project, and run its hooks.
    if kind == NeedKind::Git && extra.iter().any(|need| need.is_elsewhere) {
        let need = Need { form: Form::Elsewhere, ..Need::ask(kind, command.trim()).once() };
        extra.push(Need { is_elsewhere: true, ..need });
    }
    let asks = |need: &Need| need.default != Verdict::Allow;
    let is_asked = extra.iter().any(asks);
    for need in &mut extra {
        need.kind = kind;
        if !is_asked {
            need.default = Verdict::Ask;
        }
        if asks(need) {
            why.clone_into(&mut need.why);
        }
    }
    needs.extend(extra);
}
