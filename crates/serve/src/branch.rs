//! The git branch of a directory, read from git's files. `git` itself is not run, since a repository can make it run other
//! programs.

use std::path::{Path, PathBuf};

/// The most bytes that are read of a git file.
const MOST: u64 = 4096;

/// Finds the branch of a directory; `None` outside a repository, or without a branch.
pub(crate) async fn find(directory: PathBuf) -> Option<String> {
    // The disk may be slow, and everything else is on this thread.
    tokio::task::spawn_blocking(move || of(&directory)).await.ok().flatten()
}

fn of(directory: &Path) -> Option<String> {
    let dot_git =
        directory.ancestors().map(|directory| directory.join(".git")).find(|path| path.exists())?;
    // In a worktree `.git` is a file with the path of the git directory.
    let head = match read(&dot_git) {
        Some(text) => {
            let place = text.trim().strip_prefix("gitdir: ")?;
            dot_git.parent()?.join(place).join("HEAD")
        }
        None => dot_git.join("HEAD"),
    };
    let head = read(&head)?;
    let branch = head.trim().strip_prefix("ref: refs/heads/")?;
    (!branch.contains(char::is_control)).then(|| branch.to_owned())
}

/// A link may lead to a pipe, a device, or our own input, so none is followed.
fn read(path: &Path) -> Option<String> {
    let bytes = tree::read(path.parent()?, path.file_name()?, MOST).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reading the pipe would take data from its reader: it might be our own input.
    // R: S6
    #[cfg(target_os = "linux")]
    #[test]
    fn a_link_to_a_pipe_is_not_read() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().to_owned();
        std::fs::create_dir_all(directory.join(".git")).unwrap();
        let (pipe, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"ref: refs/heads/stolen\n").unwrap();
        drop(writer);
        let place = format!("/proc/self/fd/{}", pipe.as_raw_fd());
        std::os::unix::fs::symlink(place, directory.join(".git/HEAD")).unwrap();
        assert_eq!(of(&directory), None);
    }

    // R: S6
    #[test]
    fn branch_is_found_in_a_repository_and_in_a_worktree() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().to_owned();
        let repository = directory.join("repository");
        let inside = repository.join("src/deep");
        let worktree = directory.join("worktree");
        let git_directory = repository.join(".git/worktrees/worktree");
        for path in [&inside, &worktree, &git_directory] {
            std::fs::create_dir_all(path).unwrap();
        }
        let head = repository.join(".git/HEAD");
        std::fs::write(&head, "ref: refs/heads/feature/x\n").unwrap();
        std::fs::write(worktree.join(".git"), format!("gitdir: {}\n", git_directory.display()))
            .unwrap();
        std::fs::write(git_directory.join("HEAD"), "ref: refs/heads/other\n").unwrap();
        assert_eq!(of(&inside).as_deref(), Some("feature/x"));
        assert_eq!(of(&worktree).as_deref(), Some("other"));
        std::fs::write(&head, "0123456789abcdef\n").unwrap();
        assert_eq!(of(&repository), None);
        assert_eq!(of(&directory.join("nowhere")), None);
    }
}
