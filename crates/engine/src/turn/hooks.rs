//! Runs the user's hooks when tools and turns begin and end.
//!
//! A hook can object, and it can add information for the model. It never allows anything: rules, modes and the user are
//! still asked. What a hook runs is up to the outside; see [`Extension::hook`](crate::ports::Extension::hook).

use std::borrow::Cow;

use super::cx::{TurnCx, TurnError};
use super::slow::notice_if_slow;
use crate::ports::{Output, Severity, ToolError};
use crate::words::{Block, HookOutcome, Moment, Prompt, StopReason, ToolRequest};

/// Runs before a turn: adds what hooks say to the prompt, or returns why the model must not see it.
pub(crate) async fn before_turn(
    cx: &TurnCx<'_>,
    prompt: &mut Prompt,
) -> Result<Option<String>, TurnError> {
    let text = prompt.text();
    let said = ask(cx, Moment::BeforeTurn { prompt: &text }).await?;
    prompt.blocks.extend(said.context.into_iter().map(Block::Text));
    Ok(said.objection)
}

/// Runs before a tool is used.
pub(crate) async fn before_tool(
    cx: &TurnCx<'_>,
    request: &ToolRequest,
) -> Result<HookOutcome, TurnError> {
    ask(cx, Moment::BeforeTool { tool: &request.name, input: &request.input }).await
}

/// Runs after a tool was used. What hooks say now and said `before` is appended to the result.
pub(crate) async fn after_tool(
    cx: &TurnCx<'_>,
    request: &ToolRequest,
    before: Vec<String>,
    mut outcome: Result<Output, ToolError>,
) -> Result<Result<Output, ToolError>, TurnError> {
    let (output, failed) = match &outcome {
        Ok(output) => (Cow::Borrowed(output.text.as_str()), false),
        Err(err) => (Cow::Owned(err.to_string()), true),
    };
    let (tool, input) = (request.name.as_str(), &request.input);
    let said = ask(cx, Moment::AfterTool { tool, input, output: &output, failed }).await?;
    for words in before.into_iter().chain(said.objection).chain(said.context) {
        match &mut outcome {
            Ok(output) => output.text.push_str(&format!("\n\n{words}")),
            Err(ToolError::Model(text) | ToolError::Failed { text, .. }) => {
                text.push_str(&format!("\n\n{words}"))
            }
            Err(ToolError::Editor(_) | ToolError::Cancelled | ToolError::Broken(_)) => {}
        }
    }
    Ok(outcome)
}

/// Runs after a turn. Only problems of the hooks themselves are shown.
pub(crate) async fn after_turn(cx: &TurnCx<'_>, stop: Option<StopReason>) -> Result<(), TurnError> {
    match cx.or_cancelled(cx.ports.toolbox.hook(Moment::AfterTurn(stop))).await {
        Ok(said) => report(cx, said.problems).await,
        // A user who cancels does not want to wait.
        Err(_) => Ok(()),
    }
}

async fn ask(cx: &TurnCx<'_>, moment: Moment<'_>) -> Result<HookOutcome, TurnError> {
    let title = match moment {
        Moment::AfterTool { .. } => None,
        _ => Some("Waiting for a hook of the user or the project"),
    };
    let work = cx.or_cancelled(cx.ports.toolbox.hook(moment));
    let mut said = match title {
        Some(title) => notice_if_slow(cx, title, work).await.flatten()?,
        // Shown as progress of the call.
        None => work.await?,
    };
    report(cx, std::mem::take(&mut said.problems)).await?;
    Ok(said)
}

/// Shows problems of hooks to the user.
async fn report(cx: &TurnCx<'_>, problems: Vec<String>) -> Result<(), TurnError> {
    for problem in problems {
        cx.notify(Severity::Warning, "Problem with a hook or checker", Some(problem)).await?;
    }
    Ok(())
}
