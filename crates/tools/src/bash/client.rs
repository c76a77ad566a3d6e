//! A command in a terminal of the editor. The editor shows it, and nothing of ours holds it back.

use engine::Event;
use engine::ports::{ExitStatus, Output, TerminalCommand, ToolCx, ToolError};
use engine::words::{TerminalId, ToolContent, ToolUpdate};
use tokio::time::timeout;

use super::output::{Plain, ended};
use super::{Input, took_too_long};

/// How much of its output the terminal keeps.
const OUTPUT: u64 = 64 * 1024;

pub(super) async fn run(cx: &ToolCx<'_>, input: &Input) -> Result<Output, ToolError> {
    let shell = TerminalCommand {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), input.command.clone()],
        cwd: cx.cwd.to_owned(),
        output_limit: OUTPUT,
    };
    let terminal = cx.or_cancelled(cx.editor.create_terminal(shell)).await??;
    let content = Some(vec![ToolContent::Terminal(terminal.clone())]);
    let update = ToolUpdate { content, ..ToolUpdate::default() };
    cx.show(Event::ToolUpdate(cx.id.clone(), Box::new(update))).await?;
    let done = cx.or_cancelled(watch(cx, input, &terminal)).await;
    // Also after a cancel: a terminal that is not given back goes on running.
    cx.editor.release_terminal(terminal).await?;
    done?
}

async fn watch(cx: &ToolCx<'_>, input: &Input, terminal: &TerminalId) -> Result<Output, ToolError> {
    let Ok(status) = timeout(input.timeout, cx.editor.wait_for_exit(terminal.clone())).await else {
        cx.editor.kill_terminal(terminal.clone()).await?;
        let output = said(cx, terminal).await?;
        return Err(took_too_long(input, &output));
    };
    let ExitStatus { code, signal } = status?;
    let output = said(cx, terminal).await?;
    Ok(Output { text: ended(&output, code, signal.as_deref()), content: None })
}

async fn said(cx: &ToolCx<'_>, terminal: &TerminalId) -> Result<String, ToolError> {
    let output = cx.editor.terminal_output(terminal.clone()).await?;
    let text = Plain::default().push(output.text.as_bytes());
    Ok(if output.is_truncated {
        format!("… the beginning is left out …\n{text}")
    } else {
        text
    })
}
