//! Steering: what the user says while a turn runs. It waits here and enters the conversation between two requests.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ports::error::Error;
use crate::ports::event::Event;
use crate::ports::reply::Reply;
use crate::ports::{PromptKind, Record};
use crate::turn::{TurnCx, TurnError};
use crate::words::{Message, MessageId, Prompt, SessionId};

/// How many messages may wait.
const WAITING: usize = 8;

/// The messages that wait to enter a running turn. Full: the next is refused. Never held across an await.
#[derive(Debug, Default)]
pub(crate) struct Steering(Mutex<VecDeque<Note>>);

/// A message for the running turn. It is answered when the turn has it.
#[derive(Debug)]
struct Note {
    prompt: Prompt,
    reply: Reply<()>,
}

impl Steering {
    /// Lets a message wait.
    pub(crate) fn push(&self, prompt: Prompt, reply: Reply<()>) {
        let mut notes = self.notes();
        if notes.len() < WAITING {
            notes.push_back(Note { prompt, reply });
        } else {
            drop(notes);
            reply.send(Err(Error::TooMuchSteering(WAITING)));
        }
    }

    /// Refuses what still waits when a turn has ended without it.
    pub(crate) fn refuse_all(&self, session: &SessionId) {
        let notes = std::mem::take(&mut *self.notes());
        notes.into_iter().for_each(|note| note.reply.send(Err(Error::NoTurn(session.clone()))));
    }

    fn next(&self) -> Option<Note> {
        self.notes().pop_front()
    }

    fn notes(&self) -> MutexGuard<'_, VecDeque<Note>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts what waits into the conversation. Tells whether there was anything.
pub(crate) async fn take_up(cx: &mut TurnCx<'_>) -> Result<bool, TurnError> {
    let mut is_steered = false;
    while let Some(Note { prompt, reply }) = cx.steering.next() {
        let message = MessageId::new(cx.clock.fresh_id());
        let kind = PromptKind::Steering;
        cx.record(Record::Prompt { message: &message, prompt: &prompt, kind }).await?;
        // The client cannot know where in the conversation it came to stand, so it is shown, unlike a prompt.
        let mut asides = prompt.asides.into_iter();
        for block in &prompt.blocks {
            let (message, block) = (message.clone(), block.clone());
            let aside = asides.next().flatten();
            cx.emit(Event::User { message, block, aside }).await?;
        }
        cx.history.push(Message::User(prompt.blocks.into()));
        reply.send(Ok(()));
        is_steered = true;
    }
    Ok(is_steered)
}
