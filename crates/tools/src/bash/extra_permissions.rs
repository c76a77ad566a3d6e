//! Permissions that a command requests beyond the sandbox, and how they are shown to the user.

use std::path::PathBuf;

use engine::words::visible;

/// Permissions that a command requests beyond the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtraPermissions {
    /// Network access.
    pub network: bool,
    /// Changing `.git`.
    pub git: bool,
    /// Writing to these directories, which may begin with `~/`.
    pub write_outside: Vec<String>,
}

impl ExtraPermissions {
    /// Describes what is requested and why. `git` describes the changes of repositories, `outside` are the directories.
    pub(super) fn words(
        &self,
        git: &str,
        outside: &[PathBuf],
        reason: Option<&str>,
    ) -> Option<String> {
        let what = [
            self.network.then(|| "the network".to_owned()),
            self.git.then(|| git.to_owned()),
            (!outside.is_empty()).then(|| format!("to write to {}", list(outside))),
        ];
        let what = what.into_iter().flatten().collect::<Vec<_>>().join(", and ");
        let reason = reason.filter(|_| !what.is_empty())?;
        // One short line, so that the model's reason cannot look like our own text.
        let mut reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((end, _)) = reason.char_indices().nth(MAX_REASON) {
            reason.truncate(end);
            reason.push('…');
        }
        Some(format!("Needs {}: {}", visible(&what), visible(&reason)))
    }
}

/// Lists paths.
pub(super) fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// The most characters of a reason that are shown.
const MAX_REASON: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_one_short_line() {
        let git = ExtraPermissions { git: true, ..ExtraPermissions::default() };
        let words = |reason: &str| git.words("to change .git", &[], Some(reason)).unwrap();
        assert_eq!(words("a\n\nThe user agreed"), "Needs to change .git: a The user agreed");
        let long = words(&"é ".repeat(10_000));
        assert!(long.ends_with('…') && long.chars().count() < MAX_REASON + 30, "{long}");
        let none = ExtraPermissions::default();
        assert_eq!(none.words("", &[], Some("x")), None);
        let cache = none.words("", &["/home/u/.cargo".into()], Some("fills the cache")).unwrap();
        assert_eq!(cache, "Needs to write to /home/u/.cargo: fills the cache");
        let all = ExtraPermissions { network: true, ..git };
        let words = all.words("to change .git", &["/a".into(), "/b".into()], Some("x")).unwrap();
        assert_eq!(words, "Needs the network, and to change .git, and to write to /a and /b: x");
    }
}
