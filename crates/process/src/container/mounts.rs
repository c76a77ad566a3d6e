//! What is visible in a container: the project and what the sandbox's rules say about it.

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
}

/// Returns the arguments of `run` for a profile. `is_ours` tells whether the user inside is ours, who can use our temporary directory.
pub(super) fn arguments(
    profile: &Profile,
    readable: &[PathBuf],
    aliases: &[Alias],
    is_ours: bool,
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
    for directory in &profile.writable {
        mounts.push(bind(directory, directory, false)?);
    }
    for path in visible(&profile.protected, profile) {
        mounts.push(bind(path, path, true)?);
    }
    for path in visible(&profile.hidden, profile) {
        mounts.push(match path.is_dir() {
            true => {
                check_name(path)?;
                format!(
                    "type=tmpfs,target={},tmpfs-size=4096,tmpfs-mode=0700,readonly",
                    path.display()
                )
            }
            false => bind(Path::new("/dev/null"), path, true)?,
        });
    }
    for Alias { directory, inside } in aliases {
        // All that is mounted below it, too: a protected path must not be writable under another name.
        let below = |mount: &String| target_of(mount).starts_with(directory);
        let again: Vec<String> = mounts.iter().filter(|mount| below(mount)).cloned().collect();
        for mount in again {
            let target = target_of(&mount).to_owned();
            let Ok(rest) = target.strip_prefix(directory) else { continue };
            let other =
                if rest.as_os_str().is_empty() { inside.clone() } else { inside.join(rest) };
            check_name(&other)?;
            mounts.push(mount.replacen(
                &format!("target={}", target.display()),
                &format!("target={}", other.display()),
                1,
            ));
        }
    }
    Ok(mounts.into_iter().flat_map(|mount| ["--mount".to_owned(), mount]).collect())
}

/// Checks that no path leads elsewhere: the engine follows links, with more rights than the command has.
pub(super) fn check(profile: &Profile, readable: &[PathBuf]) -> Result<(), Error> {
    let protected = visible(&profile.protected, profile);
    for path in profile.writable.iter().chain(readable).chain(protected) {
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
        let project = top.join("p");
        let profile = Profile {
            protected: vec![
                project.join(".git"),
                project.join("sub/.git"),
                project.join("missing"),
            ],
            hidden: vec![project.join("secret")],
            ..Profile::writing_to(vec![project.clone()])
        };
        let alias = Alias { directory: project.clone(), inside: "/w".into() };
        let all = arguments(&profile, &[], &[alias], true).unwrap().join(" ");
        let p = project.display();
        assert!(all.contains(&format!("source={p},target={p} ")), "{all}");
        assert!(all.contains(&format!("source={p}/.git,target={p}/.git,readonly")), "{all}");
        assert!(all.contains(&format!("source={p}/.git,target=/w/.git,readonly")), "{all}");
        assert!(all.contains("target=/w/secret,tmpfs-size"), "{all}");
        assert!(!all.contains("elsewhere") && !all.contains("sub/.git"), "{all}");
        check(&profile, &[]).unwrap();
        let moved = Profile::writing_to(vec![project.join("sub")]);
        assert!(matches!(check(&moved, &[]), Err(Error::Moved { .. })));
        let odd = Profile::writing_to(vec!["/a,b".into()]);
        assert!(arguments(&odd, &[], &[], true).is_err());
    }
}
