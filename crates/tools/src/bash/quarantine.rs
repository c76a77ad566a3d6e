//! Checks what a command leaves behind that others would run later: repositories that it made, with hooks and configuration of its
//! own, and files that editors, shells and other agents run by themselves. What could run something is renamed to `….set-aside`.
//!
//! Works beneath the session's directories as they were opened, and follows no link.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use tree::{NotRead, beneath};

use super::repositories::{Survey, named_by, survey};

/// The largest configuration that is read.
const MOST_BYTES: u64 = 1 << 20;
/// The most repositories of submodules in a new repository.
const MOST_MODULES: usize = 1000;
/// The most lines of a warning.
const MOST_SHOWN: usize = 20;
/// What a repository gets in place of its configuration.
const PLAIN_CONFIG: &[u8] = b"[core]\n\trepositoryformatversion = 0\n";

/// Why a file that other programs run is set aside.
const AUTO_RUN_WHY: &str = "editors, shells or other agents run what is in it";

/// What was found after a command.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Directories with new repositories.
    pub(super) repositories: Vec<PathBuf>,
    /// What was set aside: where it was, and why.
    pub(super) set_aside: Vec<(PathBuf, String)>,
    /// New files below the top that others run by themselves. They stay.
    pub(super) new_auto_run: Vec<PathBuf>,
    /// What could not be set aside, and why.
    pub(super) failed: Vec<(PathBuf, String)>,
    /// Directories that the command had closed to us and that were opened again.
    pub(super) reopened: Vec<PathBuf>,
    /// Whether the command created so many directories that not all were searched.
    pub(super) is_cut_short: bool,
}

impl Found {
    /// Describes it for the user; `None` if nothing could run later.
    pub(super) fn warning(&self) -> Option<String> {
        let aside = self
            .set_aside
            .iter()
            .map(|(path, why)| format!("{} was renamed to {0}.set-aside: {why}.", path.display()));
        let stays = self.new_auto_run.iter().map(|path| {
            format!(
                "{} is new; editors, shells or other agents may run what is in it.",
                path.display()
            )
        });
        let failed = self.failed.iter().map(|(path, why)| {
            let path = path.display();
            format!("{path} could not be renamed ({why}). Other programs may run what is in it: remove it yourself.")
        });
        let cut = self.is_cut_short.then(|| {
            "There are now too many folders to search all of them for repositories that could run something.".to_owned()
        });
        let reopened = self.reopened.iter().map(|path| {
            format!("{} could not be read, so its mode was changed to search it.", path.display())
        });
        let mut lines: Vec<String> =
            failed.chain(cut).chain(aside).chain(stays).chain(reopened).collect();
        let more = lines.len().saturating_sub(MOST_SHOWN);
        lines.truncate(MOST_SHOWN);
        if more > 0 {
            lines.push(format!("… and {more} more"));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Describes it for the model.
    pub(super) fn note(&self) -> Option<String> {
        let mut notes = Vec::new();
        if !self.repositories.is_empty() {
            notes.push(format!("new repositories in {}", list(&self.repositories)));
        }
        if !self.set_aside.is_empty() {
            let paths: Vec<PathBuf> = self.set_aside.iter().map(|(path, _)| path.clone()).collect();
            notes.push(format!(
                "renamed to ….set-aside, because other programs would run what is in it: {}. Use `write`, or request the path \
                 with `write_outside` and give the `reason`",
                list(&paths)
            ));
        }
        (!notes.is_empty()).then(|| format!("\n({})", notes.join("; ")))
    }
}

fn list(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().take(5).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Compares what is there after a command with what was before. `granted` are paths that the user let the command change.
pub(super) fn check(
    directories: &[PathBuf],
    before: &Survey,
    now: &Survey,
    granted: &[PathBuf],
) -> Found {
    let is_cut_short = before.is_complete && !now.is_complete;
    let mut found = Found { is_cut_short, ..Found::default() };
    let is_granted = |path: &Path| granted.iter().any(|granted| path.starts_with(granted));
    for directory in directories {
        let Ok(root) = beneath::open_directory(directory) else { continue };
        let root = root.as_fd();
        let below = |path: &Path| path.strip_prefix(directory).ok().map(Path::to_owned);
        for link in now.links.difference(&before.links).filter(|path| !is_granted(path)) {
            let why = "a link named .git can lead to any repository";
            found.aside(root, directory, below(link), why);
        }
        for git in now.gits.difference(&before.gits).filter(|path| !is_granted(path)) {
            let (Some(top), Some(_)) = (git.parent(), below(git)) else { continue };
            found.repositories.push(top.to_owned());
            let real =
                if git.is_dir() { Some(git.clone()) } else { named_by_any(git, directories) };
            // One that a `.git` file names somewhere else is not the command's.
            if let Some(real) = real.as_deref().and_then(below) {
                found.check_repository(root, directory, &real, top);
            }
        }
        for bare in now.bare.difference(&before.bare).filter(|path| !is_granted(path)) {
            let Some(real) = below(bare) else { continue };
            found.repositories.push(bare.clone());
            found.check_repository(root, directory, &real, bare);
        }
        let is_changed = |path: &&PathBuf| {
            let before = before.auto_run_links.get(*path);
            before.is_some_and(|before| now.auto_run_links.get(*path) != Some(before))
        };
        for path in now.auto_run.iter().filter(is_changed).filter(|path| !is_granted(path)) {
            found.aside(root, directory, below(path), "it was a link that led elsewhere");
        }
        for path in now.auto_run.difference(&before.auto_run).filter(|path| !is_granted(path)) {
            let Some(real) = below(path) else { continue };
            if real.components().count() == 1 {
                found.aside(root, directory, Some(real), AUTO_RUN_WHY);
            } else {
                found.new_auto_run.push(path.clone());
            }
        }
    }
    found.repositories.sort();
    found.repositories.dedup();
    found
}

/// Opens directories that a command has closed to us, and searches again. Returns those that were opened.
pub(super) fn reopen(directories: &[PathBuf], before: &Survey, now: &mut Survey) -> Vec<PathBuf> {
    let mut reopened = Vec::new();
    let is_new = |path: &&PathBuf| !before.closed.contains(*path);
    for _ in 0..MOST_REOPENED {
        let opened: Vec<PathBuf> = now
            .closed
            .iter()
            .filter(is_new)
            .filter(|path| open(directories, path))
            .cloned()
            .collect();
        if opened.is_empty() {
            break;
        }
        reopened.extend(opened);
        *now = survey(directories);
    }
    reopened
}

/// How many directories inside each other are opened again.
const MOST_REOPENED: usize = 20;

fn open(directories: &[PathBuf], path: &Path) -> bool {
    directories.iter().any(|directory| {
        let Ok(below) = path.strip_prefix(directory) else { return false };
        let root = beneath::open_directory(directory);
        root.and_then(|root| beneath::make_accessible(root.as_fd(), below)).unwrap_or(false)
    })
}

/// Returns the directory that a `.git` file names, also one inside a `.git`.
fn named_by_any(git: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    if let Some(named) = named_by(git, directories) {
        return Some(named);
    }
    let bytes = tree::read(git.parent()?, git.file_name()?, MOST_BYTES).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let named = git.parent()?.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    directories.iter().any(|directory| named.starts_with(directory)).then_some(named)
}

impl Found {
    /// Adds what was renamed while the command ran.
    pub(super) fn add_renamed(&mut self, renamed: BTreeSet<PathBuf>) {
        let known: BTreeSet<PathBuf> =
            self.set_aside.iter().map(|(path, _)| path.clone()).collect();
        let new = renamed.into_iter().filter(|path| !known.contains(path));
        self.set_aside.extend(new.map(|path| (path, AUTO_RUN_WHY.to_owned())));
        self.set_aside.sort();
    }

    /// Renames a path, and records it.
    fn aside(&mut self, root: BorrowedFd<'_>, directory: &Path, path: Option<PathBuf>, why: &str) {
        let Some(path) = path else { return };
        match beneath::set_aside(root, &path) {
            Ok(_) => self.set_aside.push((directory.join(path), why.to_owned())),
            // Something else has removed it.
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => {}
            Err(err) => self.failed.push((directory.join(path), err.to_string())),
        }
    }

    /// Sets aside what makes git run something in a new repository and its submodules.
    fn check_repository(&mut self, root: BorrowedFd<'_>, directory: &Path, git: &Path, top: &Path) {
        let mut open = vec![git.to_owned()];
        let mut looked = 0;
        while let Some(at) = open.pop().filter(|_| looked < MOST_MODULES) {
            looked += 1;
            // A command could have closed it to us. An error shows again where it is read.
            beneath::make_accessible(root, &at).ok();
            let is_repository = at == git || kind(root, &at.join("HEAD")).is_some();
            if is_repository {
                self.check_one(root, directory, &at, top);
                open.push(at.join("modules"));
            } else {
                let entries = beneath::list(root, &at).unwrap_or_default();
                let inner = entries.into_iter().filter(|(_, kind)| *kind == FileType::Directory);
                open.extend(inner.map(|(name, _)| at.join(name)));
            }
        }
    }

    fn check_one(&mut self, root: BorrowedFd<'_>, directory: &Path, git: &Path, top: &Path) {
        for name in ["config", "config.worktree"] {
            let path = git.join(name);
            let why = match tree::read_beneath(root, &path, MOST_BYTES) {
                Err(NotRead::Missing) => continue,
                Err(why) => Some(format!("git's configuration cannot be checked: {why}")),
                Ok(bytes) => match String::from_utf8(bytes) {
                    Ok(text) => shell::config_problem(&directory.join(git), top, &text),
                    Err(_) => Some("git's configuration is not text".to_owned()),
                },
            };
            let Some(why) = why else { continue };
            self.aside(root, directory, Some(path.clone()), &why);
            if name == "config"
                && let Err(err) = beneath::write_new(root, &path, PLAIN_CONFIG)
            {
                tracing::error!("{} cannot be written: {err}", directory.join(path).display());
            }
        }
        let hooks = git.join("hooks");
        let is_hook = |name: &std::ffi::OsString| !name.to_string_lossy().ends_with(".sample");
        let runs = match kind(root, &hooks) {
            None => false,
            Some(FileType::Directory) => beneath::list(root, &hooks)
                .map_or(true, |entries| entries.iter().any(|(name, _)| is_hook(name))),
            Some(_) => true,
        };
        if runs {
            self.aside(root, directory, Some(hooks), "git runs these hooks");
        }
        let is_worktree = git.parent().is_some_and(|above| above.ends_with("worktrees"));
        if !is_worktree && kind(root, &git.join("commondir")).is_some() {
            let why = "it redirects git to another configuration";
            self.aside(root, directory, Some(git.join("commondir")), why);
        }
    }
}

fn kind(root: BorrowedFd<'_>, path: &Path) -> Option<FileType> {
    beneath::kind_of(root, path).ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Runs a script as a command would, and returns what is set aside, relative to the directory, and the other findings.
    fn after(script: &str) -> (Vec<String>, Found) {
        after_in(&tempfile::tempdir().unwrap(), script)
    }

    fn after_in(directory: &tempfile::TempDir, script: &str) -> (Vec<String>, Found) {
        let top = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("old/.git/hooks")).unwrap();
        std::fs::create_dir(top.join(".zed")).unwrap();
        symlink("nowhere", top.join(".idea")).unwrap();
        let directories = [top.clone()];
        let before = survey(&directories);
        #[expect(clippy::disallowed_methods, reason = "stands for a command of the agent")]
        let mut command = std::process::Command::new("/bin/bash");
        let done = command.args(["-ec", script]).current_dir(&top).status().unwrap();
        assert!(done.success(), "{script}");
        let mut now = survey(&directories);
        let reopened = reopen(&directories, &before, &mut now);
        let mut found = check(&directories, &before, &now, &[top.join("granted")]);
        found.reopened = reopened;
        let short = |path: &PathBuf| path.strip_prefix(&top).unwrap().display().to_string();
        let aside: Vec<String> = found.set_aside.iter().map(|(path, _)| short(path)).collect();
        for path in &aside {
            assert!(top.join(format!("{path}.set-aside")).symlink_metadata().is_ok(), "{path}");
        }
        // Whatever was there, nothing is found a second time.
        let again = check(&directories, &before, &survey(&directories), &[top.join("granted")]);
        assert_eq!(again.set_aside, [], "{script}");
        (aside, found)
    }

    const MAKE: &str =
        "mkdir -p n/.git/objects n/.git/refs n/.git/hooks; echo 'ref: refs/heads/x' > n/.git/HEAD;";

    // R: T7
    #[test]
    fn new_repository_runs_nothing() {
        for (script, expected) in [
            ("echo '[core]' > n/.git/config; touch n/.git/hooks/pre-commit.sample", &[][..]),
            ("printf '[core]\\n\\tfsmonitor = x\\n' > n/.git/config", &["n/.git/config"]),
            ("printf '[filter \"x\"]\\n\\tclean = x\\n' > n/.git/config", &["n/.git/config"]),
            ("printf '[include]\\n\\tpath = x\\n' > n/.git/config", &["n/.git/config"]),
            ("ln -s /etc/passwd n/.git/config", &["n/.git/config"]),
            ("mkfifo n/.git/config", &["n/.git/config"]),
            ("echo x > n/.git/hooks/post-checkout", &["n/.git/hooks"]),
            ("rmdir n/.git/hooks; ln -s /usr/bin n/.git/hooks", &["n/.git/hooks"]),
            ("echo ../x > n/.git/commondir", &["n/.git/commondir"]),
            ("echo '[core] fsmonitor=x' > n/.git/config.worktree", &["n/.git/config.worktree"]),
            (
                "mkdir -p n/.git/modules/a/b; cp n/.git/HEAD n/.git/modules/a/b; echo '[x]y=z' > n/.git/modules/a/b/config",
                &["n/.git/modules/a/b/config"],
            ),
        ] {
            let (aside, found) = after(&format!("{MAKE} {script}"));
            assert_eq!(aside, expected, "{script}");
            assert_eq!(found.repositories.len(), 1, "{script}");
            assert!(found.note().unwrap().contains("new repositories in"), "{script}");
        }
    }

    // R: T7
    #[test]
    fn modes_hide_no_repository() {
        let make = |at: &str| MAKE.replace("n/.git", &format!("{at}/.git"));
        let evil = |at: &str| {
            format!(
                "{} printf '[core]\\n\\tfsmonitor = x\\n' > {at}/.git/config; echo x > {at}/.git/hooks/post-checkout;",
                make(at)
            )
        };
        let modes = ["000", "111", "311", "333", "444", "500", "555", "666"];
        for mode in modes {
            for closed in ["n", "n/.git", "n/.git/hooks", "n/.git n", "a n"] {
                let at = if closed == "a n" { "a/b/n" } else { "n" };
                let closed = closed.replace("a n", "a/b/n a/b a");
                let directory = tempfile::tempdir().unwrap();
                let script = format!("{} chmod {mode} {closed}", evil(at));
                let work = || {
                    become_ordinary(directory.path());
                    after_in(&directory, &script).0
                };
                let aside = std::thread::scope(|scope| scope.spawn(work).join().unwrap());
                assert_eq!(
                    aside,
                    [format!("{at}/.git/config"), format!("{at}/.git/hooks")],
                    "{mode} {closed}"
                );
            }
        }
        // The top itself.
        let directory = tempfile::tempdir().unwrap();
        let work = || {
            become_ordinary(directory.path());
            after_in(&directory, &format!("{} mkdir .vscode; chmod 111 .", evil("n"))).0
        };
        let found = std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        assert_eq!(found, ["n/.git/config", "n/.git/hooks", ".vscode"]);
        eprintln!("attempts: {}", modes.len() * 5 + 1);
    }

    /// Becomes an ordinary user on this thread, if the tests run as root, which file modes do not restrict.
    fn become_ordinary(directory: &Path) {
        use rustix::process::{Gid, Uid};
        if rustix::process::geteuid().is_root() {
            let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
            rustix::fs::chown(directory, Some(user), Some(group)).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        }
    }

    // R: T7
    #[test]
    fn what_cannot_be_checked_is_reported() {
        let many = |number: usize| Survey { is_complete: number == 0, ..Survey::default() };
        let found = check(&[], &many(0), &many(1), &[]);
        assert!(found.is_cut_short && found.warning().unwrap().contains("too many folders"));
        assert_eq!(check(&[], &many(1), &many(1), &[]), Found::default());
        let failed = vec![(PathBuf::from("/w/.vscode"), "no".to_owned())];
        let found = Found { failed, ..Found::default() };
        assert!(found.warning().unwrap().contains("/w/.vscode could not be renamed (no)"));
    }

    // R: T7
    #[test]
    fn repositories_under_other_names_are_checked() {
        let bare = "mv n/.git b; rmdir n; echo '[core] fsmonitor = x' > b/config;";
        assert_eq!(after(&format!("{MAKE} {bare}")).0, ["b/config"]);
        let named = "mkdir s; echo 'gitdir: ../b' > s/.git";
        assert_eq!(after(&format!("{MAKE} {bare} {named}")).0, ["b/config"]);
        let link = "mkdir s; ln -s ../b s/.git";
        assert_eq!(after(&format!("{MAKE} {bare} {link}")).0, ["s/.git", "b/config"]);
        assert_eq!(after("ln -s /somewhere .git").0, [".git"]);
        // What was there before is protected in other ways.
        assert_eq!(after("echo x > old/.git/hooks/post-checkout").0, Vec::<String>::new());
    }

    // R: T7
    #[test]
    fn files_that_others_run_do_not_stay_at_the_top() {
        let script = "mkdir -p .vscode sub/.idea .zed; touch .envrc x.code-workspace .zed/tasks.json sub/.idea/x";
        let (aside, found) = after(script);
        assert_eq!(aside, [".envrc", ".vscode", "x.code-workspace"]);
        assert_eq!(found.new_auto_run.len(), 1);
        let warning = found.warning().unwrap();
        assert!(
            warning.contains(".vscode was renamed to ") && warning.contains("sub/.idea is new")
        );
        assert_eq!(after("rm .idea; mkdir .idea").0, [".idea"]);
        assert_eq!(after("ln -sf other .idea").0, [".idea"]);
        assert_eq!(after("mkdir granted; touch granted/.envrc").1, Found::default());
        for name in shell::AUTO_RUN.iter().filter(|name| ![".zed", ".idea"].contains(*name)) {
            assert_eq!(after(&format!("ln -s /etc/passwd {name}")).0, [*name]);
        }
    }

    // R: T7, W19
    #[test]
    fn nothing_is_renamed_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let (inside, outside) = (top.join("in"), top.join("out"));
        for path in ["n/.git/hooks", "n/.git/objects", "n/.git/refs"] {
            std::fs::create_dir_all(outside.join(path)).unwrap();
        }
        std::fs::create_dir_all(&inside).unwrap();
        for path in ["n/.git/HEAD", "n/.git/config", "n/.git/hooks/post-checkout"] {
            std::fs::write(outside.join(path), "[core]\nfsmonitor = x\n").unwrap();
        }
        let before = survey(std::slice::from_ref(&inside));
        std::fs::create_dir_all(inside.join("n/.git")).unwrap();
        let now = survey(std::slice::from_ref(&inside));
        // The command's directory becomes a link after it was found.
        std::fs::remove_dir_all(inside.join("n")).unwrap();
        symlink(outside.join("n"), inside.join("n")).unwrap();
        let found = check(&[inside], &before, &now, &[]);
        assert_eq!(found.set_aside, []);
        assert!(outside.join("n/.git/config").exists());
        assert!(outside.join("n/.git/hooks/post-checkout").exists());
    }
}
