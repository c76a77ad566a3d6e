//! `purlin sessions`: lists, shows, exports, imports and deletes stored sessions.

mod complete;
mod copy;
mod list;
mod markdown;
mod unified;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCandidates;
use engine::ports::{Journal, JournalError, Query, SessionInfo, State};
use engine::words::iso_8601;
use engine::words::visible;
use engine::words::{Block, Prompt, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::Store;
use store::record::{self, Record};
use store::replay::Replay;

use crate::count::count;
use crate::stdout::print;
use crate::storage;
use settings::Config;

/// Lines of each change and each output that are shown by default.
const LINES: usize = 40;

/// A subcommand of `purlin sessions`.
#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// List sessions: those of this directory first, most recent first
    List {
        /// Only sessions of this directory
        #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        cwd: Option<PathBuf>,
        /// Print one JSON line per entry
        #[arg(long)]
        json: bool,
    },
    /// Show a session as text
    Show {
        /// Session id, or the beginning of it
        #[arg(add = ids())]
        id: String,
        /// Show long changes and outputs completely
        #[arg(long)]
        full: bool,
    },
    /// Export a session to a file or stdout
    Export {
        /// Session id, or the beginning of it
        #[arg(add = ids())]
        id: String,
        /// Markdown for reading, or JSON for importing
        #[arg(long, value_enum, default_value = "markdown")]
        format: Format,
        /// Output file instead of stdout
        #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
    },
    /// Import a session that was exported as JSON
    Import {
        /// Exported file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Copy sessions to another store
    #[command(group = clap::ArgGroup::new("which_to_copy").args(["ids", "all"]).required(true))]
    Copy {
        /// Session ids, or the beginnings of them
        #[arg(add = ids())]
        ids: Vec<String>,
        /// Copy all sessions
        #[arg(long)]
        all: bool,
        /// Where to: a `postgres://` or `https://` URL, a directory, or `env:NAME` for a variable that has the URL
        #[arg(long, value_name = "STORE")]
        to: String,
    },
    /// Delete sessions
    Delete {
        /// Session ids, or the beginnings of them
        #[arg(required = true, add = ids())]
        ids: Vec<String>,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Delete old sessions
    #[command(group = clap::ArgGroup::new("which").args(["days", "bytes"]).required(true).multiple(true))]
    Prune {
        /// Delete sessions not used for this many days
        #[arg(long, value_name = "DAYS")]
        days: Option<u64>,
        /// Delete the oldest sessions until the rest has at most this many bytes
        #[arg(long, value_name = "BYTES")]
        bytes: Option<u64>,
    },
}

/// The session ids that a shell completes.
fn ids() -> ArgValueCandidates {
    ArgValueCandidates::new(complete::candidates)
}

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Markdown,
    /// For `purlin sessions import`.
    Json,
}

/// The version of the format of exported sessions.
const FORM: u32 = 1;

/// The longest id that is imported.
const MAX_ID: usize = 64;

/// A session in a file.
#[derive(Serialize, Deserialize)]
struct Exported {
    /// The version of the format.
    purlin_session: u32,
    id: String,
    cwd: PathBuf,
    title: Option<String>,
    /// For people; not used by an import.
    created_at: String,
    updated_at: String,
    /// As they are stored.
    records: Vec<Box<RawValue>>,
}

/// Runs the subcommand.
///
/// # Errors
/// Says what failed.
pub async fn run(command: SessionsCommand, config: &Config) -> anyhow::Result<ExitCode> {
    let store = storage::store(config);
    if !store.is_persistent()
        && let Some(problem) = store.problem()
    {
        bail!("sessions are not stored: {problem}");
    }
    match command {
        SessionsCommand::List { cwd, json } => {
            let here = std::env::current_dir().ok();
            list::list(&store, cwd, here, json).await?;
        }
        SessionsCommand::Show { id, full } => {
            let id = find(&store, &id).await?;
            let most = if full { usize::MAX } else { LINES };
            // Output of a model or a tool must not control the terminal.
            print(&visible(&as_markdown(&store, &id, most).await?))?;
        }
        SessionsCommand::Export { id, format, output } => {
            let id = find(&store, &id).await?;
            let text = match format {
                Format::Markdown => as_markdown(&store, &id, usize::MAX).await?,
                Format::Json => as_json(&store, &id).await?,
            };
            match output {
                Some(file) => std::fs::write(&file, text)
                    .with_context(|| format!("cannot write {}", file.display()))?,
                None => print(&text)?,
            }
        }
        SessionsCommand::Import { file } => print(&format!("{}\n", import(&store, file).await?))?,
        SessionsCommand::Delete { ids, yes } => return delete(&store, &ids, yes).await,
        SessionsCommand::Copy { ids, all, to } => {
            return copy::run(&store, config, ids, all, &to).await;
        }
        SessionsCommand::Prune { days, bytes } => prune(&store, days, bytes).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn all(store: &Store, cwd: Option<PathBuf>) -> anyhow::Result<Vec<SessionInfo>> {
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

/// Finds a session by its id, or the beginning of it.
async fn find(store: &Store, id: &str) -> anyhow::Result<SessionId> {
    let found = all(store, None).await?;
    if let Some(info) = found.iter().find(|info| info.id.as_str() == id) {
        return Ok(info.id.clone());
    }
    let mut fits = found.iter().filter(|info| info.id.as_str().starts_with(id));
    match (fits.next(), fits.next()) {
        (Some(one), None) => Ok(one.id.clone()),
        (Some(_), Some(_)) => bail!("several session ids begin with {id}"),
        (None, _) => bail!("session not found: {id}"),
    }
}

/// Returns the beginning of the first prompt, for a session without a title.
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
            Ok(Err(_)) | Err(_) => eprintln!("skipped the damaged record {}", stored.seq),
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

/// Reads the file of an exported session, and checks it before anything is stored: it may come from anyone.
fn read_exported(file: &Path) -> anyhow::Result<Exported> {
    let cannot = || format!("cannot read {}", file.display());
    // Reading a pipe or a device might never end.
    let is_file = std::fs::metadata(file).with_context(cannot)?.is_file();
    anyhow::ensure!(is_file, "{}: not a regular file", cannot());
    let text = std::fs::read_to_string(file).with_context(cannot)?;
    let exported: Exported = serde_json::from_str(&text)
        .with_context(|| format!("{} is not an exported session", file.display()))?;
    if let Some(problem) = problem_of(&exported) {
        bail!("cannot import {}: {problem}", file.display());
    }
    Ok(exported)
}

/// Returns what is wrong with a session from a file.
fn problem_of(exported: &Exported) -> Option<String> {
    // The id becomes the name of a directory.
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || b"-_".contains(&letter);
    if exported.purlin_session != FORM {
        let form = exported.purlin_session;
        return Some(format!("its format is {form}, and this version reads {FORM}"));
    }
    if !(1..=MAX_ID).contains(&exported.id.len()) || !exported.id.bytes().all(is_letter) {
        return Some(format!("its `id` must be 1 to {MAX_ID} letters, digits, `-` or `_`"));
    }
    if !exported.cwd.is_absolute() {
        return Some("its `cwd` must be an absolute path".to_owned());
    }
    None
}

/// Imports a session, under its own id if that is free. Its last use is now.
async fn import(store: &Store, file: PathBuf) -> anyhow::Result<SessionId> {
    let exported = read_exported(&file)?;
    let mut records = Vec::new();
    for record in &exported.records {
        match serde_json::from_str::<Record>(record.get()) {
            Ok(Record::Own { .. }) => {}
            Ok(record) => records.push(record),
            Err(_) => eprintln!("skipped a record of an unknown kind"),
        }
    }
    let own = SessionId::new(exported.id);
    let id = match store.find(&own).await {
        Err(JournalError::NotFound) => own,
        Ok(_) | Err(_) => SessionId::new(storage::fresh_id()),
    };
    store.create(&id, &exported.cwd).await?;
    store.import(&id, records).await?;
    if let Some(title) = exported.title {
        store.set_title(&id, &title).await?;
    }
    store.release(&id, State::Paused).await?;
    Ok(id)
}

/// Deletes sessions for good, after a question that names them.
async fn delete(store: &Store, ids: &[String], is_sure: bool) -> anyhow::Result<ExitCode> {
    let mut found = Vec::new();
    for id in ids {
        let mut info = store.find(&find(store, id).await?).await?;
        if info.title.is_none() {
            info.title = first_words(store, &info.id).await;
        }
        found.push(info);
    }
    if !is_sure {
        anyhow::ensure!(
            std::io::stdin().is_terminal(),
            "deleting sessions asks first, and there is no terminal; use `--yes`"
        );
        for info in &found {
            let title = visible(info.title.as_deref().unwrap_or("(no title)"));
            print(&format!("{}  {title}  ({})\n", info.id, visible(&info.cwd.to_string_lossy())))?;
        }
        print(&format!("Delete {} for good? [y/N] ", count(found.len(), "session", "sessions")))?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "yes") {
            print("Nothing was deleted.\n")?;
            return Ok(ExitCode::FAILURE);
        }
    }
    for info in found {
        store.delete(&info.id).await.with_context(|| format!("cannot delete {}", info.id))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Deletes old sessions, then the oldest over the size. Sessions that are open stay.
async fn prune(store: &Store, days: Option<u64>, bytes: Option<u64>) -> anyhow::Result<()> {
    let now = SystemTime::now();
    let mut total = 0;
    let mut deleted = 0;
    for info in all(store, None).await? {
        let age = now.duration_since(info.updated).unwrap_or_default();
        let is_old = days.is_some_and(|days| age > Duration::from_secs(days * 86_400));
        let is_too_much = bytes.is_some_and(|bytes| total + info.bytes > bytes);
        if (is_old || is_too_much) && info.state != State::Active {
            store.delete(&info.id).await?;
            deleted += 1;
        } else {
            total += info.bytes;
        }
    }
    print(&format!("{} deleted\n", count(deleted, "session", "sessions")))
}
