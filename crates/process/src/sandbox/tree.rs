//! Which parts of the file tree a command sees and can write: a list of mounts, in order.
//!
//! Mounts nothing itself. Deeper paths come later, so that the more specific one wins: a secret inside the workspace is hidden, a
//! workspace inside a hidden directory is visible.

use std::path::{Path, PathBuf};

use super::profile::{Limits, Network, Profile};
use crate::error::Error;

/// Parts of `/run` that programs need, such as for name resolution.
const RUN: [&str; 1] = ["/run/current-system"];
const RUN_FOR_NETWORK: [&str; 2] = ["/run/systemd/resolve", "/run/resolvconf"];

/// What is mounted at a path. In this order if there are two for the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A private empty directory, writable for all users.
    Private,
    /// An empty directory in its place.
    HideDirectory,
    /// An empty file in its place.
    HideFile,
    /// The path itself, writable.
    Write,
    /// The path itself, read-only.
    Protect,
}

/// Returns the mounts that differ from a read-only tree.
///
/// # Errors
/// Fails for a protected path that is a symbolic link, which a command could replace.
pub(super) fn mounts(profile: &Profile) -> Result<Vec<(PathBuf, What)>, Error> {
    let private = profile.private.iter().filter(|directory| is_plain_directory(directory)).cloned();
    let network = if profile.network == Network::On { &RUN_FOR_NETWORK[..] } else { &[] };
    let shown = RUN.iter().chain(network).map(PathBuf::from).filter(|part| part.exists());
    let mut mounts: Vec<(PathBuf, What)> =
        private.map(|directory| (directory, What::Private)).collect();
    mounts.push(("/run".into(), What::HideDirectory));
    mounts.extend(shown.map(|part| (part, What::Protect)));
    mounts.extend(steps(profile)?);
    Ok(mounts)
}

/// Returns how many bytes a private directory can hold.
pub(super) fn size(limits: &Limits) -> u64 {
    limits.file_size.min(1 << 30)
}

/// Returns the paths of the profile, parents first. Only resolved paths: a mount through a link would end elsewhere.
fn steps(profile: &Profile) -> Result<Vec<(PathBuf, What)>, Error> {
    let mut steps = Vec::new();
    for path in profile.hidden.iter().filter_map(|path| path.canonicalize().ok()) {
        let what = if path.is_dir() { What::HideDirectory } else { What::HideFile };
        steps.push((path, what));
    }
    for path in &profile.writable {
        match path.canonicalize() {
            Ok(real) if real != *path => return Err(Error::Moved { path: path.clone() }),
            Ok(real) => steps.push((real, What::Write)),
            // A deleted directory needs no mount.
            Err(_) => {}
        }
    }
    for path in &profile.protected {
        let Some(path) = real(path, &profile.writable)? else { continue };
        // Outside writable directories everything is read-only already, and another mount would show what is hidden.
        let around =
            steps.iter().filter(|(root, what)| *what != What::Protect && path.starts_with(root));
        let closest = around.max_by_key(|(root, what)| (root.components().count(), *what));
        if closest.is_some_and(|(_, what)| *what == What::Write) {
            steps.push((path, What::Protect));
        }
    }
    steps.extend(pins(&steps));
    steps.sort_by_key(|(path, what)| (path.components().count(), *what, path.clone()));
    steps.dedup();
    Ok(steps)
}

/// Returns the directories between a writable directory and a hidden or protected path in it. Each is mounted on itself, since a mount cannot
/// be moved: a command could otherwise move the directory away and put a changed copy in its place for the next command.
fn pins(steps: &[(PathBuf, What)]) -> Vec<(PathBuf, What)> {
    let mut pins = Vec::new();
    for (place, _) in steps.iter().filter(|(_, what)| *what != What::Write) {
        let around = steps.iter().filter(|(root, _)| place != root && place.starts_with(root));
        let closest = around.max_by_key(|(root, what)| (root.components().count(), *what));
        let Some((root, What::Write)) = closest else { continue };
        let between = place.ancestors().skip(1).take_while(|directory| *directory != root);
        pins.extend(between.map(|directory| (directory.to_owned(), What::Write)));
    }
    pins
}

/// Returns the resolved path, if it exists and contains no link that a command could replace.
fn real(path: &Path, writable: &[PathBuf]) -> Result<Option<PathBuf>, Error> {
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    let is_in_writable = |link: &Path| {
        let directory = link.parent().and_then(|directory| directory.canonicalize().ok());
        directory.is_some_and(|directory| writable.iter().any(|root| directory.starts_with(root)))
    };
    for (above, part) in path.ancestors().enumerate().filter(|(_, part)| part.is_symlink()) {
        if above == 0 || is_in_writable(part) {
            return Err(Error::Unprotected { path: part.to_owned() });
        }
    }
    Ok(path.canonicalize().ok())
}

fn is_plain_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Describes the mounts, without those that every command has.
    fn words(profile: &Profile, root: &Path) -> String {
        let mounts = mounts(profile).unwrap().into_iter();
        let words: Vec<String> = mounts
            .filter(|(path, _)| path.starts_with(root))
            .map(|(path, what)| format!("{what:?} {}", path.strip_prefix(root).unwrap().display()))
            .collect();
        words.join(", ")
    }

    #[test]
    fn directories_around_a_protected_path_cannot_be_moved() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().to_owned();
        for directory in ["home/.config/a/gh", "home/.ssh", "home/ws", "home/deep/repo/.git"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        let root = root.canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        let hidden = vec![at("home/.config/a/gh"), at("home/.ssh")];
        let protected = vec![at("home/deep/repo/.git")];
        let profile = Profile { hidden, protected, ..Profile::writing_to(vec![at("home")]) };
        assert_eq!(
            words(&profile, &root),
            "Write home, HideDirectory home/.ssh, Write home/.config, Write home/deep, Write home/.config/a, \
             Write home/deep/repo, HideDirectory home/.config/a/gh, Protect home/deep/repo/.git"
        );
        let hidden = profile.hidden.clone();
        let beside = Profile { hidden, ..Profile::writing_to(vec![at("home/ws")]) };
        assert!(!words(&beside, &root).contains("Write home/.config"));
    }

    #[test]
    fn more_specific_path_comes_later() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().to_owned();
        for directory in ["home/.ssh", "home/ws/.git", "home/ws/.aws/open"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(root.join("home/.netrc"), "").unwrap();
        let root = root.canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        let mut profile = Profile {
            writable: vec![at("home/ws/.aws/open"), at("home/ws"), at("not-there")],
            protected: vec![
                at("home/ws/.git"),
                at("home/.config"),
                at("home/ws/.other"),
                // Also hidden, so it is not mounted again.
                at("home/ws/.aws"),
            ],
            hidden: vec![at("home/ws/.aws"), at("home/.ssh"), at("home/.netrc"), at("home/.gone")],
            ..Profile::writing_to(Vec::new())
        };
        assert_eq!(
            words(&profile, &root),
            "HideDirectory home/.ssh, HideFile home/.netrc, Write home/ws, HideDirectory home/ws/.aws, \
             Protect home/ws/.git, Write home/ws/.aws/open"
        );
        symlink(at("home/.ssh"), at("home/ws/link")).unwrap();
        profile.protected.push(at("home/ws/link"));
        let refused = mounts(&profile);
        assert!(matches!(refused, Err(Error::Unprotected { .. })), "{refused:?}");
        // Neither a link on the way that a command could replace, nor a writable directory that is a link.
        std::fs::create_dir_all(at("home/dots/purlin")).unwrap();
        symlink(at("home/dots"), at("home/ws/.config")).unwrap();
        profile.protected = vec![at("home/ws/.config/purlin")];
        let refused = mounts(&profile);
        assert!(
            matches!(&refused, Err(Error::Unprotected { path }) if *path == at("home/ws/.config")),
            "{refused:?}"
        );
        profile.writable = vec![at("home/ws/link")];
        let refused = mounts(&profile);
        assert!(matches!(refused, Err(Error::Moved { .. })), "{refused:?}");
    }
}
