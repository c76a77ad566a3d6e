//! Namespaces made by bubblewrap, for systems that let bubblewrap but not us make them (`space`).

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::profile::{Network, Profile};
use super::tree::{self, What};
use crate::error::Error;

/// Where the system's bubblewrap may be. Not the search path, which may lead into a workspace.
const PLACES: [&str; 4] =
    ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// The path of the helper inside.
const HELPER: &str = "/run/confine";

/// Returns those that only root can change.
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
/// Fails if the tree cannot be made as the profile says.
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
    let size = tree::size(&profile.limits).to_string();
    for (path, what) in tree::mounts(profile)? {
        match what {
            What::Private if profile.temporary.is_some() => {
                mount(&mut args, "--bind", profile.temporary.as_deref(), &path);
            }
            What::Private => {
                args.extend(["--perms", "1777", "--size", &size].map(OsString::from));
                mount(&mut args, "--tmpfs", None, &path);
            }
            What::HideDirectory => mount(&mut args, "--tmpfs", None, &path),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_mount_has_its_argument() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().to_owned();
        for directory in ["ws/.git", "ws/.aws"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(root.join("ws/.netrc"), "").unwrap();
        let root = root.canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        let profile = Profile {
            protected: vec![at("ws/.git")],
            hidden: vec![at("ws/.aws"), at("ws/.netrc")],
            ..Profile::writing_to(vec![at("ws")])
        };
        let args = arguments(&profile, &root, Path::new("/usr/bin/helper")).unwrap();
        let words: Vec<String> = args
            .iter()
            .map(|word| word.to_string_lossy().replace(&*root.to_string_lossy(), "W"))
            .skip_while(|word| word != "--perms")
            .collect();
        assert_eq!(
            words.join(" "),
            "--perms 1777 --size 1073741824 --tmpfs /tmp --perms 1777 --size 1073741824 --tmpfs /var/tmp --tmpfs /run \
             --bind W/ws W/ws --tmpfs W/ws/.aws --ro-bind /dev/null W/ws/.netrc --ro-bind W/ws/.git W/ws/.git \
             --ro-bind /usr/bin/helper /run/confine --chdir W -- /run/confine"
        );
    }

    #[test]
    fn network_is_cut_off_by_default() {
        let profile = |network| Profile { network, ..Profile::writing_to(Vec::new()) };
        let has = |network| {
            let args = arguments(&profile(network), Path::new("/"), Path::new("/h")).unwrap();
            args.contains(&OsString::from("--unshare-net"))
        };
        assert!(has(Network::Off));
        assert!(!has(Network::On));
    }
}
