//! Replay: from records to what the client is shown again and what the model remembers.
//!
//! Plain values, no IO: feed it records in order, take out events. What a crash left open is closed by
//! [`Replay::close`], which says what to append so that it stays closed.

mod turns;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use engine::Event;
use engine::context::History;
use engine::cost::Bill;
use engine::undo::{Change, Turns};
use engine::words::{
    Block, ContentId, Live, Message, MessageId, ModeId, ModelId, Prompt, Thinking, Thought,
    ToolCallId, ToolContent, ToolRequest, ToolStatus, ToolUpdate, Usage,
};

use serde_json::Value;

use crate::journal::Stored;
use crate::record::{self, Decoded, Name, PromptKind, Record};
use turns::Ledger;

/// How much of a long conversation the model is given back, in bytes. More than any model can read at once.
const HISTORY: usize = 16 * 1024 * 1024;
/// Neighbouring pieces of one message are shown as one, up to about this many bytes.
const PIECE: usize = 16 * 1024;
/// How many damaged records are named one by one.
const NAMED: usize = 10;

/// What the user sees of a tool whose end nobody knows.
const UNKNOWN: &str = "Interrupted; the outcome is unknown";
/// What the user sees of a call whose end cannot be read.
const LOST: &str = "What came of this could not be read: its record is damaged";
/// What the user sees of a tool that never began.
const NOT_RUN: &str = "Interrupted before it ran";
/// What the model is told of a tool whose end nobody knows.
const UNKNOWN_TO_MODEL: &str = "interrupted: the program ended while this ran, so the outcome is unknown. Look at what is there before you do it again";
/// What the model is told of a tool that never began.
const NOT_RUN_TO_MODEL: &str = "interrupted before it ran";

/// A session on its way back.
#[derive(Debug, Default)]
pub struct Replay {
    events: Vec<Event>,
    /// Text that may still grow.
    piece: Option<Event>,
    history: History,
    history_bytes: usize,
    turns: Ledger,
    /// What the model said since its last message ended.
    said: String,
    /// What it thought since then, if that answer is whole.
    thoughts: Vec<Thought>,
    /// A command's answer is ours, not the model's.
    is_command: bool,
    is_turn_open: bool,
    calls: Vec<Call>,
    by_id: HashMap<Name, usize>,
    /// What calls of the last answer showed to the model besides their results.
    pictures: Vec<Block>,
    usage: Option<Event>,
    mode: Option<ModeId>,
    model: Option<ModelId>,
    thinking: Option<Thinking>,
    spent: f64,
    bill: Bill,
    /// Each holds unless what it was made of is taken back; the last one counts.
    compactions: Vec<Compaction>,
    last_seq: u64,
    damaged: Vec<u64>,
    missing: u64,
    opaque: u64,
}

/// A tool call of the turn that runs.
#[derive(Debug)]
struct Call {
    id: Name,
    has_intent: bool,
    is_shown: bool,
    is_done: bool,
    has_terminal: bool,
    /// What it would do, if that may change files that nobody sees.
    command: Option<String>,
    /// What its command said so far.
    said: String,
    /// What the model was told, while the call was not yet done.
    result: Option<String>,
}

/// A summary that stands for the beginning of the history. The history itself stays whole, so that it can be taken back.
#[derive(Debug)]
struct Compaction {
    /// How many entries it stands for.
    cut: usize,
    /// How many entries there were when it was made.
    at: usize,
    summary: String,
    cap: Option<usize>,
}

/// What is left when all records are fed.
#[derive(Debug)]
pub struct Replayed {
    /// What the model sees.
    pub history: History,
    /// What can be taken back, and brought back.
    pub turns: Turns,
    /// The last mode.
    pub mode: Option<ModeId>,
    /// The last model.
    pub model: Option<ModelId>,
    /// How much the model was to think.
    pub thinking: Option<Thinking>,
    /// What the session has cost, in US dollars.
    pub spent: f64,
    /// What it has used, by model.
    pub bill: Bill,
    /// What could not be read, for the user.
    pub problems: Vec<String>,
    /// The last events to show.
    pub events: Vec<Event>,
}

impl Replay {
    /// Takes the next record as the backend has it.
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

    /// Takes the events that are ready to be shown.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Takes the next record.
    pub fn feed_record(&mut self, record: Record) {
        match record {
            // An answer gets its texts back before it comes here.
            Record::Own { .. } | Record::AnswerApart { .. } => {}
            Record::Prompt { message, kind, blocks, asides } => {
                self.prompt(&message, kind, blocks, asides);
            }
            Record::Text { ref text, .. } => {
                if !self.is_command {
                    self.said.push_str(text);
                }
                self.show_piece(record);
            }
            Record::Thought { .. } => self.show_piece(record),
            Record::ToolCall(mut call) => {
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
            Record::ToolIntent(request) => {
                let call = self.call(&request.id);
                call.has_intent = true;
                // What a child ran without asking was never shown as a call; its intent says what it was.
                let command = if call.is_shown { call.command.take() } else { Some(request.name) };
                if let Some(command) = command.filter(|_| !self.is_command) {
                    self.turns.ran(command);
                }
            }
            // What a command of ours did in a folder of its own is nothing to take back.
            Record::Change { .. } if self.is_command => {}
            Record::Change { path, before, after } => {
                let id = |name: Name| ContentId::new(name.0);
                let (before, after) = (before.map(id), after.map(id));
                self.turns.changed(Change { path: PathBuf::from(path), before, after });
            }
            Record::TakenBack { first } => {
                self.turns.take_back(&first, &mut self.history);
                let left = self.history.len();
                self.compactions.retain(|compaction| compaction.at <= left);
            }
            Record::BroughtBack { last } => self.turns.bring_back(&last, &mut self.history),
            Record::ToolResult { id, text, failed } => {
                self.call(&id).result = Some(text.clone());
                self.remember_result(ToolCallId::new(id.0), text, failed);
            }
            Record::Told { text } => {
                self.remember(Message::User(Prompt::from(vec![Block::Text(text)])));
            }
            Record::Spent { model, input, output, cache_read, cache_write, dollars } => {
                let usage = Usage { input, output, cache_read, cache_write };
                self.bill.add(&ModelId::new(model.0), &usage, dollars);
                self.spent += dollars.unwrap_or_default();
            }
            Record::Compacted { summary, from, cap } => {
                // A place that is not found was damaged: then the model sees all of it, and it is summed up again.
                let at = self.history.len();
                let cut = self.history.find(&record::cut_out(from));
                self.compactions.extend(cut.map(|cut| Compaction { cut, at, summary, cap }));
            }
            Record::TurnEnd { .. } => self.end_turn("cancelled before it ended"),
            Record::Interrupted {} => self.end_turn(NOT_RUN_TO_MODEL),
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
            // It stands inside its turn, behind what was said and done before.
            self.flush_piece();
            if !self.said.is_empty() {
                self.remember_answer(Vec::new());
            }
        } else {
            self.end_turn("cancelled before it ended");
            self.is_turn_open = true;
            self.is_command = kind == PromptKind::Command;
        }
        let blocks = record::blocks_out(blocks);
        let message = MessageId::new(message.0.clone());
        let mut asides = asides.into_iter();
        for block in blocks.iter().cloned() {
            let (message, aside) = (message.clone(), asides.next().flatten());
            self.events.push(Event::User { message, block, aside });
        }
        let prompt = Prompt::from(blocks);
        if matches!(kind, PromptKind::Message | PromptKind::Continue) {
            self.history.begin_turn(&message);
            self.turns.begin(message, prompt.title().unwrap_or_default(), self.history.len());
        }
        if matches!(kind, PromptKind::Message | PromptKind::Steering) {
            self.remember(Message::User(prompt));
        }
    }

    fn end_turn(&mut self, why: &str) {
        self.flush_piece();
        // Every call of a turn that ends has ended; a record that says so may be damaged.
        let is_lost = |call: &&Call| call.is_shown && !call.is_done;
        let lost: Vec<Name> =
            self.calls.iter().filter(is_lost).map(|call| call.id.clone()).collect();
        for id in lost {
            let text = record::ToolContent::Block(record::Block::Text(LOST.to_owned()));
            self.feed_record(Record::ToolUpdate {
                id,
                status: Some(record::ToolStatus::Failed),
                content: Some(vec![text]),
                raw_output: None,
                said: None,
            });
        }
        if !self.said.is_empty() {
            self.remember_answer(Vec::new());
        }
        self.thoughts.clear();
        self.history.close_open_calls(why);
        self.is_turn_open = false;
        self.is_command = false;
        self.calls.clear();
        self.pictures.clear();
        self.by_id.clear();
    }

    fn remember_answer(&mut self, calls: Vec<ToolRequest>) {
        let pictures = std::mem::take(&mut self.pictures);
        if let Some(message) = engine::pictures::message_of(pictures) {
            self.remember(message);
        }
        let (thoughts, text) = (std::mem::take(&mut self.thoughts), std::mem::take(&mut self.said));
        self.remember(Message::Agent { thoughts, text, calls });
    }

    /// Calls that ran at once ended in any order; the model is told of them in the order that it asked.
    fn remember_result(&mut self, id: ToolCallId, text: String, failed: bool) {
        let Some(own) = self.place(&id) else { return };
        let is_behind = |message: &Message| match message {
            Message::ToolResult { id, .. } => self.place(id) > Some(own),
            Message::User(_) | Message::Agent { .. } => false,
        };
        let behind =
            self.history.messages().iter().rev().take_while(|message| is_behind(message)).count();
        let behind = self.history.split_off(self.history.len() - behind);
        self.remember(Message::ToolResult { id, text, failed });
        self.history.extend(behind);
    }

    /// Finds where a call stands in the last answer; `None` for a child's, which the model did not ask for.
    fn place(&self, id: &ToolCallId) -> Option<usize> {
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
        if self.history_bytes > 2 * HISTORY {
            self.forget_oldest();
            self.history_bytes = self.history.messages().iter().map(|message| message.size()).sum();
        }
    }

    fn forget_oldest(&mut self) {
        let gone = self.history.keep_last(HISTORY);
        self.turns.forget(gone);
        self.compactions.retain(|compaction| compaction.at >= gone);
        for compaction in &mut self.compactions {
            compaction.at -= gone;
            compaction.cut = compaction.cut.saturating_sub(gone);
        }
    }

    fn call(&mut self, id: &Name) -> &mut Call {
        let calls = &mut self.calls;
        let index = *self.by_id.entry(id.clone()).or_insert_with(|| {
            calls.push(Call {
                id: id.clone(),
                has_intent: false,
                is_shown: false,
                is_done: false,
                has_terminal: false,
                command: None,
                said: String::new(),
                result: None,
            });
            calls.len() - 1
        });
        &mut calls[index]
    }

    /// The client's terminals are gone, so what they held is shown as text when the call is done.
    fn tool_update(&mut self, record: Record) {
        let Some(Event::ToolUpdate(id, mut update)) = record::event_out(record) else {
            return;
        };
        let call = self.call(&Name(id.to_shared()));
        if let Some(Live::Output(text)) = update.live.take() {
            call.said.push_str(&text);
        }
        if let Some(content) = &mut update.content {
            let before = content.len();
            content.retain(|content| {
                !matches!(content, ToolContent::Terminal(_) | ToolContent::Live { .. })
            });
            call.has_terminal = content.len() < before;
            // What stands beside a terminal is a part of the result.
            if call.has_terminal {
                update.content = None;
            }
        }
        if matches!(update.status, Some(ToolStatus::Completed | ToolStatus::Failed)) {
            call.is_done = true;
            if update.status == Some(ToolStatus::Completed) {
                let content = update.content.as_deref().unwrap_or_default();
                self.pictures.extend(engine::pictures::pictures_in(content));
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
            self.flush_piece();
            self.events.push(Event::ToolUpdate(id, update));
        }
    }

    fn show(&mut self, record: Record) {
        self.flush_piece();
        self.events.extend(record::event_out(record));
    }

    fn show_piece(&mut self, record: Record) {
        let Some(event) = record::event_out(record) else {
            return;
        };
        match (&mut self.piece, event) {
            (Some(Event::Text { message, text }), Event::Text { message: other, text: more })
            | (
                Some(Event::Thought { message, text }),
                Event::Thought { message: other, text: more },
            ) if *message == other && text.len() < PIECE => text.push_str(&more),
            (_, event) => {
                self.flush_piece();
                self.piece = Some(event);
            }
        }
    }

    fn flush_piece(&mut self) {
        self.events.extend(self.piece.take());
    }

    /// Closes the turn that a crash left open, and returns the records that keep it closed.
    pub fn close(&mut self) -> Vec<Record> {
        if !self.is_turn_open {
            return Vec::new();
        }
        let mut records = Vec::new();
        for call in self.calls.iter().filter(|call| !call.is_done) {
            let (shown, told) = if call.has_intent {
                (UNKNOWN, UNKNOWN_TO_MODEL)
            } else {
                (NOT_RUN, NOT_RUN_TO_MODEL)
            };
            let is_asked_for = self.place(&ToolCallId::new(Arc::clone(&call.id.0))).is_some();
            if call.result.is_none() && is_asked_for {
                let text = told.to_owned();
                records.push(Record::ToolResult { id: call.id.clone(), text, failed: true });
            }
            if call.is_shown {
                let shown = match &call.result {
                    Some(result) => result.clone(),
                    None if call.said.is_empty() => shown.to_owned(),
                    None => format!("{}\n{shown}", call.said.trim_end()),
                };
                records.push(Record::ToolUpdate {
                    id: call.id.clone(),
                    status: Some(record::ToolStatus::Failed),
                    content: Some(vec![record::ToolContent::Block(record::Block::Text(shown))]),
                    raw_output: None,
                    said: None,
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
        self.flush_piece();
        self.forget_oldest();
        if let Some(Compaction { cut, summary, cap, .. }) = self.compactions.pop() {
            self.history.compact(cut, summary, cap);
        }
        let mut problems = Vec::new();
        if !self.damaged.is_empty() {
            let named: Vec<String> =
                self.damaged.iter().take(NAMED).map(ToString::to_string).collect();
            problems.push(format!(
                "{} records are damaged and were left out: {}",
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
            events: self.events,
        }
    }
}
