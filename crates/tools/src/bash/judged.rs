//! What a call needs permission for, found on another thread: the files that it depends on may be on a disk that hangs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::permission::{Access, PermissionKey, UNANALYSED};
use process::sandbox::Level;
use tokio::time::timeout;

use super::extra_permissions::ExtraPermissions;
use super::input::Input;
use super::{Bash, Requirement};

/// How long judging a command may take. After that, the user is asked.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a call needs, and what the question says about it.
pub(super) struct Judged {
    pub(super) access: Vec<Access>,
    /// The directories outside that it writes to.
    pub(super) outside: Vec<PathBuf>,
    /// The files that others run by themselves and that it requests to change.
    pub(super) granted: Vec<PathBuf>,
    /// The `.git` that it may create.
    pub(super) new_git: Option<PathBuf>,
    /// Describes the changes of repositories.
    pub(super) git: String,
}

impl Bash {
    /// Returns what a command needs permission for, in this sandbox.
    ///
    /// # Errors
    /// Fails with the reason if it cannot run even with permission.
    pub async fn access_of(
        self: &Arc<Self>,
        cwd: &Path,
        command: &str,
    ) -> Result<Vec<Access>, String> {
        let level = self.found().await.level;
        let judged = self.judge(cwd, Input::plain(command, Duration::ZERO), level).await?;
        Ok(judged.access)
    }

    /// Judges a command, and asks if that takes too long.
    ///
    /// # Errors
    /// Fails with the reason if it cannot run even with permission.
    pub(super) async fn judge(
        self: &Arc<Self>,
        cwd: &Path,
        input: Input,
        level: Level,
    ) -> Result<Judged, String> {
        let late = late(&input.command, &input.extra, level);
        let has_outside = !input.extra.write_outside.is_empty();
        let (bash, cwd) = (Arc::clone(self), cwd.to_owned());
        let work = move || bash.judge_here(&cwd, &input, level);
        match timeout(PATIENCE, tokio::task::spawn_blocking(work)).await {
            Ok(Ok(judged)) => judged,
            Ok(Err(err)) => Err(format!("it could not be analysed: {err}")),
            Err(_) if has_outside => {
                let seconds = PATIENCE.as_secs();
                Err(format!(
                    "the folders of `write_outside` could not be read in {seconds} seconds"
                ))
            }
            Err(_) => Ok(late),
        }
    }

    fn judge_here(&self, cwd: &Path, input: &Input, level: Level) -> Result<Judged, String> {
        let needed: Vec<Requirement> =
            self.requirements(cwd, &input.command, &input.extra, level)?;
        let access = needed.into_iter().map(|one| one.access).collect();
        let outside = self.outside(&input.extra.write_outside, level)?;
        let new_git = self.new_git(input);
        let git = self.describe_git(input, new_git.as_deref());
        let granted = self.auto_run_requests(&input.extra.write_outside);
        Ok(Judged { access, outside, granted, new_git, git })
    }
}

/// Returns what is asked for a command that could not be judged in time: all of it, and for this once only.
fn late(command: &str, extra: &ExtraPermissions, level: Level) -> Judged {
    let subject = format!("{UNANALYSED}{command}");
    let ask = |key| Access {
        always: None,
        is_unclear: true,
        notes: vec![
            "The project's files could not be read in time to analyse the command.".to_owned(),
        ],
        ..Access::ask(key, subject.clone())
    };
    let keys = [
        (true, PermissionKey::RunCommand),
        (extra.network, PermissionKey::Network),
        (extra.git, PermissionKey::Git),
        (!level.confines(), PermissionKey::Unsandboxed),
    ];
    let access = keys.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, key)| ask(key));
    let git = "to change .git".to_owned();
    let (outside, granted) = (Vec::new(), Vec::new());
    Judged { access: access.collect(), outside, granted, new_git: None, git }
}

#[cfg(test)]
mod tests {
    use engine::permission::Decision;

    use super::*;

    // R: W7
    #[test]
    fn command_that_is_not_judged_in_time_asks_for_all_it_requests() {
        let extra = ExtraPermissions { network: true, git: true, ..ExtraPermissions::default() };
        let judged = late("rg x", &extra, Level::None);
        let keys: Vec<&str> = judged.access.iter().map(|access| access.key.as_str()).collect();
        assert_eq!(keys, ["bash", "network", "git", "unsandboxed"]);
        for access in judged.access {
            assert_eq!((access.default, access.always), (Decision::Ask, None));
            assert!(access.subject.starts_with(UNANALYSED) && access.is_unclear);
        }
    }
}
