//! The folders outside the session's that a command may write to if the user agrees: which can be asked for, and where they
//! really are.
//!
//! Looked up before the question and again before the command runs. What the sandbox makes of them is in `Bash::profile`.

use std::path::{Path, PathBuf};

use process::sandbox::Level;
use rustix::fs::{Access, access};

use super::Bash;
use shell::{is_in_git, is_narrow};

/// How many folders one command may ask for: each is named in the question.
const MOST: usize = 8;
/// What no folder of may be written, whoever agrees: it is the system's, or not there in the sandbox.
const SYSTEM: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
/// What commands have to themselves where they have a file tree of their own.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Returns the places outside the session's folders that every command can write to.
pub(super) fn own_places(level: Level) -> Vec<PathBuf> {
    let temporary = TEMPORARY.iter().filter(|_| level == Level::Full);
    temporary.chain(&["/dev"]).map(PathBuf::from).collect()
}

impl Bash {
    /// Finds the folders outside the session's that a command wants to write to. Those inside can be written anyway, and are
    /// left out.
    ///
    /// # Errors
    /// Says which cannot be written, whoever agrees, and what to do instead.
    pub(super) fn outside(&self, wanted: &[String], level: Level) -> Result<Vec<PathBuf>, String> {
        if wanted.len() > MOST {
            return Err(format!("`write_outside` takes {MOST} folders at most"));
        }
        let mut found = Vec::new();
        for folder in wanted {
            let real = self.real_folder(folder)?;
            if self.folders.iter().any(|inside| real.starts_with(inside)) && !is_in_git(&real) {
                continue;
            }
            if let Some(why) = self.objection(&real, level) {
                return Err(format!("`write_outside` cannot have {}: {why}", real.display()));
            }
            if !found.contains(&real) {
                found.push(real);
            }
        }
        Ok(found)
    }

    fn real_folder(&self, folder: &str) -> Result<PathBuf, String> {
        let path = match folder.strip_prefix("~/") {
            Some(below) => self.home().map(|home| home.join(below)),
            None => Some(PathBuf::from(folder)),
        };
        let Some(path) = path.filter(|path| path.is_absolute()) else {
            return Err(format!(
                "`write_outside` needs whole paths, or such that begin with ~/ where there is a home folder, not {folder:?}"
            ));
        };
        match path.canonicalize() {
            Ok(real) if real.is_dir() => Ok(real),
            Ok(real) => {
                let file = real.display();
                Err(format!("`write_outside` takes folders: name the one that {file} lies in"))
            }
            Err(err) => Err(format!(
                "`write_outside` takes folders that exist, and {folder:?} does not ({err}): name the nearest folder above it \
                 that does"
            )),
        }
    }

    /// Returns our own program, if it lies in one of these folders and not in the session's: it restricts the next command.
    pub(super) fn program_in(&self, outside: &[PathBuf]) -> Option<PathBuf> {
        let program = self.sandbox.helper().canonicalize().ok()?;
        let is_in = |folders: &[PathBuf]| folders.iter().any(|folder| program.starts_with(folder));
        (is_in(outside) && !is_in(&self.folders)).then_some(program)
    }

    /// Says why a folder cannot be asked for.
    fn objection(&self, real: &Path, level: Level) -> Option<&'static str> {
        let is_below = |place: &PathBuf| {
            let place = place.canonicalize().unwrap_or_else(|_| place.clone());
            real.starts_with(place)
        };
        let home = self.home().map(|home| home.canonicalize().unwrap_or_else(|_| home.to_owned()));
        let below_any = |places: &[&str]| places.iter().any(|place| real.starts_with(place));
        if real.to_str().is_none_or(|text| text.contains(char::is_control)) {
            return Some("its name cannot be shown");
        }
        if below_any(&SYSTEM) {
            return Some("it is the system's");
        }
        if home.is_some_and(|home| home.starts_with(real)) || !is_narrow(real) {
            return Some("it is a whole home folder or more; name a folder in it");
        }
        if self.options.own.iter().any(is_below) {
            return Some("it holds Purlin's own settings and sessions");
        }
        if self.options.hidden.iter().any(is_below) {
            return Some("it is hidden from commands, because secrets are kept there");
        }
        if is_in_git(real) {
            return Some("what lies in a .git decides what git runs; ask for `git` instead");
        }
        if level == Level::Full && below_any(&TEMPORARY) {
            return Some(
                "commands have /tmp and /var/tmp to themselves, empty each time; leave it out, and write what is to stay to the \
                 session's folders",
            );
        }
        // There a part of a folder that can be written cannot be protected.
        let is_bare = level == Level::Kernel && cfg!(target_os = "linux");
        if is_bare && self.program_in(&[real.to_owned()]).is_some() {
            return Some("Purlin's own program is in it");
        }
        if access(real, Access::WRITE_OK).is_err() {
            return Some("this user cannot write to it");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::super::tests::bash;
    use super::*;

    // R: T7
    #[test]
    fn a_folder_can_be_asked_for_or_it_is_said_why_not() {
        let top = std::env::temp_dir().join(format!("bash-outside-{}", std::process::id()));
        for folder in
            ["w/sub", "w/.git", "home/.cache/x*y", "home/own/in", "home/secret/in", "lib/.git/x"]
        {
            std::fs::create_dir_all(top.join(folder)).unwrap();
        }
        let top = top.canonicalize().unwrap();
        std::fs::write(top.join("home/file"), "").unwrap();
        let odd = top.join(std::ffi::OsStr::from_bytes(b"odd\xff"));
        for (target, link) in [
            (top.join("home/.cache"), "to-cache"),
            (top.join("home/secret"), "to-secret"),
            (top.join("gone"), "to-nothing"),
            (odd.clone(), "to-odd"),
        ] {
            symlink(target, top.join(link)).unwrap();
        }
        std::fs::create_dir_all(&odd).unwrap();
        std::fs::create_dir_all(top.join("a\nb")).unwrap();
        let home = top.join("home");
        let bash = bash(&top, &[&top.join("w")], Some(&home));
        // The folder of tests is a temporary one, which is the command's own at the strongest level only.
        let find = |wanted: &[&str]| {
            let wanted: Vec<String> =
                wanted.iter().map(|path| path.replace("TOP", top.to_str().unwrap())).collect();
            bash.outside(&wanted, Level::Kernel)
        };
        for (wanted, found) in [
            ("~/.cache", "home/.cache"),
            ("TOP/to-cache", "home/.cache"),
            ("TOP/w/../lib", "lib"),
            ("~/.cache/x*y", "home/.cache/x*y"),
        ] {
            assert_eq!(find(&[wanted]), Ok(vec![top.join(found)]), "{wanted}");
        }
        let twice = find(&["~/.cache", "TOP/to-cache", "TOP/w/sub", "TOP/w"]);
        assert_eq!(twice, Ok(vec![top.join("home/.cache")]));
        for (wanted, why) in [
            ("/", "a whole home folder or more"),
            ("TOP", "a whole home folder or more"),
            ("TOP/home", "a whole home folder or more"),
            ("~/", "a whole home folder or more"),
            ("~/.cache/..", "a whole home folder or more"),
            ("/proc/self", "the system's"),
            ("/dev/shm", "the system's"),
            ("/sys", "the system's"),
            ("~/own", "Purlin's own"),
            ("~/own/in", "Purlin's own"),
            ("~/secret", "hidden from commands"),
            ("~/secret/in", "hidden from commands"),
            ("TOP/to-secret", "hidden from commands"),
            ("TOP/w/.git", "ask for `git`"),
            ("TOP/lib/.git/x", "ask for `git`"),
            ("TOP/to-odd", "cannot be shown"),
            ("TOP/a\nb", "cannot be shown"),
            ("~/file", "name the one that"),
            ("~/.cache/new", "nearest folder above it"),
            ("TOP/to-nothing", "nearest folder above it"),
            ("~root", "needs whole paths"),
            ("lib", "needs whole paths"),
            ("", "needs whole paths"),
        ] {
            let refused = find(&[wanted]).unwrap_err();
            assert!(refused.contains(why), "{wanted}: {refused}");
        }
        assert!(find(&["~/.cache"; 9]).unwrap_err().contains("8 folders at most"));
        let homeless = super::super::tests::bash(&top, &[&top.join("w")], None);
        assert!(homeless.outside(&["~/x".to_owned()], Level::Kernel).is_err());
        let own = bash.outside(&[top.join("lib").display().to_string()], Level::Full);
        assert!(own.unwrap_err().contains("to themselves"));
        std::fs::remove_dir_all(&top).unwrap();
    }

    // R: T7
    #[test]
    fn a_folder_outside_is_protected_like_the_session_s_own() {
        let top = std::env::temp_dir().join(format!("bash-granted-{}", std::process::id()));
        for folder in ["w", "lib/sub/.git"] {
            std::fs::create_dir_all(top.join(folder)).unwrap();
        }
        let top = top.canonicalize().unwrap();
        let bash = bash(&top.join("lib"), &[&top.join("w")], None);
        let plain = super::super::Input::plain("ls", std::time::Duration::ZERO);
        let input = super::super::Input { outside: vec![top.join("lib")], ..plain };
        // Our own program, too, which would restrict the next command.
        std::fs::write(top.join("lib/helper"), "").unwrap();
        let profile = bash.profile(&input);
        assert_eq!(profile.writable, ["w", "lib"].map(|path| top.join(path)));
        assert_eq!(
            profile.protected,
            ["lib/helper", "w/.git", "lib/.git", "lib/sub/.git"].map(|path| top.join(path))
        );
        let lib = [top.join("lib").display().to_string()];
        assert!(bash.outside(&lib, Level::Kernel).unwrap_err().contains("own program"));
        std::fs::remove_dir_all(&top).unwrap();
    }
}
