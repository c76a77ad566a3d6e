//! `/undo`, `/redo` and `/rewind`: put files and conversation back together.
//!
//! The journal is the only source of truth: after a change the history is read from it again. Files are changed through
//! [`Files`](crate::ports::Files) only.

mod restore;

use self::restore::{Step, restore};
use super::commands::no_message;
use super::cx::{TurnCx, TurnError};
use crate::ports::{Error, JournalError, Record};
use crate::words::{PastTurn, Turns};

/// How many turns `/rewind` lists.
const LISTED: usize = 20;
/// How many files or commands an answer lists.
const MAX_NAMED: usize = 20;

/// Undoes the last turn. Returns the answer for the user.
pub(crate) async fn undo(cx: &mut TurnCx<'_>) -> Result<String, TurnError> {
    let Some(turns) = turns(cx).await? else { return Ok(NOT_SAVED.to_owned()) };
    match turns.done.len() {
        0 => Ok("Nothing to undo.".to_owned()),
        count => undo_turns(cx, &turns.done[count - 1..]).await,
    }
}

/// Undoes the turn of a message and all after it; without a number, lists the messages. Returns the answer for the user.
pub(crate) async fn rewind(
    cx: &mut TurnCx<'_>,
    number: Option<usize>,
) -> Result<String, TurnError> {
    let Some(turns) = turns(cx).await? else { return Ok(NOT_SAVED.to_owned()) };
    let Some(number) = number else { return Ok(list(&turns.done)) };
    match turns.done.iter().position(|turn| turn.number == number) {
        Some(first) => undo_turns(cx, &turns.done[first..]).await,
        None => Ok(format!("{} {}", no_message(number), list(&turns.done))),
    }
}

/// Redoes the oldest undone turn. Returns the answer for the user.
pub(crate) async fn redo(cx: &mut TurnCx<'_>) -> Result<String, TurnError> {
    let Some(turns) = turns(cx).await? else { return Ok(NOT_SAVED.to_owned()) };
    let Some(turn) = turns.undone.first() else {
        return Ok("Nothing to redo.".to_owned());
    };
    let steps = forth(std::slice::from_ref(turn));
    if let Err(why) = restore(cx, &steps, "Nothing was redone.").await? {
        return Ok(why);
    }
    cx.record(Record::Redone(&turn.message)).await?;
    reload(cx).await?;
    let mut said = format!("Redid “{}”.{}", turn.title, files(&steps));
    said.push_str(&commands(std::slice::from_ref(turn), " and were not run again"));
    Ok(said)
}

const NOT_SAVED: &str = "This session is not saved, so nothing can be undone.";

async fn turns(cx: &TurnCx<'_>) -> Result<Option<Turns>, TurnError> {
    match cx.ports.journal.turns(cx.conversation.session).await {
        Ok(turns) => Ok(Some(turns)),
        Err(JournalError::NotFound) => Ok(None),
        Err(err) => Err(Error::of_journal(cx.conversation.session, err).into()),
    }
}

async fn undo_turns(cx: &mut TurnCx<'_>, turns: &[PastTurn]) -> Result<String, TurnError> {
    let Some(first) = turns.first() else { return Ok(String::new()) };
    let steps = back(turns);
    if let Err(why) = restore(cx, &steps, "Nothing was undone.").await? {
        return Ok(why);
    }
    // The files first: if this is interrupted, the next undo finds them restored and continues.
    cx.record(Record::Undone(&first.message)).await?;
    reload(cx).await?;
    let what = match turns.len() {
        1 => format!("Undid “{}”", first.title),
        count => format!("Undid the last {count} messages, starting with “{}”", first.title),
    };
    let mut said = format!(
        "{what}. The model no longer sees it, although it is still shown above.{}",
        files(&steps)
    );
    said.push_str(&commands(turns, ". Their changes are not tracked and were not undone"));
    said.push_str("\n\n`/redo` restores it.");
    Ok(said)
}

/// Reads the history from the journal again.
async fn reload(cx: &mut TurnCx<'_>) -> Result<(), TurnError> {
    let loaded = cx.ports.journal.load(cx.conversation.session, None).await;
    *cx.conversation.history =
        loaded.map_err(|err| Error::of_journal(cx.conversation.session, err))?.history;
    cx.conversation.context.refresh();
    Ok(())
}

/// Returns the steps that undo turns: each file goes from its last content to its first.
fn back(turns: &[PastTurn]) -> Vec<Step> {
    let steps = forth(turns).into_iter();
    steps.map(|step| Step { path: step.path, from: step.to, to: step.from }).collect()
}

/// Returns the steps that redo turns.
fn forth(turns: &[PastTurn]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for change in turns.iter().flat_map(|turn| &turn.changes) {
        match steps.iter_mut().find(|step| step.path == change.path) {
            Some(step) => step.to.clone_from(&change.after),
            None => steps.push(Step {
                path: change.path.clone(),
                from: change.before.clone(),
                to: change.after.clone(),
            }),
        }
    }
    steps.retain(|step| step.from != step.to);
    steps
}

fn list(turns: &[PastTurn]) -> String {
    if turns.is_empty() {
        return "No messages to go back to.".to_owned();
    }
    let mut text = String::from(
        "`/rewind` with a number undoes that message and all after it, with their file changes:\n",
    );
    for turn in &turns[turns.len().saturating_sub(LISTED)..] {
        let files = match forth(std::slice::from_ref(turn)).len() {
            0 => String::new(),
            1 => ", 1 file".to_owned(),
            count => format!(", {count} files"),
        };
        text.push_str(&format!("- {}: {}{files}\n", turn.number, turn.title));
    }
    text
}

fn files(steps: &[Step]) -> String {
    if steps.is_empty() {
        return " No files were changed.".to_owned();
    }
    let lines: Vec<String> = steps
        .iter()
        .map(|step| {
            let what = if step.to.is_some() { "restored" } else { "removed" };
            format!("- `{}` {what}", step.path.display())
        })
        .collect();
    format!("\n{}", some(&lines))
}

fn commands(turns: &[PastTurn], what: &str) -> String {
    let names: Vec<String> = turns
        .iter()
        .flat_map(|turn| &turn.commands)
        .map(|command| format!("- `{}`", command.replace('`', "'")))
        .collect();
    if names.is_empty() {
        return String::new();
    }
    format!("\n\nCommands also ran{what}:\n{}", some(&names))
}

/// Joins lines, up to a limit.
fn some(lines: &[String]) -> String {
    let mut text = lines[..lines.len().min(MAX_NAMED)].join("\n");
    if lines.len() > MAX_NAMED {
        text.push_str(&format!("\n- and {} more", lines.len() - MAX_NAMED));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::words::{Change, ContentId, MessageId};

    fn change(path: &str, before: Option<&str>, after: Option<&str>) -> Change {
        let id = |text: &str| ContentId::new(text);
        Change { path: PathBuf::from(path), before: before.map(id), after: after.map(id) }
    }

    fn turn(changes: Vec<Change>) -> PastTurn {
        let message = MessageId::new("m");
        PastTurn { number: 1, message, title: String::new(), changes, commands: Vec::new() }
    }

    #[test]
    fn file_goes_from_its_last_content_to_its_first() {
        let turns = [
            turn(vec![change("a", Some("1"), Some("2")), change("new", None, Some("x"))]),
            turn(vec![change("a", Some("2"), Some("3")), change("new", Some("x"), None)]),
        ];
        let only = Step {
            path: PathBuf::from("a"),
            from: Some(ContentId::new("3")),
            to: Some(ContentId::new("1")),
        };
        assert_eq!(back(&turns), [only]);
    }
}
