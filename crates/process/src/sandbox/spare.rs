//! A process that waits to become the next command, where commands get groups of their own.
//!
//! Who joins a group waits for the kernel, so the spare has joined before it is needed. It is our own program started
//! again, and knows nothing yet; what to become comes in a file (`errand`), and its limits on its input say that it is
//! there. When the agent ends instead, the input does, and the spare removes what groups and reserved places are left.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::cgroup::{self, Groups};
use super::errand;
use super::linux::Kept;
use super::profile::Limits;
use super::reserve;
use crate::end::Group;
use crate::error::Error;
use crate::spawn::{Alone, Child, Spec, spawn_alone};

/// The first argument of a run that is a spare's.
pub(super) const WORD: &str = "__spare";

/// How often, and after which pause, a spare looks whether the last groups of its agent are empty.
const ROUNDS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// A spare, as its agent sees it. Dropping it lets it end by itself.
#[derive(Debug)]
pub(super) struct Spare {
    child: Child,
    /// Not in the child, which would kill it when it is dropped.
    group: Option<Group>,
    /// The name of its groups.
    name: String,
    file: PathBuf,
    /// The number of the descriptor that its helper reports to.
    pub(super) report_to: RawFd,
}

impl Spare {
    /// Starts one. It also removes the groups of commands that have ended.
    pub(super) fn start(helper: &Path, scratch: &Path) -> Result<Spare, Error> {
        let failed = |source| Error::Start { program: helper.to_owned(), source };
        let (report, told) = std::io::pipe().map_err(failed)?;
        let report_to = told.as_raw_fd();
        let (file, name) = (errand::file(scratch), cgroup::fresh_name());
        let words = [OsString::from(WORD), file.clone().into(), name.clone().into()];
        let mut spec = Spec::new(helper, "/").args(words).args(cgroup::take_left());
        // Whatever it becomes brings its own; ours holds keys.
        spec.clear_env = true;
        spec.keep_input = true;
        let alone = Alone {
            ignore_term: true,
            handed_down: Some(told.into()),
            report: Some(report),
            kept: None,
        };
        let mut child = spawn_alone(&spec, alone)?;
        let group = child.group.take();
        Ok(Spare { child, group, name, file, report_to })
    }

    /// Tells whether it is still there.
    pub(super) fn is_waiting(&mut self) -> bool {
        matches!(self.child.inner.try_wait(), Ok(None))
    }

    /// Makes it a program, limited together with all that it starts.
    ///
    /// # Errors
    /// Fails if it cannot be told what to become.
    pub(super) fn become_program(
        mut self,
        spec: &Spec,
        limits: &Limits,
        mut kept: Kept,
    ) -> std::io::Result<Child> {
        kept.groups = Some(Groups::of(self.name));
        errand::write(&self.file, spec)?;
        let input = self.child.stdin.as_ref();
        let limits = cgroup::to_bytes(limits);
        if input.is_none_or(|input| rustix::io::write(input, &limits).is_err()) {
            // It is gone, and so nobody will report that all restrictions hold.
            std::fs::remove_file(&self.file)?;
        }
        self.child.group = self.group;
        self.child.kept = Some(kept);
        if !spec.keep_input {
            self.child.stdin = None;
        }
        if spec.merge_stderr {
            self.child.stderr = None;
        }
        Ok(self.child)
    }
}

/// Waits in its groups, and becomes what it is told to.
#[expect(
    clippy::disallowed_methods,
    reason = "replaces this process; nothing is started beside it"
)]
pub(super) fn run(mut args: impl Iterator<Item = OsString>) -> Result<ExitCode, String> {
    let mut word = || args.next().ok_or("there are no orders");
    let (file, name) = (PathBuf::from(word()?), word()?.to_string_lossy().into_owned());
    let agent = cgroup::maker_of(&name).ok_or("there is no agent")?;
    let groups = cgroup::make(&name);
    cgroup::join(groups.iter().map(PathBuf::as_path));
    args.for_each(|ended| cgroup::remove(&ended.to_string_lossy()));
    // Written at once, so read at once, and no more: what follows is the input of the program.
    let mut limits = [0; 16];
    let is_told = matches!(rustix::io::read(std::io::stdin(), &mut limits), Ok(16));
    // From here on it dies with the agent. If that is gone already, nobody waits for the program.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|err| format!("the end of the agent cannot be watched: {err}"))?;
    if !is_told || std::os::unix::process::parent_id() != agent {
        // Not now, with groups to remove.
        set_parent_process_death_signal(None).ok();
        leave(&groups, agent);
        // The file would lie where the records do.
        file.parent().map(reserve::records).iter().for_each(|records| reserve::sweep(records));
        return Ok(ExitCode::SUCCESS);
    }
    let (processes, memory) = cgroup::from_bytes(limits);
    cgroup::limit(&groups, processes, memory);
    let spec = errand::read(&file)?;
    let mut command = std::process::Command::new(&spec.program);
    command.args(&spec.args).current_dir(&spec.cwd);
    if spec.clear_env {
        command.env_clear();
    }
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    if !spec.keep_input {
        command.stdin(Stdio::null());
    }
    if spec.merge_stderr {
        command.stderr(std::io::stdout());
    }
    let err = command.exec();
    Err(format!("{} cannot be run: {err}", spec.program.display()))
}

/// Removes its groups and, if the agent has ended, all others of it, as soon as what is in them has ended, too.
fn leave(groups: &[PathBuf], agent: u32) {
    cgroup::join(groups.iter().filter_map(|group| group.parent()));
    for group in groups {
        std::fs::remove_dir(group).ok();
    }
    for _ in 0..ROUNDS {
        // The end of the input comes a little before that of the agent.
        let has_ended = std::os::unix::process::parent_id() != agent;
        if has_ended && cgroup::sweep(|maker| maker == agent) == 0 {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}
