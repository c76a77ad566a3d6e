//! A command for somebody else's terminal, restricted all the same: what that terminal starts is our helper.
//!
//! Whoever owns the terminal gets one short command line. All else is in a file of ours that is read once, the
//! environment too: that of the terminal is the user's, with all that is secret in it.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use super::linux::Kept;
use super::order::{Order, Then};
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
    _kept: Kept,
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
        let order = Order::new(Some(profile.limits), None, Then::Exec(command.collect()));
        let mut kept = Kept::default();
        let spec = self.restricted(spec, profile, found, order, &mut kept)?;
        let failed = |source| Error::Start { program: self.helper().to_owned(), source };
        let file = write(self.scratch(), &spec).map_err(failed)?;
        let args = [OsString::from(WORD), file.clone().into(), "--".into(), title.into()];
        Ok(InTerminal { program: self.helper().to_owned(), args: args.into(), file, _kept: kept })
    }
}

/// Writes a file that nobody else can read: folder, number of variables, variables, program, arguments.
fn write(folder: &Path, spec: &Spec) -> std::io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("terminal-{}-{count}", std::process::id()));
    let mut parts = vec![spec.cwd.clone().into_os_string(), spec.env.len().to_string().into()];
    for (name, value) in &spec.env {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        parts.push(pair);
    }
    parts.push(spec.program.clone().into());
    parts.extend(spec.args.iter().cloned());
    let bytes = parts.join(OsStr::new("\0"));
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(bytes.as_bytes())?;
    Ok(path)
}

fn read(bytes: Vec<u8>) -> Option<Spec> {
    let mut parts = bytes.split(|byte| *byte == 0).map(|part| OsString::from_vec(part.to_vec()));
    let cwd = parts.next()?;
    let count: usize = parts.next()?.to_str()?.parse().ok()?;
    let mut env = Vec::new();
    for _ in 0..count {
        let pair = parts.next()?.into_vec();
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let value = OsString::from_vec(pair[at + 1..].to_vec());
        env.push((OsString::from_vec(pair[..at].to_vec()), value));
    }
    let mut spec = Spec::new(parts.next()?, cwd).args(parts);
    spec.env = env;
    Some(spec)
}

/// Starts what the file says and waits for it. It dies with this process: the terminal's owner ends only that.
#[expect(clippy::disallowed_methods, reason = "the one program that the helper is for")]
pub(super) fn run(mut args: impl Iterator<Item = OsString>) -> Result<ExitCode, String> {
    let file = args.next().ok_or("there are no orders")?;
    let bytes = std::fs::read(&file).map_err(|err| format!("the orders cannot be read: {err}"))?;
    // Read once: nobody is to start the same again later.
    std::fs::remove_file(&file).map_err(|err| format!("the orders cannot be removed: {err}"))?;
    let spec = read(bytes).ok_or("the orders are not complete")?;
    let mut command = std::process::Command::new(&spec.program);
    command.args(&spec.args).current_dir(&spec.cwd).env_clear();
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    let status = command
        .status()
        .map_err(|err| format!("{} cannot be run: {err}", spec.program.display()))?;
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_once() {
        let folder = std::env::temp_dir().join(format!("process-terminal-{}", std::process::id()));
        let spec = Spec::new("/bin/sh", "/w d")
            .args(["-c", "echo 'a\nb'", ""])
            .env("A", "1=2")
            .env("B", "");
        let path = write(&folder, &spec).unwrap();
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let back = read(std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((back.program, back.args, back.cwd), (spec.program, spec.args, spec.cwd));
        assert_eq!(back.env, spec.env);
        assert_eq!(read(b"/w".to_vec()).map(|spec| spec.cwd), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
