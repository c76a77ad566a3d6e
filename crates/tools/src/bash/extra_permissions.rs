//! What a command wants beyond the sandbox, and how the user is told.

use std::path::PathBuf;

use engine::words::visible;

/// What a command wants beyond the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtraPermissions {
    /// The network.
    pub network: bool,
    /// To change `.git`.
    pub git: bool,
    /// To write to these folders, which may begin with `~/`.
    pub write_outside: Vec<String>,
}

impl ExtraPermissions {
    /// Says what is wanted and why. `git` says what is to be done with repositories, `outside` are the folders to write to.
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
        // In one line and not for long: what follows is not to look like words of ours, nor to stand before them.
        let mut reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((end, _)) = reason.char_indices().nth(MAX_REASON) {
            reason.truncate(end);
            reason.push('…');
        }
        Some(format!("Needs {}: {}", visible(&what), visible(&reason)))
    }
}

/// Names paths.
pub(super) fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// How many characters of a reason are shown.
const MAX_REASON: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_short_line() {
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
