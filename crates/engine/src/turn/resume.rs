//! `/clear`, `/new` and `/resume`: which conversation the model continues.
//!
//! A session belongs to the client, so these change only what the model sees. Everything stays stored.

use std::time::{Duration, SystemTime};

use super::cx::{TurnCx, TurnError};
use crate::ports::{Error, JournalError, Query, Record, SessionInfo};
use crate::words::Cut;

/// How many sessions `/resume` lists.
const LISTED: usize = 20;

/// Drops the conversation so far from what the model sees. Returns the answer for the user.
pub(crate) async fn clear(cx: &mut TurnCx<'_>, is_new: bool) -> Result<String, TurnError> {
    let was_empty = cx.conversation.history.is_empty();
    drop_context(cx).await?;
    let mut said = match was_empty {
        true => "The model sees no earlier messages.".to_owned(),
        false => {
            "Cleared: the model no longer sees the messages above. They are still saved.".to_owned()
        }
    };
    if is_new {
        said.push_str(" For a separate session, use your editor's command for a new one.");
    }
    Ok(said)
}

async fn drop_context(cx: &mut TurnCx<'_>) -> Result<(), TurnError> {
    // A compaction without a summary.
    cx.record(Record::Compacted { summary: "", from: &Cut::End, cap: None }).await?;
    let all = cx.conversation.history.len();
    cx.conversation.history.compact(all, String::new(), None);
    cx.conversation.context.refresh();
    Ok(())
}

/// Continues the conversation of another session in this one; without a name, lists the sessions of this directory.
pub(crate) async fn resume(cx: &mut TurnCx<'_>, wanted: Option<&str>) -> Result<(), TurnError> {
    if !cx.ports.journal.is_persistent() {
        return cx.say("Sessions are not saved, so there is none to resume.".to_owned()).await;
    }
    let sessions = others(cx).await?;
    let now = cx.ports.clock.now();
    let Some(wanted) = wanted else { return cx.say(list(&sessions, now)).await };
    let Some(found) = find(&sessions, wanted) else {
        let said = format!("{} {}", no_session(wanted), list(&sessions, now));
        return cx.say(said).await;
    };
    let (title, ago) = (found.title.as_deref().unwrap_or_default(), ago(now, found.updated));
    // Said first: what follows is part of the conversation that the model sees.
    cx.say(format!("Resuming “{title}” ({ago}). Its messages follow, and the model sees them instead of those above."))
        .await?;
    drop_context(cx).await?;
    let (journal, session) = (cx.ports.journal, cx.conversation.session);
    let failed = |err| Error::of_journal(session, err);
    journal.copy_into(session, &found.id, cx.ports.editor).await.map_err(failed)?;
    *cx.conversation.history = journal.load(session, None).await.map_err(failed)?.history;
    Ok(())
}

/// Says that no session has this number or id.
pub(crate) fn no_session(wanted: &str) -> String {
    format!("Session `{wanted}` not found.")
}

/// Returns the other sessions of this directory, the last used first.
async fn others(cx: &TurnCx<'_>) -> Result<Vec<SessionInfo>, TurnError> {
    let session = cx.conversation.session;
    let query = Query { cwd: Some(cx.conversation.cwd.to_owned()), cursor: None };
    let listing = match cx.ports.journal.list(query).await {
        Err(JournalError::NotFound) => return Ok(Vec::new()),
        listing => listing.map_err(|err| Error::of_journal(session, err))?,
    };
    // A session without a title has no messages.
    let is_other = |info: &SessionInfo| info.id != *session && info.title.is_some();
    Ok(listing.sessions.into_iter().filter(is_other).take(LISTED).collect())
}

/// Finds a session by its number in the list, or by the beginning of its id.
fn find<'a>(sessions: &'a [SessionInfo], wanted: &str) -> Option<&'a SessionInfo> {
    let by_number = || sessions.get(wanted.parse::<usize>().ok()?.checked_sub(1)?);
    let is_named = |info: &&SessionInfo| wanted.len() >= 8 && info.id.as_str().starts_with(wanted);
    sessions.iter().find(is_named).or_else(by_number)
}

fn list(sessions: &[SessionInfo], now: SystemTime) -> String {
    if sessions.is_empty() {
        return "No other sessions in this folder.".to_owned();
    }
    let mut text = String::from("`/resume` with a number continues that conversation here:\n");
    for (number, session) in (1..).zip(sessions) {
        let title = session.title.as_deref().unwrap_or_default();
        text.push_str(&format!("- {number}: {title} ({})\n", ago(now, session.updated)));
    }
    text
}

/// Says how long ago a time was.
fn ago(now: SystemTime, then: SystemTime) -> String {
    let minutes = now.duration_since(then).unwrap_or(Duration::ZERO).as_secs() / 60;
    let count = |number: u64, unit: &str| match number {
        1 => format!("1 {unit} ago"),
        _ => format!("{number} {unit}s ago"),
    };
    match minutes {
        0 => "just now".to_owned(),
        1..60 => count(minutes, "minute"),
        60..1440 => count(minutes / 60, "hour"),
        _ => count(minutes / 1440, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::State;
    use crate::words::SessionId;

    fn session(id: &str, title: &str, updated: SystemTime) -> SessionInfo {
        SessionInfo {
            id: SessionId::new(id),
            cwd: "/w".into(),
            title: Some(title.to_owned()),
            state: State::Paused,
            created: updated,
            updated,
            bytes: 0,
        }
    }

    // R: W16
    #[test]
    fn sessions_are_listed_with_their_age_and_found_by_number_or_id() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000_000);
        let before = |seconds: u64| now - Duration::from_secs(seconds);
        let sessions = [
            session("0197aaaa-1", "One", now),
            session("0197bbbb-2", "Two", before(90)),
            session("0197bbbc-3", "Three", before(3 * 86_400)),
        ];
        let text = list(&sessions, now);
        for line in ["- 1: One (just now)", "- 2: Two (1 minute ago)", "- 3: Three (3 days ago)"] {
            assert!(text.contains(line), "{text}");
        }
        let title = |wanted: &str| find(&sessions, wanted).and_then(|found| found.title.clone());
        assert_eq!(title("2").as_deref(), Some("Two"));
        assert_eq!(title("0197bbbc").as_deref(), Some("Three"));
        for unknown in ["0", "4", "0197", "x", ""] {
            assert_eq!(title(unknown), None, "{unknown}");
        }
    }
}
