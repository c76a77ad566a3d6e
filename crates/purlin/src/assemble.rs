//! Assembles the program: models, journal, and what opens the workspaces of sessions.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use engine::hub::HubOptions;
use engine::ports::{ModelChoice, NoJournal, SystemClock};
use engine::script::ScriptedModel;
use engine::words::ModelId;
use recording::Tape;
use serve::{Machine, MachineOptions, WorkspaceOptions, Workspaces};
use settings::Settings;

use crate::observer::Observer;
use crate::{doctor, env, guide, tour, trace_extension};

/// A script that repeats the prompt.
const ECHO: &str = "model echo\nmodel loop";

/// Makes what opens the workspaces of sessions. `helper` is the program that becomes a sandboxed command.
#[must_use]
pub fn workspaces(settings: Settings, helper: PathBuf, is_scripted: bool) -> Arc<Workspaces> {
    make_workspaces(settings, helper, is_scripted, None, None)
}

/// The same, with somebody who sees what sessions do, and perhaps a recording.
pub(crate) fn taped_workspaces(
    settings: Settings,
    helper: PathBuf,
    is_scripted: bool,
    observer: &Arc<Observer>,
    tape: Option<Tape>,
) -> Arc<Workspaces> {
    make_workspaces(settings, helper, is_scripted, Some(Arc::clone(observer)), tape)
}

fn make_workspaces(
    settings: Settings,
    helper: PathBuf,
    is_scripted: bool,
    observer: Option<Arc<Observer>>,
    tape: Option<Tape>,
) -> Arc<Workspaces> {
    let sources = settings.clone();
    let machine = move || {
        let policy_files = sources.policy_files();
        Machine::new(MachineOptions { policy_files, ..env::machine_options(helper.clone()) })
    };
    let options = WorkspaceOptions {
        machine: Box::new(machine),
        is_scripted,
        github: env::github(),
        extensions: vec![
            tour::extension(),
            doctor::extension(),
            trace_extension::extension(observer),
        ],
        tape,
    };
    Workspaces::new(settings, options)
}

/// Makes what all sessions share. `model` is `script:FILE`, or `None` for the guide.
///
/// # Errors
/// Says which script cannot be read, and why.
pub fn hub_options(model: Option<&str>) -> anyhow::Result<HubOptions> {
    let mut models = vec![guide::choice()];
    if let Some(model) = model {
        models.insert(0, from_file(model)?);
        models.push(choice("script/echo", "Scripted echo", ECHO)?);
    }
    Ok(HubOptions {
        models: models.into(),
        find_models: None,
        preferences: None,
        journal: Arc::new(NoJournal),
        clock: Arc::new(SystemClock),
        spans: None,
    })
}

/// Makes the models of a session that starts with a scripted one.
///
/// # Errors
/// Never: the other script is our own.
pub fn scripted(model: ScriptedModel) -> anyhow::Result<Arc<[ModelChoice]>> {
    let first = ModelChoice {
        id: ModelId::new("script/file"),
        name: "Script script".to_owned(),
        context_size: model.window(),
        price: None,
        can_think: false,
        profile: None,
        model: Arc::new(model),
    };
    Ok(Arc::new([first, guide::choice(), choice("script/echo", "Scripted echo", ECHO)?]))
}

fn from_file(model: &str) -> anyhow::Result<ModelChoice> {
    let Some(path) = model.strip_prefix("script:").map(PathBuf::from) else {
        anyhow::bail!("invalid model `{model}`: expected `provider/model` or `script:FILE`");
    };
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read the script {}", path.display()))?;
    let name = path
        .file_stem()
        .map_or_else(|| "file".to_owned(), |stem| stem.to_string_lossy().into_owned());
    choice("script/file", &format!("Script {name}"), &text)
        .with_context(|| format!("cannot use the script {}", path.display()))
}

fn choice(id: &str, name: &str, script: &str) -> anyhow::Result<ModelChoice> {
    let model = ScriptedModel::parse(script)?;
    Ok(ModelChoice {
        id: ModelId::new(id),
        name: name.to_owned(),
        context_size: model.window(),
        price: None,
        can_think: false,
        profile: None,
        model: Arc::new(model),
    })
}
