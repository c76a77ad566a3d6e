//! The git branch of a directory, read from git's files. `git` itself is not run, since a repository can make it run other
//! programs.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The most bytes that are read of a git file.
const MOST: u64 = 4096;

/// Finds the branch of a directory; `None` outside a repository, or without a branch.
pub(crate) async fn find(folder: PathBuf) -> Option<String> {
    // The disk may be slow, and everything else is on this thread.
    tokio::task::spawn_blocking(move || of(&folder)).await.ok().flatten()
}

fn of(folder: &Path) -> Option<String> {
    let dot_git =
        folder.ancestors().map(|folder| folder.join(".git")).find(|path| path.exists())?;
    // In a worktree `.git` is a file with the path of the git directory.
    let head = match read(&dot_git) {
        Ok(text) => {
            let place = text.trim().strip_prefix("gitdir: ")?;
            dot_git.parent()?.join(place).join("HEAD")
        }
        Err(err) if err.kind() == ErrorKind::IsADirectory => dot_git.join("HEAD"),
        Err(_) => return None,
    };
    let head = read(&head).ok()?;
    let branch = head.trim().strip_prefix("ref: refs/heads/")?;
    (!branch.contains(char::is_control)).then(|| branch.to_owned())
}

fn read(path: &Path) -> std::io::Result<String> {
    // A link may lead to a pipe, a device, or our own input.
    if !std::fs::metadata(path)?.is_file() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let mut text = String::new();
    File::open(path)?.take(MOST).read_to_string(&mut text)?;
    Ok(text)
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
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().to_owned();
        std::fs::create_dir_all(folder.join(".git")).unwrap();
        let (pipe, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"ref: refs/heads/stolen\n").unwrap();
        drop(writer);
        let place = format!("/proc/self/fd/{}", pipe.as_raw_fd());
        std::os::unix::fs::symlink(place, folder.join(".git/HEAD")).unwrap();
        assert_eq!(of(&folder), None);
    }

    // R: S6
    #[test]
    fn branch_is_found_in_a_repository_and_in_a_worktree() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().to_owned();
        let repository = folder.join("repository");
        let inside = repository.join("src/deep");
        let worktree = folder.join("worktree");
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
        assert_eq!(of(&folder.join("nowhere")), None);
    }
}
