//! What the model sees: instructions and history, built in one place. `/context` prints it.
//!
//! `words::History` is the conversation, `compact` makes room in it, `instructions` writes what comes before it.

mod report;

use std::sync::Arc;
use std::time::Duration;

use super::cx::TurnCx;
use super::instructions::{self, Section, Surroundings};
use crate::ports::{Instructions, ModelChoice, Request, Settings, ToolSpec};
use crate::words::{Block, Message, OPENING_END, Profile, Prompt, iso_8601, tokens_of, trim};

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

/// What comes before the conversation.
struct Front {
    system: Section,
    /// What precedes the first message.
    opening: Vec<Section>,
    tools: Vec<Arc<ToolSpec>>,
}

impl Front {
    /// Returns its tokens, estimated.
    fn tokens(&self) -> u64 {
        let sections = std::iter::once(&self.system).chain(&self.opening);
        let text: u64 = sections.map(|section| tokens_of(&section.text)).sum();
        text + tokens_of_tools(&self.tools)
    }
}

/// Returns what comes before the conversation.
async fn front(cx: &mut TurnCx<'_>, settings: &Settings, choice: &ModelChoice) -> Front {
    let (found, date) = find_instructions(cx).await;
    let first = cx.conversation.context.first_mode.get_or_insert_with(|| settings.mode.clone());
    let mode = settings.find_mode(first.as_str()).unwrap_or_else(|| settings.mode());
    let around = Surroundings { cwd: cx.conversation.cwd, date: &date, window: choice.window() };
    Front {
        system: instructions::system(choice.profile()),
        opening: instructions::opening(mode, &found, &around),
        tools: offered(cx),
    }
}

/// Returns the tools that the model is offered. Their order stays the same; a tool that joins late comes last.
pub(crate) fn offered(cx: &TurnCx<'_>) -> Vec<Arc<ToolSpec>> {
    let settings = cx.settings();
    let mode = settings.mode();
    let profile = settings.choice().map_or(Profile::Full, ModelChoice::profile);
    let is_child = cx.turn.parent.is_some();
    let all = cx.tools();
    let offered = all
        .iter()
        .filter(|tool| mode.has_tool(&tool.spec().name))
        .filter(|tool| !is_child || mode.offers(tool.kind()))
        .filter(|tool| tool.suits(&settings.model, cx.offers()));
    let mut offered: Vec<Arc<ToolSpec>> = offered
        .filter_map(|tool| match profile {
            Profile::Full => Some(tool.spec()),
            Profile::Brief => tool.brief_spec(),
        })
        .collect();
    cx.conversation.context.order.sort(&mut offered);
    offered
}

/// Builds the request for the next answer.
pub(crate) async fn view(
    cx: &mut TurnCx<'_>,
    settings: &Settings,
    choice: &ModelChoice,
) -> Request {
    let Front { system, opening, tools } = front(cx, settings, choice).await;
    let opening = instructions::join(&opening);
    Request {
        model: settings.model.clone(),
        thinking: settings.thinking,
        instructions: system.text.trim_end().into(),
        messages: opened(cx, opening),
        tools,
        traceparent: None,
    }
}

/// Returns the conversation, with a text before the first message of the user.
fn opened(cx: &mut TurnCx<'_>, opening: String) -> Vec<Arc<Message>> {
    let mut messages = cx.conversation.history.messages().to_vec();
    let state = &mut *cx.conversation.context;
    if let Some((first, text, message)) = &state.opened
        && messages.first().is_some_and(|now| Arc::ptr_eq(now, first))
        && **text == *opening
    {
        messages[0] = Arc::clone(message);
        return messages;
    }
    let mut blocks = vec![Block::Text(format!("{opening}{OPENING_END}"))];
    let Some(Message::User(prompt)) = messages.first().map(|first| &**first) else {
        messages.insert(0, Arc::new(Message::User(Prompt::from(blocks))));
        return messages;
    };
    blocks.extend(prompt.blocks.iter().cloned());
    let message = Arc::new(Message::User(Prompt::from(blocks)));
    let first = std::mem::replace(&mut messages[0], Arc::clone(&message));
    state.opened = Some((first, opening.into(), message));
    messages
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
    let before = front(cx, settings, choice).await.tokens();
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
