//! One exchange with the model: a request goes out, its answer comes back in pieces.

use futures_util::StreamExt;
use tokio::time::timeout;

use crate::context;
use crate::error::Error;
use crate::event::Event;
use crate::modes::{MODES, Mode};
use crate::ports::{ModelError, ModelEvent, Record};
use crate::turn::{TurnCx, TurnError};
use crate::words::{Message, MessageId, StopReason, ToolRequest, Usage};

/// What the model answered.
pub(crate) struct Answer {
    /// The tools it asked for.
    pub(crate) calls: Vec<ToolRequest>,
    /// Why it stopped.
    pub(crate) stop: StopReason,
}

/// Asks the model once and shows its answer as it comes.
///
/// What was shown stays in the history, also when the answer is cut off.
pub(crate) async fn sample(cx: &mut TurnCx<'_>) -> Result<Answer, TurnError> {
    let settings = cx.settings.borrow().clone();
    let mode = Mode::find(settings.mode.as_str()).unwrap_or(&MODES[0]);
    let Some(choice) = settings.models.iter().find(|choice| choice.id == settings.model) else {
        return Err(Error::NoSuchModel(settings.model).into());
    };
    let mut stream =
        choice.model.answer(context::view(cx.history, settings.model.clone(), mode, cx.tools));
    let message = MessageId::new(cx.clock.fresh_id());
    let mut said = String::new();
    let mut calls = Vec::new();
    let mut usage = Usage::default();
    let ended = loop {
        let next = match cx.or_cancelled(timeout(cx.limits.no_progress, stream.next())).await {
            Ok(Ok(next)) => next,
            Ok(Err(_)) => break Err(Error::NoProgress(cx.limits.no_progress).into()),
            Err(cancelled) => break Err(cancelled),
        };
        match next {
            Some(Ok(ModelEvent::Text(text))) => {
                let shown = said.len();
                said.push_str(&text);
                let event = Event::Text { message: message.clone(), text };
                if let Err(err) = cx.or_cancelled(cx.emit(event)).await.flatten() {
                    said.truncate(shown);
                    break Err(err);
                }
            }
            Some(Ok(ModelEvent::Thought(text))) => {
                let event = Event::Thought { message: message.clone(), text };
                if let Err(err) = cx.or_cancelled(cx.emit(event)).await.flatten() {
                    break Err(err);
                }
            }
            Some(Ok(ModelEvent::Tool(call))) => calls.push(call),
            Some(Ok(ModelEvent::Usage(now))) => usage = now,
            Some(Ok(ModelEvent::Stop(stop))) => break Ok(stop),
            Some(Err(ModelError::AuthNeeded)) => break Err(Error::AuthNeeded.into()),
            Some(Err(ModelError::Failed(why))) => break Err(Error::Model(why).into()),
            None => break Ok(StopReason::EndTurn),
        }
    };
    if ended.is_err() {
        calls.clear();
    }
    if !said.is_empty() || !calls.is_empty() {
        cx.history.push(Message::Agent { text: said, calls: calls.clone() });
    }
    let stop = ended?;
    if !calls.is_empty() {
        cx.record(Record::Answer(&calls)).await?;
    }
    if usage != Usage::default() {
        let used = usage.input + usage.output;
        cx.emit(Event::Usage { used, size: choice.context_size, cost: None }).await?;
    }
    Ok(Answer { calls, stop })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::{self, BoxFuture};
    use tokio::sync::{Notify, watch};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::context::History;
    use crate::permission::{self, Memory, Question};
    use crate::ports::{
        Editor, EditorError, ExitStatus, Form, FormAnswer, Offers, Page, Show, TerminalCommand,
        TerminalOutput,
    };
    use crate::script::{NoJournal, ScriptedModel, SystemClock};
    use crate::session::{ModelChoice, Settings};
    use crate::turn::TurnLimits;
    use crate::words::{ModelId, SessionId, TerminalId};

    /// Takes so many events and no more.
    struct Full {
        room: AtomicUsize,
        is_full: Notify,
    }

    type Asked<'a, T> = BoxFuture<'a, Result<T, EditorError>>;

    impl Editor for Full {
        fn make_room<'a>(&'a self, _: &'a Event) -> BoxFuture<'a, Option<Show>> {
            async {
                let left = |room: usize| room.checked_sub(1);
                if self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err() {
                    self.is_full.notify_one();
                    future::pending::<()>().await;
                }
                Some(Box::new(drop) as Show)
            }
            .boxed()
        }

        fn offers(&self) -> Offers {
            Offers::default()
        }

        fn ask_permission(&self, _: Question) -> Asked<'_, permission::Answer> {
            future::pending().boxed()
        }

        fn read_text_file(&self, _: PathBuf, _: Option<u32>, _: Option<u32>) -> Asked<'_, String> {
            future::pending().boxed()
        }

        fn write_text_file(&self, _: PathBuf, _: String) -> Asked<'_, ()> {
            future::pending().boxed()
        }

        fn create_terminal(&self, _: TerminalCommand) -> Asked<'_, TerminalId> {
            future::pending().boxed()
        }

        fn terminal_output(&self, _: TerminalId) -> Asked<'_, TerminalOutput> {
            future::pending().boxed()
        }

        fn wait_for_exit(&self, _: TerminalId) -> Asked<'_, ExitStatus> {
            future::pending().boxed()
        }

        fn kill_terminal(&self, _: TerminalId) -> Asked<'_, ()> {
            future::pending().boxed()
        }

        fn release_terminal(&self, _: TerminalId) -> Asked<'_, ()> {
            future::pending().boxed()
        }

        fn elicit(&self, _: Form) -> Asked<'_, FormAnswer> {
            future::pending().boxed()
        }

        fn page_done(&self, _: &Page) -> BoxFuture<'_, ()> {
            future::pending().boxed()
        }
    }

    /// The user saw it, so the model must know that it said it.
    // R: S5, W16
    #[tokio::test]
    async fn what_was_shown_before_a_cancel_stays_in_the_history() {
        let script = "model text \"one \"\nmodel text \"two\"\nmodel text \" three\"";
        let model = ModelChoice {
            id: ModelId::new("m"),
            name: String::new(),
            context_size: 1000,
            model: Arc::new(ScriptedModel::parse(script).unwrap()),
        };
        let editor = Full { room: AtomicUsize::new(2), is_full: Notify::new() };
        let mut history = History::default();
        let cancel = CancellationToken::new();
        let mut cx = TurnCx {
            session: &SessionId::new("s"),
            cwd: "/w".as_ref(),
            settings: &watch::Sender::new(Settings::new(vec![model].into()).unwrap()),
            history: &mut history,
            memory: &mut Memory::default(),
            has_title: &false.into(),
            tools: &[],
            editor: &editor,
            journal: &NoJournal,
            clock: &SystemClock,
            limits: TurnLimits { max_requests: 1, no_progress: Duration::from_secs(60) },
            cancel: cancel.clone(),
        };
        let cancelled = async {
            editor.is_full.notified().await;
            cancel.cancel();
        };
        let (answer, ()) = tokio::join!(sample(&mut cx), cancelled);
        assert!(matches!(answer, Err(TurnError::Cancelled)));
        let said = Message::Agent { text: "one two".to_owned(), calls: Vec::new() };
        let seen = context::view(&history, ModelId::new("m"), &MODES[0], &[]).messages;
        assert_eq!(seen, [Arc::new(said)]);
    }
}
