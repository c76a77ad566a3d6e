//! Opens the session of a run: a new one, the last one of the directory, or one by its id.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use client::{Caller, Connection};
use serde_json::Value;
use wire::acp::models::SetModelRequest;
use wire::acp::schema;

use super::RunOptions;
use super::report::WrongUsage;

/// How long an agent may take to answer `initialize`. It has nothing to do for it but start.
const START: Duration = Duration::from_secs(5);

/// How many pages of sessions are searched.
const MAX_PAGES: usize = 200;

/// Which session a run uses.
#[derive(Debug)]
pub(crate) enum Start {
    /// A new one.
    New,
    /// The last one of the directory.
    Last,
    /// One by its id, or the beginning of it.
    Stored(String),
}

/// A session that is ready for a prompt.
pub(super) struct Opened {
    pub(super) id: schema::SessionId,
    pub(super) offers: schema::PromptCapabilities,
    /// The model that it was opened with, if the agent has an option for it.
    pub(super) model: Option<String>,
}

/// What the agent says about a session that it opened.
struct Settings {
    id: schema::SessionId,
    modes: Option<schema::SessionModeState>,
    options: Option<Vec<schema::SessionConfigOption>>,
}

/// Opens the session and sets its model and mode.
pub(super) async fn open(
    connection: &mut Connection,
    options: &RunOptions,
) -> anyhow::Result<Opened> {
    let info = schema::Implementation::new("purlin run", env!("CARGO_PKG_VERSION"));
    let agent = connection.initialize_within(info, START).await?.agent_capabilities;
    let caller = connection.caller();
    let settings = match &options.start {
        Start::New => {
            let request = schema::NewSessionRequest::new(&options.cwd);
            let more = more_directories(&agent, options);
            let opened = caller.new_session(request.additional_directories(more)).await?;
            let schema::NewSessionResponse { session_id, modes, config_options, .. } = opened;
            Settings { id: session_id, modes, options: config_options }
        }
        Start::Last => {
            let query = schema::ListSessionsRequest::new().cwd(options.cwd.clone());
            let found = list(&caller, &agent, query).await?;
            let Some(last) = found.sessions.into_iter().next() else {
                bail!("no stored session in {}", options.cwd.display());
            };
            reopen(connection, &agent, options, last.session_id, last.cwd).await?
        }
        Start::Stored(id) => {
            let (id, cwd) = find(&caller, &agent, id, &options.cwd).await?;
            reopen(connection, &agent, options, id, cwd).await?
        }
    };
    let model = model_of(&settings);
    choose(&caller, &settings, options).await?;
    Ok(Opened { id: settings.id, offers: agent.prompt_capabilities, model })
}

/// Returns the model of a session that was opened.
fn model_of(settings: &Settings) -> Option<String> {
    let category = Some(schema::SessionConfigOptionCategory::Model);
    let option = settings.options.iter().flatten().find(|option| option.category == category)?;
    match &option.kind {
        schema::SessionConfigKind::Select(select) => Some(select.current_value.to_string()),
        _ => None,
    }
}

fn more_directories(agent: &schema::AgentCapabilities, options: &RunOptions) -> Vec<PathBuf> {
    let takes_more = agent.session_capabilities.additional_directories.is_some();
    options.input.directory().filter(|_| takes_more).map(Path::to_owned).into_iter().collect()
}

async fn list(
    caller: &Caller,
    agent: &schema::AgentCapabilities,
    query: schema::ListSessionsRequest,
) -> anyhow::Result<schema::ListSessionsResponse> {
    if agent.session_capabilities.list.is_none() {
        bail!("the agent does not list sessions; use `--resume` with a whole id");
    }
    Ok(caller.call("session/list", &query).await?)
}

/// Finds a session by the beginning of its id. An agent that lists no sessions gets the id as it is.
async fn find(
    caller: &Caller,
    agent: &schema::AgentCapabilities,
    id: &str,
    cwd: &Path,
) -> anyhow::Result<(schema::SessionId, PathBuf)> {
    if agent.session_capabilities.list.is_none() {
        return Ok((schema::SessionId::new(id), cwd.to_owned()));
    }
    let mut found: Vec<(schema::SessionId, PathBuf)> = Vec::new();
    let mut query = schema::ListSessionsRequest::new();
    for _ in 0..MAX_PAGES {
        let page = list(caller, agent, query.clone()).await?;
        for session in page.sessions {
            if &*session.session_id.0 == id {
                return Ok((session.session_id, session.cwd));
            }
            if session.session_id.0.starts_with(id) {
                found.push((session.session_id, session.cwd));
            }
        }
        match page.next_cursor {
            Some(next) => query = query.cursor(next),
            None => break,
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(WrongUsage(format!("session not found: {id}")).into()),
        _ => Err(WrongUsage(format!("several session ids begin with {id}")).into()),
    }
}

/// Opens a stored session without its history where the agent can do that; otherwise the history is not shown.
async fn reopen(
    connection: &mut Connection,
    agent: &schema::AgentCapabilities,
    options: &RunOptions,
    id: schema::SessionId,
    cwd: PathBuf,
) -> anyhow::Result<Settings> {
    let more = more_directories(agent, options);
    let caller = connection.caller();
    if agent.session_capabilities.resume.is_some() {
        let request = schema::ResumeSessionRequest::new(id.clone(), cwd);
        let request = request.additional_directories(more);
        let opened: schema::ResumeSessionResponse = caller.call("session/resume", &request).await?;
        return Ok(Settings { id, modes: opened.modes, options: opened.config_options });
    }
    if !agent.load_session {
        bail!("the agent cannot continue a session");
    }
    let request = schema::LoadSessionRequest::new(id.clone(), cwd).additional_directories(more);
    let load = caller.call::<schema::LoadSessionResponse>("session/load", &request);
    tokio::pin!(load);
    let opened = loop {
        tokio::select! {
            opened = &mut load => break opened?,
            // The history. It must be read, or the agent could not send its answer.
            Some(_) = connection.next_update() => {}
        }
    };
    while connection.ready_update().is_some() {}
    Ok(Settings { id, modes: opened.modes, options: opened.config_options })
}

/// Sets the requested model and mode, in the way that the agent offers.
async fn choose(caller: &Caller, session: &Settings, options: &RunOptions) -> anyhow::Result<()> {
    use schema::SessionConfigOptionCategory::{Mode, Model};
    // Our own agent was started with the model. A stored session has one of its own.
    let is_set = options.is_own && matches!(options.start, Start::New);
    if let Some(model) = options.model.as_ref().filter(|model| !is_set && !is_script(model))
        && !set_option(caller, session, &Model, model).await?
    {
        let session_id = session.id.clone();
        let request = SetModelRequest { session_id, model_id: model.clone(), meta: None };
        caller.call::<Value>("session/set_model", &request).await?;
    }
    let Some(mode) = &options.mode else { return Ok(()) };
    if let Some(modes) = &session.modes {
        let request = schema::SetSessionModeRequest::new(session.id.clone(), mode.clone());
        let set = caller.call::<schema::SetSessionModeResponse>("session/set_mode", &request).await;
        let ids: Vec<&str> = modes.available_modes.iter().map(|mode| &*mode.id.0).collect();
        // An agent may accept more names for a mode than it lists, so it is asked first.
        if matches!(set, Err(client::Error::Refused { .. })) && !ids.contains(&mode.as_str()) {
            let words = format!("unknown mode `{mode}`; the agent has {}", ids.join(", "));
            return Err(WrongUsage(words).into());
        }
        set?;
    } else if !set_option(caller, session, &Mode, mode).await? {
        bail!("the agent has no modes");
    }
    Ok(())
}

/// A scripted model is the only one of its agent.
fn is_script(model: &str) -> bool {
    model.starts_with("script:")
}

/// Returns false if the agent has no option of this category.
async fn set_option(
    caller: &Caller,
    session: &Settings,
    category: &schema::SessionConfigOptionCategory,
    value: &str,
) -> anyhow::Result<bool> {
    let offered = session.options.iter().flatten();
    let fits = |option: &&schema::SessionConfigOption| option.category.as_ref() == Some(category);
    let Some(option) = offered.into_iter().find(fits) else { return Ok(false) };
    let value = schema::SessionConfigOptionValue::value_id(value.to_owned());
    let id = option.id.clone();
    let request = schema::SetSessionConfigOptionRequest::new(session.id.clone(), id, value);
    caller.call::<Value>("session/set_config_option", &request).await?;
    Ok(true)
}
