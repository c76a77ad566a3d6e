//! Hooks: what the user wants to be asked about, beside the rules, when tools and turns begin and end.
//!
//! A hook can object, and it can add words for the model. It never allows: a rule, a mode and the user are asked all the
//! same. What runs is the outside's business; see [`crate::ports::Tools::hook`].

use std::borrow::Cow;

use serde_json::Value;

use crate::ports::event::{Event, Severity};
use crate::ports::{Output, ToolError};
use crate::turn::{TurnCx, TurnError};
use crate::words::{Block, MessageId, Prompt, StopReason, ToolRequest};

/// When a hook is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment<'a> {
    /// A prompt is about to go to the model.
    BeforeTurn {
        /// Its text.
        prompt: &'a str,
    },
    /// A tool is about to be used; nobody was asked for permission yet.
    BeforeTool {
        /// Which.
        tool: &'a str,
        /// What the model asks of it.
        input: &'a Value,
    },
    /// A tool has done its work, or failed.
    AfterTool {
        /// Which.
        tool: &'a str,
        /// What the model asked of it.
        input: &'a Value,
        /// What the model will be told.
        output: &'a str,
        /// Whether it failed.
        failed: bool,
    },
    /// The turn has ended; `None` if it was cancelled or failed.
    AfterTurn(Option<StopReason>),
}

/// What hooks say of a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruling {
    /// Why it must not be. Means nothing of what has happened already.
    pub objection: Option<String>,
    /// What the model should know.
    pub context: Vec<String>,
    /// What is wrong with the hooks themselves, for the user.
    pub problems: Vec<String>,
}

/// Asks before a turn: adds what hooks say to the prompt, or returns why the model must not see it.
pub(crate) async fn before_turn(
    cx: &TurnCx<'_>,
    prompt: &mut Prompt,
) -> Result<Option<String>, TurnError> {
    let text = prompt.text();
    let ruling = ask(cx, Moment::BeforeTurn { prompt: &text }).await?;
    prompt.blocks.extend(ruling.context.into_iter().map(Block::Text));
    Ok(ruling.objection)
}

/// Asks before a tool is used.
pub(crate) async fn before_tool(
    cx: &TurnCx<'_>,
    request: &ToolRequest,
) -> Result<Ruling, TurnError> {
    ask(cx, Moment::BeforeTool { tool: &request.name, input: &request.input }).await
}

/// Asks after a tool was used: what hooks say, then and `before`, is told to the model behind its result.
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
    let ruling = ask(cx, Moment::AfterTool { tool, input, output: &output, failed }).await?;
    for words in before.into_iter().chain(ruling.objection).chain(ruling.context) {
        match &mut outcome {
            Ok(output) => output.text.push_str(&format!("\n\n{words}")),
            Err(ToolError::Model(text) | ToolError::Shown { text, .. }) => {
                text.push_str(&format!("\n\n{words}"))
            }
            Err(ToolError::Editor(_) | ToolError::Cancelled | ToolError::Broken(_)) => {}
        }
    }
    Ok(outcome)
}

/// Tells hooks that a turn has ended. What they say comes too late for the model; their problems are told.
pub(crate) async fn after_turn(cx: &TurnCx<'_>, stop: Option<StopReason>) -> Result<(), TurnError> {
    match cx.or_cancelled(cx.tools.hook(Moment::AfterTurn(stop))).await {
        Ok(ruling) => tell(cx, ruling.problems).await,
        // Who cancels does not want to wait.
        Err(_) => Ok(()),
    }
}

async fn ask(cx: &TurnCx<'_>, moment: Moment<'_>) -> Result<Ruling, TurnError> {
    let mut ruling = cx.or_cancelled(cx.tools.hook(moment)).await?;
    tell(cx, std::mem::take(&mut ruling.problems)).await?;
    Ok(ruling)
}

/// Tells the user what is wrong: as a notice where the client shows them, else as a thought.
async fn tell(cx: &TurnCx<'_>, problems: Vec<String>) -> Result<(), TurnError> {
    for problem in problems {
        let event = if cx.editor.offers().notices {
            let title = "A hook did not work".to_owned();
            Event::Notice { severity: Severity::Warning, title, description: Some(problem) }
        } else {
            let message = MessageId::new(cx.clock.fresh_id());
            Event::Thought { message, text: format!("{problem}\n") }
        };
        cx.emit(event).await?;
    }
    Ok(())
}
