//! What the model sees: instructions and history, built in one place. `/context` prints it.
//!
//! `history` is the conversation, `compact` makes room in it, `primer` writes what stands before it.

mod report;

use std::sync::Arc;
use std::time::Duration;

use crate::ports::{Request, ToolSpec};
use crate::turn::TurnCx;
use crate::turn::instructions::{self as primer, Brief, Given, Section, Surroundings};
use crate::turn::session::{ModelChoice, Settings};
use crate::words::Message;
use crate::words::stamp;

pub use crate::words::history::{Cut, History};
pub(crate) use crate::words::history::{SUMMARY_HEAD, tokens_of, trim};
pub(crate) use report::report;

/// What a session knows beside its conversation, to build what the model sees.
#[derive(Debug, Default)]
pub(crate) struct Mind {
    /// What holds from the beginning, once it was looked up.
    brief: Option<Arc<Brief>>,
    /// The day it was looked up: the model's cache holds only what stays the same.
    date: String,
    /// Instructions that came with a result.
    pub(crate) given: Given,
    /// How many entries the provider counted last, with all that stands before them, and how many tokens that was.
    measured: Option<(usize, u64)>,
}

impl Mind {
    /// Makes the mind of a child: what was looked up holds for it, too.
    pub(crate) fn for_child(&self) -> Mind {
        Mind { brief: self.brief.clone(), date: self.date.clone(), ..Mind::default() }
    }

    /// Forgets what was looked up, given and measured, so that it is done anew.
    pub(crate) fn refresh(&mut self) {
        *self = Mind::default();
    }

    /// Takes the provider's own count, if it gave one.
    pub(crate) fn measure(&mut self, entries: usize, tokens: u64) {
        self.measured = Some((entries, tokens));
    }
}

/// How a model's window is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Beyond so many tokens the conversation is compacted; the rest is for the answer.
    pub(crate) limit: u64,
    /// So many tokens of the newest messages stay as they are.
    pub(crate) tail: u64,
    /// A history of fewer tokens is not worth it: little could go.
    pub(crate) worth: u64,
    /// How long a summary may be, in bytes.
    pub(crate) summary: usize,
    /// How much is shown to the model that summarises, in bytes.
    pub(crate) transcript: usize,
    /// How long a result of a tool may be, in bytes.
    pub(crate) result: usize,
}

/// No answer needs more.
const MOST_OUTPUT: u64 = 32_000;

impl Room {
    /// Shares out a window of so many tokens.
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

/// How long a disk may take to say what holds from the beginning; then the model is told without.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns what holds from the beginning, looked up when it is first needed. A cancel does not end it: a turn that is
/// cancelled at once has still asked the model.
async fn brief(cx: &mut TurnCx<'_>) -> Arc<Brief> {
    if let Some(brief) = &cx.mind.brief {
        return Arc::clone(brief);
    }
    let found = tokio::time::timeout(PATIENCE, cx.primer.brief()).await;
    let brief = Arc::new(found.unwrap_or_else(|_| {
        tracing::warn!("the project's instructions could not be read in time");
        Brief::default()
    }));
    let mut date = stamp::iso_8601(cx.clock.now());
    date.truncate("2026-11-16".len());
    cx.mind.date = date;
    cx.mind.brief = Some(Arc::clone(&brief));
    brief
}

/// What stands before the conversation: the parts of the instructions, and the tools.
async fn front(
    cx: &mut TurnCx<'_>,
    settings: &Settings,
    choice: &ModelChoice,
) -> (Vec<Section>, Vec<Arc<ToolSpec>>) {
    let brief = brief(cx).await;
    let mode = settings.mode();
    let all = cx.tools.now();
    let offered = all
        .iter()
        .filter(|tool| mode.offers(tool.kind()) && mode.has_tool(&tool.spec().name))
        .filter(|tool| tool.suits(&settings.model, cx.editor.offers()));
    let tools: Vec<Arc<ToolSpec>> = offered.map(|tool| tool.spec()).collect();
    let around = Surroundings { cwd: cx.cwd, date: &cx.mind.date, window: choice.context_size };
    (primer::sections(mode, &brief, &around, &tools), tools)
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
        instructions: primer::join(&sections).into(),
        messages: cx.history.messages().to_vec(),
        tools,
    }
}

/// How much of the window the next request takes, about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Tokens of all of it: as the provider counted, where it did, else by our estimate.
    pub(crate) used: u64,
    /// Those of the conversation.
    pub(crate) talk: u64,
}

/// Returns how much of the window the next request takes.
pub(crate) async fn load(cx: &mut TurnCx<'_>, settings: &Settings, choice: &ModelChoice) -> Load {
    let (sections, tools) = front(cx, settings, choice).await;
    let before: u64 = sections.iter().map(|section| tokens_of(&section.text)).sum();
    let before = before + tokens_of_tools(&tools);
    let counted = cx.mind.measured.filter(|(entries, _)| *entries <= cx.history.len());
    let estimate = before + cx.history.tokens();
    let used = match counted {
        // Not every server counts all that it was sent; far below what there is, its word is not taken.
        Some((entries, tokens)) => (tokens + cx.history.tokens_from(entries)).max(estimate / 5 * 4),
        None => estimate,
    };
    Load { used, talk: used.saturating_sub(before) }
}

fn tokens_of_tools(tools: &[Arc<ToolSpec>]) -> u64 {
    let bytes: usize = tools.iter().map(|tool| size_of_tool(tool)).sum();
    bytes as u64 * 3 / 10
}

fn size_of_tool(tool: &ToolSpec) -> usize {
    tool.name.len() + tool.description.len() + tool.schema.text().len()
}

/// A result that is longer than this is not told twice.
const WORTH_A_POINTER: usize = 2_000;

/// Makes of a result what the model is told: what it was told before it is only reminded of, and what is too long for its
/// window is cut.
pub(crate) fn fit_result(cx: &TurnCx<'_>, text: String) -> String {
    if text.len() >= WORTH_A_POINTER {
        let same = cx.history.messages().iter().rev().find_map(|message| match &**message {
            Message::ToolResult { id, text: told, .. } if *told == text => Some(id.clone()),
            Message::ToolResult { .. } | Message::Agent { .. } | Message::User(_) => None,
        });
        if let Some(id) = same {
            let lines = text.lines().count();
            return format!(
                "[the same {lines} lines as the result of the call {id}, which is still in view above]"
            );
        }
    }
    trim(
        &text,
        room_for_result(cx),
        "ask for a part of it, such as `read` with `offset` and `limit`, or a narrower search",
    )
    .into_owned()
}

/// How long a result of a tool may be, in bytes.
pub(crate) fn room_for_result(cx: &TurnCx<'_>) -> usize {
    let window = cx.settings.borrow().choice().map_or(0, |choice| choice.context_size);
    Room::of(window).result
}
