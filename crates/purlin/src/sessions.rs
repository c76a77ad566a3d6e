//! `purlin sessions`: look at what is kept, take it elsewhere, delete it.

mod complete;
mod markdown;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCandidates;
use engine::ports::{Info, Journal, JournalError, Query, State};
use engine::words::iso_8601;
use engine::words::visible;
use engine::words::{Block, Prompt, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::Store;
use store::record::{self, Record};
use store::replay::Replay;

use crate::assemble;
use crate::cli::say;
use crate::count::count;
use settings::Limits;

/// Lines that are shown of each change and each output, unless all are asked for.
const LINES: usize = 40;

/// What can be done with the sessions that are kept.
#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// List them, the last used first
    List {
        /// Only those of this folder
        #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        cwd: Option<PathBuf>,
        /// Print a line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// Show one as text
    Show {
        /// Its id, or the beginning of it
        #[arg(add = ids())]
        id: String,
        /// Show long changes and outputs whole
        #[arg(long)]
        full: bool,
    },
    /// Write one to a file or to stdout
    Export {
        /// Its id, or the beginning of it
        #[arg(add = ids())]
        id: String,
        /// Markdown to read, JSON to import elsewhere
        #[arg(long, value_enum, default_value = "markdown")]
        format: Format,
        /// The file to write, instead of stdout
        #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
    },
    /// Take in one that was exported as JSON
    Import {
        /// The file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Delete some
    Delete {
        /// Their ids, or the beginnings of them
        #[arg(required = true, add = ids())]
        ids: Vec<String>,
    },
    /// Delete those that are old, or the oldest until the rest is small enough
    #[command(group = clap::ArgGroup::new("which").args(["days", "bytes"]).required(true).multiple(true))]
    Prune {
        /// Delete what was not used for so many days
        #[arg(long, value_name = "DAYS")]
        days: Option<u64>,
        /// Delete the oldest until the rest has at most so many bytes
        #[arg(long, value_name = "BYTES")]
        bytes: Option<u64>,
    },
}

/// The ids that a shell offers where one is asked for.
fn ids() -> ArgValueCandidates {
    ArgValueCandidates::new(complete::candidates)
}

/// What an export looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Markdown,
    /// For `purlin sessions import`.
    Json,
}

/// The version of the form that exported sessions have.
const FORM: u32 = 1;

/// How long an id may be that comes from a file.
const MAX_ID: usize = 64;

/// A session in a file.
#[derive(Serialize, Deserialize)]
struct Exported {
    /// The version of this form.
    purlin_session: u32,
    id: String,
    cwd: PathBuf,
    title: Option<String>,
    /// For whoever reads the file; an import does not.
    created_at: String,
    updated_at: String,
    /// As they are kept.
    records: Vec<Box<RawValue>>,
}

/// Does what was asked.
///
/// # Errors
/// Says what could not be done.
pub async fn run(command: SessionsCommand, limits: &Limits) -> anyhow::Result<ExitCode> {
    let store = assemble::store(limits);
    if !store.is_persistent()
        && let Some(problem) = store.problem()
    {
        bail!("sessions are not kept: {problem}");
    }
    match command {
        SessionsCommand::List { cwd, json } => list(&store, cwd, json).await?,
        SessionsCommand::Show { id, full } => {
            let id = find(&store, &id).await?;
            let most = if full { usize::MAX } else { LINES };
            // What a model or a tool said would steer the terminal.
            say(&visible(&as_markdown(&store, &id, most).await?))?;
        }
        SessionsCommand::Export { id, format, output } => {
            let id = find(&store, &id).await?;
            let text = match format {
                Format::Markdown => as_markdown(&store, &id, usize::MAX).await?,
                Format::Json => as_json(&store, &id).await?,
            };
            match output {
                Some(file) => std::fs::write(&file, text)
                    .with_context(|| format!("{} cannot be written", file.display()))?,
                None => say(&text)?,
            }
        }
        SessionsCommand::Import { file } => say(&format!("{}\n", import(&store, file).await?))?,
        SessionsCommand::Delete { ids } => {
            for id in ids {
                let id = find(&store, &id).await?;
                store.delete(&id).await.with_context(|| format!("{id} was not deleted"))?;
            }
        }
        SessionsCommand::Prune { days, bytes } => prune(&store, days, bytes).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn all(store: &Store, cwd: Option<PathBuf>) -> anyhow::Result<Vec<Info>> {
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let listing = store.list(Query { cwd: cwd.clone(), cursor }).await?;
        found.extend(listing.sessions);
        cursor = listing.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

/// Finds a session by its id or the beginning of it.
async fn find(store: &Store, id: &str) -> anyhow::Result<SessionId> {
    let found = all(store, None).await?;
    if let Some(info) = found.iter().find(|info| info.id.as_str() == id) {
        return Ok(info.id.clone());
    }
    let mut fits = found.iter().filter(|info| info.id.as_str().starts_with(id));
    match (fits.next(), fits.next()) {
        (Some(one), None) => Ok(one.id.clone()),
        (Some(_), Some(_)) => bail!("several sessions begin with {id}"),
        (None, _) => bail!("there is no session {id}"),
    }
}

async fn list(store: &Store, cwd: Option<PathBuf>, json: bool) -> anyhow::Result<()> {
    let cwd = match cwd {
        Some(cwd) => Some(cwd.canonicalize().with_context(|| cwd.display().to_string())?),
        None => None,
    };
    let mut text = String::new();
    for mut info in all(store, cwd).await? {
        if info.title.is_none() {
            info.title = first_words(store, &info.id).await;
        }
        let state = store::index::state_in(info.state);
        let updated = iso_8601(info.updated);
        if json {
            let line = serde_json::json!({
                "id": info.id.as_str(), "title": info.title, "cwd": info.cwd, "state": state,
                "createdAt": iso_8601(info.created), "updatedAt": updated, "bytes": info.bytes,
            });
            text.push_str(&format!("{line}\n"));
        } else {
            // An import may bring anything: what would steer the terminal is written out.
            let title = info.title.as_deref().unwrap_or("(no title)");
            let line =
                format!("{}  {updated}  {state:<9}  {title}  ({})", info.id, info.cwd.display());
            text.push_str(&visible(&line).replace('\n', "\\n"));
            text.push('\n');
        }
    }
    if text.is_empty() && !json {
        text.push_str("No sessions are kept here.\n");
    }
    say(&text)
}

/// The beginning of the first prompt: what a session is called that has no title, since only commands were sent.
async fn first_words(store: &Store, id: &SessionId) -> Option<String> {
    let records = store.records(id).await.ok()?;
    records.iter().find_map(|stored| {
        let Ok(Record::Prompt { blocks, .. }) = serde_json::from_slice(&stored.record.body) else {
            return None;
        };
        let words = blocks.into_iter().find_map(|block| match block {
            record::Block::Text(text) => Some(text),
            _ => None,
        });
        Prompt::from(vec![Block::Text(words?)]).title()
    })
}

async fn as_markdown(store: &Store, id: &SessionId, most: usize) -> anyhow::Result<String> {
    let mut info = store.find(id).await?;
    if info.title.is_none() {
        info.title = first_words(store, id).await;
    }
    let mut replay = Replay::default();
    for stored in store.records(id).await? {
        replay.feed(&stored);
    }
    replay.close();
    let mut events = replay.take_events();
    let replayed = replay.finish();
    events.extend(replayed.events);
    Ok(markdown::print(&info, &events, &replayed.problems, most))
}

async fn as_json(store: &Store, id: &SessionId) -> anyhow::Result<String> {
    let info = store.find(id).await?;
    let mut records = Vec::new();
    for stored in store.records(id).await? {
        match String::from_utf8(stored.record.body).map(RawValue::from_string) {
            Ok(Ok(record)) => records.push(record),
            Ok(Err(_)) | Err(_) => eprintln!("record {} is damaged and is left out", stored.seq),
        }
    }
    let exported = Exported {
        purlin_session: FORM,
        id: info.id.to_string(),
        cwd: info.cwd,
        title: info.title,
        created_at: iso_8601(info.created),
        updated_at: iso_8601(info.updated),
        records,
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&exported)?))
}

/// Reads the file of an exported session. What it says is checked before anything is kept: it may be anybody's.
fn read_exported(file: &Path) -> anyhow::Result<Exported> {
    let cannot = || format!("{} cannot be read", file.display());
    // A pipe or a device would be waited for.
    let is_file = std::fs::metadata(file).with_context(cannot)?.is_file();
    anyhow::ensure!(is_file, "{}: it is no regular file", cannot());
    let text = std::fs::read_to_string(file).with_context(cannot)?;
    let exported: Exported = serde_json::from_str(&text)
        .with_context(|| format!("{} is no exported session", file.display()))?;
    if let Some(problem) = problem_of(&exported) {
        bail!("{} cannot be taken in: {problem}", file.display());
    }
    Ok(exported)
}

/// Says what is wrong with a session from a file, if anything is.
fn problem_of(exported: &Exported) -> Option<String> {
    // The id becomes the name of a folder.
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || b"-_".contains(&letter);
    if exported.purlin_session != FORM {
        let form = exported.purlin_session;
        return Some(format!("it has the form {form}, and this version reads {FORM}"));
    }
    if !(1..=MAX_ID).contains(&exported.id.len()) || !exported.id.bytes().all(is_letter) {
        return Some(format!("its `id` must be 1 to {MAX_ID} letters, digits, `-` or `_`"));
    }
    if !exported.cwd.is_absolute() {
        return Some("its `cwd` must be an absolute path".to_owned());
    }
    None
}

/// Takes in a session, under its own id if that is free. It counts as used now.
async fn import(store: &Store, file: PathBuf) -> anyhow::Result<SessionId> {
    let exported = read_exported(&file)?;
    let mut records = Vec::new();
    for record in &exported.records {
        match serde_json::from_str::<Record>(record.get()) {
            Ok(Record::Own { .. }) => {}
            Ok(record) => records.push(record),
            Err(_) => eprintln!("a record of a kind this version does not know is left out"),
        }
    }
    let own = SessionId::new(exported.id);
    let id = match store.find(&own).await {
        Err(JournalError::NotFound) => own,
        Ok(_) | Err(_) => SessionId::new(assemble::fresh_id()),
    };
    store.create(&id, &exported.cwd).await?;
    store.import(&id, records).await?;
    if let Some(title) = exported.title {
        store.set_title(&id, &title).await?;
    }
    store.release(&id, State::Paused).await?;
    Ok(id)
}

/// Deletes what is old, then the oldest of what is too much. What somebody has open stays.
async fn prune(store: &Store, days: Option<u64>, bytes: Option<u64>) -> anyhow::Result<()> {
    let now = SystemTime::now();
    let mut kept = 0;
    let mut deleted = 0;
    for info in all(store, None).await? {
        let age = now.duration_since(info.updated).unwrap_or_default();
        let is_old = days.is_some_and(|days| age > Duration::from_secs(days * 86_400));
        let is_too_much = bytes.is_some_and(|bytes| kept + info.bytes > bytes);
        if (is_old || is_too_much) && info.state != State::Active {
            store.delete(&info.id).await?;
            deleted += 1;
        } else {
            kept += info.bytes;
        }
    }
    say(&format!("{} deleted\n", count(deleted, "session", "sessions")))
}
