//! What a command leaves behind, where it has no process table of its own: the helper stays beside it, all that lose
//! their parent hang below the helper, and are killed when the command has ended, or when the agent has.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};

use super::helper;
use super::helper_spec::HelperSpec;
use crate::raw;

/// How often it is looked whether the agent is still there, where the system does not tell.
const BEAT: Duration = Duration::from_millis(200);
/// More rounds than any tree of processes needs that is killed from the top.
const ROUNDS: usize = 100;

/// Starts a second helper that restricts itself and becomes the command; waits for it, and ends what it left behind.
///
/// Is not restricted itself, so that the command has no right to signal it.
#[expect(clippy::disallowed_methods, reason = "the one program that the helper is for")]
pub(super) fn run(spec: &HelperSpec) -> Result<ExitCode, String> {
    rustix::process::set_child_subreaper(Some(getpid()))
        .map_err(|err| format!("what is left behind cannot be held: {err}"))?;
    let agent = std::os::unix::process::parent_id();
    if spec.parent.is_some_and(|parent| parent != agent) {
        return Err("the agent is gone".to_owned());
    }
    let inner = HelperSpec { reaps: false, parent: Some(std::process::id()), ..spec.clone() };
    let mut child = std::env::current_exe()
        .and_then(|helper| std::process::Command::new(helper).args(inner.to_args()).spawn())
        .map_err(|err| format!("the helper cannot be started again: {err}"))?;
    // Only now: the command would inherit it.
    raw::ignore_term();
    std::thread::spawn(move || {
        await_end_of(agent);
        kill_below(getpid());
        std::process::exit(1);
    });
    let status = child.wait().map_err(|err| format!("how it ended cannot be told: {err}"))?;
    kill_below(getpid());
    Ok(helper::report_end(spec, status.code(), status.signal()))
}

/// Waits until the process that was our parent is so no more.
fn await_end_of(parent: u32) {
    let pid = i32::try_from(parent).ok().and_then(Pid::from_raw);
    let end = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // Looked at behind the open: the number may have been a stranger's by then.
    while std::os::unix::process::parent_id() == parent {
        let ended = end.as_ref().map(|end| poll(&mut [PollFd::new(end, PollFlags::IN)], None));
        match ended {
            Some(Ok(1..)) => return,
            _ => std::thread::sleep(BEAT),
        }
    }
}

/// Kills all that hang below a process, in rounds: who is born meanwhile is found in the next.
pub(crate) fn kill_below(top: Pid) {
    let mut empty = 0;
    for _ in 0..ROUNDS {
        let below = below(top);
        empty = if below.is_empty() { empty + 1 } else { 0 };
        // Numbers begin anew: one may be born behind the place that is read, and its parent end before it is.
        if empty == 2 {
            return;
        }
        for pid in below {
            // It may have ended since.
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// Returns the processes below one that still run.
fn below(top: Pid) -> Vec<Pid> {
    let parents: HashMap<i32, i32> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| Some((pid, parent_of(pid)?)))
        .collect();
    let hangs_below = |pid: &i32| {
        let mut at = *pid;
        // A tree that changes while it is read may seem to be a ring.
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if *parent == top.as_raw_nonzero().get() => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().filter(|pid| hangs_below(pid)).filter_map(|pid| Pid::from_raw(*pid)).collect()
}

/// Returns the parent of a process that runs; one that has ended and only waits to be read needs no killing.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}
