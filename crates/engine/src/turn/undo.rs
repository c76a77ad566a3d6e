//! Taking turns back: `/undo`, `/redo` and `/rewind` put files and conversation together to where they were.
//!
//! The journal knows what was done and stays the only one that does: after a change the history is read from it again.
//! Files are touched through [`Files`](crate::ports::Files) alone.

use std::path::PathBuf;

use crate::ports::error::Error;
use crate::ports::{Content, FileError, JournalError, Record};
use crate::turn::{TurnCx, TurnError};
use crate::words::{ContentId, MessageId};

/// How many turns `/rewind` lists.
const LISTED: usize = 20;
/// How many files or commands an answer names.
const NAMED: usize = 20;

/// The turns of a session, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turns {
    /// Those that the conversation goes on from, as far back as it is remembered.
    pub done: Vec<Turn>,
    /// Those that were taken back and can be brought back.
    pub undone: Vec<Turn>,
}

/// What is known of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Which message of the conversation began it, counting from 1.
    pub number: usize,
    /// That message.
    pub message: MessageId,
    /// The first line of it.
    pub title: String,
    /// The files that it changed, in order.
    pub changes: Vec<Change>,
    /// What else it ran that may have changed files.
    pub commands: Vec<String>,
}

/// A change of a file; `None` stands for no file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// What it held.
    pub before: Option<ContentId>,
    /// What it held then.
    pub after: Option<ContentId>,
}

/// What a file must hold, and what it must become.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    path: PathBuf,
    from: Option<ContentId>,
    to: Option<ContentId>,
}

/// Takes the last turn back. Returns what to say.
pub(crate) async fn undo(cx: &mut TurnCx<'_>) -> Result<String, TurnError> {
    let Some(turns) = turns(cx).await? else { return Ok(NOT_KEPT.to_owned()) };
    match turns.done.len() {
        0 => Ok("There is nothing to take back.".to_owned()),
        count => take_back(cx, &turns.done[count - 1..]).await,
    }
}

/// Takes back the turn of a message and all behind it; without a number, lists the messages. Returns what to say.
pub(crate) async fn rewind(
    cx: &mut TurnCx<'_>,
    number: Option<usize>,
) -> Result<String, TurnError> {
    let Some(turns) = turns(cx).await? else { return Ok(NOT_KEPT.to_owned()) };
    let Some(number) = number else { return Ok(list(&turns.done)) };
    match turns.done.iter().position(|turn| turn.number == number) {
        Some(first) => take_back(cx, &turns.done[first..]).await,
        None => Ok(format!("There is no message {number} to go back to. {}", list(&turns.done))),
    }
}

/// Brings back the turn that was taken back, the oldest first. Returns what to say.
pub(crate) async fn redo(cx: &mut TurnCx<'_>) -> Result<String, TurnError> {
    let Some(turns) = turns(cx).await? else { return Ok(NOT_KEPT.to_owned()) };
    let Some(turn) = turns.undone.first() else {
        return Ok("There is nothing to bring back.".to_owned());
    };
    let steps = forth(std::slice::from_ref(turn));
    if let Err(why) = restore(cx, &steps).await? {
        return Ok(format!("Nothing of the conversation was brought back. {why}"));
    }
    cx.record(Record::BroughtBack(&turn.message)).await?;
    remember(cx).await?;
    let mut said = format!("Brought back “{}”.{}", turn.title, files(&steps));
    said.push_str(&commands(std::slice::from_ref(turn), ", and were not run again"));
    Ok(said)
}

const NOT_KEPT: &str = "This session is not kept, so nothing of it can be taken back.";

async fn turns(cx: &TurnCx<'_>) -> Result<Option<Turns>, TurnError> {
    match cx.journal.turns(cx.session).await {
        Ok(turns) => Ok(Some(turns)),
        Err(JournalError::NotFound) => Ok(None),
        Err(err) => Err(Error::of_journal(cx.session, err).into()),
    }
}

async fn take_back(cx: &mut TurnCx<'_>, turns: &[Turn]) -> Result<String, TurnError> {
    let Some(first) = turns.first() else { return Ok(String::new()) };
    let steps = back(turns);
    if let Err(why) = restore(cx, &steps).await? {
        return Ok(format!("Nothing of the conversation was taken back. {why}"));
    }
    // The files first: if this is cut short, taking back again finds them as they should be and goes on.
    cx.record(Record::TakenBack(&first.message)).await?;
    remember(cx).await?;
    let what = match turns.len() {
        1 => format!("Took back “{}”", first.title),
        count => format!("Took back the last {count} messages, from “{}” on", first.title),
    };
    let mut said = format!(
        "{what}. The model no longer knows of it, though it is still shown above.{}",
        files(&steps)
    );
    said.push_str(&commands(turns, ". What they changed was not seen and was not taken back"));
    said.push_str("\n\n`/redo` brings it back.");
    Ok(said)
}

/// Reads the history again, as the journal now has it.
async fn remember(cx: &mut TurnCx<'_>) -> Result<(), TurnError> {
    let loaded = cx.journal.load(cx.session, None).await;
    *cx.history = loaded.map_err(|err| Error::of_journal(cx.session, err))?.history;
    cx.mind.refresh();
    Ok(())
}

/// The steps that undo turns: each file from what the last change left to what the first one found.
fn back(turns: &[Turn]) -> Vec<Step> {
    let steps = forth(turns).into_iter();
    steps.map(|step| Step { path: step.path, from: step.to, to: step.from }).collect()
}

/// The steps that do the turns again.
fn forth(turns: &[Turn]) -> Vec<Step> {
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

/// Does the steps, all or, if a file is not as it should be, none; then says why.
async fn restore(cx: &TurnCx<'_>, steps: &[Step]) -> Result<Result<(), String>, TurnError> {
    let (mut due, mut edited, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    for step in steps {
        match look(cx, step).await? {
            Look::Due(now) => due.push((step, now)),
            Look::Done => {}
            Look::Edited => edited.push(format!("- `{}`", step.path.display())),
            Look::Lost(why) => lost.push(format!("- `{}`: {why}", step.path.display())),
        }
    }
    if !edited.is_empty() || !lost.is_empty() {
        let mut why = String::new();
        if !edited.is_empty() {
            why.push_str("These files were changed since, and what they hold now would be lost:\n");
            why.push_str(&some(&edited));
        }
        if !lost.is_empty() {
            why.push_str(if edited.is_empty() { "" } else { "\n\n" });
            why.push_str("These files cannot be put back:\n");
            why.push_str(&some(&lost));
        }
        return Ok(Err(why));
    }
    let mut failed = Vec::new();
    for (step, now) in due {
        let content = content(cx, step.to.as_ref()).await?.flatten();
        if let Err(err) = cx.files.replace(cx.editor, &step.path, now, content).await {
            failed.push(format!("- `{}`: {err}", step.path.display()));
        }
    }
    Ok(if failed.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "These files could not be written, the others are; the same command tries again:\n{}",
            some(&failed)
        ))
    })
}

/// How a file stands to a step.
enum Look {
    /// It is as the step expects it; the SHA-256 of what it holds.
    Due(Option<[u8; 32]>),
    /// It is as the step would make it.
    Done,
    /// Somebody else changed it.
    Edited,
    /// The step cannot be done; why.
    Lost(String),
}

async fn look(cx: &TurnCx<'_>, step: &Step) -> Result<Look, TurnError> {
    let now = match cx.or_cancelled(cx.files.read(cx.editor, &step.path)).await? {
        Ok(now) => now,
        Err(FileError::Gone) => return Err(TurnError::Cancelled),
        Err(err) => return Ok(Look::Lost(err.to_string())),
    };
    let not_kept = || Ok(Look::Lost("what it held was too large to keep".to_owned()));
    let Some(to) = content(cx, step.to.as_ref()).await? else { return not_kept() };
    if is_same(now.as_deref(), to.as_deref()) {
        return Ok(Look::Done);
    }
    let Some(from) = content(cx, step.from.as_ref()).await? else { return not_kept() };
    let is_due = is_same(now.as_deref(), from.as_deref());
    let hash = |now: Vec<u8>| Content::new(now).hash();
    Ok(if is_due { Look::Due(now.map(hash)) } else { Look::Edited })
}

/// Returns what a file held, which may be no file; `None` if it was not kept.
async fn content(
    cx: &TurnCx<'_>,
    id: Option<&ContentId>,
) -> Result<Option<Option<Vec<u8>>>, TurnError> {
    let Some(id) = id else { return Ok(Some(None)) };
    let kept = cx.journal.content(cx.session, id).await;
    Ok(kept.map_err(|err| Error::of_journal(cx.session, err))?.map(Some))
}

/// Compares contents. An editor gives text without a byte order mark and with line ends of its own, so both are ignored.
fn is_same(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    fn plain(bytes: &[u8]) -> impl Iterator<Item = u8> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut bytes = bytes.iter().copied().peekable();
        std::iter::from_fn(move || match bytes.next() {
            Some(b'\r') if bytes.peek() == Some(&b'\n') => bytes.next(),
            next => next,
        })
    }
    match (one, other) {
        (Some(one), Some(other)) => one == other || plain(one).eq(plain(other)),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn list(turns: &[Turn]) -> String {
    if turns.is_empty() {
        return "There is nothing to go back to.".to_owned();
    }
    let mut text = String::from(
        "`/rewind` with a number takes back that message and all behind it, with the files they changed:\n",
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
        return " It changed no file that was seen.".to_owned();
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

fn commands(turns: &[Turn], what: &str) -> String {
    let names: Vec<String> = turns
        .iter()
        .flat_map(|turn| &turn.commands)
        .map(|command| format!("- `{}`", command.replace('`', "'")))
        .collect();
    if names.is_empty() {
        return String::new();
    }
    format!("\n\nCommands ran, too{what}:\n{}", some(&names))
}

/// Joins lines, but not too many.
fn some(lines: &[String]) -> String {
    let mut text = lines[..lines.len().min(NAMED)].join("\n");
    if lines.len() > NAMED {
        text.push_str(&format!("\n- and {} more", lines.len() - NAMED));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, before: Option<&str>, after: Option<&str>) -> Change {
        let id = |text: &str| ContentId::new(text);
        Change { path: PathBuf::from(path), before: before.map(id), after: after.map(id) }
    }

    fn turn(changes: Vec<Change>) -> Turn {
        let message = MessageId::new("m");
        Turn { number: 1, message, title: String::new(), changes, commands: Vec::new() }
    }

    #[test]
    fn a_file_goes_from_its_last_content_to_its_first() {
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

    #[test]
    fn line_ends_and_byte_order_marks_are_no_edit() {
        let same = |one: &[u8], other: &[u8]| is_same(Some(one), Some(other));
        assert!(same(b"a\r\nb\n", b"a\nb\r\n"));
        assert!(same(b"\xef\xbb\xbfa", b"a"));
        assert!(!same(b"a\rb", b"ab"));
        assert!(!same(b"a\n", b"a"));
        assert!(!is_same(Some(b""), None));
        assert!(is_same(None, None));
    }
}
