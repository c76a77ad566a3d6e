//! Opens a session: a new one, one from the journal, or a copy of one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::hub::{HubLimits, HubOptions};
use super::session::{Command, IGNORED_SETTINGS, Session, SessionHandle, Workspace};
use crate::ports::{Error, Preferences, Settings, State, StoredSession};
use crate::words::{Agent, Mode, ModeId, SessionId};

/// Opens the workspace of a session. Made for one request, so it opens one workspace.
pub trait OpenWorkspace: Send {
    /// Opens it, once the working directory is known.
    fn open(
        self: Box<Self>,
        session: SessionId,
        cwd: PathBuf,
    ) -> BoxFuture<'static, Result<Workspace, Error>>;
}

/// A workspace that is already open.
impl OpenWorkspace for Workspace {
    fn open(
        self: Box<Self>,
        _: SessionId,
        _: PathBuf,
    ) -> BoxFuture<'static, Result<Workspace, Error>> {
        Box::pin(std::future::ready(Ok(*self)))
    }
}

/// How a session begins.
#[derive(Debug)]
pub enum Start {
    /// From nothing.
    New {
        /// The working directory.
        cwd: PathBuf,
    },
    /// From the journal.
    Load {
        /// The working directory, if it is another than before.
        cwd: Option<PathBuf>,
        /// Whether the client is shown the whole history first.
        show: bool,
        /// Whether a turn that runs in another process is ended for it.
        takes_over: bool,
    },
    /// From a copy of another one.
    Fork {
        /// Which session is copied.
        of: SessionId,
        /// The working directory, if it is another than before.
        cwd: Option<PathBuf>,
    },
}

impl Start {
    /// Returns its name in the log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Start::New { .. } => "new",
            Start::Load { show: true, .. } => "loaded",
            Start::Load { .. } => "resumed",
            Start::Fork { .. } => "forked",
        }
    }

    /// Returns the working directory that the client names.
    #[must_use]
    pub fn cwd(&self) -> Option<&Path> {
        match self {
            Start::New { cwd } => Some(cwd),
            Start::Load { cwd, .. } | Start::Fork { cwd, .. } => cwd.as_deref(),
        }
    }
}

/// A session that was opened.
#[derive(Debug)]
pub struct OpenedSession {
    /// How to reach it.
    pub handle: SessionHandle,
    /// Mode and model to begin with.
    pub settings: Settings,
    /// Its working directory.
    pub cwd: PathBuf,
    /// When it began.
    pub created: SystemTime,
    /// Whether its last turn failed.
    pub has_failed: bool,
}

/// Opens a session, in this mode if one is given. Its task must run it then.
pub(super) async fn open(
    options: &HubOptions,
    limits: HubLimits,
    (handle, mailbox): (SessionHandle, mpsc::Receiver<Command>),
    start: Start,
    mode: Option<ModeId>,
    workspace: Box<dyn OpenWorkspace>,
) -> Result<(Session, OpenedSession), Error> {
    let (id, journal) = (handle.id(), &*options.journal);
    let failed = |err| Error::of_journal(id, err);
    let mut settings = Settings::new(options.find_models().await)?;

    // Where it works. A session that is stored knows its last directory.
    if let Start::Fork { of, .. } = &start {
        journal.fork(of, id).await.map_err(|err| Error::of_journal(of, err))?;
    }
    let cwd = match &start {
        Start::New { cwd } => cwd.clone(),
        Start::Load { cwd, .. } | Start::Fork { cwd, .. } => {
            let last = journal.find(id).await.map_err(failed)?.cwd;
            cwd.clone().unwrap_or(last)
        }
    };

    // What it works with.
    let mut workspace = workspace.open(id.clone(), cwd.clone()).await?;
    let agents = workspace.toolbox.agents();
    settings.modes = Mode::with(&agents);
    let mode = mode.map(|id| find_mode(&settings, id)).transpose()?;

    // What is stored of it.
    let stored = match start {
        Start::New { .. } => {
            journal.create(id, &cwd).await.map_err(failed)?;
            if let Some(preferences) = &options.preferences {
                prefer(&mut settings, &**preferences);
            }
            StoredSession::new(id.clone(), cwd.clone(), options.clock.now())
        }
        Start::Load { show, takes_over, .. } => {
            if takes_over {
                journal.take_over(id).await.map_err(failed)?;
            }
            let editor = show.then_some(&*workspace.editor);
            journal.load(id, editor).await.map_err(failed)?
        }
        Start::Fork { .. } => journal.load(id, None).await.map_err(failed)?,
    };
    restore(&mut settings, &stored);
    let has_new_mode = mode.is_some_and(|mode| settings.begin(&mode));

    workspace.notices.extend(missing_models(&agents, &settings));
    workspace.notices.extend(unreadable(&stored.problems));
    let opened = OpenedSession {
        settings: settings.clone(),
        cwd: cwd.clone(),
        created: stored.info.created,
        has_failed: stored.info.state == State::Error,
        handle,
    };
    let shared = options.shared(limits);
    let cwd = workspace.cwd.take().unwrap_or(cwd);
    let session = Session::new(stored, cwd, workspace, settings, has_new_mode, shared, mailbox);
    Ok((session, opened))
}

fn find_mode(settings: &Settings, id: ModeId) -> Result<Mode, Error> {
    settings.find_mode(id.as_str()).cloned().ok_or(Error::NoSuchMode(id))
}

/// Warns about agents whose model is not available: they use the session's.
fn missing_models(agents: &[Arc<Agent>], settings: &Settings) -> Vec<(&'static str, String)> {
    let warnings = agents.iter().filter_map(|agent| {
        let problem = settings.lacks(agent.model.as_ref()?)?;
        Some((IGNORED_SETTINGS, format!("the agent `{}` asks for {problem}", agent.name)))
    });
    warnings.collect()
}

/// Warns about what could not be read.
fn unreadable(problems: &[String]) -> impl Iterator<Item = (&'static str, String)> {
    problems.iter().map(|problem| {
        tracing::warn!("a part of a session could not be read: {problem}");
        ("Part of this session could not be read", problem.clone())
    })
}

/// Starts with what the user chose last, if it is still available.
fn prefer(settings: &mut Settings, preferences: &dyn Preferences) {
    if let Some(model) = preferences.model()
        && settings.models.iter().any(|choice| choice.id == model)
    {
        settings.model = model;
    }
    settings.thinking = preferences.thinking().unwrap_or_default();
}

/// Restores mode, model and thinking level, if they are still available.
fn restore(settings: &mut Settings, stored: &StoredSession) {
    let mode = stored.mode.as_ref().and_then(|mode| settings.find_mode(mode.as_str()));
    if let Some(mode) = mode.map(Mode::mode_id) {
        settings.mode = mode;
    }
    if let Some(model) = &stored.model
        && settings.models.iter().any(|choice| choice.id == *model)
    {
        settings.model = model.clone();
    }
    if let Some(thinking) = stored.thinking {
        settings.thinking = thinking;
    }
}
