//! The outbox: what waits to be written, by session. Merges text that waits, keeps order, stays bounded.
//!
//! Plain values, no IO: the dispatcher pushes, and fills a batch whenever the writer is free. Nothing is delayed
//! unless a session's updates run short; then its text, and only text, waits and grows together.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use engine::Event;
use engine::words::SessionId;
use settings::Limits;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use wire::acp::dialect::Dialect;

use crate::bridge::{size, update};
use crate::rate::Bucket;

/// How much one session may have waiting before its turn waits. Also how much a single event can count for.
pub(crate) const SESSION_BUDGET: usize = 256 * 1024;
/// How much all sessions together may have waiting.
pub(crate) const TOTAL_BUDGET: usize = 4 * 1024 * 1024;
/// How much the answers may take, which no turn pays for, before we stop reading requests.
pub(crate) const ANSWER_BUDGET: usize = 1024 * 1024;
/// A batch is handed to the writer once it has this size.
const BATCH: usize = 64 * 1024;
/// Room for everything in a text update but its text.
const TEXT_OVERHEAD: usize = 512;

/// What waits to be written.
pub(crate) struct Outbox {
    /// Answers that belong to no turn: they pass everything else.
    urgent: VecDeque<Vec<u8>>,
    /// Bytes of all lines that wait without a cost, urgent or behind what their session says.
    answer_bytes: usize,
    sessions: HashMap<SessionId, Queue>,
    /// Sessions with something to write, in turns.
    ready: VecDeque<SessionId>,
    total: Arc<Semaphore>,
    updates_per_minute: u64,
    max_update: usize,
}

/// How fast a session may talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as updates are allowed.
    Live,
    /// As fast as the client reads: a history that is shown again is not counted.
    Replay,
}

struct Queue {
    items: VecDeque<Item>,
    /// How many of the items are not text: they and all before them must not wait.
    solid: usize,
    bucket: Bucket,
    budget: Arc<Semaphore>,
    pace: Pace,
    is_ready: bool,
    is_closed: bool,
}

struct Item {
    what: What,
    /// What to give back to the budgets.
    cost: usize,
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
            max_update: crate::size_limits(limits).update,
        }
    }

    /// Returns the budget that all sessions share.
    pub(crate) fn total(&self) -> Arc<Semaphore> {
        Arc::clone(&self.total)
    }

    /// Tells whether answers pile up so high that no further request may be read.
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

    /// Makes room for a session and returns its budget: that of before, if its last words still wait.
    pub(crate) fn open(
        &mut self,
        session: SessionId,
        budget: Arc<Semaphore>,
        pace: Pace,
    ) -> Arc<Semaphore> {
        let queue = self.sessions.entry(session).or_insert_with(|| Queue {
            items: VecDeque::new(),
            solid: 0,
            bucket: Bucket::new(self.updates_per_minute, Instant::now()),
            budget,
            pace,
            is_ready: false,
            is_closed: false,
        });
        queue.is_closed = false;
        queue.pace = pace;
        Arc::clone(&queue.budget)
    }

    /// Changes how fast a session may talk.
    pub(crate) fn set_pace(&mut self, session: &SessionId, pace: Pace) {
        if let Some(queue) = self.sessions.get_mut(session) {
            queue.pace = pace;
        }
    }

    /// Forgets a session once all it said is written.
    pub(crate) fn close(&mut self, session: &SessionId) {
        if let Some(queue) = self.sessions.get_mut(session) {
            queue.is_closed = true;
            if queue.items.is_empty() {
                self.sessions.remove(session);
            }
        }
    }

    /// Queues a line behind everything its session said before. `cost` goes back to the budgets when it is written.
    pub(crate) fn push_line(&mut self, session: &SessionId, line: Vec<u8>, cost: usize) {
        if !self.sessions.contains_key(session) {
            // Whoever asked a session that is gone by now still waits for the answer.
            self.total.add_permits(cost);
            self.push_urgent(line);
            return;
        }
        if cost == 0 {
            self.answer_bytes += line.len();
        }
        self.push(session, Item { what: What::Line(line), cost });
    }

    /// Queues an event, merging it with text of the same message that still waits.
    pub(crate) fn push_event(&mut self, session: &SessionId, event: Event, cost: usize) {
        let most = self.max_update.saturating_sub(TEXT_OVERHEAD).max(TEXT_OVERHEAD);
        let Some(text) = size::text_of(&event) else {
            self.push(session, Item { what: What::Event(event), cost });
            return;
        };
        let length = size::json_length(text);
        if length <= most {
            self.push_text(session, event, length, cost, most);
            return;
        }
        let mut rest = cost;
        for piece in size::split_text(text, most) {
            let length = size::json_length(piece);
            let event = size::with_text(&event, piece.to_owned());
            self.push_text(session, event, length, std::mem::take(&mut rest), most);
        }
    }

    fn push_text(
        &mut self,
        session: &SessionId,
        event: Event,
        length: usize,
        cost: usize,
        most: usize,
    ) {
        if let Some(queue) = self.sessions.get_mut(session)
            && let Some(Item { what: What::Text(waiting, waiting_length), cost: waiting_cost }) =
                queue.items.back_mut()
            && *waiting_length + length <= most
            && size::append_text(waiting, &event)
        {
            *waiting_length += length;
            *waiting_cost += cost;
            return;
        }
        self.push(session, Item { what: What::Text(event, length), cost });
    }

    fn push(&mut self, session: &SessionId, item: Item) {
        let Some(queue) = self.sessions.get_mut(session) else {
            // A session that is gone has nobody to tell; only the budget is still owed.
            self.total.add_permits(item.cost);
            return;
        };
        if !matches!(item.what, What::Text(..)) {
            queue.solid += 1;
        }
        queue.items.push_back(item);
        if !queue.is_ready {
            queue.is_ready = true;
            self.ready.push_back(session.clone());
        }
    }

    /// Writes what may go now into `batch`, sessions in turns. Returns when to try again, if text waits for its time.
    pub(crate) fn fill(
        &mut self,
        batch: &mut Vec<u8>,
        dialect: Dialect,
        now: Instant,
    ) -> Option<Instant> {
        while batch.len() < BATCH {
            let Some(line) = self.urgent.pop_front() else { break };
            self.answer_bytes -= line.len();
            batch.extend_from_slice(&line);
        }
        let mut retry: Option<Instant> = None;
        let mut held = Vec::new();
        while batch.len() < BATCH {
            let Some(session) = self.ready.pop_front() else { break };
            let Some(queue) = self.sessions.get_mut(&session) else { continue };
            match queue.write_next(&session, batch, now, (dialect, self.max_update)) {
                Some(written) => {
                    self.total.add_permits(written.cost);
                    self.answer_bytes -= written.answer_bytes;
                }
                None => {
                    let next = queue.bucket.next();
                    retry = Some(retry.map_or(next, |retry| retry.min(next)));
                    held.push(session);
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
        self.ready.extend(held);
        retry
    }
}

/// What an item took while it waited.
struct Written {
    cost: usize,
    /// The length of a line without a cost.
    answer_bytes: usize,
}

impl Queue {
    /// Writes the first item and returns what it took; `None` if it is text that has to wait.
    fn write_next(
        &mut self,
        session: &SessionId,
        batch: &mut Vec<u8>,
        now: Instant,
        (dialect, most): (Dialect, usize),
    ) -> Option<Written> {
        let has_token = match self.items.front()?.what {
            What::Line(_) => true,
            What::Event(_) | What::Text(..) => self.pace == Pace::Replay || self.bucket.take(now),
        };
        if !has_token && self.solid == 0 {
            return None;
        }
        let item = self.items.pop_front()?;
        let mut written = Written { cost: item.cost, answer_bytes: 0 };
        match item.what {
            What::Line(line) => {
                self.solid -= 1;
                written.answer_bytes = if item.cost == 0 { line.len() } else { 0 };
                if batch.is_empty() && line.len() > BATCH {
                    // A whole file is not copied once more.
                    *batch = line;
                } else {
                    batch.extend_from_slice(&line);
                }
            }
            What::Event(event) => {
                self.solid -= 1;
                update::print(batch, dialect, session, event, most);
            }
            What::Text(event, _) => update::print(batch, dialect, session, event, most),
        }
        self.budget.add_permits(item.cost);
        Some(written)
    }
}
