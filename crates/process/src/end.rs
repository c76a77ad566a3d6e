//! End a program: ask, insist, kill. And the end that nobody asked for.
//!
//! All signals go to the whole group, so children of children die, too. A program that moves its children to
//! other groups or sessions escapes this; the sandbox, where there is one, holds those: by a process table of their
//! own, or by its helper, below which they stay (`sandbox::reaper`).

use std::process::ExitStatus;
use std::time::Duration;

use tokio::time::timeout;

use crate::error::Error;
use crate::spawn::Child;

/// What the sandbox's helper reports when all restrictions hold. If the program was ended by a signal, its number follows.
pub(crate) const READY: &[u8] = b"ready";

/// How long each step of the kill ladder waits for the program to end.
#[derive(Debug, Clone, Copy)]
pub struct Grace {
    /// After its input was closed.
    pub after_close: Duration,
    /// After it was told to terminate.
    pub after_term: Duration,
}

impl Default for Grace {
    fn default() -> Grace {
        Grace { after_close: Duration::from_secs(2), after_term: Duration::from_secs(2) }
    }
}

impl Child {
    /// Returns the number of the process, until it was awaited.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.inner.id()
    }

    /// Waits for the program to end by itself. What it left behind in its group is killed: nobody else would.
    ///
    /// Can be dropped and called again.
    ///
    /// # Errors
    /// Fails if the system does not tell how the program ended, and if it was to be restricted and ended before it
    /// was: then the program itself never ran.
    pub async fn wait(&mut self) -> Result<ExitStatus, Error> {
        let status = self.inner.wait().await.map_err(Error::Wait)?;
        if let Some(group) = self.group.take() {
            group.kill();
        }
        #[cfg(target_os = "linux")]
        drop(self.held.take());
        let Some(mut report) = self.report.take() else { return Ok(status) };
        let mut said = [0; 16];
        // All who could still report anything are gone.
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

    /// Goes down the kill ladder: closes the input, terminates the group, kills it.
    ///
    /// The caller must drain the pipes meanwhile or have dropped them, or a program that flushes before it
    /// ends is killed while it waits for a reader.
    ///
    /// # Errors
    /// Fails if the system does not tell how the program ended.
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

    /// Asks the whole group to end.
    pub fn terminate(&mut self) {
        if let Some(group) = &self.group {
            group.terminate();
        }
    }

    /// Kills the whole group at once. Await the child afterwards to learn how it ended.
    pub fn kill(&mut self) {
        if let Some(group) = &self.group {
            // Those that made a session of their own hang below the helper, for as long as it is there.
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

/// Returns the name of the signal that ended a program, such as `SIGKILL`.
#[cfg(unix)]
#[must_use]
pub fn signal_name(status: ExitStatus) -> Option<String> {
    let number = std::os::unix::process::ExitStatusExt::signal(&status)?;
    u32::try_from(number).ok().map(name_of_signal)
}

/// Returns what people call a signal.
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
        // The numbers of the others differ from system to system.
        other => format!("signal {other}"),
    }
}

/// Returns nothing: there are no signals here.
#[cfg(not(unix))]
#[must_use]
pub fn signal_name(_status: ExitStatus) -> Option<String> {
    None
}

/// The process group that a program leads.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Group(rustix::process::Pid);

#[cfg(unix)]
impl Group {
    pub(crate) fn of(child: &tokio::process::Child) -> Option<Group> {
        let number = i32::try_from(child.id()?).ok()?;
        rustix::process::Pid::from_raw(number).map(Group)
    }

    fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        // The one error is that the group is empty already, and then there is nothing left to do.
        rustix::process::kill_process_group(self.0, signal).ok();
    }
}

/// Stands in where there are no process groups: the program itself is killed, its children are not.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Group;

#[cfg(not(unix))]
impl Group {
    pub(crate) fn of(_child: &tokio::process::Child) -> Option<Group> {
        None
    }

    fn terminate(&self) {}

    fn kill(&self) {}
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

    /// Starts a script and waits until it has said `ready`. The pipe ends only when the whole tree is gone.
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
        assert!(ended.is_ok(), "somebody still holds the pipe");
    }

    #[tokio::test]
    async fn a_program_that_reads_its_input_ends_by_itself() {
        let (mut child, output) = start("echo ready; cat; exit 3").await;
        assert_eq!(child.end(Grace::default()).await.unwrap().code(), Some(3));
        assert_all_gone(output).await;
    }

    #[tokio::test]
    async fn a_program_that_does_not_is_terminated() {
        let (mut child, output) = start("trap 'exit 7' TERM; echo ready; sleep 100 & wait").await;
        assert_eq!(child.end(SHORT).await.unwrap().code(), Some(7));
        assert_all_gone(output).await;
    }

    #[tokio::test]
    async fn a_tree_that_ignores_everything_is_killed() {
        let deaf = "trap '' TERM; while :; do sleep 1; done";
        let (mut child, output) =
            start(&format!("trap '' TERM; ({deaf}) & ({deaf}) & echo ready; {deaf}")).await;
        assert_eq!(child.end(SHORT).await.unwrap().signal(), Some(9));
        assert_all_gone(output).await;
    }

    #[tokio::test]
    async fn what_a_program_leaves_behind_dies_with_it() {
        let (mut child, output) = start("trap '' TERM; sleep 100 & echo ready").await;
        assert!(child.wait().await.unwrap().success());
        assert_all_gone(output).await;
    }

    #[tokio::test]
    async fn a_dropped_child_takes_its_group_along() {
        let (child, output) = start("sleep 100 & echo ready; sleep 100").await;
        drop(child);
        assert_all_gone(output).await;
    }
}
