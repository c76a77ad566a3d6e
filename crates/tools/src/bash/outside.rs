//! Directories outside the session's that a command may write to with permission: which can be requested, and their resolved paths.
//!
//! Resolved before the question and again before the command runs. `Bash::profile` passes them to the sandbox.

use std::path::{Path, PathBuf};

use process::sandbox::Level;
use rustix::fs::{Access, access};

use super::Bash;
use shell::{is_in_git, is_narrow};

/// The most directories of one command: each is named in the question.
const MOST: usize = 8;
/// Directories that cannot be requested: they belong to the system or do not exist in the sandbox.
const SYSTEM: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
/// Directories that are private to a command at the full level.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Returns the directories outside that every command can write to.
pub(super) fn own_places(level: Level) -> Vec<PathBuf> {
    let temporary = TEMPORARY.iter().filter(|_| level == Level::Full);
    temporary.chain(&["/dev"]).map(PathBuf::from).collect()
}

impl Bash {
    /// Resolves the requested directories. Those inside the session's directories are writable anyway, and are omitted.
    ///
    /// # Errors
    /// Fails for a directory that cannot be requested, with what to do instead.
    pub(super) fn outside(&self, wanted: &[String], level: Level) -> Result<Vec<PathBuf>, String> {
        if wanted.len() > MOST {
            return Err(format!("`write_outside` takes at most {MOST} folders"));
        }
        let mut found = Vec::new();
        for directory in wanted.iter().filter(|path| self.auto_run_request(path).is_none()) {
            let real = self.real_directory(directory)?;
            if self.directories.iter().any(|inside| real.starts_with(inside)) && !is_in_git(&real) {
                continue;
            }
            if let Some(why) = self.objection(&real, level) {
                return Err(format!("`write_outside` cannot include {}: {why}", real.display()));
            }
            if !found.contains(&real) {
                found.push(real);
            }
        }
        Ok(found)
    }

    /// Returns the requested paths that others run by themselves, at the top of the session's directories.
    pub(super) fn auto_run_requests(&self, wanted: &[String]) -> Vec<PathBuf> {
        wanted.iter().filter_map(|path| self.auto_run_request(path)).collect()
    }

    fn auto_run_request(&self, path: &str) -> Option<PathBuf> {
        let path = shell::clean(&self.absolute(path)?);
        let directory = path.parent()?.canonicalize().ok()?;
        let name = path.file_name()?.to_str()?;
        let is_top = self.directories.contains(&directory);
        (is_top && shell::is_auto_run_name(name)).then(|| directory.join(name))
    }

    /// Returns the path of a request; `None` for one that is not absolute.
    fn absolute(&self, directory: &str) -> Option<PathBuf> {
        let path = match directory.strip_prefix("~/") {
            Some(below) => self.home().map(|home| home.join(below)),
            None => Some(PathBuf::from(directory)),
        };
        path.filter(|path| path.is_absolute())
    }

    fn real_directory(&self, directory: &str) -> Result<PathBuf, String> {
        let Some(path) = self.absolute(directory) else {
            return Err(format!(
                "`write_outside` needs absolute paths, or paths that begin with ~/, not {directory:?}"
            ));
        };
        match path.canonicalize() {
            Ok(real) if real.is_dir() => Ok(real),
            Ok(real) => {
                let file = real.display();
                Err(format!("`write_outside` takes folders: name the folder of {file}"))
            }
            Err(err) => Err(format!(
                "`write_outside` takes folders that exist, and {directory:?} does not ({err}): name the nearest folder above it \
                 that does"
            )),
        }
    }

    /// Returns our own program, if it is in one of these directories but not in the session's: it restricts the next command.
    pub(super) fn program_in(&self, outside: &[PathBuf]) -> Option<PathBuf> {
        let program = self.sandbox.helper().canonicalize().ok()?;
        let is_in = |directories: &[PathBuf]| {
            directories.iter().any(|directory| program.starts_with(directory))
        };
        (is_in(outside) && !is_in(&self.directories)).then_some(program)
    }

    /// Returns why a directory cannot be requested.
    fn objection(&self, real: &Path, level: Level) -> Option<&'static str> {
        let is_below = |place: &PathBuf| {
            let place = place.canonicalize().unwrap_or_else(|_| place.clone());
            real.starts_with(place)
        };
        let below_any = |places: &[&str]| places.iter().any(|place| real.starts_with(place));
        if real.to_str().is_none_or(|text| text.contains(char::is_control)) {
            return Some("its name cannot be displayed");
        }
        if below_any(&SYSTEM) {
            return Some("it belongs to the system");
        }
        if !is_narrow(real, self.home()) {
            return Some("it contains a whole home folder; name a folder in it");
        }
        if self.options.own.iter().any(is_below) {
            return Some("it contains Purlin's own settings and sessions");
        }
        if self.options.hidden.iter().any(is_below) {
            return Some("it is hidden from commands because it holds secrets");
        }
        if is_in_git(real) {
            return Some("files in .git decide what git runs; request `git` instead");
        }
        if level == Level::Full && below_any(&TEMPORARY) {
            return Some(
                "commands have their own empty /tmp and /var/tmp, so this needs no permission; write files that must persist to \
                 the session's folders",
            );
        }
        // At this level a part of a writable directory cannot be protected.
        let is_bare = level == Level::Kernel && cfg!(target_os = "linux");
        if is_bare && self.program_in(&[real.to_owned()]).is_some() {
            return Some("it contains Purlin's own program");
        }
        if access(real, Access::WRITE_OK).is_err() {
            return Some("this user may not write to it");
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
    fn directory_can_be_requested_or_is_refused_with_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().to_owned();
        for directory in
            ["w/sub", "w/.git", "home/.cache/x*y", "home/own/in", "home/secret/in", "lib/.git/x"]
        {
            std::fs::create_dir_all(top.join(directory)).unwrap();
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
        // The test directory is in /tmp, which is private to a command only at the full level.
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
            ("/", "contains a whole home folder"),
            ("TOP", "contains a whole home folder"),
            ("TOP/home", "contains a whole home folder"),
            ("~/", "contains a whole home folder"),
            ("~/.cache/..", "contains a whole home folder"),
            ("/proc/self", "belongs to the system"),
            ("/dev/shm", "belongs to the system"),
            ("/sys", "belongs to the system"),
            ("~/own", "Purlin's own"),
            ("~/own/in", "Purlin's own"),
            ("~/secret", "hidden from commands"),
            ("~/secret/in", "hidden from commands"),
            ("TOP/to-secret", "hidden from commands"),
            ("TOP/w/.git", "request `git`"),
            ("TOP/lib/.git/x", "request `git`"),
            ("TOP/to-odd", "cannot be displayed"),
            ("TOP/a\nb", "cannot be displayed"),
            ("~/file", "name the folder of"),
            ("~/.cache/new", "nearest folder above it"),
            ("TOP/to-nothing", "nearest folder above it"),
            ("~root", "needs absolute paths"),
            ("lib", "needs absolute paths"),
            ("", "needs absolute paths"),
        ] {
            let refused = find(&[wanted]).unwrap_err();
            assert!(refused.contains(why), "{wanted}: {refused}");
        }
        assert!(find(&["~/.cache"; 9]).unwrap_err().contains("at most 8 folders"));
        let homeless = super::super::tests::bash(&top, &[&top.join("w")], None);
        assert!(homeless.outside(&["~/x".to_owned()], Level::Kernel).is_err());
        let own = bash.outside(&[top.join("lib").display().to_string()], Level::Full);
        assert!(own.unwrap_err().contains("their own empty"));
    }

    // R: T7
    #[test]
    fn directory_outside_is_protected_like_the_session_s_own() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().to_owned();
        for directory in ["w", "lib/sub/.git"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        let top = top.canonicalize().unwrap();
        let bash = bash(&top.join("lib"), &[&top.join("w")], None);
        let plain = super::super::Input::plain("ls", std::time::Duration::ZERO);
        let input = super::super::Input { outside: vec![top.join("lib")], ..plain };
        // Including our own program, which restricts the next command.
        std::fs::write(top.join("lib/helper"), "").unwrap();
        let profile = bash.profile(&input);
        assert_eq!(profile.writable, ["w", "lib"].map(|path| top.join(path)));
        assert_eq!(
            profile.protected,
            ["lib/helper", "w/.git", "lib/.git", "lib/sub/.git"].map(|path| top.join(path))
        );
        let lib = [top.join("lib").display().to_string()];
        assert!(bash.outside(&lib, Level::Kernel).unwrap_err().contains("own program"));
    }
}
