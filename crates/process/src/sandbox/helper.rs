//! The helper: our own program started again, which restricts itself and then becomes the command.
//!
//! Done here and not between fork and exec of the agent, where nothing may be allocated. Runs before anything else
//! of the program does.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

use super::helper_spec::{HelperSpec, Then, WORD};
use super::space::{self, Place};
use super::{canary, landlock, limits, reaper, seccomp, terminal};
use crate::raw;

/// The exit code of a helper that could not do its work.
const FAILED: u8 = 125;

/// Does the helper's work if this run is one of the helper's; returns nothing otherwise.
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

/// Returns for the canary, after a command that was stayed beside, or with what went wrong.
fn restrict_and_run(spec: &HelperSpec) -> Result<ExitCode, String> {
    if spec.reaps {
        return reaper::run(spec);
    }
    raw::close_at_exec().map_err(|err| format!("open files cannot be kept back: {err}"))?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|err| format!("the end of the agent cannot be watched: {err}"))?;
    if spec.parent.is_some_and(|parent| std::os::unix::process::parent_id() != parent) {
        return Err("the agent is gone".to_owned());
    }
    if let Some(space) = &spec.space {
        limits::go_first();
        if let Place::Watching(ended) = space::enter(space)? {
            return Ok(report_end(spec, ended.exit_status(), ended.terminating_signal()));
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
    raw::mind_term();
    if let Some(fd) = spec.report {
        raw::write_once(fd, crate::end::READY).map_err(|err| format!("nobody listens: {err}"))?;
    }
    match &spec.then {
        Then::Canary { outside, hidden, protected, inside } => {
            canary::probe(outside, hidden, protected, inside);
            Ok(ExitCode::SUCCESS)
        }
        Then::Exec(words) => Err(become_command(words)),
    }
}

/// Reports the signal that ended a command, if one did: its exit code is that of a shell, and any program may give the same.
pub(super) fn report_end(spec: &HelperSpec, code: Option<i32>, signal: Option<i32>) -> ExitCode {
    let signal = signal.and_then(|signal| u8::try_from(signal).ok());
    if let (Some(fd), Some(signal)) = (spec.report, signal) {
        // Where nobody listens any more, nobody needs to know.
        raw::write_once(fd, &[signal]).ok();
    }
    let code = code.and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.or(signal.map(|signal| 128 + signal)).unwrap_or(1))
}

#[expect(
    clippy::disallowed_methods,
    reason = "replaces this process; nothing is started beside it"
)]
fn become_command(words: &[OsString]) -> String {
    let Some((program, args)) = words.split_first() else {
        return "there is nothing to run".to_owned();
    };
    let err = std::process::Command::new(program).args(args).exec();
    format!("{} cannot be run: {err}", Path::new(program).display())
}
