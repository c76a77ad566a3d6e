//! Ends what a command leaves behind, where it has no PID namespace: the helper waits for the command, becomes the parent of all
//! orphans (a subreaper), and kills them when the command or the agent has ended.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};

use super::helper_spec::HelperSpec;
use crate::raw;

/// How often it is checked whether the agent still lives, where the system does not report it.
const BEAT: Duration = Duration::from_millis(200);
/// The most rounds of killing; more than any process tree needs.
const ROUNDS: usize = 100;

/// Starts a second helper that restricts itself and becomes the command; waits for it, and ends what it left behind.
///
/// Not restricted itself, so that the command may not signal it.
#[expect(clippy::disallowed_methods, reason = "the one program that the helper is for")]
pub(super) fn run(spec: &HelperSpec) -> Result<ExitCode, String> {
    rustix::process::set_child_subreaper(Some(getpid()))
        .map_err(|err| format!("cannot become the parent of orphans: {err}"))?;
    let agent = std::os::unix::process::parent_id();
    if spec.parent.is_some_and(|parent| parent != agent) {
        return Err("the agent has ended".to_owned());
    }
    let inner = HelperSpec { reaps: false, parent: Some(std::process::id()), ..spec.clone() };
    // Not by its path, where a command may have put another program.
    let mut child = std::process::Command::new("/proc/self/exe")
        .args(inner.to_args())
        .spawn()
        .map_err(|err| format!("the helper cannot be started again: {err}"))?;
    // Not earlier: the command would inherit it.
    raw::ignore_term();
    std::thread::spawn(move || {
        await_end_of(agent);
        kill_below(getpid());
        std::process::exit(1);
    });
    let status = child.wait().map_err(|err| format!("the exit status cannot be read: {err}"))?;
    kill_below(getpid());
    Ok(report_end(spec, status.code(), status.signal()))
}

/// Reports the signal that ended a command, if any. The exit code alone is ambiguous: a program may exit with 137.
pub(super) fn report_end(spec: &HelperSpec, code: Option<i32>, signal: Option<i32>) -> ExitCode {
    let signal = signal.and_then(|signal| u8::try_from(signal).ok());
    if let (Some(fd), Some(signal)) = (spec.report, signal) {
        // It fails only if no process reads the report any more.
        raw::write_once(fd, &[signal]).ok();
    }
    let code = code.and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.or(signal.map(|signal| 128 + signal)).unwrap_or(1))
}

/// Waits until our parent has ended.
fn await_end_of(parent: u32) {
    let pid = i32::try_from(parent).ok().and_then(Pid::from_raw);
    let end = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // Checked after the open, since the process id may have been reused before.
    while std::os::unix::process::parent_id() == parent {
        let ended = end.as_ref().map(|end| poll(&mut [PollFd::new(end, PollFlags::IN)], None));
        match ended {
            Some(Ok(1..)) => return,
            _ => std::thread::sleep(BEAT),
        }
    }
}

/// Kills all descendants of a process, in rounds: those started meanwhile are found in the next.
pub(crate) fn kill_below(top: Pid) {
    let mut empty = 0;
    for _ in 0..ROUNDS {
        let below = below(top);
        empty = if below.is_empty() { empty + 1 } else { 0 };
        // Process ids wrap around: a child may get an id that was already passed, and its parent may end before it is read.
        if empty == 2 {
            return;
        }
        for pid in below {
            // It may have ended since.
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// Returns the living descendants of a process.
fn below(top: Pid) -> Vec<Pid> {
    let parents: HashMap<i32, i32> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| Some((pid, parent_of(pid)?)))
        .collect();
    let is_below = |pid: &i32| {
        let mut at = *pid;
        // A tree that changes while it is read may look like a cycle.
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if *parent == top.as_raw_nonzero().get() => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().filter(|pid| is_below(pid)).filter_map(|pid| Pid::from_raw(*pid)).collect()
}

/// Returns the parent of a living process; `None` for a zombie.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}
