//! Pushes one commit to one branch of one remote, with the user's own credentials, outside the sandbox.
//!
//! `git` runs in an empty repository of ours that borrows the objects of the project's. So the project's configuration and hooks, which
//! could run any program, are not read; the user's own configuration is, with the credential helper.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use process::{Spec, Tail};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::remote::Remote;

const TIMEOUT: Duration = Duration::from_secs(300);
/// The most bytes of the list of commits at which a clone is cut off.
const MAX_SHALLOW: u64 = 4 * 1024 * 1024;
/// The most bytes of git's messages.
const MAX_OUTPUT: usize = 8 * 1024;

/// What is pushed, and where to.
#[derive(Debug, Clone)]
pub(super) struct Push {
    pub(super) remote: Remote,
    /// The address without a password.
    pub(super) address: String,
    pub(super) branch: String,
    pub(super) commit: String,
}

/// A directory that is removed when the push ends or is cancelled.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(err) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{} was not removed: {err}", self.0.display());
        }
    }
}

/// Checks that branches and objects are the repository's own: a project could show those of another repository through links.
fn check_own(common: &Path, branch: &str) -> Result<(), String> {
    let Ok(real) = common.canonicalize() else { return Ok(()) };
    let reference = Path::new("refs/heads").join(branch);
    let parts = [Path::new("objects"), reference.parent().unwrap_or(&reference)];
    let is_own = |part: &&Path| match real.join(part).canonicalize() {
        Ok(found) => found == real.join(part),
        Err(_) => true,
    };
    match parts.iter().all(is_own) {
        true => Ok(()),
        false => Err(
            "parts of this repository are links, so they may belong to another one; the user can push with git"
                .to_owned(),
        ),
    }
}

impl Push {
    /// Plans to push the current branch.
    pub(super) fn plan(remote: &Remote) -> Result<Push, String> {
        let (branch, commit) =
            remote.head().ok_or("the current branch has no commit, or there is no branch")?;
        check_own(&remote.common, &branch)?;
        Ok(Push { address: remote.push_address()?, remote: remote.clone(), branch, commit })
    }

    /// Returns what is pushed as the user sees it.
    pub(super) fn shown(&self) -> String {
        let Push { address, branch, commit, .. } = self;
        format!("git push {address} {commit}:refs/heads/{branch}\n")
    }

    /// Pushes. Returns git's messages.
    pub(super) async fn run(&self, environment: &[(OsString, OsString)]) -> Result<String, String> {
        let directory = self.prepare().map_err(|err| format!("cannot prepare the push: {err}"))?;
        self.push(&directory.0, environment).await
    }

    /// Makes the repository that is pushed from, next to the objects, where no command in the sandbox can write.
    fn prepare(&self) -> std::io::Result<Scratch> {
        let common = self.remote.common.canonicalize()?;
        let random = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let random = random.map_or(0, |time| time.as_nanos());
        let directory = common.join(format!("purlin-push-{}-{random}", std::process::id()));
        std::fs::create_dir(&directory)?;
        let scratch = Scratch(directory.clone());
        for part in ["objects/info", "refs/heads", "hooks"] {
            std::fs::create_dir_all(directory.join(part))?;
        }
        let objects = format!("{}\n", common.join("objects").display());
        std::fs::write(directory.join("objects/info/alternates"), objects)?;
        std::fs::write(directory.join("HEAD"), "ref: refs/heads/none\n")?;
        let quoted = self.remote.push_url.replace('\\', "\\\\").replace('"', "\\\"");
        let config = format!(
            "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\thooksPath = /dev/null\n\tfsmonitor = false\n\
             [remote \"forge\"]\n\turl = \"{quoted}\"\n"
        );
        // The address may contain a password.
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        std::io::Write::write_all(&mut options.open(directory.join("config"))?, config.as_bytes())?;
        // Not through a link: git prints a line of a file that it does not understand.
        if let Ok(shallow) = tree::read(&common, "shallow", MAX_SHALLOW) {
            std::fs::write(directory.join("shallow"), shallow)?;
        }
        Ok(scratch)
    }

    async fn push(
        &self,
        directory: &std::path::Path,
        environment: &[(OsString, OsString)],
    ) -> Result<String, String> {
        let target = format!("{}:refs/heads/{}", self.commit, self.branch);
        let git_dir = format!("--git-dir={}", directory.display());
        let mut spec = Spec::new("git", directory)
            .args([git_dir.as_str(), "push", "--no-verify", "--porcelain", "forge", &target])
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ALLOW_PROTOCOL", "https:http:ssh:file");
        spec.env.extend(environment.iter().cloned());
        spec.clear_env = true;
        spec.merge_stderr = true;
        let mut child = process::spawn(&spec).map_err(|err| err.to_string())?;
        child.stdin = None;
        let mut tail = Tail::new(MAX_OUTPUT);
        let work = async {
            if let Some(mut output) = child.stdout.take() {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = output.read(&mut buffer).await {
                    tail.push(&buffer[..read]);
                }
            }
            child.wait().await
        };
        // Dropping the child kills it.
        let status = timeout(TIMEOUT, work).await.map_err(|_| "it took too long".to_owned())?;
        let status = status.map_err(|err| err.to_string())?;
        let said = tail.text().replace(&self.remote.push_url, &self.address);
        if status.success() { Ok(said) } else { Err(format!("git push failed:\n{said}")) }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    // R: T6
    #[test]
    fn branch_of_another_repository_is_not_pushed() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let commit = "0123456789abcdef0123456789abcdef01234567\n";
        for name in ["private", "evil"] {
            std::fs::create_dir_all(top.join(name).join(".git/refs/heads")).unwrap();
            std::fs::create_dir_all(top.join(name).join(".git/objects")).unwrap();
            std::fs::write(top.join(name).join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
            std::fs::write(top.join(name).join(".git/refs/heads/main"), commit).unwrap();
            let config = "[remote \"origin\"]\n\turl = https://github.com/evil/r\n";
            std::fs::write(top.join(name).join(".git/config"), config).unwrap();
        }
        let plan = || Push::plan(&Remote::find(&top.join("evil"), &[]).unwrap());
        assert_eq!(plan().unwrap().branch, "main");
        for part in ["refs/heads", "objects"] {
            let own = top.join("evil/.git").join(part);
            std::fs::rename(&own, top.join("aside")).unwrap();
            std::os::unix::fs::symlink(top.join("private/.git").join(part), &own).unwrap();
            assert!(plan().unwrap_err().contains("are links"), "{part}");
            std::fs::remove_file(&own).unwrap();
            std::fs::rename(top.join("aside"), &own).unwrap();
        }
    }
}
