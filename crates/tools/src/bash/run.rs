//! A command in a sandboxed shell of ours: started, listened to, ended.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::Event;
use engine::ports::{Output, ToolCx, ToolError};
use engine::words::ExitStatus;
use engine::words::{Block, Live, ToolContent, ToolUpdate};
use process::sandbox::Found;
use process::{Child, ChildStdout, Spec, Tail};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout};

use super::output::{Capture, Plain, ended, raw_of};
use super::{Bash, Input, search_path, took_too_long};

/// How long a command may clean up after it was told to end. Less than a cancelled tool gets.
const GRACE: Duration = Duration::from_millis(1500);
/// How long somebody may still be heard who holds the output of a command that has ended.
const DRAIN: Duration = Duration::from_millis(200);
/// How often the client is told what a command says, how much of the beginning and the end at once, and how much in all
/// before only the end is told.
const BEAT: Duration = Duration::from_millis(100);
const AT_ONCE: usize = 8 * 1024;
const IN_ALL: usize = 256 * 1024;

/// Shells, the first that is there is used.
const SHELLS: [(&str, &[&str]); 2] =
    [("/bin/bash", &["--noprofile", "--norc", "-c"]), ("/bin/sh", &["-c"])];

/// Why a command was ended.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Why {
    Itself,
    Timeout,
    Cancelled,
}

impl Bash {
    pub(super) async fn run_here(
        &self,
        cx: &ToolCx<'_>,
        input: &Input,
        found: &Found,
        is_live: bool,
    ) -> Result<Output, ToolError> {
        let spec = self.spec_of(cx.cwd, &input.command);
        let child = match self.sandbox.spawn(&spec, &self.profile(input), found) {
            Ok(child) => child,
            Err(err) => return Err(self.not_run(&err, "").await),
        };
        let capture = self.capture(cx);
        let live = LiveOutput::new(is_live);
        let mut running =
            Running { child, capture, live, deadline: Instant::now() + input.timeout };
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
                Err(took_too_long(input, &output, running.live.is_on.then(terminal)))
            }
            Why::Itself => {
                let text = ended(&output, &status);
                let shown = || vec![ToolContent::Block(Block::Text(text.clone()))];
                let content = (!running.live.is_on).then(shown);
                Ok(Output { text, content, raw: Some(raw_of(&status)) })
            }
        }
    }

    pub(super) fn spec_of(&self, cwd: &Path, command: &str) -> Spec {
        let (shell, args) = SHELLS
            .iter()
            .find(|(shell, _)| Path::new(shell).is_file())
            .unwrap_or(&SHELLS[SHELLS.len() - 1]);
        let mut spec = Spec::new(shell, cwd).args(args.iter().copied()).args([command]);
        spec.clear_env = true;
        spec.merge_stderr = true;
        let path = search_path(&self.options.search, &self.options.folders);
        spec = spec.env("PATH", path);
        for (name, value) in &*self.options.environment {
            spec = spec.env(name, value);
        }
        spec
    }

    /// Makes what keeps the output of a command.
    pub(super) fn capture(&self, cx: &ToolCx<'_>) -> Capture {
        let file = |folder: &Path| folder.join(format!("{}.txt", file_name(cx.id.as_str())));
        Capture::new(self.options.outputs.as_deref().map(file), cx.turn.result_limit())
    }

    /// Says why a command did not run. What was found of the sandbox is not believed any more: the next call may be
    /// asked about because there is less of it.
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

/// A command that runs.
struct Running {
    child: Child,
    capture: Capture,
    live: LiveOutput,
    deadline: Instant,
}

impl Running {
    /// Listens until the command has ended, by itself or because it was told to.
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
        // Whoever still holds the pipe is heard for a moment, and not waited for.
        let rest = async {
            while pipe.is_some() {
                let read = read(&mut pipe, &mut buffer).await;
                self.capture.push(&buffer[..read]);
                self.live.push(&buffer[..read]);
            }
        };
        // That the moment is over is no error.
        timeout(DRAIN, rest).await.ok();
        Ok((status, why))
    }

    fn take(&mut self, bytes: &[u8]) {
        self.capture.push(bytes);
        self.live.push(bytes);
    }
}

/// Reads the next bytes. At the end the pipe is dropped, and from then on nothing ever comes.
async fn read(pipe: &mut Option<ChildStdout>, buffer: &mut [u8]) -> usize {
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

/// What the client is told while the command runs: only what is new, not too often, not without end, and always the last
/// lines.
struct LiveOutput {
    is_on: bool,
    plain: Plain,
    waiting: String,
    /// The end of what came when no more could wait, and how much that was.
    tail: Tail,
    beyond: usize,
    told: usize,
    next: Instant,
}

impl LiveOutput {
    fn new(is_on: bool) -> LiveOutput {
        let next = Instant::now();
        LiveOutput {
            is_on,
            plain: Plain::default(),
            waiting: String::new(),
            tail: Tail::new(AT_ONCE),
            beyond: 0,
            told: 0,
            next,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if !self.is_on {
            return;
        }
        let text = self.plain.push(bytes);
        let most = if self.told < IN_ALL { AT_ONCE } else { 0 };
        let room = if self.beyond == 0 { most.saturating_sub(self.waiting.len()) } else { 0 };
        let (kept, rest) = text.split_at(text.floor_char_boundary(room));
        self.waiting.push_str(kept);
        self.tail.push(rest.as_bytes());
        self.beyond += rest.len();
    }

    /// What came beyond all that is told while it runs waits for the end.
    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes what waits: its beginning and its end. If the command goes on, and too much was told, that is said.
    fn take(&mut self, goes_on: bool) -> String {
        let mut text = std::mem::take(&mut self.waiting);
        let tail = std::mem::replace(&mut self.tail, Tail::new(AT_ONCE)).text();
        let skipped = std::mem::take(&mut self.beyond) - tail.len();
        if skipped > 0 {
            text.push_str(&format!("\n… {skipped} bytes not shown …\n"));
        }
        text.push_str(&tail);
        self.told += text.len();
        if self.told >= IN_ALL && goes_on {
            text.push_str("\n… from here on only the end is shown …\n");
        }
        text
    }

    async fn flush(&mut self, cx: &ToolCx<'_>, goes_on: bool) -> Result<(), ToolError> {
        let text = self.take(goes_on);
        if text.is_empty() {
            return Ok(());
        }
        self.next = Instant::now() + BEAT;
        self.show(cx, Live::Output(text)).await
    }

    /// Tells the last words and how it ended.
    async fn end(&mut self, cx: &ToolCx<'_>, status: &ExitStatus) -> Result<(), ToolError> {
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

/// Says how a command ended.
fn exit_status(status: std::process::ExitStatus) -> ExitStatus {
    let code = status.code().and_then(|code| u32::try_from(code).ok());
    ExitStatus { code, signal: process::end::signal_name(status) }
}

/// A file name that was never used before, and that no id can lead elsewhere with.
fn file_name(id: &str) -> String {
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
    let name: String = id.chars().take(80).map(plain).collect();
    // Models may use an id again, in another turn or another process.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T3
    #[test]
    fn the_last_lines_are_shown_however_much_came_before() {
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
        assert_eq!(shown.matches("only the end is shown").count(), 1);
        assert_eq!(live.take(false), "");
    }

    #[test]
    fn what_fits_is_shown_as_it_came() {
        let mut live = LiveOutput::new(true);
        live.push(&[b'x'; AT_ONCE]);
        live.push(b"yz\n");
        assert_eq!(live.take(true), "x".repeat(AT_ONCE) + "yz\n");
    }
}
