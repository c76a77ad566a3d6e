//! A command for somebody else's terminal, restricted all the same: what that terminal starts is our helper.
//!
//! Whoever owns the terminal gets one short command line. All else is in a file of ours that is read once, the
//! environment too: that of the terminal is the user's, with all that is secret in it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::helper_spec::{self, HelperSpec, Then};
use super::launch_file;
use super::linux::Held;
use super::profile::Profile;
use super::{Found, Sandbox};
use crate::error::Error;
use crate::spawn::Spec;

/// The first argument of a run that is a terminal's.
pub(super) const WORD: &str = "__terminal";

/// What a terminal is to start. Keep it until the terminal has ended.
#[derive(Debug)]
pub struct InTerminal {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; the last ones are for people.
    pub args: Vec<OsString>,
    file: PathBuf,
    _held: Held,
}

impl InTerminal {
    /// Takes back what it is to start. Tells whether that was in time: from then on nothing starts it.
    pub fn take_back(&self) -> bool {
        // The helper removes it before it starts anything.
        std::fs::remove_file(&self.file).is_ok()
    }
}

impl Drop for InTerminal {
    fn drop(&mut self) {
        // The helper has removed it, unless it never ran.
        std::fs::remove_file(&self.file).ok();
    }
}

impl Sandbox {
    /// Returns what a terminal is to start so that a program runs in it as restricted as was found possible. `title` is
    /// what people see of it.
    ///
    /// # Errors
    /// Fails if there is nothing to restrict it with, or it cannot be restricted as the profile wants.
    pub fn for_terminal(
        &self,
        spec: &Spec,
        profile: &Profile,
        found: &Found,
        title: &str,
    ) -> Result<InTerminal, Error> {
        if !found.level.confines() {
            return Err(Error::NotConfined);
        }
        let command =
            std::iter::once(OsString::from(&spec.program)).chain(spec.args.iter().cloned());
        let helper = HelperSpec::new(Some(profile.limits), None, Then::Exec(command.collect()));
        // Not a child of ours: the terminal starts it.
        let helper = HelperSpec { parent: None, ..helper };
        let mut held = Held::default();
        let spec = self.restricted(spec, profile, found, helper, &mut held)?;
        let failed = |source| Error::Start { program: self.helper().to_owned(), source };
        let file = launch_file::fresh_path(self.scratch());
        launch_file::write(&file, &spec).map_err(failed)?;
        let args = [OsString::from(WORD), file.clone().into(), "--".into(), title.into()];
        Ok(InTerminal { program: self.helper().to_owned(), args: args.into(), file, _held: held })
    }
}

/// Starts what the file says and waits for it. It dies with this process: the terminal's owner ends only that.
#[expect(clippy::disallowed_methods, reason = "the one program that the helper is for")]
pub(super) fn run(mut args: impl Iterator<Item = OsString>) -> Result<ExitCode, String> {
    let file = args.next().ok_or("the launch file is not named")?;
    let mut spec = launch_file::read(Path::new(&file))?;
    if spec.args.first().is_some_and(|word| word == helper_spec::WORD) {
        // The helper is to know whose child it was from the beginning.
        spec.args.splice(1..1, ["parent".into(), std::process::id().to_string().into()]);
    }
    let mut command = std::process::Command::new(&spec.program);
    command.args(&spec.args).current_dir(&spec.cwd).env_clear();
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    let status = command
        .status()
        .map_err(|err| format!("{} cannot be run: {err}", spec.program.display()))?;
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
