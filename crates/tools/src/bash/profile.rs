//! What the sandbox allows a command: its directories, the repositories in and around them, the network.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use engine::ports::ToolError;
use process::sandbox::{Limits, Network, Profile};

use super::input::Input;
use super::repositories::{Survey, survey};
use super::{Bash, Options, extra_permissions, not_run, repositories};

impl Bash {
    /// Returns the repositories that a command may change.
    pub(super) fn open_repositories(&self, input: &Input) -> Vec<PathBuf> {
        if !input.extra.git {
            return Vec::new();
        }
        let mut open = self.profile(input).writable;
        open.retain(|place| !self.directories.contains(place) && !input.outside.contains(place));
        open
    }

    /// Returns what a command may access. Found on another thread, because it searches directories.
    pub(super) async fn profile_of(self: &Arc<Self>, input: &Input) -> Result<Profile, ToolError> {
        let (bash, input) = (Arc::clone(self), input.clone());
        tokio::task::spawn_blocking(move || bash.profile(&input)).await.map_err(not_run)
    }

    /// Returns what a command may access.
    pub(super) fn profile(&self, input: &Input) -> Profile {
        let (directories, Options { own, hidden, .. }) = (&self.directories, &self.options);
        let mut protected = own.to_vec();
        // Our own directories are not writable even if they are the session's.
        let own_real: Vec<PathBuf> = own.iter().filter_map(|own| own.canonicalize().ok()).collect();
        let is_ours = |directory: &PathBuf| own_real.iter().any(|own| directory.starts_with(own));
        let mut writable: Vec<PathBuf> =
            directories.iter().filter(|directory| !is_ours(directory)).cloned().collect();
        writable.extend_from_slice(&input.outside);
        protected.extend(self.program_in(&input.outside));
        let all: Vec<PathBuf> = directories.iter().chain(&input.outside).cloned().collect();
        let top = all.iter().map(|directory| directory.join(".git"));
        // Searched separately: a large directory outside must not use up the limit of directories.
        let (inside, outside) = (self.survey(), survey(&input.outside));
        let known = self.known_repositories(&inside);
        for bare in inside.bare.iter().chain(&outside.bare) {
            protected.extend(repositories::deciding(bare));
        }
        protected.extend(self.auto_run_files(&inside, input));
        for git in top.chain(known).chain(outside.gits) {
            if input.new_git.as_ref() == Some(&git) {
                continue;
            }
            // A `.git` file is protected, and the directory that it names is treated like a `.git` directory.
            let real = match repositories::named_by(&git, &all) {
                Some(named) => {
                    protected.push(git);
                    named
                }
                None => git,
            };
            if input.extra.git && real.is_dir() {
                // Hooks and configuration stay protected. Each is its own mount, so it cannot be moved away with the repository.
                protected.extend(repositories::deciding(&real));
                writable.push(real.canonicalize().unwrap_or(real));
            } else {
                protected.push(real);
            }
        }
        for git in self.around(input) {
            protected.extend(repositories::deciding(&git));
            writable.push(git.canonicalize().unwrap_or(git));
        }
        Profile {
            protected,
            hidden: hidden.iter().chain(&**own).cloned().collect(),
            network: if input.extra.network { Network::On } else { Network::Off },
            limits: Limits::default(),
            temporary: self.temporary().map(|directory| directory.path().to_owned()),
            ..Profile::writing_to(writable)
        }
    }

    /// Returns what was found in the session's directories before the last command or after it, whichever is later.
    pub(super) fn survey(&self) -> Arc<Survey> {
        let last = self.surveyed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.unwrap_or_else(|| self.survey_again())
    }

    /// Searches the session's directories.
    pub(super) fn survey_again(&self) -> Arc<Survey> {
        let found = Arc::new(survey(&self.directories));
        *self.surveyed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&found));
        found
    }

    /// Returns all repositories below the session's directories that were ever found, as far as they still exist: a command may add
    /// so many directories that a later search does not reach them.
    fn known_repositories(&self, found: &Survey) -> Vec<PathBuf> {
        let mut known = self.repositories.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(found.gits.iter().cloned());
        let is_there =
            |path: &&PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_symlink());
        known.iter().filter(is_there).cloned().collect()
    }

    /// Returns the files at the top of the session's directories that others run by themselves, without those that the command may
    /// change. A link cannot be protected; `quarantine` compares it afterwards.
    fn auto_run_files(&self, found: &Survey, input: &Input) -> Vec<PathBuf> {
        let granted = self.granted(input);
        let is_top = |path: &&PathBuf| {
            path.parent().is_some_and(|at| self.directories.iter().any(|top| top == at))
        };
        let is_protected =
            |path: &&PathBuf| !found.auto_run_links.contains_key(*path) && !granted.contains(path);
        found.auto_run.iter().filter(is_top).filter(is_protected).cloned().collect()
    }

    /// Returns the files that others run by themselves and that a command may change.
    pub(super) fn granted(&self, input: &Input) -> Vec<PathBuf> {
        let mut granted = self.auto_run_requests(&input.extra.write_outside);
        if input.extra.git {
            granted.extend(self.directories.iter().map(|directory| directory.join(".gitmodules")));
        }
        granted
    }

    /// Returns the repositories around the session's directories that a command may change, if it requests that.
    fn around(&self, input: &Input) -> Vec<PathBuf> {
        if input.extra.git { repositories::around(&self.options.directories) } else { Vec::new() }
    }

    /// Returns the `.git` of the working directory that a command may create, if it requests that and the directory has no repository yet.
    pub(super) fn new_git(&self, input: &Input) -> Option<PathBuf> {
        let directory = self.directories.first().filter(|_| input.extra.git)?;
        repositories::missing(directory)
    }

    /// Describes which repositories a command may change or create.
    pub(super) fn describe_git(&self, input: &Input, new: Option<&Path>) -> String {
        let around = self.around(input);
        let change = match around.is_empty() {
            true => "to change .git".to_owned(),
            false => format!("to change {}", extra_permissions::list(&around)),
        };
        let Some(directory) = new.and_then(Path::parent) else { return change };
        let directory = directory.display();
        let create = format!(
            "to create a repository in {directory} (.git, with its hooks and configuration)"
        );
        let others = self.directories[1..].iter().any(|directory| directory.join(".git").exists());
        if others || !around.is_empty() || !self.survey().gits.is_empty() {
            return format!("{change}, and {create}");
        }
        create
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::bash::ExtraPermissions;
    use crate::bash::tests::bash;

    use super::*;

    // R: T7
    #[test]
    fn repository_named_by_a_git_file_is_protected_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        std::fs::create_dir_all(top.join("repo")).unwrap();
        std::fs::write(top.join(".git"), "gitdir: repo\n").unwrap();
        let top = top.canonicalize().unwrap();
        let bash = bash(&top, &[&top], None);
        let at = |paths: &[&str]| paths.iter().map(|path| top.join(path)).collect::<Vec<_>>();
        let plain = bash.profile(&Input::plain("ls", Duration::ZERO));
        assert_eq!(plain.protected, at(&[".git", "repo"]));
        let extra = ExtraPermissions { git: true, ..ExtraPermissions::default() };
        let git = bash.profile(&Input { extra, ..Input::plain("ls", Duration::ZERO) });
        assert_eq!(git.protected, at(&[".git", "repo/hooks", "repo/config"]));
        assert!(git.writable.contains(&top.join("repo")));
    }
}
