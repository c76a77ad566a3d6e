//! What the model sees: instructions and history, built in one place. `/context` prints it.
//!
//! `words::History` is the conversation, `compact` makes room in it, `instructions` writes what comes before it.

mod report;

use std::sync::Arc;
use std::time::Duration;

use super::cx::TurnCx;
use super::instructions::{self, Section, Surroundings};
use crate::ports::{Instructions, ModelChoice, Request, Settings, ToolSpec};
use crate::words::{Message, iso_8601, tokens_of, trim};

pub(crate) use report::report;

/// How a model's context window is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// A conversation of more tokens is compacted; the rest is for the answer.
    pub(crate) limit: u64,
    /// How many tokens of the newest messages stay as they are.
    pub(crate) tail: u64,
    /// A history of fewer tokens is not compacted: too little could be removed.
    pub(crate) worth: u64,
    /// How long a summary may be, in bytes.
    pub(crate) summary: usize,
    /// How much of the conversation the model gets to summarise, in bytes.
    pub(crate) transcript: usize,
    /// How long the result of a tool may be, in bytes.
    pub(crate) result: usize,
}

/// No answer needs more tokens.
const MOST_OUTPUT: u64 = 32_000;

impl Room {
    /// Divides a window of this many tokens.
    pub(crate) fn of(window: u64) -> Room {
        let bytes = |tokens: u64| usize::try_from(tokens).unwrap_or(usize::MAX);
        let limit = window - (window / 4).min(MOST_OUTPUT);
        Room {
            limit,
            tail: (window / 5).min(20_000),
            worth: window / 5 * 2,
            summary: bytes(window / 4).clamp(1_000, 24_000),
            transcript: bytes(limit * 2).clamp(4_000, 600_000),
            result: bytes(window / 2).clamp(4_000, 150_000),
        }
    }
}

/// How long reading the instructions may take; then the model is asked without them.
const READ_LIMIT: Duration = Duration::from_secs(2);

/// Returns the instructions and their date, read on first use. A cancel does not stop this: a turn that is cancelled at
/// once has still asked the model.
async fn find_instructions(cx: &mut TurnCx<'_>) -> (Arc<Instructions>, String) {
    if let Some(found) = &cx.conversation.context.instructions {
        return found.clone();
    }
    let found = tokio::time::timeout(READ_LIMIT, cx.ports.instructions.find()).await;
    let found = Arc::new(found.unwrap_or_else(|_| {
        tracing::warn!("the project's instructions could not be read in time");
        Instructions::default()
    }));
    let mut date = iso_8601(cx.ports.clock.now());
    date.truncate("2026-11-16".len());
    cx.conversation.context.instructions = Some((Arc::clone(&found), date.clone()));
    (found, date)
}

/// Returns what comes before the conversation: the sections of the system prompt, and the tools.
async fn front(
    cx: &mut TurnCx<'_>,
    settings: &Settings,
    choice: &ModelChoice,
) -> (Vec<Section>, Vec<Arc<ToolSpec>>) {
    let (found, date) = find_instructions(cx).await;
    let mode = settings.mode();
    let all = cx.tools();
    let offered = all
        .iter()
        .filter(|tool| mode.offers(tool.kind()) && mode.has_tool(&tool.spec().name))
        .filter(|tool| tool.suits(&settings.model, cx.offers()));
    let tools: Vec<Arc<ToolSpec>> = offered.map(|tool| tool.spec()).collect();
    let cwd = cx.conversation.cwd;
    let around = Surroundings { cwd, date: &date, window: choice.window() };
    (instructions::sections(mode, &found, &around, &tools), tools)
}

/// Builds the request for the next answer.
pub(crate) async fn view(
    cx: &mut TurnCx<'_>,
    settings: &Settings,
    choice: &ModelChoice,
) -> Request {
    let (sections, tools) = front(cx, settings, choice).await;
    Request {
        model: settings.model.clone(),
        thinking: settings.thinking,
        instructions: instructions::join(&sections).into(),
        messages: cx.conversation.history.messages().to_vec(),
        tools,
    }
}

/// How much of the window the next request uses, approximately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// All of its tokens: as the provider counted them, or estimated.
    pub(crate) used: u64,
    /// The tokens of the conversation.
    pub(crate) conversation: u64,
}

/// Returns how much of the window the next request uses.
pub(crate) async fn load(cx: &mut TurnCx<'_>, settings: &Settings, choice: &ModelChoice) -> Load {
    let (sections, tools) = front(cx, settings, choice).await;
    let before: u64 = sections.iter().map(|section| tokens_of(&section.text)).sum();
    let before = before + tokens_of_tools(&tools);
    let history = &*cx.conversation.history;
    let counted = cx.conversation.context.measured.filter(|(entries, _)| *entries <= history.len());
    let estimate = before + history.tokens();
    let used = match counted {
        // Some servers do not count everything. A count far below the estimate is ignored.
        Some((entries, tokens)) => (tokens + history.tokens_from(entries)).max(estimate / 5 * 4),
        None => estimate,
    };
    Load { used, conversation: used.saturating_sub(before) }
}

fn tokens_of_tools(tools: &[Arc<ToolSpec>]) -> u64 {
    let bytes: usize = tools.iter().map(|tool| size_of_tool(tool)).sum();
    bytes as u64 * 3 / 10
}

fn size_of_tool(tool: &ToolSpec) -> usize {
    tool.name.len() + tool.description.len() + tool.schema.text().len()
}

/// A longer result is not sent twice.
const MAX_REPEATED: usize = 2_000;

/// Fits a result into the context: a repeated one becomes a reference, and one that is too long for the window is cut.
pub(crate) fn fit_result(cx: &TurnCx<'_>, text: String) -> String {
    if text.len() >= MAX_REPEATED {
        let same =
            cx.conversation.history.messages().iter().rev().find_map(|message| match &**message {
                Message::ToolResult { id, text: earlier, .. } if *earlier == text => {
                    Some(id.clone())
                }
                Message::ToolResult { .. } | Message::Agent { .. } | Message::User(_) => None,
            });
        if let Some(id) = same {
            let lines = text.lines().count();
            return format!("[identical to the {lines} lines of the result of call {id} above]");
        }
    }
    trim(&text, result_limit(cx), "read a smaller part of it, or narrow the search").into_owned()
}

/// Returns how long the result of a tool may be, in bytes.
pub(crate) fn result_limit(cx: &TurnCx<'_>) -> usize {
    let window = cx.conversation.settings.borrow().choice().map_or(0, |choice| choice.window());
    Room::of(window).result
}
