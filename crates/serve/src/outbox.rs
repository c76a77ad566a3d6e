//! The outbox: messages that wait to be written, by session. Merges waiting text, preserves the order, stays bounded.
//!
//! Does no IO: the dispatcher pushes messages, and fills a batch whenever the writer is free. Nothing is delayed unless a
//! session exceeds its update rate; then its updates wait, and text and the progress of tool calls are merged. A call or an
//! answer does not wait, and takes everything before it along. Every line is measured here or in `bridge::update`, and none
//! exceeds the limit of its method.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use engine::Event;
use engine::words::SessionId;
use settings::Limits;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use wire::{RpcError, SizeLimits};

use crate::bridge::{size, update};
use crate::dialect::NotePrinter;
use crate::error_table::line_too_large;
use crate::options::size_limits;
use crate::rate::Bucket;

/// How many bytes of one session may wait before its turn waits. Also the most that one event is counted as.
pub(crate) const SESSION_BUDGET: usize = 256 * 1024;
/// How many bytes of all sessions together may wait.
pub(crate) const TOTAL_BUDGET: usize = 4 * 1024 * 1024;
/// How many bytes of answers, which no turn accounts for, may wait before we stop reading requests.
pub(crate) const ANSWER_BUDGET: usize = 1024 * 1024;
/// The size of a batch for the writer.
const BATCH: usize = 64 * 1024;
/// The most bytes of a text update besides its text, unless it has `_meta`.
const TEXT_OVERHEAD: usize = 512;
/// How far back an update looks for one of the same call to merge with.
const LOOK_BACK: usize = 64;

/// Messages that wait to be written.
pub(crate) struct Outbox {
    /// Answers that belong to no turn; they go first.
    urgent: VecDeque<Vec<u8>>,
    /// Bytes of all lines without a cost, urgent or in the queue of a session.
    answer_bytes: usize,
    sessions: HashMap<SessionId, Queue>,
    /// Sessions with something to write, round-robin.
    ready: VecDeque<SessionId>,
    total: Arc<Semaphore>,
    updates_per_minute: u64,
    limits: SizeLimits,
}

/// How fast a session may send updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Within the update rate.
    Live,
    /// As fast as the client reads: a replayed history does not count.
    Replay,
}

struct Queue {
    items: VecDeque<Item>,
    /// How many items are lines; they and everything before them must not wait.
    lines: usize,
    bucket: Bucket,
    budget: Arc<Semaphore>,
    pace: Pace,
    is_ready: bool,
    is_closed: bool,
    /// Whether its updates wait, because of the rate. Only then are updates of tool calls merged.
    is_held: bool,
}

struct Item {
    what: What,
    /// How much to return to the budgets.
    cost: usize,
    /// The number of the record that it completes, if the client is to know it.
    seq: Option<u64>,
}

enum What {
    Line(Vec<u8>),
    Event(Event),
    /// Text, with its length as JSON.
    Text(Event, usize),
}

impl Outbox {
    pub(crate) fn new(limits: &Limits) -> Outbox {
        Outbox {
            urgent: VecDeque::new(),
            answer_bytes: 0,
            sessions: HashMap::new(),
            ready: VecDeque::new(),
            total: Arc::new(Semaphore::new(TOTAL_BUDGET)),
            updates_per_minute: limits.updates_per_minute,
            limits: size_limits(limits),
        }
    }

    /// Returns the most bytes of an update.
    pub(crate) fn max_update(&self) -> usize {
        self.limits.update
    }

    /// Returns the budget that all sessions share.
    pub(crate) fn total(&self) -> Arc<Semaphore> {
        Arc::clone(&self.total)
    }

    /// Tells whether so many answers wait that no further request may be read.
    pub(crate) fn is_flooded(&self) -> bool {
        self.answer_bytes > ANSWER_BUDGET
    }

    /// Tells whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.sessions.values().all(|queue| queue.items.is_empty())
    }

    /// Queues a line that belongs to no turn.
    pub(crate) fn push_urgent(&mut self, line: Vec<u8>) {
        self.answer_bytes += line.len();
        self.urgent.push_back(line);
    }

    /// Opens the queue of a session and returns its budget: the old one, if old messages still wait.
    pub(crate) fn open(
        &mut self,
        session: SessionId,
        budget: Arc<Semaphore>,
        pace: Pace,
        now: Instant,
    ) -> Arc<Semaphore> {
        let queue = self.sessions.entry(session).or_insert_with(|| Queue {
            items: VecDeque::new(),
            lines: 0,
            bucket: Bucket::new(self.updates_per_minute, now),
            budget,
            pace,
            is_ready: false,
            is_closed: false,
            is_held: false,
        });
        queue.is_closed = false;
        queue.pace = pace;
        Arc::clone(&queue.budget)
    }

    /// Changes how fast a session may send updates.
    pub(crate) fn set_pace(&mut self, session: &SessionId, pace: Pace) {
        if let Some(queue) = self.sessions.get_mut(session) {
            queue.pace = pace;
        }
    }

    /// Removes a session once its messages are written.
    pub(crate) fn close(&mut self, session: &SessionId) {
        if let Some(queue) = self.sessions.get_mut(session) {
            queue.is_closed = true;
            if queue.items.is_empty() {
                self.sessions.remove(session);
            }
        }
    }

    /// Queues a line behind earlier messages of its session. `cost` is returned to the budgets when it is written.
    pub(crate) fn push_line(&mut self, session: &SessionId, line: Vec<u8>, cost: usize) {
        if !self.sessions.contains_key(session) {
            // The session is gone, but the client still waits for the answer.
            self.total.add_permits(cost);
            self.push_urgent(line);
            return;
        }
        if cost == 0 {
            self.answer_bytes += line.len();
        }
        self.push(session, Item { what: What::Line(line), cost, seq: None });
    }

    /// Queues a call of ours, unless its line exceeds the limit of its method.
    pub(crate) fn push_call(
        &mut self,
        session: &SessionId,
        method: &str,
        line: Vec<u8>,
        cost: usize,
    ) -> Result<(), RpcError> {
        let limit = self.limits.of(Some(method));
        if line.len() > limit {
            self.give_back(session, cost);
            return Err(line_too_large(method, line.len(), limit));
        }
        self.push_line(session, line, cost);
        Ok(())
    }

    /// Checks the size of an answer.
    pub(crate) fn check_answer(&self, line: &[u8]) -> Result<(), RpcError> {
        let limit = self.limits.of(None);
        match line.len() {
            size if size > limit => Err(line_too_large("the answer", size, limit)),
            _ => Ok(()),
        }
    }

    /// Returns room to the budgets of a session and the connection.
    pub(crate) fn give_back(&mut self, session: &SessionId, cost: usize) {
        self.total.add_permits(cost);
        if let Some(queue) = self.sessions.get(session) {
            queue.budget.add_permits(cost);
        }
    }

    /// Queues an event. Merges it with text of the same message, or an update of the same tool call, that still waits; splits
    /// text that is too long for one update.
    /// A numbered event is merged with nothing but text that directly precedes it, so that the numbers stay in order.
    pub(crate) fn push_event(
        &mut self,
        session: &SessionId,
        mut event: Event,
        cost: usize,
        seq: Option<u64>,
    ) {
        let Some(text) = size::text_of(&event) else {
            if seq.is_none()
                && let Some(freed) = self.merge(session, &mut event, cost)
            {
                self.give_back(session, freed);
            } else {
                self.push(session, Item { what: What::Event(event), cost, seq });
            }
            return;
        };
        let overhead = TEXT_OVERHEAD + size::meta_of(&event);
        let most = self.limits.update.saturating_sub(overhead).max(TEXT_OVERHEAD);
        let length = size::json_length(text);
        if length <= most {
            self.push_text(session, Item { what: What::Text(event, length), cost, seq }, most);
            return;
        }
        let mut rest = cost;
        let mut chunks = size::split_text(text, most).peekable();
        while let Some(chunk) = chunks.next() {
            let length = size::json_length(chunk);
            let what = What::Text(size::with_text(&event, chunk.to_owned()), length);
            // Only with its last part the client has the whole record.
            let seq = seq.filter(|_| chunks.peek().is_none());
            let item = Item { what, cost: std::mem::take(&mut rest), seq };
            self.push_text(session, item, most);
        }
    }

    /// Merges an event into an earlier state of the same thing, if updates wait. Returns how much room that frees.
    fn merge(&mut self, session: &SessionId, event: &mut Event, cost: usize) -> Option<usize> {
        let most = self.limits.update / 4;
        let queue = self.sessions.get_mut(session)?;
        if !queue.is_held && queue.items.len() < LOOK_BACK {
            return None;
        }
        for item in queue.items.iter_mut().rev().take(LOOK_BACK) {
            let What::Event(waiting) = &mut item.what else { return None };
            let is_merged = match (&mut *waiting, &mut *event) {
                (Event::ToolUpdate(id, waiting), Event::ToolUpdate(next_id, next))
                    if id == next_id =>
                {
                    if !size::merge_update(waiting, next, most) {
                        return None;
                    }
                    true
                }
                (Event::Plan(waiting), Event::Plan(next)) => {
                    *waiting = std::mem::take(next);
                    true
                }
                (waiting @ Event::Usage { .. }, next @ Event::Usage { .. }) => {
                    *waiting = next.clone();
                    true
                }
                // Only updates of tool calls may pass each other.
                (Event::ToolUpdate(..), Event::ToolUpdate(..)) => false,
                (Event::ToolCall(call), Event::ToolUpdate(id, _)) if call.id != *id => false,
                _ => return None,
            };
            if is_merged {
                let both = item.cost + cost;
                item.cost = size::weight(waiting).min(both);
                return Some(both - item.cost);
            }
        }
        None
    }

    fn push_text(&mut self, session: &SessionId, item: Item, most: usize) {
        if let What::Text(event, length) = &item.what
            && let Some(queue) = self.sessions.get_mut(session)
            && let Some(last) = queue.items.back_mut()
            && let What::Text(waiting, waiting_length) = &mut last.what
            && *waiting_length + length <= most
            && size::append_text(waiting, event)
        {
            *waiting_length += length;
            last.cost += item.cost;
            last.seq = item.seq;
            return;
        }
        self.push(session, item);
    }

    /// Drops the updates of a session that wait, because the client asks for them again by number.
    pub(crate) fn drop_updates(&mut self, session: &SessionId) {
        let Some(queue) = self.sessions.get_mut(session) else { return };
        let (lines, updates): (VecDeque<Item>, VecDeque<Item>) =
            queue.items.drain(..).partition(|item| matches!(item.what, What::Line(_)));
        queue.items = lines;
        if queue.items.is_empty() {
            queue.is_ready = false;
            self.ready.retain(|ready| ready != session);
        }
        let cost = updates.iter().map(|item| item.cost).sum();
        self.give_back(session, cost);
    }

    fn push(&mut self, session: &SessionId, item: Item) {
        let Some(queue) = self.sessions.get_mut(session) else {
            // The session is gone; only the shared budget is returned.
            self.total.add_permits(item.cost);
            return;
        };
        if matches!(item.what, What::Line(_)) {
            queue.lines += 1;
        }
        queue.items.push_back(item);
        if !queue.is_ready {
            queue.is_ready = true;
            self.ready.push_back(session.clone());
        }
    }

    /// Writes what may be sent now into `batch`, sessions round-robin. Returns when to try again, if updates must wait.
    pub(crate) fn fill(
        &mut self,
        batch: &mut Vec<u8>,
        printer: NotePrinter,
        now: Instant,
    ) -> Option<Instant> {
        while batch.len() < BATCH {
            let Some(line) = self.urgent.pop_front() else { break };
            self.answer_bytes -= line.len();
            batch.extend_from_slice(&line);
        }
        let mut retry: Option<Instant> = None;
        let mut waiting = Vec::new();
        while batch.len() < BATCH {
            let Some(session) = self.ready.pop_front() else { break };
            let Some(queue) = self.sessions.get_mut(&session) else { continue };
            match queue.write_next(&session, batch, now, (printer, self.limits.update)) {
                Some(written) => {
                    self.total.add_permits(written.cost);
                    self.answer_bytes -= written.answer_bytes;
                }
                None => {
                    let next = queue.bucket.next();
                    retry = Some(retry.map_or(next, |retry| retry.min(next)));
                    waiting.push(session);
                    continue;
                }
            }
            if !queue.items.is_empty() {
                self.ready.push_back(session);
            } else if queue.is_closed {
                self.sessions.remove(&session);
            } else {
                queue.is_ready = false;
            }
        }
        self.ready.extend(waiting);
        retry
    }
}

/// What an item used of the budgets.
struct Written {
    cost: usize,
    /// The bytes of a line without a cost.
    answer_bytes: usize,
}

impl Queue {
    /// Writes the first item and returns what it used; `None` if it must wait.
    fn write_next(
        &mut self,
        session: &SessionId,
        batch: &mut Vec<u8>,
        now: Instant,
        (printer, most): (NotePrinter, usize),
    ) -> Option<Written> {
        let is_update = !matches!(self.items.front()?.what, What::Line(_));
        self.is_held = is_update && self.pace == Pace::Live && !self.bucket.take(now);
        if self.is_held {
            if self.lines == 0 {
                return None;
            }
            self.bucket.take_in_advance();
        }
        let item = self.items.pop_front()?;
        let mut written = Written { cost: item.cost, answer_bytes: 0 };
        match item.what {
            What::Line(line) => {
                self.lines -= 1;
                written.answer_bytes = if item.cost == 0 { line.len() } else { 0 };
                if batch.is_empty() && line.len() > BATCH {
                    // A line as large as a file is not copied.
                    *batch = line;
                } else {
                    batch.extend_from_slice(&line);
                }
            }
            What::Event(event) | What::Text(event, _) => {
                update::print(batch, printer, session, event, item.seq, most);
            }
        }
        self.budget.add_permits(item.cost);
        Some(written)
    }
}

#[cfg(test)]
mod tests;
