//! The guard: a small child process that ends the programs we started if we are killed.
//!
//! It reads from us which process groups are alive; when its input ends, we have ended. Signals to us do not reach it, and it ends
//! right after the others. On systems without process groups it does nothing.

use std::sync::{Arc, Mutex, PoisonError};

use crate::spawn::Child;

/// Ends programs if we are killed. Started with the first program; clones share one process.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    groups: Vec<u32>,
    helper: Option<Helper>,
}

impl Guard {
    /// Guards a program and all it starts, until the returned value is dropped.
    #[must_use]
    pub fn watch(&self, child: &Child) -> Watched {
        let group = child.id();
        if let Some(group) = group {
            self.change(|groups| groups.push(group));
        }
        Watched { guard: self.clone(), group }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u32>)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state.groups);
        let line: Vec<String> = state.groups.iter().map(u32::to_string).collect();
        let helper = state.helper.get_or_insert_with(Helper::start);
        helper.send(&line.join(" "));
    }
}

/// A guarded program. Drop it when the program has ended: its process id may be reused.
#[derive(Debug)]
pub struct Watched {
    guard: Guard,
    group: Option<u32>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            self.guard.change(|groups| groups.retain(|other| *other != group));
        }
    }
}

#[cfg(unix)]
use unix::Helper;

#[cfg(unix)]
mod unix {
    use std::io::Write;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// Each line lists all living groups. At the end of input the groups of the last line get SIGTERM, then SIGKILL.
    const SCRIPT: &str = r#"
trap '' HUP INT TERM
last=
while read -r line; do last=$line; done
[ -n "$last" ] || exit 0
for group in $last; do kill -s TERM -- "-$group" 2>/dev/null; done
sleep 0.1
for group in $last; do kill -s KILL -- "-$group" 2>/dev/null; done
"#;

    /// The guard process; `None` if it could not be started.
    #[derive(Debug)]
    pub(super) struct Helper(Option<Child>);

    impl Helper {
        #[expect(clippy::disallowed_methods, reason = "this is the crate that starts programs")]
        pub(super) fn start() -> Helper {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", SCRIPT]).current_dir("/").env_clear().env("PATH", "/usr/bin:/bin");
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            // Its own group: a signal to ours, such as ^C, must not end it before us.
            Helper(command.process_group(0).spawn().ok())
        }

        /// Reports which groups are alive. An error means that the guard is gone, and nothing depends on it.
        pub(super) fn send(&mut self, line: &str) {
            if let Some(input) = self.0.as_mut().and_then(|child| child.stdin.as_mut())
                && writeln!(input, "{line}").is_err()
            {
                self.0 = None;
            }
        }
    }

    impl Drop for Helper {
        fn drop(&mut self) {
            if let Some(child) = &mut self.0 {
                drop(child.stdin.take());
                // Without groups it ends at once; otherwise no code waits for it.
                child.try_wait().ok();
            }
        }
    }
}

#[cfg(not(unix))]
#[derive(Debug)]
struct Helper;

#[cfg(not(unix))]
impl Helper {
    fn start() -> Helper {
        Helper
    }

    fn send(&mut self, _line: &str) {}
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
    use tokio::time::timeout;

    use super::*;
    use crate::spawn::{Spec, spawn};

    /// Starts a program that ignores SIGTERM, with a child that ignores it, too.
    async fn deaf() -> (Child, BufReader<tokio::process::ChildStdout>) {
        let script = "trap '' TERM; (sleep 100) & echo ready; while :; do sleep 100; done";
        let mut child = spawn(&Spec::new("sh", "/").args(["-c", script])).unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).await.unwrap();
        (child, output)
    }

    /// The pipe closes only when the whole process tree is gone.
    async fn is_gone(output: &mut BufReader<tokio::process::ChildStdout>, most: Duration) -> bool {
        let mut rest = String::new();
        timeout(most, output.read_to_string(&mut rest)).await.is_ok()
    }

    #[tokio::test]
    async fn watched_processes_end_with_the_guard_and_others_continue() {
        let guard = Guard::default();
        let (child, mut output) = deaf().await;
        let (other, mut other_output) = deaf().await;
        let watched = guard.watch(&child);
        drop(guard.watch(&other));
        // As if we were killed: only the guard's input ends.
        drop(guard.state.lock().unwrap().helper.take());
        assert!(is_gone(&mut output, Duration::from_secs(20)).await, "it outlived its guard");
        assert!(!is_gone(&mut other_output, Duration::from_millis(500)).await);
        drop((watched, other));
    }
}
