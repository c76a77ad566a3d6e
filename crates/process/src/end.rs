//! Ends a program: closes its input, terminates it, kills it. Waits for one that ends on its own.
//!
//! All signals go to the whole process group, so grandchildren die, too. Children in other groups or sessions are not reached; the
//! sandbox ends those, with a PID namespace or with its helper, which becomes their parent (`sandbox::reaper`).

use std::process::ExitStatus;
use std::time::Duration;

use tokio::time::timeout;

use crate::error::Error;
use crate::spawn::{Child, READY};

/// How long each step waits for the program to end.
#[derive(Debug, Clone, Copy)]
pub struct Grace {
    /// After its input was closed.
    pub after_close: Duration,
    /// After SIGTERM.
    pub after_term: Duration,
}

impl Default for Grace {
    fn default() -> Grace {
        Grace { after_close: Duration::from_secs(2), after_term: Duration::from_secs(2) }
    }
}

impl Child {
    /// Returns the process id, until the process was waited for.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.inner.id()
    }

    /// Waits for the program to end on its own. What is left in its group is killed.
    ///
    /// The future can be dropped and the method called again.
    ///
    /// # Errors
    /// Fails if the exit status cannot be read, and if the program ended before its restrictions were in effect: then it never ran.
    pub async fn wait(&mut self) -> Result<ExitStatus, Error> {
        let status = self.inner.wait().await.map_err(Error::Wait)?;
        // What it left behind in its container ends with it.
        #[cfg(unix)]
        if let Some(inside) = self.inside.take() {
            inside.kill();
        }
        if let Some(group) = self.group.take() {
            group.kill();
        }
        #[cfg(target_os = "linux")]
        drop(self.held.take());
        let Some(mut report) = self.report.take() else { return Ok(status) };
        let mut said = [0; 16];
        // No process is left that could still report something.
        let length = std::io::Read::read(&mut report, &mut said).unwrap_or_default();
        match said[..length].strip_prefix(READY) {
            None => Err(Error::NotConfined),
            #[cfg(unix)]
            Some([signal, ..]) => {
                Ok(std::os::unix::process::ExitStatusExt::from_raw(i32::from(*signal)))
            }
            Some(_) => Ok(status),
        }
    }

    /// Closes the input, then terminates the group, then kills it.
    ///
    /// The caller must read or drop the pipes meanwhile, or a program that flushes before it ends is killed while it waits for a
    /// reader.
    ///
    /// # Errors
    /// Fails if the exit status cannot be read.
    pub async fn end(&mut self, grace: Grace) -> Result<ExitStatus, Error> {
        self.stdin = None;
        if let Ok(ended) = timeout(grace.after_close, self.wait()).await {
            return ended;
        }
        self.terminate();
        if let Ok(ended) = timeout(grace.after_term, self.wait()).await {
            return ended;
        }
        self.kill();
        self.wait().await
    }

    /// Sends SIGTERM to the whole group.
    pub fn terminate(&mut self) {
        #[cfg(unix)]
        if let Some(inside) = &self.inside {
            return inside.terminate();
        }
        if let Some(group) = &self.group {
            group.terminate();
        }
    }

    /// Kills the whole group at once. Wait for the child afterwards for its exit status.
    pub fn kill(&mut self) {
        #[cfg(unix)]
        if let Some(inside) = self.inside.take() {
            inside.kill();
        }
        if let Some(group) = &self.group {
            // Processes with their own session are children of the helper, as long as it lives.
            #[cfg(target_os = "linux")]
            if self.held.is_some() {
                crate::sandbox::kill_below(group.0);
            }
            group.kill();
        }
        #[cfg(not(unix))]
        self.inner.start_kill().ok();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Tells whether no process has this id any more.
#[cfg(unix)]
#[must_use]
pub fn has_ended(process: i32) -> bool {
    let pid = rustix::process::Pid::from_raw(process);
    // Other users' processes are alive, but may not be signalled.
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Tells nothing: this system has no such test.
#[cfg(not(unix))]
#[must_use]
pub fn has_ended(_process: i32) -> bool {
    false
}

/// Returns the name of the signal that ended a program, such as `SIGKILL`.
#[cfg(unix)]
#[must_use]
pub fn signal_name(status: ExitStatus) -> Option<String> {
    let number = std::os::unix::process::ExitStatusExt::signal(&status)?;
    u32::try_from(number).ok().map(name_of_signal)
}

/// Returns the name of a signal.
#[cfg(unix)]
fn name_of_signal(number: u32) -> String {
    match number {
        1 => "SIGHUP".to_owned(),
        2 => "SIGINT".to_owned(),
        3 => "SIGQUIT".to_owned(),
        4 => "SIGILL".to_owned(),
        6 => "SIGABRT".to_owned(),
        8 => "SIGFPE".to_owned(),
        9 => "SIGKILL".to_owned(),
        11 => "SIGSEGV".to_owned(),
        13 => "SIGPIPE".to_owned(),
        14 => "SIGALRM".to_owned(),
        15 => "SIGTERM".to_owned(),
        // Other numbers differ between systems.
        other => format!("signal {other}"),
    }
}

/// Returns nothing: this system has no signals.
#[cfg(not(unix))]
#[must_use]
pub fn signal_name(_status: ExitStatus) -> Option<String> {
    None
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

    use super::*;
    use crate::spawn::{Spec, spawn};

    const SHORT: Grace =
        Grace { after_close: Duration::from_millis(100), after_term: Duration::from_millis(100) };

    /// Starts a script and waits until it prints `ready`. The pipe closes only when the whole process tree is gone.
    async fn start(script: &str) -> (Child, BufReader<tokio::process::ChildStdout>) {
        let spec = Spec::new("sh", "/").args(["-c", script]);
        let mut child = spawn(&spec).unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).await.unwrap();
        assert_eq!(line, "ready\n");
        (child, output)
    }

    async fn assert_all_gone(mut output: BufReader<tokio::process::ChildStdout>) {
        let mut rest = String::new();
        let ended = timeout(Duration::from_secs(5), output.read_to_string(&mut rest)).await;
        assert!(ended.is_ok(), "a process still has the pipe open");
    }

    #[tokio::test]
    async fn program_ends_when_its_input_is_closed() {
        let (mut child, output) = start("echo ready; cat; exit 3").await;
        assert_eq!(child.end(Grace::default()).await.unwrap().code(), Some(3));
        assert_all_gone(output).await;
    }

    #[tokio::test]
    async fn program_that_ignores_its_input_is_terminated() {
        let (mut child, output) = start("trap 'exit 7' TERM; echo ready; sleep 100 & wait").await;
        assert_eq!(child.end(SHORT).await.unwrap().code(), Some(7));
        assert_all_gone(output).await;
    }

    #[tokio::test]
    async fn tree_that_ignores_sigterm_is_killed() {
        let stubborn = "trap '' TERM; while :; do sleep 1; done";
        let (mut child, output) =
            start(&format!("trap '' TERM; ({stubborn}) & ({stubborn}) & echo ready; {stubborn}"))
                .await;
        assert_eq!(child.end(SHORT).await.unwrap().signal(), Some(9));
        assert_all_gone(output).await;
    }

    #[tokio::test]
    async fn background_processes_die_with_the_program() {
        let (mut child, output) = start("trap '' TERM; sleep 100 & echo ready").await;
        assert!(child.wait().await.unwrap().success());
        assert_all_gone(output).await;
    }

    #[tokio::test]
    async fn dropped_child_kills_its_group() {
        let (child, output) = start("sleep 100 & echo ready; sleep 100").await;
        drop(child);
        assert_all_gone(output).await;
    }
}
