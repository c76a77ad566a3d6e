//! The only way out of a session: an event is journalled, then shown.

use crate::ports::{Editor, Error, Event, Journal, JournalError};
use crate::words::{SessionId, ToolStatus, ToolUpdate};

/// Journals an event, then shows it: after a crash the client must never have seen more than the journal has.
pub(crate) async fn emit(
    session: &SessionId,
    journal: &dyn Journal,
    editor: &dyn Editor,
    event: Event,
) -> Result<(), Error> {
    let show = editor.reserve(&event).await;
    let end = end_of_call(&event);
    let written = journal.append_event(session, event, show).await;
    // The session is another process's now, but a call that this client saw begin must not look as if it still ran.
    if matches!(written, Err(JournalError::TakenOver))
        && let Some(end) = end
    {
        editor.show(end).await;
    }
    written.map_err(|err| Error::of_journal(session, err))
}

/// Returns the end of a call as a failure, if an event ends one.
fn end_of_call(event: &Event) -> Option<Event> {
    let Event::ToolUpdate(id, update) = event else { return None };
    let is_end = matches!(update.status, Some(ToolStatus::Completed | ToolStatus::Failed));
    let update = ToolUpdate { status: Some(ToolStatus::Failed), ..ToolUpdate::default() };
    is_end.then(|| Event::ToolUpdate(id.clone(), Box::new(update)))
}
