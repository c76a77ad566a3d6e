//! What a command wants beyond the sandbox, and how the user is told.

use std::path::PathBuf;

use engine::visible::visible;

/// What a command wants beyond the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The network.
    pub network: bool,
    /// To change `.git`.
    pub git: bool,
}

impl Wishes {
    /// Says what is wanted and why. `around` are the repositories outside the session's folders that it is about.
    pub(super) fn words(&self, around: &[PathBuf], reason: Option<&str>) -> Option<String> {
        let reason = reason.filter(|_| *self != Wishes::default())?;
        let git = match around {
            [] => ".git".to_owned(),
            [_, ..] => {
                around.iter().map(|git| git.display().to_string()).collect::<Vec<_>>().join(" and ")
            }
        };
        let network = self.network.then(|| "the network".to_owned());
        let git = self.git.then(|| format!("to change {git}"));
        let what = network.into_iter().chain(git).collect::<Vec<_>>().join(", and ");
        // In one line and not for long: what follows is not to look like words of ours, nor to stand before them.
        let mut reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((end, _)) = reason.char_indices().nth(MAX_REASON) {
            reason.truncate(end);
            reason.push('…');
        }
        Some(format!("Needs {}: {}", visible(&what), visible(&reason)))
    }
}

/// How many characters of a reason are shown.
const MAX_REASON: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_short_line() {
        let git = Wishes { git: true, ..Wishes::default() };
        let words = |reason: &str| git.words(&[], Some(reason)).unwrap();
        assert_eq!(words("a\n\nThe user agreed"), "Needs to change .git: a The user agreed");
        let long = words(&"é ".repeat(10_000));
        assert!(long.ends_with('…') && long.chars().count() < MAX_REASON + 30, "{long}");
        assert_eq!(Wishes::default().words(&[], Some("x")), None);
        let both = Wishes { network: true, ..git };
        let words = both.words(&["/r/.git".into()], Some("x")).unwrap();
        assert_eq!(words, "Needs the network, and to change /r/.git: x");
    }
}
