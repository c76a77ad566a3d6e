//! What a command needs, in the terms of permission rules: maps what `shell` finds to what a policy decides on.

use std::path::Path;

use engine::permission::{Access, Decision, PermissionKey, UNANALYSED};
use engine::words::pattern::literal;
use shell::{Always, Form, Need, NeedKind, Verdict};

use super::destroy::can_destroy;

/// One permission that a command needs, and why it is or is not asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    /// What rules are compared with.
    pub access: Access,
    /// The reason for the default.
    pub why: String,
}

impl From<Need> for Requirement {
    fn from(need: Need) -> Requirement {
        let Need { kind, subject, form, default, always, is_opaque, notes, why, .. } = need;
        let always = always.map(|always| match always {
            Always::Exact => literal(&subject),
            Always::StartingWith(words) => format!("{} *", literal(&words)),
            Always::Below(directory) => all_in(&directory),
        });
        // The prefix keeps rules for a program from matching.
        let subject = match form {
            Form::Exact => subject,
            Form::Unanalysed => format!("{UNANALYSED}{subject}"),
            Form::Elsewhere => format!("(in another folder) {subject}"),
        };
        let default = match default {
            Verdict::Allow => Decision::Allow,
            Verdict::Ask => Decision::Ask,
            Verdict::Reject => Decision::Reject,
        };
        // The call's own content names these directories.
        let is_shown = matches!(kind, NeedKind::WriteOutside);
        let (key, is_unclear) = (key(kind), is_opaque);
        let is_command = !matches!(
            kind,
            NeedKind::Read | NeedKind::Write | NeedKind::Outside | NeedKind::WriteOutside
        );
        let can_destroy = is_command && can_destroy(&subject);
        let access =
            Access { key, subject, default, always, is_unclear, can_destroy, is_shown, notes };
        Requirement { access, why }
    }
}

/// Returns the key of the rules that apply.
fn key(kind: NeedKind) -> PermissionKey {
    match kind {
        NeedKind::Run => PermissionKey::RunCommand,
        NeedKind::Read => PermissionKey::Read,
        NeedKind::Write => PermissionKey::Edit,
        NeedKind::Outside => PermissionKey::ExternalDirectory,
        NeedKind::WriteOutside => PermissionKey::WriteOutside,
        NeedKind::Git => PermissionKey::Git,
        NeedKind::Network => PermissionKey::Network,
        NeedKind::Unsandboxed => PermissionKey::Unsandboxed,
    }
}

/// Returns the pattern for all that is in a directory.
fn all_in(directory: &Path) -> String {
    format!("{}/*", literal(&directory.to_string_lossy()))
}

/// Returns the pattern that a permanent answer for a directory is saved as; `None` for a home directory and what holds one.
pub(crate) fn directory_rule(directory: &Path, home: Option<&Path>) -> Option<String> {
    shell::is_narrow(directory, home).then(|| all_in(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_name_with_a_wildcard_stands_for_itself() {
        assert_eq!(directory_rule(Path::new("/etc"), None).as_deref(), Some("/etc/*"));
        assert_eq!(
            directory_rule(Path::new("/home/me/a*"), None).as_deref(),
            Some("/home/me/a\\*/*")
        );
        assert_eq!(directory_rule(Path::new("/home/me"), None), None);
    }
}
