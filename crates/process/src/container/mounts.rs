//! What is visible in a container: the project and what the sandbox's rules say about it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::failed;
use crate::error::Error;
use crate::sandbox::Profile;

/// Another name of a directory inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// The directory.
    pub directory: PathBuf,
    /// Its other name inside.
    pub inside: PathBuf,
    /// Whether commands only read it by this name.
    pub is_read_only: bool,
}

/// Returns the arguments of `run` for a profile. `is_ours` tells whether the user inside is ours, who can use our temporary directory;
/// `empty` is an empty directory, which hides others.
pub(super) fn arguments(
    profile: &Profile,
    readable: &[PathBuf],
    aliases: &[Alias],
    is_ours: bool,
    empty: &Path,
) -> Result<Vec<String>, Error> {
    let mut mounts = Vec::new();
    match profile.temporary.as_ref().filter(|_| is_ours) {
        Some(temporary) => {
            for place in &profile.private {
                mounts.push(bind(temporary, place, false)?);
            }
        }
        None => {
            let tmpfs =
                |place: &PathBuf| format!("type=tmpfs,target={},tmpfs-mode=1777", place.display());
            mounts.extend(profile.private.iter().map(tmpfs));
        }
    }
    for directory in readable.iter().filter(|path| !covers(&profile.writable, path)) {
        mounts.push(bind(directory, directory, true)?);
    }
    // Engines refuse two mounts at one place. What is hidden needs no protection, and what is protected is not writable.
    let hidden: BTreeSet<&PathBuf> = visible(&profile.hidden, profile).collect();
    let protected = visible(&profile.protected, profile).filter(|path| !hidden.contains(path));
    let protected: BTreeSet<&PathBuf> = protected.collect();
    for directory in profile.writable.iter().filter(|path| !protected.contains(path)) {
        mounts.push(bind(directory, directory, false)?);
    }
    for path in protected {
        mounts.push(bind(path, path, true)?);
    }
    for path in hidden {
        // Not a temporary file system: Podman copies into it what it hides.
        let cover = if path.is_dir() { empty } else { Path::new("/dev/null") };
        mounts.push(bind(cover, path, true)?);
    }
    let more: Result<Vec<_>, Error> =
        aliases.iter().map(|alias| mounts_of_alias(alias, &mounts, profile, readable)).collect();
    mounts.extend(more?.into_iter().flatten());
    Ok(mounts.into_iter().flat_map(|mount| ["--mount".to_owned(), mount]).collect())
}

/// Mounts a directory at its other name, with all that is mounted below it: a protected path must not be writable under another name.
fn mounts_of_alias(
    alias: &Alias,
    mounts: &[String],
    profile: &Profile,
    readable: &[PathBuf],
) -> Result<Vec<String>, Error> {
    let Alias { directory, inside, is_read_only } = alias;
    let is_in = |paths: &[PathBuf]| paths.iter().any(|path| directory.starts_with(path));
    let is_writable = is_in(&profile.writable) && !is_in(&profile.protected);
    if is_in(&profile.hidden) || !is_in(&profile.writable) && !is_in(readable) {
        return Ok(Vec::new());
    }
    let is_read_only = *is_read_only || !is_writable;
    let mut again = vec![bind(directory, inside, is_read_only)?];
    for mount in mounts {
        let target = target_of(mount);
        let Some(rest) = target.strip_prefix(directory).ok().filter(|it| *it != Path::new(""))
        else {
            continue;
        };
        let other = inside.join(rest);
        check_name(&other)?;
        let (from, to) =
            (format!("target={}", target.display()), format!("target={}", other.display()));
        let is_open =
            is_read_only && mount.starts_with("type=bind") && !mount.ends_with(",readonly");
        let end = if is_open { ",readonly" } else { "" };
        again.push(mount.replacen(&from, &to, 1) + end);
    }
    Ok(again)
}

/// Checks that no path leads elsewhere: the engine follows links, with more rights than the command has.
pub(super) fn check(
    profile: &Profile,
    readable: &[PathBuf],
    aliases: &[Alias],
) -> Result<(), Error> {
    let protected = visible(&profile.protected, profile);
    let others = aliases.iter().map(|alias| &alias.directory);
    for path in profile.writable.iter().chain(readable).chain(protected).chain(others) {
        if path.canonicalize().ok().as_deref() != Some(path) {
            return Err(Error::Moved { path: path.clone() });
        }
    }
    Ok(())
}

/// Returns those paths that exist in the writable directories and are reached without a link.
fn visible<'a>(paths: &'a [PathBuf], profile: &'a Profile) -> impl Iterator<Item = &'a PathBuf> {
    let is_plain = |path: &&PathBuf| path.canonicalize().is_ok_and(|real| real == **path);
    paths.iter().filter(|path| covers(&profile.writable, path)).filter(is_plain)
}

fn covers(directories: &[PathBuf], path: &Path) -> bool {
    directories.iter().any(|directory| path.starts_with(directory) && path != directory)
}

fn bind(source: &Path, target: &Path, is_read_only: bool) -> Result<String, Error> {
    check_name(source)?;
    check_name(target)?;
    let end = if is_read_only { ",readonly" } else { "" };
    Ok(format!("type=bind,source={},target={}{end}", source.display(), target.display()))
}

fn target_of(mount: &str) -> &Path {
    let target = mount.split(',').find_map(|part| part.strip_prefix("target="));
    Path::new(target.unwrap_or_default())
}

/// Engines read mounts as a list with commas.
fn check_name(path: &Path) -> Result<(), Error> {
    let is_plain = path.to_str().is_some_and(|text| !text.contains([',', '"', '\n', '\r']));
    match is_plain {
        true => Ok(()),
        false => Err(failed(format!(
            "{} has a comma, a quote or a line end in its name",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T7
    #[test]
    fn protected_paths_are_read_only_under_all_their_names_and_links_are_not_mounted() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        for part in ["p/.git/hooks", "p/secret", "elsewhere/.git"] {
            std::fs::create_dir_all(top.join(part)).unwrap();
        }
        std::os::unix::fs::symlink(top.join("elsewhere"), top.join("p/sub")).unwrap();
        let (project, empty) = (top.join("p"), PathBuf::from("/empty"));
        let profile = Profile {
            protected: vec![
                project.join(".git"),
                project.join("sub/.git"),
                project.join("missing"),
                project.join("secret"),
                project.join(".git"),
            ],
            hidden: vec![project.join("secret"), project.join("secret")],
            ..Profile::writing_to(vec![project.clone()])
        };
        let alias = |directory: &Path, inside: &str, is_read_only| Alias {
            directory: directory.to_owned(),
            inside: inside.into(),
            is_read_only,
        };
        let aliases = [
            alias(&project, "/w", false),
            alias(&project, "/seen", true),
            alias(&project.join(".git/hooks"), "/h", false),
        ];
        let all = arguments(&profile, &[], &aliases, true, &empty).unwrap().join(" ");
        let p = project.display();
        assert!(all.contains(&format!("source={p},target={p} ")), "{all}");
        assert!(all.contains(&format!("source={p}/.git,target={p}/.git,readonly")), "{all}");
        assert!(all.contains(&format!("source={p},target=/w ")), "{all}");
        assert!(all.contains(&format!("source={p}/.git,target=/w/.git,readonly")), "{all}");
        assert!(all.contains("source=/empty,target=/w/secret,readonly"), "{all}");
        assert!(all.contains(&format!("source={p},target=/seen,readonly")), "{all}");
        assert!(all.contains(&format!("source={p}/.git/hooks,target=/h,readonly")), "{all}");
        for outside in [top.join("elsewhere"), project.join("secret")] {
            let all =
                arguments(&profile, &[], &[alias(&outside, "/x", false)], true, &empty).unwrap();
            assert!(!all.join(" ").contains("/x"), "{all:?}");
        }
        assert!(!all.contains("elsewhere") && !all.contains("sub/.git"), "{all}");
        let mut targets: Vec<&str> =
            all.split(' ').filter_map(|mount| mount.split("target=").nth(1)).collect();
        let before = targets.len();
        targets.sort_unstable();
        targets.dedup();
        assert_eq!(targets.len(), before, "two mounts at one place: {all}");
        check(&profile, &[], &aliases).unwrap();
        let moved = Profile::writing_to(vec![project.join("sub")]);
        assert!(matches!(check(&moved, &[], &[]), Err(Error::Moved { .. })));
        let moved = [alias(&project.join("sub"), "/x", false)];
        assert!(matches!(check(&profile, &[], &moved), Err(Error::Moved { .. })));
        let odd = Profile::writing_to(vec!["/a,b".into()]);
        assert!(arguments(&odd, &[], &[], true, &empty).is_err());
    }
}
