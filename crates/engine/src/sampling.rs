//! One exchange with the model: a request goes out, its answer comes back in pieces.

use futures_util::StreamExt;
use tokio::time::timeout;

use crate::context;
use crate::error::Error;
use crate::event::Event;
use crate::modes::{MODES, Mode};
use crate::ports::{ModelError, ModelEvent};
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
    if usage != Usage::default() {
        let used = usage.input + usage.output;
        cx.emit(Event::Usage { used, size: choice.context_size, cost: None }).await?;
    }
    Ok(Answer { calls, stop })
}
