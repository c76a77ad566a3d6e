//! Steering: messages that the user sends while a turn runs. They wait here until the next request to the model.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ports::{Error, Reply};
use crate::words::{Prompt, SessionId};

/// How many messages may wait.
const WAITING: usize = 8;

/// The messages that wait for the running turn. When it is full, the next one is refused. Never locked across an await.
#[derive(Debug, Default)]
pub(crate) struct Steering(Mutex<VecDeque<Waiting>>);

/// A message for the running turn. Its reply is sent when the turn has taken it.
type Waiting = (Prompt, Reply<()>);

impl Steering {
    /// Adds a message.
    pub(crate) fn push(&self, prompt: Prompt, reply: Reply<()>) {
        let mut waiting = self.waiting();
        if waiting.len() < WAITING {
            waiting.push_back((prompt, reply));
        } else {
            drop(waiting);
            reply.send(Err(Error::TooMuchSteering(WAITING)));
        }
    }

    /// Refuses the messages that still wait when a turn has ended.
    pub(crate) fn refuse_all(&self, session: &SessionId) {
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.into_iter().for_each(|(_, reply)| reply.send(Err(Error::NoTurn(session.clone()))));
    }

    /// Takes the oldest message.
    pub(crate) fn next(&self) -> Option<Waiting> {
        self.waiting().pop_front()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
