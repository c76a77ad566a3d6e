//! The only way out of a session: an event is journalled, then shown.

use crate::ports::{Editor, Error, Event, Journal};
use crate::words::SessionId;

/// Journals an event, then shows it: after a crash the client must never have seen more than the journal has.
pub(crate) async fn emit(
    session: &SessionId,
    journal: &dyn Journal,
    editor: &dyn Editor,
    event: Event,
) -> Result<(), Error> {
    let show = editor.reserve(&event).await;
    journal.append_event(session, event, show).await.map_err(|err| Error::of_journal(session, err))
}
