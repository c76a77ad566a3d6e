//! The title of a session: a small model writes it in parallel to the first turn, which never waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::emit::emit;
use super::meter::Meter;
use super::sampling::begin_request;
use crate::ports::{
    Clock, Editor, Error, Event, Journal, ModelChoice, ModelEvent, OpenSpan, Preferences, Record,
    Request, Settings, SpanEnd, SpanScope,
};
use crate::words::{Block, Message, Prompt, SessionId, Thinking, Usage, iso_8601};

/// How long the small model may take; otherwise the first line of the prompt stays the title.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// How many characters of the prompt it reads.
const MAX_PROMPT: usize = 2000;
/// How long its answer may be, in bytes.
const MAX_ANSWER: usize = 400;

const INSTRUCTIONS: &str = "You name conversations between a programmer and a coding agent. Answer with a title of three to seven words for the \
                            conversation that begins with the message, in its language, and with nothing else: no quotes, no full stop.";

/// Names a session.
pub(crate) struct Titler {
    pub(crate) preferences: Arc<dyn Preferences>,
    pub(crate) session: SessionId,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) editor: Arc<dyn Editor>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) meter: Arc<Meter>,
    /// Where its spans go.
    pub(crate) spans: SpanScope,
    /// The user has named the session, so no other title is set.
    pub(crate) is_fixed: Arc<AtomicBool>,
    /// Ends with the session. Locked only to add a task.
    pub(crate) tasks: Mutex<JoinSet<()>>,
}

impl Titler {
    /// Stops asking for a title. Nothing is shown or counted any more when this returns.
    pub(crate) async fn cancel(&self) {
        let mut tasks =
            std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
    }

    /// Asks the small model for a title, if one is configured. Returns at once.
    pub(crate) fn begin(&self, settings: &Settings, prompt: &Prompt) {
        let (preferences, settings) = (Arc::clone(&self.preferences), settings.clone());
        let text: String = prompt.text().chars().take(MAX_PROMPT).collect();
        let (session, journal) = (self.session.clone(), Arc::clone(&self.journal));
        let (editor, clock) = (Arc::clone(&self.editor), Arc::clone(&self.clock));
        let (is_fixed, meter) = (Arc::clone(&self.is_fixed), Arc::clone(&self.meter));
        let spans = self.spans.clone();
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            // Finding the small model may read files.
            let found =
                tokio::task::spawn_blocking(move || preferences.small_model(&settings)).await;
            let Some(choice) = found.ok().flatten() else { return };
            let mut usage = Usage::default();
            let mut span = begin_request(&spans, &choice);
            let asked = timeout(TIME_LIMIT, ask(&choice, text, &mut usage, &mut span)).await;
            let place = (&session, &*journal, &*editor);
            let counted = count(place, &meter, &choice, usage, &mut span).await;
            span.end(match &asked {
                Ok(Some(_)) => SpanEnd::Completed,
                Ok(None) => SpanEnd::Failed("no title".to_owned()),
                Err(_) => SpanEnd::Failed("no title in time".to_owned()),
            });
            if let Err(err) = counted {
                tracing::warn!(%session, "the cost of a title was not saved: {err}");
            }
            let Ok(Some(title)) = asked else {
                tracing::debug!(%session, "the small model gave no title");
                return;
            };
            if is_fixed.load(Ordering::Relaxed) {
                return;
            }
            if let Err(err) = journal.set_title(&session, &title).await {
                tracing::warn!(%session, "a title was not saved: {err}");
                return;
            }
            let updated_at = Some(iso_8601(clock.now()));
            let event = Event::Info { title: Some(title), updated_at };
            if let Err(err) = emit(&session, &*journal, &*editor, event).await {
                tracing::warn!(%session, "a title was not shown: {err}");
            }
        });
    }
}

/// Journals what a title cost and shows the new total. Before the first answer the size of the window is unknown; then the
/// answer's own usage shows both.
async fn count(
    (session, journal, editor): (&SessionId, &dyn Journal, &dyn Editor),
    meter: &Meter,
    choice: &ModelChoice,
    usage: Usage,
    span: &mut OpenSpan,
) -> Result<(), Error> {
    if usage == Usage::default() {
        return Ok(());
    }
    let dollars = choice.price.map(|price| price.of(&usage));
    span.note(|facts| (facts.usage, facts.dollars) = (usage, dollars));
    let record = Record::Spent { model: &choice.id, usage: &usage, dollars };
    let written = journal.append(session, record).await;
    written.map_err(|err| Error::of_journal(session, err))?;
    let cost = meter.add(&choice.id, &usage, dollars);
    let (used, size) = meter.window();
    if cost.is_none() || size == 0 {
        return Ok(());
    }
    emit(session, journal, editor, Event::Usage { used, size, cost }).await
}

async fn ask(
    choice: &ModelChoice,
    text: String,
    usage: &mut Usage,
    span: &mut OpenSpan,
) -> Option<String> {
    let mut answer = choice.model.answer(Request {
        model: choice.id.clone(),
        instructions: INSTRUCTIONS.into(),
        messages: vec![Arc::new(Message::User(Prompt::from(vec![Block::Text(text)])))],
        tools: Vec::new(),
        thinking: Thinking::Off,
        traceparent: None,
    });
    let mut title = String::new();
    while let Some(event) = answer.next().await {
        match event {
            Ok(ModelEvent::Text(text)) => {
                span.first_byte();
                title.push_str(&text);
            }
            Ok(ModelEvent::Usage(now)) => *usage = now,
            Ok(ModelEvent::Stop(_)) => break,
            Ok(_) => {}
            Err(err) => {
                tracing::debug!("the small model failed: {err}");
                return None;
            }
        }
        if title.len() > MAX_ANSWER {
            break;
        }
    }
    clean(&title)
}

/// Makes a title from an answer: its first line, without quotes and markup.
fn clean(answer: &str) -> Option<String> {
    let line = answer.lines().map(str::trim).find(|line| !line.is_empty())?;
    let line = line.trim_start_matches(['#', '*', ' ']);
    let line = line.strip_prefix("Title:").unwrap_or(line);
    let line = line.trim_matches(['"', '\'', '`', '*', '“', '”', ' ']).trim_end_matches('.');
    Prompt::from(vec![Block::Text(line.to_owned())]).title()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_becomes_a_title() {
        assert_eq!(clean("\n**\"Fix the parser.\"**\nmore").as_deref(), Some("Fix the parser"));
        assert_eq!(clean("Title: Größe zählt").as_deref(), Some("Größe zählt"));
        assert_eq!(clean(" \n\" \""), None);
        assert!(clean(&"x".repeat(300)).unwrap().chars().count() <= 61);
    }
}
