//! A file tree, a process table and a network of the command's own, made by bubblewrap.
//!
//! Decides what is mounted where, in which order; starts nothing. Deeper paths come later, so that the more exact
//! wish wins: a secret inside the workspace is hidden, a workspace inside a hidden folder is there.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::profile::{Network, Profile};
use crate::error::Error;

/// Where a bubblewrap is believed to be the system's own. Never the search path, which may lead into a workspace.
const PLACES: [&str; 4] =
    ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// Where the helper stands inside.
pub(super) const HELPER: &str = "/run/confine";

/// Parts of `/run` that programs need to be found or to find others.
const RUN: [&str; 1] = ["/run/current-system"];
const RUN_FOR_NETWORK: [&str; 2] = ["/run/systemd/resolve", "/run/resolvconf"];

/// Returns the places that nobody but root can change.
pub(super) fn trusted_places() -> Vec<PathBuf> {
    let is_trusted = |place: &PathBuf| {
        let is_roots = |path: &Path| {
            path.metadata().is_ok_and(|found| found.uid() == 0 && found.mode() & 0o022 == 0)
        };
        place
            .canonicalize()
            .is_ok_and(|real| is_roots(&real) && real.parent().is_some_and(is_roots))
    };
    PLACES.iter().map(PathBuf::from).filter(is_trusted).collect()
}

/// Returns the arguments up to the command.
///
/// # Errors
/// Fails for a protected path that is a symbolic link: what a link is mounted on can be replaced.
pub(super) fn arguments(
    profile: &Profile,
    cwd: &Path,
    helper: &Path,
) -> Result<Vec<OsString>, Error> {
    let mut args: Vec<OsString> = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--disable-userns",
        "--die-with-parent",
        "--cap-drop",
        "ALL",
    ]
    .map(OsString::from)
    .into();
    if profile.network == Network::Off {
        args.push("--unshare-net".into());
    }
    mount(&mut args, "--ro-bind", Some("/".as_ref()), "/".as_ref());
    mount(&mut args, "--dev", None, "/dev".as_ref());
    mount(&mut args, "--proc", None, "/proc".as_ref());
    let size = profile.limits.file_size.min(1 << 30).to_string();
    for folder in profile.private.iter().filter(|folder| is_plain_folder(folder)) {
        args.extend(["--perms", "1777", "--size", &size].map(OsString::from));
        mount(&mut args, "--tmpfs", None, folder);
    }
    mount(&mut args, "--tmpfs", None, "/run".as_ref());
    let network = if profile.network == Network::On { &RUN_FOR_NETWORK[..] } else { &[] };
    for part in RUN.iter().chain(network).map(Path::new) {
        mount(&mut args, "--ro-bind-try", Some(part), part);
    }
    for (path, what) in steps(profile)? {
        match what {
            What::HideFolder => mount(&mut args, "--tmpfs", None, &path),
            What::HideFile => mount(&mut args, "--ro-bind", Some("/dev/null".as_ref()), &path),
            What::Write => mount(&mut args, "--bind", Some(&path), &path),
            What::Protect => mount(&mut args, "--ro-bind", Some(&path), &path),
        }
    }
    mount(&mut args, "--ro-bind", Some(helper), HELPER.as_ref());
    args.extend(["--chdir".into(), cwd.into(), "--".into(), HELPER.into()]);
    Ok(args)
}

fn mount(args: &mut Vec<OsString>, how: &str, from: Option<&Path>, to: &Path) {
    args.push(how.into());
    args.extend(from.map(OsString::from));
    args.push(to.into());
}

/// What is done at one place of the tree. In this order where two are wanted at the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    HideFolder,
    HideFile,
    Write,
    Protect,
}

/// Returns the places that differ from the rest of the tree, parents first. Only real paths: a mount through a link
/// would end elsewhere.
fn steps(profile: &Profile) -> Result<Vec<(PathBuf, What)>, Error> {
    let mut steps = Vec::new();
    // Most of them are not there, and to look for one is much less work than to follow its links.
    let hidden = profile.hidden.iter().filter(|path| path.symlink_metadata().is_ok());
    for path in hidden.filter_map(|path| path.canonicalize().ok()) {
        let what = if path.is_dir() { What::HideFolder } else { What::HideFile };
        steps.push((path, what));
    }
    for path in profile.writable.iter().filter_map(|path| path.canonicalize().ok()) {
        steps.push((path, What::Write));
    }
    for path in &profile.protected {
        let Some(path) = real(path)? else { continue };
        // Elsewhere everything is read-only as it is, and what is hidden would be back if it were mounted again.
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

/// Returns the folders between a folder that may be written and a place in it that is hidden. Each is mounted on itself,
/// for what is a mount cannot be moved: moved away, the place would be there under another name for the next command.
fn pins(steps: &[(PathBuf, What)]) -> Vec<(PathBuf, What)> {
    let mut pins = Vec::new();
    let is_hidden = |what: &What| matches!(what, What::HideFolder | What::HideFile);
    for (hidden, _) in steps.iter().filter(|(_, what)| is_hidden(what)) {
        let around = steps.iter().filter(|(root, _)| hidden != root && hidden.starts_with(root));
        let closest = around.max_by_key(|(root, what)| (root.components().count(), *what));
        let Some((root, What::Write)) = closest else { continue };
        let between = hidden.ancestors().skip(1).take_while(|folder| *folder != root);
        pins.extend(between.map(|folder| (folder.to_owned(), What::Write)));
    }
    pins
}

/// Returns the real path of something that is there and no link itself.
fn real(path: &Path) -> Result<Option<PathBuf>, Error> {
    match path.symlink_metadata() {
        Err(_) => Ok(None),
        Ok(found) if found.is_symlink() => Err(Error::Unprotected { path: path.to_owned() }),
        Ok(_) => Ok(path.canonicalize().ok()),
    }
}

fn is_plain_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn words(profile: &Profile, root: &Path) -> String {
        let args = arguments(profile, root, Path::new("/usr/bin/helper")).unwrap();
        let words: Vec<String> = args
            .iter()
            .map(|word| word.to_string_lossy().replace(&*root.to_string_lossy(), "W"))
            .skip_while(|word| word != "/run")
            .collect();
        words.join(" ")
    }

    #[test]
    fn what_is_around_a_hidden_place_cannot_be_moved() {
        let root = std::env::temp_dir().join(format!("process-pins-{}", std::process::id()));
        for folder in ["home/.config/a/gh", "home/.ssh", "home/ws"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        let root = root.canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        let hidden = vec![at("home/.config/a/gh"), at("home/.ssh")];
        let profile = Profile { hidden, ..Profile::writing_to(vec![at("home")]) };
        let all = words(&profile, &root);
        let mounts = "--bind W/home W/home --tmpfs W/home/.ssh --bind W/home/.config W/home/.config \
                      --bind W/home/.config/a W/home/.config/a --tmpfs W/home/.config/a/gh";
        assert!(all.contains(mounts), "{all}");
        let hidden = profile.hidden.clone();
        let beside = Profile { hidden, ..Profile::writing_to(vec![at("home/ws")]) };
        assert!(!words(&beside, &root).contains("--bind W/home/.config "));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_more_exact_wish_comes_later() {
        let root = std::env::temp_dir().join(format!("process-mounts-{}", std::process::id()));
        for folder in ["home/.ssh", "home/ws/.git", "home/ws/.aws/open"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
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
                // Hidden, too: it is not mounted again.
                at("home/ws/.aws"),
            ],
            hidden: vec![at("home/ws/.aws"), at("home/.ssh"), at("home/.netrc"), at("home/.gone")],
            ..Profile::writing_to(Vec::new())
        };
        assert_eq!(
            words(&profile, &root),
            "/run --ro-bind-try /run/current-system /run/current-system --tmpfs W/home/.ssh \
             --ro-bind /dev/null W/home/.netrc --bind W/home/ws W/home/ws --tmpfs W/home/ws/.aws \
             --ro-bind W/home/ws/.git W/home/ws/.git --bind W/home/ws/.aws/open W/home/ws/.aws/open \
             --ro-bind /usr/bin/helper /run/confine --chdir W -- /run/confine"
        );
        symlink(at("home/.ssh"), at("home/ws/link")).unwrap();
        profile.protected.push(at("home/ws/link"));
        let refused = arguments(&profile, &root, Path::new("/h"));
        assert!(matches!(refused, Err(Error::Unprotected { .. })), "{refused:?}");
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_network_is_cut_off_unless_it_is_wanted() {
        let profile = |network| Profile { network, ..Profile::writing_to(Vec::new()) };
        let has = |network| {
            let args = arguments(&profile(network), Path::new("/"), Path::new("/h")).unwrap();
            args.contains(&OsString::from("--unshare-net"))
        };
        assert!(has(Network::Off));
        assert!(!has(Network::On));
    }
}
