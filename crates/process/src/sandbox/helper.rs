//! The helper: our own program started again, which restricts itself and then becomes the command.
//!
//! Not done between fork and exec of the agent, where no memory may be allocated. Runs before anything else in the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

use super::helper_spec::{HelperSpec, Then, WORD};
use super::space::{self, Place};
use super::{canary, landlock, limits, reaper, seccomp, terminal};
use crate::raw;
use crate::spawn::READY;

/// The exit code of a helper that failed.
const FAILED: u8 = 125;

/// Runs the helper if this process was started as one; otherwise returns `None`.
pub fn run_if_asked(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    args.next()?;
    let word = args.next()?;
    let done = if word == WORD {
        HelperSpec::from_args(args)
            .ok_or_else(|| "the helper's arguments cannot be read".to_owned())
            .and_then(|spec| restrict_and_run(&spec))
    } else if word == terminal::WORD {
        terminal::run(args)
    } else {
        return None;
    };
    Some(done.unwrap_or_else(|why| {
        eprintln!("sandbox: {why}");
        ExitCode::from(FAILED)
    }))
}

/// Becomes the command. Returns only for the canary, after a command it waited for, or with an error.
fn restrict_and_run(spec: &HelperSpec) -> Result<ExitCode, String> {
    if spec.reaps {
        return reaper::run(spec);
    }
    raw::close_at_exec().map_err(|err| format!("open files cannot be closed: {err}"))?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|err| format!("cannot watch for the end of the agent: {err}"))?;
    if spec.parent.is_some_and(|parent| std::os::unix::process::parent_id() != parent) {
        return Err("the agent has ended".to_owned());
    }
    if let Some(space) = &spec.space {
        limits::prefer_for_oom_kill();
        if let Place::Watching(ended) = space::enter(space)? {
            return Ok(reaper::report_end(spec, ended.exit_status(), ended.terminating_signal()));
        }
    }
    if let Some(limits) = &spec.limits {
        limits::restrict(limits)?;
        limits::drop_privileges()?;
    }
    if let Some(files) = &spec.files {
        landlock::restrict(files, spec.sockets)?;
    }
    if let Some(sockets) = spec.sockets {
        seccomp::restrict(sockets).map_err(|err| format!("seccomp refuses: {err}"))?;
    }
    raw::restore_signals();
    if let Some(fd) = spec.report {
        raw::write_once(fd, READY).map_err(|err| format!("cannot write the report: {err}"))?;
    }
    match &spec.then {
        Then::Canary { outside, hidden, protected, inside } => {
            canary::probe(outside, hidden, protected, inside);
            Ok(ExitCode::SUCCESS)
        }
        Then::Exec(words) => Err(become_command(words)),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "replaces this process; nothing is started beside it"
)]
fn become_command(words: &[OsString]) -> String {
    let Some((program, args)) = words.split_first() else {
        return "no command to run".to_owned();
    };
    let err = std::process::Command::new(program).args(args).exec();
    format!("{} cannot be run: {err}", Path::new(program).display())
}
