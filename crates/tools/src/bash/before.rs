//! What was there before a command: compared and restored when it has ended, also in the background.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use engine::ports::{ToolCx, ToolError};
use engine::words::{inert, visible};

use super::git_redirects::GitRedirects;
use super::input::Input;
use super::quarantine::{self, Found as LeftBehind};
use super::repositories::{Survey, survey};
use super::watch::{self, Again, Watch, Watched};
use super::{Bash, not_run};

/// What was there before a command. If it is dropped unchecked, because the turn or the session ended, it is checked then, on a thread of its
/// own; [`finish_checks`] waits for that.
///
/// Has no reference to its session, which must be able to end while a command runs.
#[derive(Debug)]
pub(super) struct Before(Option<State>);

#[derive(Debug)]
struct State {
    directories: Vec<PathBuf>,
    /// What the command may change that others run.
    granted: Vec<PathBuf>,
    survey: Arc<Survey>,
    redirects: GitRedirects,
    watch: Watch,
}

/// What was found after a command.
#[derive(Debug, Default)]
pub(super) struct After {
    restored: Vec<PathBuf>,
    pub(super) left_behind: LeftBehind,
    pub(super) survey: Arc<Survey>,
}

impl Before {
    /// Looks at the session's directories, on another thread.
    pub(super) async fn of(bash: &Arc<Bash>, input: &Input) -> Result<Before, ToolError> {
        let (bash, input) = (Arc::clone(bash), input.clone());
        let look = move || {
            let survey = bash.survey_again();
            let redirects = GitRedirects::of(bash.open_repositories(&input));
            let mut granted = bash.granted(&input);
            granted.extend(input.new_git);
            let directories = bash.directories.clone();
            let watch = watch::start(Watched {
                directories: directories.clone(),
                before: Arc::clone(&survey),
                granted: granted.clone(),
            });
            Before(Some(State { directories, granted, survey, redirects, watch }))
        };
        tokio::task::spawn_blocking(look).await.map_err(not_run)
    }

    /// Returns what signals that the command must be ended; see `watch`.
    pub(super) fn again(&self) -> Option<Again> {
        self.0.as_ref().map(|state| state.watch.again())
    }

    /// Restores files that redirect git, and sets aside what other programs would run, on another thread.
    pub(super) async fn check(mut self) -> Result<After, ToolError> {
        let work = tokio::task::spawn_blocking(move || self.0.take().map(State::check));
        let checked = work.await;
        checked
            .map(Option::unwrap_or_default)
            .map_err(|err| ToolError::Model(format!("the project could not be checked: {err}")))
    }
}

impl State {
    fn check(self) -> After {
        let State { directories, granted, survey: before, redirects, mut watch } = self;
        let renamed = watch.end();
        let restored = redirects.restore();
        let mut now = survey(&directories);
        let reopened = quarantine::reopen(&directories, &before, &mut now);
        let mut left_behind = quarantine::check(&directories, &before, &now, &granted);
        left_behind.add_renamed(renamed);
        left_behind.reopened = reopened;
        if !left_behind.set_aside.is_empty() {
            now = survey(&directories);
        }
        After { restored, left_behind, survey: Arc::new(now) }
    }
}

/// How many commands that ended with their turn or session are being checked.
static CHECKS: Mutex<usize> = Mutex::new(0);
static CHECKED: Condvar = Condvar::new();

/// How long the processes of a command that is dropped may take to end. Each was sent SIGKILL before.
const LAST_BREATH: Duration = Duration::from_millis(100);

/// Counts one check until it is dropped.
struct Checking;

impl Checking {
    fn start() -> Checking {
        *CHECKS.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Checking
    }
}

impl Drop for Checking {
    fn drop(&mut self) {
        *CHECKS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        CHECKED.notify_all();
    }
}

/// How long the end of the program waits for these checks. A search is limited to less.
const PATIENCE: Duration = Duration::from_secs(4);

/// Waits until what ended commands have left behind is checked. For the end of the program.
pub fn finish_checks() {
    let checks = CHECKS.lock().unwrap_or_else(PoisonError::into_inner);
    drop(CHECKED.wait_timeout_while(checks, PATIENCE, |running| *running > 0));
}

impl Drop for Before {
    /// Not on this thread: it serves all sessions, and a search takes up to seconds.
    fn drop(&mut self) {
        let Some(state) = self.0.take() else { return };
        let checking = Checking::start();
        let check = move || {
            let _checking = checking;
            std::thread::sleep(LAST_BREATH);
            let after = state.check();
            if let Some(warning) = after.left_behind.warning() {
                tracing::warn!(
                    "a command that was ended left files that other programs run: {warning}"
                );
            }
        };
        if let Err(err) = std::thread::Builder::new().name("command check".to_owned()).spawn(check)
        {
            tracing::error!("what a command left behind could not be checked: {err}");
        }
    }
}

impl After {
    /// Describes what was found, for the model.
    pub(super) fn note(&self) -> Option<String> {
        let paths: Vec<String> =
            self.restored.iter().map(|path| path.display().to_string()).collect();
        let restored = (!paths.is_empty()).then(|| {
            format!(
                "\n(restored, because it redirects git to another configuration: {})",
                paths.join(", ")
            )
        });
        let notes: Vec<String> = restored.into_iter().chain(self.left_behind.note()).collect();
        (!notes.is_empty()).then(|| notes.concat())
    }
}

impl Bash {
    /// Takes what the user must know about captured runs.
    pub fn take_warnings(&self) -> Vec<String> {
        let taken =
            std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner));
        taken.iter().map(|warning| inert(&visible(warning))).collect()
    }

    /// Uses what was found after a command for the next one.
    pub(super) fn remember(&self, found: Arc<Survey>) {
        *self.surveyed.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }

    /// Warns the user about what commands left behind: this one, and those that ended in the background.
    pub(super) async fn warn(
        &self,
        cx: &ToolCx<'_>,
        warning: Option<String>,
    ) -> Result<(), ToolError> {
        let mut all = self.background.take_warnings();
        all.append(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner));
        all.extend(warning);
        if all.is_empty() {
            return Ok(());
        }
        let title = "A command left files that other programs run";
        cx.turn.warn(title, Some(inert(&visible(&all.join("\n"))))).await
    }
}
