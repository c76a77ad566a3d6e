//! Runs the turn of a prompt, and serves the session's mailbox meanwhile.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::controls::Controls;
use super::{Command, Origin, Session};
use crate::ports::{Error, OpenSpan, PromptEnd, Record, Reply, SpanEnd, State};
use crate::turn::cx::{Conversation, Turn, TurnCx, TurnError};
use crate::turn::prompt::{self, Naming};
use crate::words::{MessageId, Prompt, StopReason, TurnReport, Usage};

/// How many prompts are remembered: a client sends only its last one again.
const REMEMBERED: usize = 32;

/// Why a session ends during a turn.
pub(super) enum End {
    /// The client closes it.
    Closed(State, Reply<()>),
    /// Its last handle was dropped.
    Dropped,
    /// Another process has taken it over.
    Lost,
}

/// What a turn returned; `Err` if it panicked.
type Outcome = Result<Result<StopReason, TurnError>, Box<dyn std::any::Any + Send>>;

/// The session as it was before a turn.
struct Before {
    messages: usize,
    tokens: Usage,
}

impl Session {
    /// Runs a turn and keeps reading the mailbox. Returns why the session must end, if it must.
    pub(super) async fn run_prompt(
        &mut self,
        prompt: Prompt,
        origin: Origin,
        cancel: CancellationToken,
        reply: Reply<TurnReport>,
    ) -> Option<End> {
        let message = origin.message.clone();
        let is_continued = match message.as_ref().and_then(|message| self.earlier(message)) {
            None => false,
            Some(PromptEnd::Interrupted) => true,
            Some(end) => {
                reply.send(earlier_report(end));
                return None;
            }
        };
        let before = Before { messages: self.history.len(), tokens: self.controls.meter.tokens() };
        let (span, spans) = self.controls.begin_turn(&origin);
        let Session { controls, history, context, mailbox, .. } = self;
        let mut cx = TurnCx {
            ports: controls.ports(),
            conversation: Conversation {
                session: &controls.id,
                cwd: &controls.cwd,
                settings: &controls.settings,
                history,
                context,
                meter: &controls.meter,
                steering: &controls.steering,
                asking: &controls.asking,
            },
            turn: Turn::new(controls.shared.limits, cancel.clone(), spans),
        };
        let naming = Naming { has_title: &controls.has_title, titler: controls.titler.as_ref() };
        let prompt = (!is_continued).then_some(prompt);
        // On the heap: a turn's state is too large to be moved on a small stack.
        let turn = Box::pin(prompt::answer(&mut cx, prompt, origin.message, naming));
        let turn = AssertUnwindSafe(turn).catch_unwind();
        let (outcome, end) = with_mailbox(turn, mailbox, controls, &cancel).await;
        self.finish_turn(outcome, message, before, span, reply).await;
        end
    }

    /// Returns what became of a prompt that was sent before.
    fn earlier(&self, message: &MessageId) -> Option<PromptEnd> {
        let mut known = self.prompts.iter();
        known.find_map(|(known, end)| (known == message).then_some(*end))
    }

    /// Remembers what became of a prompt, in case it is sent again.
    fn remember(&mut self, message: MessageId, stop: Option<StopReason>) {
        self.prompts.retain(|(known, _)| *known != message);
        if self.prompts.len() == REMEMBERED {
            self.prompts.pop_front();
        }
        self.prompts.push_back((message, PromptEnd::Ended(stop)));
    }

    /// Journals that a turn ended, and answers its prompt.
    async fn finish_turn(
        &mut self,
        outcome: Outcome,
        message: Option<MessageId>,
        before: Before,
        mut span: OpenSpan,
        reply: Reply<TurnReport>,
    ) {
        let answer = match outcome {
            Ok(Ok(stop)) => Ok(stop),
            Ok(Err(TurnError::Cancelled)) => Ok(StopReason::Cancelled),
            Ok(Err(TurnError::Failed(err))) => Err(err),
            Err(_panic) => {
                // A turn that panicked may have left the history half written, so all of it is removed.
                self.history.truncate(before.messages);
                Err(Error::Broken)
            }
        };
        let Controls { id, steering, titler, .. } = &self.controls;
        if let (Ok(StopReason::Cancelled), Some(titler)) = (&answer, titler) {
            titler.cancel().await;
        }
        steering.refuse_all(id);
        self.history.close_open_calls("cancelled before it ended");
        let stop = answer.as_ref().ok().copied();
        if let Some(message) = message {
            self.remember(message, stop);
        }
        let Controls { id, shared, meter, .. } = &self.controls;
        let written = shared.journal.append(id, Record::TurnEnd(stop)).await;
        let usage = meter.tokens().since(&before.tokens);
        span.note(|facts| (facts.stop, facts.total) = (stop, usage));
        match stop {
            Some(StopReason::Cancelled) => span.end(SpanEnd::Cancelled),
            _ => span.end_with(&answer),
        }
        let answer = answer.map(|stop| TurnReport { stop, usage });
        reply.send(match written {
            Ok(()) => answer,
            Err(err) => answer.and(Err(Error::of_journal(id, err))),
        });
    }
}

/// Returns the result of a prompt whose turn is over.
fn earlier_report(end: PromptEnd) -> Result<TurnReport, Error> {
    match end {
        PromptEnd::Ended(Some(stop)) => Ok(TurnReport { stop, usage: Usage::default() }),
        PromptEnd::Ended(None) => Err(Error::Broken),
        PromptEnd::Interrupted | PromptEnd::CommandInterrupted => {
            Ok(TurnReport { stop: StopReason::Cancelled, usage: Usage::default() })
        }
    }
}

/// Waits for a turn and serves the mailbox meanwhile. Also returns why the session must end, if it must.
async fn with_mailbox(
    turn: impl Future<Output = Outcome>,
    mailbox: &mut mpsc::Receiver<Command>,
    controls: &Controls,
    cancel: &CancellationToken,
) -> (Outcome, Option<End>) {
    let mut end = None;
    tokio::pin!(turn);
    loop {
        tokio::select! {
            biased;
            outcome = &mut turn => return (outcome, end),
            command = mailbox.recv(), if end.is_none() => match command {
                Some(command @ (Command::Prompt { .. } | Command::Replay { .. })) => {
                    command.refuse(Error::Busy(controls.id.clone()));
                }
                Some(Command::Steer(prompt, reply)) => controls.steering.push(prompt, reply),
                Some(Command::Close(state, reply)) => {
                    cancel.cancel();
                    end = Some(End::Closed(state, reply));
                }
                Some(Command::Lose) => {
                    cancel.cancel();
                    end = Some(End::Lost);
                }
                Some(other) => controls.apply(other).await,
                None => {
                    cancel.cancel();
                    end = Some(End::Dropped);
                }
            },
        }
    }
}
