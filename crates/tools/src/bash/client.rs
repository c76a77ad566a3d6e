//! Runs a command in a terminal of the editor.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::Event;
use engine::ports::{EditorError, Output, TerminalCommand, ToolCx, ToolError};
use engine::words::{TerminalId, ToolContent, ToolUpdate};
use futures_util::future::join;
use process::sandbox::Found;
use tokio::time::timeout;

use super::output::{Plain, ended, raw_of};
use super::{Bash, Input, timed_out};

/// How much output the terminal keeps. It drops the beginning of longer output.
const OUTPUT: u64 = 1024 * 1024;

impl Bash {
    /// Lets the editor run a command. The editor starts our helper, which restricts the command as usual. `None` if the editor refuses
    /// and has started nothing.
    pub(super) async fn run_in_terminal(
        self: &Arc<Self>,
        cx: &ToolCx<'_>,
        input: &Input,
        found: &Found,
    ) -> Result<Option<Output>, ToolError> {
        if cfg!(not(target_os = "linux")) {
            let args = vec!["-c".to_owned(), input.command.clone()];
            return self.run_there(cx, input, "sh".to_owned(), args).await;
        }
        let spec = self.spec_of(cx.cwd, &input.command);
        let profile = self.profile_of(input).await?;
        let started = match self.sandbox.for_terminal(&spec, &profile, found) {
            Ok(started) => started,
            Err(err) => return Err(self.not_run(&err, "").await),
        };
        let text = |word: &OsStr| word.to_str().map(str::to_owned);
        let args: Option<Vec<String>> = started.args.iter().map(|arg| text(arg)).collect();
        match (text(started.program.as_os_str()), args) {
            (Some(program), Some(args)) => {
                let done = self.run_there(cx, input, program, args).await?;
                if done.is_none() && !started.cancel() {
                    let why = "the client started the command in a terminal but reported an error; it is not run a \
                               second time";
                    return Err(ToolError::Model(why.to_owned()));
                }
                Ok(done)
            }
            _ => Err(ToolError::Model(
                "the command was not run: the path of Purlin is not UTF-8".to_owned(),
            )),
        }
    }

    async fn run_there(
        &self,
        cx: &ToolCx<'_>,
        input: &Input,
        command: String,
        args: Vec<String>,
    ) -> Result<Option<Output>, ToolError> {
        let cwd = cx.cwd.to_owned();
        let shell = TerminalCommand { command, args, cwd, output_limit: OUTPUT };
        let terminal = match cx.or_cancelled(cx.editor.create_terminal(shell)).await? {
            Err(EditorError::NotOffered(_)) => {
                self.has_no_terminals.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            Err(EditorError::Refused(why)) => {
                tracing::info!("the client refused a terminal: {why}");
                return Ok(None);
            }
            // A client that does not answer may have started it.
            terminal => terminal?,
        };
        let content = Some(vec![ToolContent::Terminal(terminal.clone())]);
        let update = ToolUpdate { content, ..ToolUpdate::default() };
        cx.turn.show(Event::ToolUpdate(cx.id.clone(), Box::new(update))).await?;
        let done = cx.or_cancelled(self.watch(cx, input, &terminal)).await;
        if done.is_err() {
            // Both requests are sent before either is answered: there is little time after a cancel.
            let kill = cx.editor.kill_terminal(terminal.clone());
            let (killed, released) = join(kill, cx.editor.release_terminal(terminal)).await;
            killed.and(released)?;
        } else {
            cx.editor.release_terminal(terminal).await?;
        }
        done?.map(Some)
    }

    async fn watch(
        &self,
        cx: &ToolCx<'_>,
        input: &Input,
        terminal: &TerminalId,
    ) -> Result<Output, ToolError> {
        let exit = cx.editor.wait_for_exit(terminal.clone());
        let Ok(status) = timeout(input.timeout, exit).await else {
            cx.editor.kill_terminal(terminal.clone()).await?;
            let output = self.said(cx, terminal).await?;
            let terminal = ToolContent::Terminal(terminal.clone());
            return Err(timed_out(input, &output, Some(terminal)));
        };
        let status = status?;
        let output = self.said(cx, terminal).await?;
        Ok(Output { text: ended(&output, &status), content: None, raw: Some(raw_of(&status)) })
    }

    /// Returns the output for the model, as from our own shell.
    async fn said(&self, cx: &ToolCx<'_>, terminal: &TerminalId) -> Result<String, ToolError> {
        let output = cx.editor.terminal_output(terminal.clone()).await?;
        let mut capture = self.capture(cx);
        if output.is_truncated {
            let size = output.text.len();
            let note =
                format!("… the beginning is missing: the terminal stores only {size} bytes …\n");
            capture.push(note.as_bytes());
        }
        capture.push(Plain::default().push(output.text.as_bytes()).as_bytes());
        Ok(capture.text())
    }
}
