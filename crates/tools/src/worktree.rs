//! Git worktrees of sessions: makes them, and merges or removes them without losing work.
//!
//! git itself decides: nothing is ever forced. It runs in the sandbox and without hooks; see `bash::git`.

use std::path::{Path, PathBuf};

use crate::bash::{Bash, Ran, enclosing_repository};

/// The most changes that are listed.
const SHOWN: usize = 10;

/// A worktree of a session.
#[derive(Debug, Clone, Copy)]
pub struct Worktree<'a> {
    /// Runs git.
    pub bash: &'a Bash,
    /// The working tree that it was made from.
    pub top: &'a Path,
    /// Where it is.
    pub path: &'a Path,
    /// Its branch.
    pub branch: &'a str,
}

/// Returns the top of the working tree that a directory is in.
#[must_use]
pub fn top_of(directory: &Path) -> Option<PathBuf> {
    enclosing_repository(directory).map(|(top, _)| top)
}

/// Tells whether a name can be that of a worktree and its branch.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let ends = name.starts_with(['.', '-']) || name.ends_with('.') || name.ends_with(".lock");
    !name.is_empty()
        && name.len() <= 64
        && name.chars().all(is_plain)
        && !ends
        && !name.contains("..")
}

impl Worktree<'_> {
    /// Makes it, from the commit that is checked out. Returns how many changes of the working tree are not in it.
    ///
    /// # Errors
    /// Says why git does not make it.
    pub async fn create(&self) -> Result<usize, String> {
        let Worktree { bash, top, path, branch } = self;
        let head = ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
        if bash.run_git(top, &[], &head).await?.code != Some(0) {
            return Err("the repository has no commit yet".to_owned());
        }
        let parent = path.parent().ok_or("its path has no parent")?;
        std::fs::create_dir_all(parent).map_err(|err| format!("{}: {err}", parent.display()))?;
        if path.exists() {
            return Err(format!("{} already exists. Choose another name", path.display()));
        }
        let shown = path.to_string_lossy();
        let add = ["worktree", "add", "-q", "-b", branch, "--", &shown, "HEAD"];
        said(bash.run_git(top, &[parent], &add).await?)?;
        Ok(self.changes_in(top).await.map_or(0, |changes| changes.len()))
    }

    /// Lists the uncommitted changes in it, with files that git does not know yet.
    ///
    /// # Errors
    /// Says why git cannot tell.
    pub async fn changes(&self) -> Result<Vec<String>, String> {
        self.changes_in(self.path).await
    }

    async fn changes_in(&self, directory: &Path) -> Result<Vec<String>, String> {
        let status = ["status", "--porcelain", "--untracked-files=normal"];
        let text = said(self.bash.run_git(directory, &[], &status).await?)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Counts the commits that the project's branch does not have.
    ///
    /// # Errors
    /// Says why git cannot tell.
    pub async fn ahead(&self) -> Result<usize, String> {
        let range = format!("HEAD..refs/heads/{}", self.branch);
        let count = ["rev-list", "--count", &range, "--"];
        let text = said(self.bash.run_git(self.top, &[], &count).await?)?;
        text.trim().parse().map_err(|_| format!("unexpected answer of git: {text}"))
    }

    /// Merges its branch into the branch that the project has checked out. Changes nothing if that does not work.
    ///
    /// # Errors
    /// Says what prevents it.
    pub async fn merge(&self) -> Result<String, String> {
        let Worktree { bash, top, path, branch } = self;
        self.check_committed().await?;
        // Otherwise the work is somewhere else than on the branch that is merged.
        let here = self.branch_of(path).await?;
        if here != *branch {
            let here = if here.is_empty() { "no branch".to_owned() } else { format!("`{here}`") };
            return Err(format!("the worktree has {here} checked out, and not `{branch}`"));
        }
        let into = self.branch_of(top).await?;
        if into.is_empty() {
            return Err(format!("{} has no branch checked out", top.display()));
        }
        let commits = self.ahead().await?;
        if commits == 0 {
            return Ok(format!("`{branch}` has nothing that `{into}` does not have"));
        }
        // Tried without touching the working tree, so that nothing has to be undone.
        let full = format!("refs/heads/{branch}");
        let attempt = ["merge-tree", "--write-tree", "--name-only", "HEAD", &full];
        let tried = bash.run_git(top, &[], &attempt).await?;
        match tried.code {
            Some(0) => {}
            Some(1) => {
                let files = tried.output.lines().skip(1).take_while(|line| !line.is_empty());
                return Err(format!(
                    "`{branch}` and `{into}` changed the same lines of {}. Merge `{into}` into `{branch}` in the worktree first",
                    list(files.map(|file| format!("`{file}`")).collect())
                ));
            }
            _ => return Err(format!("git cannot merge: {}", tried.errors.trim())),
        }
        said(bash.run_git(top, &[top], &["merge", "--no-edit", "-q", &full]).await?)?;
        let unit = if commits == 1 { "commit" } else { "commits" };
        Ok(format!("Merged {commits} {unit} of `{branch}` into `{into}`"))
    }

    /// Removes it, and its branch if everything in it is merged. Returns what stays.
    ///
    /// # Errors
    /// Says what would be lost; then nothing is removed.
    pub async fn remove(&self) -> Result<String, String> {
        let Worktree { bash, top, path, branch } = self;
        self.check_committed().await?;
        self.check_reachable().await?;
        let parent = path.parent().ok_or("its path has no parent")?;
        let shown = path.to_string_lossy();
        said(bash.run_git(top, &[parent], &["worktree", "remove", "--", &shown]).await?)?;
        let commits = self.ahead().await.unwrap_or(1);
        let delete = ["branch", "-q", "-d", "--", branch];
        if commits == 0 && bash.run_git(top, &[], &delete).await?.code == Some(0) {
            return Ok(format!("Removed the worktree and its branch `{branch}`"));
        }
        Ok(format!("Removed the worktree. Its commits are still on the branch `{branch}`"))
    }

    /// Returns the branch that is checked out, or nothing.
    async fn branch_of(&self, directory: &Path) -> Result<String, String> {
        let name = ["symbolic-ref", "--short", "--quiet", "HEAD"];
        Ok(self.bash.run_git(directory, &[], &name).await?.output.trim().to_owned())
    }

    /// Commits that no branch has would be lost with the worktree, as after `git checkout --detach`.
    async fn check_reachable(&self) -> Result<(), String> {
        let count = ["rev-list", "--count", "HEAD", "--not", "--branches", "--remotes", "--tags"];
        let text = said(self.bash.run_git(self.path, &[], &count).await?)?;
        if text.trim() == "0" {
            return Ok(());
        }
        let hint = "Run `git branch NAME` in the worktree first, or check out a branch";
        Err(format!("commits in it are on no branch, as many as {}. {hint}", text.trim()))
    }

    async fn check_committed(&self) -> Result<(), String> {
        let changes = self.changes().await?;
        if changes.is_empty() {
            return Ok(());
        }
        let files = changes.iter().map(|change| format!("`{}`", change.trim()));
        Err(format!(
            "it has uncommitted changes: {}. Commit them first, or discard them yourself",
            list(files.collect())
        ))
    }
}

fn list(mut items: Vec<String>) -> String {
    let more = items.len().saturating_sub(SHOWN);
    items.truncate(SHOWN);
    if more > 0 {
        items.push(format!("{more} more"));
    }
    items.join(", ")
}

/// Returns git's output, or what it complains about.
fn said(ran: Ran) -> Result<String, String> {
    if ran.is_late {
        return Err("git took too long".to_owned());
    }
    if ran.code == Some(0) {
        return Ok(ran.output);
    }
    let text = if ran.errors.trim().is_empty() { ran.output } else { ran.errors };
    let text: Vec<&str> = text.trim().lines().take(SHOWN).collect();
    Err(format!("git: {}", text.join("\n").trim_start_matches("fatal: ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_worktrees_are_plain() {
        for name in ["fix-login", "a.b_c", "1f2e"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-x", ".x", "a/b", "a b", "x.lock", "a..b", "x."] {
            assert!(!is_name(name), "{name}");
        }
    }
}
