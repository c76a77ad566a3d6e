//! Puts the parts together: which models, tools and clock the program runs with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::tools::Files;
use ::tools::bash::{self, Bash};
use ::tools::scope::Scope;
use anyhow::Context;
use engine::hub::HubOptions;
use engine::ports::{AnyTool, Clock, Tools};
use engine::script::{self, NoJournal, ScriptedModel, SystemClock};
use engine::session::ModelChoice;
use engine::words::{ModelId, SessionId};
use process::sandbox::{Sandbox, secret_places};
use store::Store;

use crate::limits::Limits;
use crate::{env, guide, primer};

/// Says back what it hears.
const ECHO: &str = "model echo\nmodel loop";

/// The place that a session works in.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The session.
    pub session: SessionId,
    /// Its folders, the working folder first.
    pub folders: Vec<PathBuf>,
    /// The MCP servers that the client wants it to have.
    pub servers: Vec<mcp::ServerConfig>,
    /// What is wrong with those that were left out.
    pub problems: Vec<String>,
}

/// Makes the tools of a session.
pub type OpenTools = Arc<dyn Fn(Workspace) -> Arc<dyn Tools> + Send + Sync>;

/// Makes the tools that every session gets. What only scripts use is for scripts.
#[must_use]
pub fn tools(machine: Arc<Machine>, is_scripted: bool) -> OpenTools {
    Arc::new(move |workspace| {
        let bash = machine.bash(&workspace);
        let skill = primer::skill_tool(&workspace.folders);
        let outputs = outputs(&workspace.session);
        let scope = Scope::new(workspace.folders).without(&env::own_folders());
        let scope = scope.with_hidden(Arc::clone(&machine.hidden));
        let files = Arc::new(Files::new(scope.with_outputs(outputs)));
        let mut all = ::tools::all(&files);
        all.push(Arc::new(bash));
        all.extend(skill);
        if is_scripted {
            all.push(Arc::new(script::tools::OpenPage));
        }
        Arc::new(Arc::<[Arc<dyn AnyTool>]>::from(all))
    })
}

/// What commands find on this machine: the same in every session, so there is one.
#[derive(Debug)]
pub struct Machine {
    /// What holds commands and MCP servers back.
    pub(crate) sandbox: Arc<Sandbox>,
    /// Our own configuration and data.
    pub(crate) own: Arc<[PathBuf]>,
    /// Other places that none of them must see.
    pub(crate) hidden: Arc<[PathBuf]>,
    search: Arc<[PathBuf]>,
    environment: Arc<[(String, String)]>,
}

impl Machine {
    /// This machine. The sandbox's helper is this program itself.
    #[must_use]
    pub fn here() -> Arc<Machine> {
        // Where we are not known there is no helper, and every command is asked about.
        Machine::helped_by(std::env::current_exe().unwrap_or_default())
    }

    /// This machine, with a sandbox whose helper is another copy of this program.
    #[must_use]
    pub fn helped_by(helper: PathBuf) -> Arc<Machine> {
        // Among our own: what a command is to become lies there for a moment, and no other command may touch it.
        let scratch = env::data_folder().map(|folder| folder.join("scratch"));
        let scratch = scratch.unwrap_or_else(std::env::temp_dir);
        let outputs = env::state_folder().map(|folder| folder.join("output"));
        let secret = env::home().as_deref().map_or_else(Vec::new, secret_places);
        Arc::new(Machine {
            sandbox: Arc::new(Sandbox::new(helper, scratch)),
            own: env::own_folders().into(),
            hidden: secret.into_iter().chain(outputs).collect(),
            search: env::search_path().into(),
            environment: env::for_commands().into(),
        })
    }

    /// Makes the tool that runs commands.
    pub(crate) fn bash(&self, workspace: &Workspace) -> Bash {
        let options = bash::Options {
            folders: workspace.folders.clone(),
            own: Arc::clone(&self.own),
            hidden: Arc::clone(&self.hidden),
            search: Arc::clone(&self.search),
            environment: Arc::clone(&self.environment),
            outputs: outputs(&workspace.session),
        };
        Bash::new(Arc::clone(&self.sandbox), options)
    }
}

/// Says where long outputs of a session's commands are kept.
fn outputs(session: &SessionId) -> Option<PathBuf> {
    Some(env::state_folder()?.join("output").join(session.as_str()))
}

/// Makes what all sessions share. `model` is `script:FILE`, or nothing for the guide.
///
/// # Errors
/// Says which script cannot be read and why.
pub fn hub_options(model: Option<&str>) -> anyhow::Result<HubOptions> {
    let mut models = vec![guide::choice()];
    if let Some(model) = model {
        models.insert(0, from_file(model)?);
        models.push(choice("script/echo", "Scripted echo", ECHO)?);
    }
    Ok(HubOptions {
        models: models.into(),
        find_models: None,
        habits: None,
        journal: Arc::new(NoJournal),
        clock: Arc::new(SystemClock),
        max_requests_per_turn: 0,
        no_progress: Duration::ZERO,
        max_sessions: 0,
        idle_pause: Duration::ZERO,
    })
}

/// Makes the models of a session that starts with a scripted one.
///
/// # Errors
/// None that a program can cause: the other script is our own.
pub fn scripted(model: ScriptedModel) -> anyhow::Result<Arc<[ModelChoice]>> {
    let first = ModelChoice {
        id: ModelId::new("script/file"),
        name: "Script script".to_owned(),
        context_size: model.window(),
        price: None,
        can_think: false,
        model: Arc::new(model),
    };
    Ok(Arc::new([first, guide::choice(), choice("script/echo", "Scripted echo", ECHO)?]))
}

/// Makes the store of the user's sessions. Opens nothing yet.
#[must_use]
pub fn store(limits: &Limits) -> Store {
    store_in(env::data_folder(), limits)
}

/// Makes a store in a folder, or in memory if there is none. Opens nothing yet.
#[must_use]
pub fn store_in(folder: Option<PathBuf>, limits: &Limits) -> Store {
    Store::new(store::Options {
        folder,
        clock: Arc::new(SystemClock),
        max_history_bytes: limits.max_history_bytes,
        expire_days: limits.expire_days,
        late_for_tests: env::is_journal_late(),
    })
}

/// Returns an id that was never given before.
pub(crate) fn fresh_id() -> String {
    SystemClock.fresh_id()
}

fn from_file(model: &str) -> anyhow::Result<ModelChoice> {
    let Some(path) = model.strip_prefix("script:").map(PathBuf::from) else {
        anyhow::bail!("there is no model `{model}`; a model is `provider/model` or `script:FILE`");
    };
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("the script {} cannot be read", path.display()))?;
    let name = path
        .file_stem()
        .map_or_else(|| "file".to_owned(), |stem| stem.to_string_lossy().into_owned());
    choice("script/file", &format!("Script {name}"), &text)
        .with_context(|| format!("the script {} cannot be used", path.display()))
}

fn choice(id: &str, name: &str, script: &str) -> anyhow::Result<ModelChoice> {
    let model = ScriptedModel::parse(script)?;
    Ok(ModelChoice {
        id: ModelId::new(id),
        name: name.to_owned(),
        context_size: model.window(),
        price: None,
        can_think: false,
        model: Arc::new(model),
    })
}
