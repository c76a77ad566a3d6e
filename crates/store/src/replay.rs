//! Replay: restores a session from its records, as events for the client and as history for the model.
//!
//! Does no IO: feed it records in order and take events. [`Replay::close`] closes what a crash left open, and returns the
//! records to append so that it stays closed.

mod prompts;
mod turns;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use engine::Event;
use engine::ports::PromptEnd;
use engine::words::Bill;
use engine::words::History;
use engine::words::{
    Block, ContentId, Live, Message, MessageId, ModeId, ModelId, Prompt, Thinking, Thought,
    ToolCallId, ToolContent, ToolRequest, ToolStatus, ToolUpdate, Usage,
};
use engine::words::{Change, Turns};

use serde_json::Value;

use crate::journal::Stored;
use crate::record::{self, Decoded, Name, PromptKind, Record};
use prompts::PromptLog;
use turns::TurnLog;

/// The longest history that is restored for the model, in bytes. It is longer than any context window.
const MAX_HISTORY: usize = 16 * 1024 * 1024;
/// Consecutive text chunks of one message are merged up to about this many bytes.
const MAX_MERGED: usize = 16 * 1024;
/// At most this many damaged records are named.
const MAX_NAMED: usize = 10;

/// Shown to the user for a tool call whose outcome is unknown.
const UNKNOWN: &str = "Interrupted. The outcome is unknown";
/// Shown to the user for a tool call whose result cannot be read.
const LOST_RESULT: &str = "The result cannot be read: its record is damaged";
/// Shown to the user for a tool call that was not started.
const NOT_RUN: &str = "Interrupted before it ran";
/// Sent to the model for a tool call whose outcome is unknown.
const UNKNOWN_TO_MODEL: &str = "interrupted: the program ended while this was running, so the outcome is unknown. Check the current state before you run it again";
/// Sent to the model for a tool call that was not started.
const NOT_RUN_TO_MODEL: &str = "interrupted before it ran";

/// A session that is being restored.
#[derive(Debug, Default)]
pub struct Replay {
    events: Vec<Event>,
    /// A text event to which the next chunk may be appended.
    pending_text: Option<Event>,
    history: History,
    history_bytes: usize,
    turns: TurnLog,
    prompts: PromptLog,
    /// The text of the current answer.
    answer_text: String,
    /// The thoughts of the current answer, if it is complete.
    thoughts: Vec<Thought>,
    /// Whether the current turn is a slash command, whose output the model does not see.
    is_command: bool,
    is_turn_open: bool,
    calls: Vec<ReplayedCall>,
    by_id: HashMap<Name, usize>,
    /// Images that the calls of the last answer returned in addition to their text.
    images: Vec<Block>,
    usage: Option<Event>,
    mode: Option<ModeId>,
    model: Option<ModelId>,
    thinking: Option<Thinking>,
    spent: f64,
    bill: Bill,
    /// The compactions that were not undone. The last one applies.
    compactions: Vec<Compaction>,
    last_seq: u64,
    damaged: Vec<u64>,
    missing: u64,
    opaque: u64,
}

/// A tool call of the current turn.
#[derive(Debug)]
struct ReplayedCall {
    id: Name,
    has_intent: bool,
    is_shown: bool,
    is_done: bool,
    has_terminal: bool,
    /// Its title, if it may change files without a record.
    command: Option<String>,
    /// The output of its command so far.
    output: String,
    /// The result for the model, while the call is not done.
    result: Option<String>,
}

/// A summary that replaces the beginning of the history. The history itself stays complete, so that the compaction can be
/// undone.
#[derive(Debug)]
struct Compaction {
    /// How many entries it replaces.
    cut: usize,
    /// How many entries there were when it was created.
    at: usize,
    summary: String,
    cap: Option<usize>,
}

/// A restored session.
#[derive(Debug)]
pub struct Replayed {
    /// The history for the model.
    pub history: History,
    /// The turns that can be undone and redone.
    pub turns: Turns,
    /// The last mode.
    pub mode: Option<ModeId>,
    /// The last model.
    pub model: Option<ModelId>,
    /// The last thinking level.
    pub thinking: Option<Thinking>,
    /// The cost of the session, in US dollars.
    pub spent: f64,
    /// The token usage by model.
    pub bill: Bill,
    /// Problems with the records, for the user.
    pub problems: Vec<String>,
    /// What became of the last prompts, the oldest first.
    pub prompts: Vec<(MessageId, PromptEnd)>,
    /// The last events to show.
    pub events: Vec<Event>,
}

/// Returns the events that show a prompt.
pub(crate) fn prompt_events(
    message: &Name,
    blocks: Vec<record::Block>,
    asides: Vec<Option<Value>>,
) -> Vec<Event> {
    let message = MessageId::new(message.0.clone());
    let metas = asides.into_iter().chain(std::iter::repeat(None));
    let blocks = record::blocks_out(blocks).into_iter().zip(metas);
    blocks.map(|(block, meta)| Event::User { message: message.clone(), block, meta }).collect()
}

impl Replay {
    /// Adds the next stored record.
    pub fn feed(&mut self, stored: &Stored) {
        if self.last_seq > 0 {
            self.missing += stored.seq.saturating_sub(self.last_seq + 1);
        }
        self.last_seq = stored.seq;
        match stored.record.decode() {
            Decoded::Record(record) => self.feed_record(record),
            Decoded::Opaque => self.opaque += 1,
            Decoded::Damaged => self.damaged.push(stored.seq),
        }
    }

    /// Returns the events that are ready to be shown.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Adds the next record.
    pub fn feed_record(&mut self, record: Record) {
        match record {
            // The large values of an answer are restored before it is replayed.
            Record::Own { .. } | Record::AnswerLargeValues { .. } => {}
            Record::Prompt { message, kind, blocks, asides } => {
                self.prompts.begin(&message, kind);
                self.prompt(&message, kind, blocks, asides);
            }
            Record::Text { ref text, .. } => {
                if !self.is_command {
                    self.answer_text.push_str(text);
                }
                self.show_text(record);
            }
            Record::Thought { .. } => self.show_text(record),
            Record::ToolCall(call) => self.tool_call(call),
            Record::ToolUpdate { .. } => self.tool_update(record),
            Record::Shown { .. }
            | Record::Plan(_)
            | Record::Compaction { .. }
            | Record::CompactionSummary { .. } => self.show(record),
            Record::Usage { cost, .. } => {
                self.spent = cost.unwrap_or(self.spent);
                self.usage = record::event_out(record);
            }
            Record::Settings { mode, model, thinking } => {
                self.thinking = thinking.and_then(|thinking| Thinking::find(&thinking.0));
                self.mode = Some(ModeId::new(mode.0));
                self.model = Some(ModelId::new(model.0));
            }
            Record::Thoughts(thoughts) => {
                self.thoughts = thoughts.into_iter().map(record::thought_out).collect();
            }
            Record::Answer(calls) => {
                let calls = calls.into_iter().map(record::tool_request_out).collect();
                self.remember_answer(calls);
            }
            Record::ToolIntent(request) => self.tool_intent(request),
            // Changes by slash commands are not undone.
            Record::Change { .. } if self.is_command => {}
            Record::Change { path, before, after } => {
                let id = |name: Name| ContentId::new(name.0);
                let (before, after) = (before.map(id), after.map(id));
                self.turns.changed(Change { path: PathBuf::from(path), before, after });
            }
            Record::Undone { first } => self.undone(&first),
            Record::Redone { last } => self.turns.redo(&last, &mut self.history),
            Record::ToolResult { id, text, failed } => {
                self.call(&id).result = Some(text.clone());
                self.remember_result(ToolCallId::new(id.0), text, failed);
            }
            Record::Note { text } => {
                self.remember(Message::User(Prompt::from(vec![Block::Text(text)])));
            }
            Record::ModelUsage { model, input, output, cache_read, cache_write, dollars } => {
                let usage = Usage { input, output, cache_read, cache_write };
                self.bill.add(&ModelId::new(model.0), &usage, dollars);
                self.spent += dollars.unwrap_or_default();
            }
            Record::Compacted { summary, from, cap } => self.compacted(summary, from, cap),
            Record::TurnEnd { stop } => {
                self.prompts.end(stop);
                self.end_turn("cancelled before it ended");
            }
            Record::Interrupted {} => self.end_turn(NOT_RUN_TO_MODEL),
        }
    }

    fn undone(&mut self, first: &Name) {
        self.turns.undo(first, &mut self.history);
        let left = self.history.len();
        // What was cleared stays cleared, even if a turn before that is undone.
        for clear in self.compactions.iter_mut().filter(|it| it.summary.is_empty()) {
            (clear.cut, clear.at) = (clear.cut.min(left), clear.at.min(left));
        }
        self.compactions.retain(|compaction| compaction.at <= left);
    }

    fn compacted(&mut self, summary: String, from: record::Cut, cap: Option<usize>) {
        let at = self.history.len();
        // A missing position means a damaged record. The model then sees the whole history, until it is compacted again.
        let cut = self.history.find(&record::cut_out(from));
        self.compactions.extend(cut.map(|cut| Compaction { cut, at, summary, cap }));
    }

    fn tool_call(&mut self, mut call: Box<record::ToolCall>) {
        let before = call.content.len();
        call.content.retain(|content| !matches!(content, record::ToolContent::Live { .. }));
        let shown = self.call(&call.id);
        shown.is_shown = true;
        shown.has_terminal = call.content.len() < before;
        if matches!(call.kind, record::ToolKind::Execute | record::ToolKind::Other) {
            shown.command = Some(call.title.clone());
        }
        self.show(Record::ToolCall(call));
    }

    fn tool_intent(&mut self, request: record::ToolRequest) {
        let call = self.call(&request.id);
        call.has_intent = true;
        // A call of a subagent that needed no permission was never shown, so only its intent names it.
        let command = if call.is_shown { call.command.take() } else { Some(request.name) };
        if let Some(command) = command.filter(|_| !self.is_command) {
            self.turns.ran(command);
        }
    }

    fn prompt(
        &mut self,
        message: &Name,
        kind: PromptKind,
        blocks: Vec<record::Block>,
        asides: Vec<Option<Value>>,
    ) {
        if kind == PromptKind::Steering {
            // It belongs to the current turn, after everything before it.
            self.flush_text();
            if !self.answer_text.is_empty() {
                self.remember_answer(Vec::new());
            }
        } else {
            self.end_turn("cancelled before it ended");
            self.is_turn_open = true;
            self.is_command = kind == PromptKind::Command;
        }
        self.events.extend(prompt_events(message, blocks.clone(), asides));
        let message = MessageId::new(message.0.clone());
        let prompt = Prompt::from(record::blocks_out(blocks));
        if matches!(kind, PromptKind::Message | PromptKind::Continue) {
            self.history.begin_turn(&message);
            self.turns.begin(message, prompt.title().unwrap_or_default(), self.history.len());
        }
        if matches!(kind, PromptKind::Message | PromptKind::Steering) {
            self.remember(Message::User(prompt));
        }
    }

    fn end_turn(&mut self, why: &str) {
        self.flush_text();
        // Every call of an ended turn has ended. If one seems open, the record of its end is damaged.
        let is_lost = |call: &&ReplayedCall| call.is_shown && !call.is_done;
        let lost: Vec<Name> =
            self.calls.iter().filter(is_lost).map(|call| call.id.clone()).collect();
        for id in lost {
            let text = record::ToolContent::Block(record::Block::Text(LOST_RESULT.to_owned()));
            self.feed_record(Record::ToolUpdate {
                id,
                status: Some(record::ToolStatus::Failed),
                content: Some(vec![text]),
                raw_output: None,
                live_output: None,
            });
        }
        if !self.answer_text.is_empty() {
            self.remember_answer(Vec::new());
        }
        self.thoughts.clear();
        self.history.close_open_calls(why);
        self.is_turn_open = false;
        self.is_command = false;
        self.calls.clear();
        self.images.clear();
        self.by_id.clear();
    }

    fn remember_answer(&mut self, calls: Vec<ToolRequest>) {
        let images = std::mem::take(&mut self.images);
        if let Some(message) = engine::words::pictures_message(images) {
            self.remember(message);
        }
        let (thoughts, text) =
            (std::mem::take(&mut self.thoughts), std::mem::take(&mut self.answer_text));
        self.remember(Message::Agent { thoughts, text, calls });
    }

    /// Adds a result to the history. Parallel calls end in any order, but the model gets their results in the order of the calls.
    fn remember_result(&mut self, id: ToolCallId, text: String, failed: bool) {
        let Some(own_index) = self.index_in_answer(&id) else { return };
        let is_after = |message: &Message| match message {
            Message::ToolResult { id, .. } => self.index_in_answer(id) > Some(own_index),
            Message::User(_) | Message::Agent { .. } => false,
        };
        let after =
            self.history.messages().iter().rev().take_while(|message| is_after(message)).count();
        let after = self.history.split_off(self.history.len() - after);
        self.remember(Message::ToolResult { id, text, failed });
        self.history.extend(after);
    }

    /// Returns the index of a call in the last answer; `None` for a call of a subagent, which the model did not make.
    fn index_in_answer(&self, id: &ToolCallId) -> Option<usize> {
        let calls = self.history.messages().iter().rev().find_map(|message| match &**message {
            Message::Agent { calls, .. } => Some(calls),
            Message::User(_) | Message::ToolResult { .. } => None,
        });
        calls?.iter().position(|call| call.id == *id)
    }

    fn remember(&mut self, message: Message) {
        if self.is_command {
            return;
        }
        self.history_bytes += message.size();
        self.history.push(message);
        if self.history_bytes > 2 * MAX_HISTORY {
            self.forget_oldest();
            self.history_bytes = self.history.messages().iter().map(|message| message.size()).sum();
        }
    }

    fn forget_oldest(&mut self) {
        let gone = self.history.keep_last(MAX_HISTORY);
        self.turns.forget(gone);
        self.compactions.retain(|compaction| compaction.at >= gone);
        for compaction in &mut self.compactions {
            compaction.at -= gone;
            compaction.cut = compaction.cut.saturating_sub(gone);
        }
    }

    fn call(&mut self, id: &Name) -> &mut ReplayedCall {
        let calls = &mut self.calls;
        let index = *self.by_id.entry(id.clone()).or_insert_with(|| {
            calls.push(ReplayedCall {
                id: id.clone(),
                has_intent: false,
                is_shown: false,
                is_done: false,
                has_terminal: false,
                command: None,
                output: String::new(),
                result: None,
            });
            calls.len() - 1
        });
        &mut calls[index]
    }

    /// Replays an update. The client's terminals no longer exist, so their output is shown as text when the call is done.
    fn tool_update(&mut self, record: Record) {
        let Some(Event::ToolUpdate(id, mut update)) = record::event_out(record) else {
            return;
        };
        let call = self.call(&Name(id.to_shared()));
        if let Some(Live::Output(text)) = update.live.take() {
            call.output.push_str(&text);
        }
        if let Some(content) = &mut update.content {
            let before = content.len();
            content.retain(|content| {
                !matches!(content, ToolContent::Terminal(_) | ToolContent::Live { .. })
            });
            call.has_terminal = content.len() < before;
            // Content next to a terminal is part of the result.
            if call.has_terminal {
                update.content = None;
            }
        }
        if matches!(update.status, Some(ToolStatus::Completed | ToolStatus::Failed)) {
            call.is_done = true;
            if update.status == Some(ToolStatus::Completed) {
                let content = update.content.as_deref().unwrap_or_default();
                self.images.extend(engine::words::pictures_in(content));
            }
            let call = self.call(&Name(id.to_shared()));
            if call.has_terminal
                && update.content.is_none()
                && let Some(text) = call.result.take()
            {
                update.content = Some(vec![ToolContent::Block(Block::Text(text))]);
            }
        }
        if *update != ToolUpdate::default() {
            self.flush_text();
            self.events.push(Event::ToolUpdate(id, update));
        }
    }

    fn show(&mut self, record: Record) {
        self.flush_text();
        self.events.extend(record::event_out(record));
    }

    fn show_text(&mut self, record: Record) {
        let Some(event) = record::event_out(record) else {
            return;
        };
        match (&mut self.pending_text, event) {
            (Some(Event::Text { message, text }), Event::Text { message: other, text: more })
            | (
                Some(Event::Thought { message, text }),
                Event::Thought { message: other, text: more },
            ) if *message == other && text.len() < MAX_MERGED => text.push_str(&more),
            (_, event) => {
                self.flush_text();
                self.pending_text = Some(event);
            }
        }
    }

    fn flush_text(&mut self) {
        self.events.extend(self.pending_text.take());
    }

    /// Closes a turn that a crash left open, and returns the records to append.
    pub fn close(&mut self) -> Vec<Record> {
        if !self.is_turn_open {
            return Vec::new();
        }
        let mut records = Vec::new();
        for call in self.calls.iter().filter(|call| !call.is_done) {
            let (shown, for_model) = if call.has_intent {
                (UNKNOWN, UNKNOWN_TO_MODEL)
            } else {
                (NOT_RUN, NOT_RUN_TO_MODEL)
            };
            let is_in_answer =
                self.index_in_answer(&ToolCallId::new(Arc::clone(&call.id.0))).is_some();
            if call.result.is_none() && is_in_answer {
                let text = for_model.to_owned();
                records.push(Record::ToolResult { id: call.id.clone(), text, failed: true });
            }
            if call.is_shown {
                let shown = match &call.result {
                    Some(result) => result.clone(),
                    None if call.output.is_empty() => shown.to_owned(),
                    None => format!("{}\n{shown}", call.output.trim_end()),
                };
                records.push(Record::ToolUpdate {
                    id: call.id.clone(),
                    status: Some(record::ToolStatus::Failed),
                    content: Some(vec![record::ToolContent::Block(record::Block::Text(shown))]),
                    raw_output: None,
                    live_output: None,
                });
            }
        }
        records.push(Record::Interrupted {});
        records.iter().cloned().for_each(|record| self.feed_record(record));
        records
    }

    /// Ends the replay.
    #[must_use]
    pub fn finish(mut self) -> Replayed {
        self.flush_text();
        self.forget_oldest();
        if let Some(Compaction { cut, summary, cap, .. }) = self.compactions.pop() {
            self.history.compact(cut, summary, cap);
        }
        let mut problems = Vec::new();
        if !self.damaged.is_empty() {
            let named: Vec<String> =
                self.damaged.iter().take(MAX_NAMED).map(ToString::to_string).collect();
            problems.push(format!(
                "{} records are damaged and were skipped: {}",
                self.damaged.len(),
                named.join(", ")
            ));
        }
        if self.missing > 0 {
            problems.push(format!("{} records are missing", self.missing));
        }
        if self.opaque > 0 {
            problems.push(format!(
                "{} records were written by a newer version and cannot be shown",
                self.opaque
            ));
        }
        self.events.extend(self.usage.take());
        Replayed {
            history: self.history,
            turns: self.turns.finish(),
            mode: self.mode,
            model: self.model,
            thinking: self.thinking,
            spent: self.spent,
            bill: self.bill,
            problems,
            prompts: self.prompts.finish(),
            events: self.events,
        }
    }
}
