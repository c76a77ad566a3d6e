//! A restricted command in a terminal of the client: the terminal starts our helper, which starts the command.
//!
//! The client gets a command line without any word of the command: some clients join the words for a shell, which would run a part
//! of them unrestricted. Everything is in a launch file, including the environment: the terminal's own is the user's, with secrets
//! in it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::held::Held;
use super::helper_spec::{self, HelperSpec, Then};
use super::launch_file;
use super::profile::Profile;
use super::{Found, Sandbox};
use crate::error::Error;
use crate::spawn::Spec;

/// The first argument of a helper in a terminal.
pub(super) const WORD: &str = "__terminal";

/// The program that runs already, as a path.
const SAME: &str = "/proc/self/exe";

/// What a terminal should start. Must live until the terminal has ended.
#[derive(Debug)]
pub struct InTerminal {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    file: PathBuf,
    _held: Held,
}

impl InTerminal {
    /// Cancels the start. Returns whether that was in time; if so, nothing can start it any more.
    pub fn cancel(&self) -> bool {
        // The helper removes the file before it starts anything.
        std::fs::remove_file(&self.file).is_ok()
    }
}

impl Drop for InTerminal {
    fn drop(&mut self) {
        // The helper has removed the file, unless it never ran.
        std::fs::remove_file(&self.file).ok();
    }
}

impl Sandbox {
    /// Returns what a terminal should start so that a program runs in it at the level that was found.
    ///
    /// # Errors
    /// Fails if the profile cannot be applied.
    pub fn for_terminal(
        &self,
        spec: &Spec,
        profile: &Profile,
        found: &Found,
    ) -> Result<InTerminal, Error> {
        let mut held = Held::default();
        let mut spec = spec.clone();
        if found.level.confines() {
            let command =
                std::iter::once(OsString::from(&spec.program)).chain(spec.args.iter().cloned());
            let helper = HelperSpec::new(Some(profile.limits), None, Then::Exec(command.collect()));
            // Not our own child process: the terminal starts it.
            let helper = HelperSpec { parent: None, ..helper };
            spec = self.restricted(&spec, profile, found, helper, &mut held)?;
            if found.bubblewrap.is_none() {
                // Our descriptors are not the terminal's.
                spec.program = SAME.into();
            }
        }
        let failed = |source| Error::Start { program: self.helper().to_owned(), source };
        let file = launch_file::fresh_path(self.scratch());
        launch_file::write(&file, &spec).map_err(failed)?;
        let args = [OsString::from(WORD), file.clone().into()];
        Ok(InTerminal { program: self.helper().to_owned(), args: args.into(), file, _held: held })
    }
}

/// Starts the program of the launch file and waits for it. It dies with this process, which is all that the client ends.
#[expect(clippy::disallowed_methods, reason = "the one program that the helper is for")]
pub(super) fn run(mut args: impl Iterator<Item = OsString>) -> Result<ExitCode, String> {
    let file = args.next().ok_or("the launch file is not named")?;
    let mut spec = launch_file::read(Path::new(&file))?;
    if spec.args.first().is_some_and(|word| word == helper_spec::WORD) {
        // The inner helper checks that this process is still its parent.
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
