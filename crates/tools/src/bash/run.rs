//! Runs a command in our own sandboxed shell: starts it, reads its output, ends it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::Event;
use engine::ports::{Output, ToolCx, ToolError};
use engine::words::ExitStatus;
use engine::words::{Block, Live, ToolContent, ToolUpdate, fenced};
use process::sandbox::Found;
use process::{Child, ChildStdout, Spec, Tail};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout};

use super::output::{Capture, Plain, ended, raw_of};
use super::search_path::search_path;
use super::{Bash, Input, container, timed_out};

/// How long a command may clean up after SIGTERM. Less than a cancelled tool gets.
pub(super) const GRACE: Duration = Duration::from_millis(1500);
/// How long output is read from processes that a command has left behind.
pub(super) const DRAIN: Duration = Duration::from_millis(200);
/// How often live output is sent to the client, how much of the beginning and the end at once, and how much in total before only the
/// end is sent.
pub(super) const BEAT: Duration = Duration::from_millis(100);
const AT_ONCE: usize = 8 * 1024;
const IN_ALL: usize = 256 * 1024;
/// How often a client without live output is shown that a command still runs, and how much of its output. The first time is soon
/// enough for two seconds.
const PROGRESS: Duration = Duration::from_millis(1500);
const RECENT: usize = 2 * 1024;

/// Shells; the first that exists is used.
const SHELLS: [(&str, &[&str]); 2] =
    [("/bin/bash", &["--noprofile", "--norc", "-c"]), ("/bin/sh", &["-c"])];

/// Why a command was stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Why {
    Itself,
    Timeout,
    Cancelled,
}

impl Bash {
    pub(super) async fn run_here(
        self: &Arc<Self>,
        cx: &ToolCx<'_>,
        input: &Input,
        found: &Found,
        is_live: bool,
    ) -> Result<Output, ToolError> {
        let spec = self.spec_of(cx.cwd, &input.command);
        let profile = self.profile_of(input).await?;
        let spawned = cx.or_cancelled(self.spawn(&spec, &profile, found)).await?;
        let child = match spawned {
            Ok(child) => child,
            Err(err) => return Err(self.not_run(&err, "").await),
        };
        let capture = self.capture(cx);
        let live = LiveOutput::new(is_live);
        let mut running = Running::new(child, capture, live, input.timeout);
        let (status, why) = running.listen(cx).await?;
        let output = running.capture.text();
        let status = match status {
            Ok(status) => exit_status(status),
            Err(err) if why == Why::Itself => return Err(self.not_run(&err, &output).await),
            Err(_) => ExitStatus::default(),
        };
        running.live.end(cx, &status).await?;
        match why {
            Why::Cancelled => Err(ToolError::Cancelled),
            Why::Timeout => {
                let terminal = || ToolContent::Live { cwd: cx.cwd.to_owned() };
                Err(timed_out(input, &output, running.live.is_on.then(terminal)))
            }
            Why::Itself => {
                let text = ended(&output, &status);
                let shown = || vec![ToolContent::Block(Block::Text(fenced(&text)))];
                let content = (!running.live.is_on).then(shown);
                Ok(Output { text, content, raw: Some(raw_of(&status)) })
            }
        }
    }

    pub(super) fn spec_of(&self, cwd: &Path, command: &str) -> Spec {
        if self.containers().is_some() {
            let mut spec = Spec::new("/bin/sh", cwd).args(["-c", container::SHELL, command]);
            spec.merge_stderr = true;
            return spec;
        }
        self.host_spec_of(cwd, command)
    }

    /// Returns the same for a command that runs on the host in any case.
    pub(super) fn host_spec_of(&self, cwd: &Path, command: &str) -> Spec {
        let (shell, args) = SHELLS
            .iter()
            .find(|(shell, _)| Path::new(shell).is_file())
            .unwrap_or(&SHELLS[SHELLS.len() - 1]);
        let mut spec = Spec::new(shell, cwd).args(args.iter().copied()).args([command]);
        spec.clear_env = true;
        spec.merge_stderr = true;
        let path = search_path(&self.options.search, &self.options.directories);
        spec = spec.env("PATH", path);
        for (name, value) in &*self.options.environment {
            spec = spec.env(name, value);
        }
        spec
    }

    /// Makes the capture for the output of a command.
    pub(super) fn capture(&self, cx: &ToolCx<'_>) -> Capture {
        let file = |directory: &Path| directory.join(format!("{}.txt", file_name(cx.id.as_str())));
        Capture::new(self.options.outputs.as_deref().map(file), cx.turn.result_limit())
    }

    /// Makes the error of a command that did not run. The sandbox is tried again: the next call may need permission because it is
    /// weaker.
    pub(super) async fn not_run(&self, err: &process::Error, said: &str) -> ToolError {
        self.sandbox.doubt().await;
        let mut text = format!("the command was not run: {err}");
        let mut cause = std::error::Error::source(err);
        while let Some(err) = cause {
            text.push_str(&format!(": {err}"));
            cause = err.source();
        }
        if let Some(line) = said.lines().next() {
            text.push_str(&format!(" ({line})"));
        }
        ToolError::Model(text)
    }
}

/// A running command.
struct Running {
    child: Child,
    capture: Capture,
    live: LiveOutput,
    timeout: Duration,
    began: Instant,
    deadline: Instant,
    /// The end of the output, for a client that is not shown all of it.
    recent: Tail,
    next_progress: Instant,
}

impl Running {
    fn new(child: Child, capture: Capture, live: LiveOutput, timeout: Duration) -> Running {
        let began = Instant::now();
        Running {
            child,
            capture,
            live,
            timeout,
            began,
            deadline: began + timeout,
            recent: Tail::new(RECENT),
            next_progress: began + PROGRESS,
        }
    }

    /// Shows a client without live output that the command still runs, for how long, and what it printed last.
    async fn show_progress(&mut self, cx: &ToolCx<'_>) -> Result<(), ToolError> {
        self.next_progress = Instant::now() + PROGRESS;
        let recent = Plain::default().push(self.recent.text().as_bytes());
        let output =
            if recent.trim().is_empty() { String::new() } else { fenced(recent.trim_end()) };
        let (ran, most) = (self.began.elapsed().as_secs(), self.timeout.as_secs());
        let text = format!("{output}\nRunning for {ran} s; it is ended after {most} s.");
        self.live.show(cx, Live::Progress(text.trim_start().to_owned())).await
    }

    /// Reads output until the command has ended or was stopped.
    async fn listen(
        &mut self,
        cx: &ToolCx<'_>,
    ) -> Result<(Result<std::process::ExitStatus, process::Error>, Why), ToolError> {
        let mut pipe = self.child.stdout.take();
        let mut buffer = vec![0; 64 * 1024];
        let mut why = Why::Itself;
        let mut next_step = self.deadline;
        let status = loop {
            tokio::select! {
                read = read(&mut pipe, &mut buffer) => self.take(&buffer[..read]),
                status = self.child.wait() => break status,
                () = sleep_until(self.live.next), if self.live.is_waiting() => self.live.flush(cx, true).await?,
                () = sleep_until(self.next_progress), if !self.live.is_on && why == Why::Itself => {
                    self.show_progress(cx).await?;
                }
                () = cx.cancel.cancelled(), if why == Why::Itself => {
                    why = Why::Cancelled;
                    self.child.terminate();
                    next_step = Instant::now() + GRACE;
                }
                () = sleep_until(next_step) => {
                    if why == Why::Itself {
                        why = Why::Timeout;
                        self.child.terminate();
                    } else {
                        self.child.kill();
                    }
                    next_step = Instant::now() + GRACE;
                }
            }
        };
        // Processes that still have the pipe open are read from for a moment only.
        let rest = async {
            while pipe.is_some() {
                let read = read(&mut pipe, &mut buffer).await;
                self.capture.push(&buffer[..read]);
                self.live.push(&buffer[..read]);
            }
        };
        // A timeout is no error here.
        timeout(DRAIN, rest).await.ok();
        Ok((status, why))
    }

    fn take(&mut self, bytes: &[u8]) {
        self.capture.push(bytes);
        self.live.push(bytes);
        self.recent.push(bytes);
    }
}

/// Reads the next bytes. At the end the pipe is dropped, and the future never completes again.
pub(super) async fn read(pipe: &mut Option<ChildStdout>, buffer: &mut [u8]) -> usize {
    let Some(open) = pipe else {
        return std::future::pending().await;
    };
    match open.read(buffer).await {
        Ok(read) if read > 0 => read,
        Ok(_) | Err(_) => {
            *pipe = None;
            0
        }
    }
}

/// Live output for the client: only what is new, at limited rate and size, and always the last lines.
pub(super) struct LiveOutput {
    pub(super) is_on: bool,
    plain: Plain,
    waiting: String,
    /// The end of what exceeded the limit, and its size.
    tail: Tail,
    beyond: usize,
    sent: usize,
    next: Instant,
}

impl LiveOutput {
    pub(super) fn new(is_on: bool) -> LiveOutput {
        let next = Instant::now();
        LiveOutput {
            is_on,
            plain: Plain::default(),
            waiting: String::new(),
            tail: Tail::new(AT_ONCE),
            beyond: 0,
            sent: 0,
            next,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.is_on {
            return;
        }
        let text = self.plain.push(bytes);
        let most = if self.sent < IN_ALL { AT_ONCE } else { 0 };
        let room = if self.beyond == 0 { most.saturating_sub(self.waiting.len()) } else { 0 };
        let (first, rest) = text.split_at(text.floor_char_boundary(room));
        self.waiting.push_str(first);
        self.tail.push(rest.as_bytes());
        self.beyond += rest.len();
    }

    /// Output beyond the limit waits for the end.
    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the waiting output: its beginning and its end. If the limit is reached while the command runs, a note says so.
    fn take(&mut self, is_running: bool) -> String {
        let mut text = std::mem::take(&mut self.waiting);
        let tail = std::mem::replace(&mut self.tail, Tail::new(AT_ONCE)).text();
        let skipped = std::mem::take(&mut self.beyond) - tail.len();
        if skipped > 0 {
            text.push_str(&format!("\n… {skipped} bytes not shown …\n"));
        }
        text.push_str(&tail);
        self.sent += text.len();
        if self.sent >= IN_ALL && is_running {
            text.push_str("\n… only the end of further output is shown …\n");
        }
        text
    }

    pub(super) async fn flush(
        &mut self,
        cx: &ToolCx<'_>,
        is_running: bool,
    ) -> Result<(), ToolError> {
        let text = self.take(is_running);
        if text.is_empty() {
            return Ok(());
        }
        self.next = Instant::now() + BEAT;
        self.show(cx, Live::Output(text)).await
    }

    /// Sends the last output and the exit status.
    pub(super) async fn end(
        &mut self,
        cx: &ToolCx<'_>,
        status: &ExitStatus,
    ) -> Result<(), ToolError> {
        if !self.is_on {
            return Ok(());
        }
        self.flush(cx, false).await?;
        self.show(cx, Live::Ended(status.clone())).await
    }

    async fn show(&self, cx: &ToolCx<'_>, live: Live) -> Result<(), ToolError> {
        let update = ToolUpdate { live: Some(live), ..ToolUpdate::default() };
        cx.turn.show(Event::ToolUpdate(cx.id.clone(), Box::new(update))).await
    }
}

/// Returns the exit status of a command.
pub(super) fn exit_status(status: std::process::ExitStatus) -> ExitStatus {
    let code = status.code().and_then(|code| u32::try_from(code).ok());
    ExitStatus { code, signal: process::end::signal_name(status) }
}

/// Returns a new file name, safe whatever the call's id is.
fn file_name(id: &str) -> String {
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
    let name: String = id.chars().take(80).map(plain).collect();
    // Models may reuse an id, in another turn or another process.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T3
    #[test]
    fn last_lines_are_shown_however_long_the_output_is() {
        let mut live = LiveOutput::new(true);
        let mut shown = String::new();
        for beat in 0..100 {
            let lines: String = (0..10_000).map(|line| format!("{beat} {line}\n")).collect();
            live.push(lines.as_bytes());
            if live.is_waiting() {
                let text = live.take(true);
                assert!(text.len() < 2 * AT_ONCE + 100, "{}", text.len());
                assert!(text.starts_with(&format!("{beat} 0\n")), "{text}");
                assert!(text.contains(&format!("\n{beat} 9999\n")), "{text}");
                shown.push_str(&text);
            }
        }
        live.push(b"FINAL\n");
        shown.push_str(&live.take(false));
        assert!(shown.ends_with("\n99 9999\nFINAL\n"));
        assert!(shown.len() < IN_ALL + 4 * AT_ONCE, "{}", shown.len());
        assert_eq!(shown.matches("only the end of further output").count(), 1);
        assert_eq!(live.take(false), "");
    }

    #[test]
    fn short_output_is_shown_unchanged() {
        let mut live = LiveOutput::new(true);
        live.push(&[b'x'; AT_ONCE]);
        live.push(b"yz\n");
        assert_eq!(live.take(true), "x".repeat(AT_ONCE) + "yz\n");
    }
}
