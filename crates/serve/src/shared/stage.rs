//! The stage of a shared session: which connections are attached, and how far each has seen the journal.
//!
//! A committed event is sent to every attached connection that has room. A connection without room is *behind*: nothing is
//! queued for it, and its follower reads the journal from where it was. So a slow client costs no memory and slows nobody.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::Event;
use engine::ports::{Offers, Place};
use engine::words::{MessageId, SessionId};
use tokio::sync::{Notify, Semaphore};

use crate::bridge::editor::{AcpEditor, is_wanted};
use crate::bridge::size;
use crate::outbox::SESSION_BUDGET;
use crate::outlet::{FromSession, Outlet};

/// How many own prompts a connection remembers, so that they are not shown to it.
const OWN_PROMPTS: usize = 8;

/// Who sees a session.
pub(crate) struct Stage {
    session: SessionId,
    state: Mutex<State>,
    /// Wakes those who wait for a connection that answers calls.
    changed: Notify,
    /// How many bytes of events may be on their way through the journal. Full: the turn waits for the journal.
    in_flight: Arc<Semaphore>,
}

struct State {
    attached: Vec<Attachment>,
    next: u64,
    /// The number of the last record that was shown.
    shown: u64,
    /// Chunks of text whose record continues.
    pending: Option<Event>,
    /// The connection that gets our calls.
    writer: Option<u64>,
    /// What the last writer supports.
    offers: Offers,
}

/// What a connection needs to be attached.
pub(crate) struct Seat {
    pub(crate) outlet: Outlet,
    pub(crate) budget: Arc<Semaphore>,
    pub(crate) offers: Offers,
    /// Sends calls to the connection.
    pub(crate) editor: Arc<AcpEditor>,
    /// Whether it never prompts and is never asked.
    pub(crate) only_watches: bool,
}

struct Attachment {
    id: u64,
    seat: Seat,
    /// The number of the last record that it has.
    last: u64,
    /// Whether it gets events as they happen. Otherwise it is behind, and its follower reads the journal.
    is_live: bool,
    wake: Arc<Notify>,
    own_prompts: VecDeque<MessageId>,
    /// What to do once it has seen everything: answers that must not overtake updates.
    when_live: Vec<Box<dyn FnOnce() + Send>>,
}

impl Attachment {
    /// Sends an event if there is room for it.
    fn send(&self, session: &SessionId, event: &Event, seq: Option<u64>) -> bool {
        if !is_wanted(event, self.seat.offers) {
            return true;
        }
        let cost = size::weight(event).min(SESSION_BUDGET);
        let permits = u32::try_from(cost).unwrap_or(u32::MAX);
        let Ok(place) = self.seat.outlet.to_dispatcher.try_reserve() else { return false };
        let Ok(of_session) = self.seat.budget.try_acquire_many(permits) else { return false };
        let Ok(of_all) = self.seat.outlet.total.try_acquire_many(permits) else { return false };
        of_session.forget();
        of_all.forget();
        let (session, event, attachment) = (session.clone(), event.clone(), Some(self.id));
        place.send(FromSession::Event { session, event, cost, seq, attachment });
        true
    }
}

/// What a follower works with.
pub(crate) struct Following {
    pub(crate) wake: Arc<Notify>,
    pub(crate) outlet: Outlet,
    pub(crate) budget: Arc<Semaphore>,
    pub(crate) offers: Offers,
}

impl Stage {
    pub(crate) fn new(session: SessionId, offers: Offers) -> Arc<Stage> {
        let state =
            State { attached: Vec::new(), next: 1, shown: 0, pending: None, writer: None, offers };
        Arc::new(Stage {
            session,
            state: Mutex::new(state),
            changed: Notify::new(),
            in_flight: Arc::new(Semaphore::new(SESSION_BUDGET)),
        })
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.session
    }

    pub(crate) fn in_flight(&self) -> Arc<Semaphore> {
        Arc::clone(&self.in_flight)
    }

    /// The lock is held for no longer than a few sends that do not wait.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a connection that has the journal up to `last`. It is behind until its follower has caught up.
    pub(crate) fn attach(&self, seat: Seat, last: u64) -> (u64, Following) {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        let following = Following {
            wake: Arc::new(Notify::new()),
            outlet: seat.outlet.clone(),
            budget: Arc::clone(&seat.budget),
            offers: seat.offers,
        };
        if !seat.only_watches {
            state.writer = Some(id);
            state.offers = seat.offers;
        }
        let (wake, when_live) = (Arc::clone(&following.wake), Vec::new());
        let own_prompts = VecDeque::new();
        state.attached.push(Attachment {
            id,
            seat,
            last,
            is_live: false,
            wake,
            own_prompts,
            when_live,
        });
        (id, following)
    }

    /// Detaches a connection. Its follower ends, and another connection that may write takes its place.
    pub(crate) fn detach(&self, id: u64) {
        let mut state = self.lock();
        if let Some(index) = state.attached.iter().position(|attached| attached.id == id) {
            state.attached.remove(index).wake.notify_one();
        }
        if state.writer == Some(id) {
            let next = state.attached.iter().rev().find(|attached| !attached.seat.only_watches);
            state.writer = next.map(|attached| attached.id);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Tells whether no connection is attached.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().attached.is_empty()
    }

    /// Tells how many attached connections are behind.
    pub(crate) fn behind(&self) -> usize {
        self.lock().attached.iter().filter(|attached| !attached.is_live).count()
    }

    /// Makes a connection the one that gets our calls, and remembers the prompt that it sends. False if it only watches.
    pub(crate) fn begin_prompt(&self, id: u64, message: &MessageId) -> bool {
        let mut state = self.lock();
        let Some(attached) = state.attached.iter_mut().find(|attached| attached.id == id) else {
            return false;
        };
        if attached.seat.only_watches {
            return false;
        }
        attached.own_prompts.truncate(OWN_PROMPTS - 1);
        attached.own_prompts.push_front(message.clone());
        let offers = attached.seat.offers;
        state.writer = Some(id);
        state.offers = offers;
        true
    }

    /// Shows a committed event to everyone attached. Runs on the thread of the journal, so it never waits.
    pub(crate) fn show(&self, event: Event, place: Place) {
        let mut state = self.lock();
        let State { attached, shown, pending, writer, .. } = &mut *state;
        let seq = match place {
            Place::Unrecorded => None,
            Place::Part => {
                *pending = Some(joined(pending.take(), event));
                return;
            }
            Place::Record(seq) => Some(seq),
        };
        let event = joined(pending.take_if(|_| seq.is_some()), event);
        if let Some(seq) = seq {
            *shown = seq;
        }
        for attached in attached.iter_mut().filter(|attached| attached.is_live) {
            // Between two events that are shown there may be a prompt, which only the journal has.
            let may_skip = *writer == Some(attached.id);
            let has_gap = seq.is_some_and(|seq| !may_skip && seq > attached.last + 1);
            if has_gap || !attached.send(&self.session, &event, seq) {
                attached.is_live = false;
                attached.wake.notify_one();
            } else if let Some(seq) = seq {
                attached.last = seq;
            }
        }
    }

    /// Returns the number of the last record that a connection has; `None` once it is detached.
    pub(crate) fn position(&self, id: u64) -> Option<u64> {
        self.lock().attached.iter().find(|attached| attached.id == id).map(|found| found.last)
    }

    /// Tells whether an event is a prompt that this connection sent itself.
    pub(crate) fn is_own(&self, id: u64, event: &Event) -> bool {
        let Event::User { message, .. } = event else { return false };
        let state = self.lock();
        let found = state.attached.iter().find(|attached| attached.id == id);
        found.is_some_and(|attached| attached.own_prompts.contains(message))
    }

    /// Says that a connection has the journal up to this record.
    pub(crate) fn advance(&self, id: u64, last: u64) {
        let mut state = self.lock();
        if let Some(attached) = state.attached.iter_mut().find(|attached| attached.id == id) {
            attached.last = attached.last.max(last);
        }
    }

    /// Shows events to a connection as they happen from now on, if it has seen everything that was shown.
    pub(crate) fn go_live(&self, id: u64) -> bool {
        let mut state = self.lock();
        let shown = state.shown;
        let Some(attached) = state.attached.iter_mut().find(|attached| attached.id == id) else {
            return true;
        };
        if shown > attached.last {
            return false;
        }
        attached.is_live = true;
        attached.when_live.drain(..).for_each(|run| run());
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// Runs this once a connection has seen everything shown so far; never, if it is detached before.
    pub(crate) fn when_live(&self, id: u64, run: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        match state.attached.iter_mut().find(|attached| attached.id == id) {
            Some(attached) if attached.is_live => run(),
            Some(attached) => attached.when_live.push(Box::new(run)),
            None => drop(state),
        }
    }

    /// Returns what the connection that gets our calls supports.
    pub(crate) fn offers(&self) -> Offers {
        self.lock().offers
    }

    /// Waits for a connection that answers calls and has seen everything so far.
    pub(crate) async fn writer(&self) -> Arc<AcpEditor> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(editor) = self.ready_writer() {
                return editor;
            }
            changed.await;
        }
    }

    fn ready_writer(&self) -> Option<Arc<AcpEditor>> {
        let state = self.lock();
        let writer = state.writer?;
        let found = state.attached.iter().find(|attached| attached.id == writer)?;
        found.is_live.then(|| Arc::clone(&found.seat.editor))
    }
}

/// Appends a chunk of text to the chunks before it in the same record.
fn joined(before: Option<Event>, event: Event) -> Event {
    let Some(mut before) = before else { return event };
    if size::append_text(&mut before, &event) { before } else { event }
}
