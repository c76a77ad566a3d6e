//! `purlin acp`: the agent on stdin and stdout.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::hub::HubOptions;
use engine::permission::rules::Rule;
use recording::Tape;
use serve::{ClientKeys, stdio};
use settings::config::problem_of_model;
use settings::workspace::WorkspaceConfig;
use settings::{Config, Settings};
use tokio_util::sync::CancellationToken;
use wire::acp::dialect::Dialect;

use crate::model_sources::{ModelSources, UserPreferences};
use crate::observer::Observer;
use crate::{assemble, env, log, record_command, storage};

/// How `purlin acp` was called.
#[derive(Debug, Clone, Default)]
pub struct AcpOptions {
    /// The model to use.
    pub model: Option<String>,
    /// The dialect to speak, instead of the one that is recognised.
    pub dialect: Option<Dialect>,
    /// The configuration file to use instead of the user's.
    pub config: Option<PathBuf>,
    /// Do not store sessions.
    pub forget: bool,
    /// The file that every message is written to.
    pub trace: Option<PathBuf>,
    /// Where sessions work, instead of what the configuration says.
    pub workspace: Option<WorkspaceConfig>,
    /// The directory that a recording is written to.
    pub record: Option<PathBuf>,
    /// Permission rules besides those of the configuration.
    pub rules: Vec<Rule>,
}

/// The process exits at most this long after it was asked to stop.
const WATCHDOG: Duration = Duration::from_secs(5);

/// Serves one client on stdin and stdout until it closes them, or until a signal.
///
/// # Errors
/// Says what is wrong with the model that was asked for.
pub fn run(options: AcpOptions) -> anyhow::Result<ExitCode> {
    log::log_panics();
    #[cfg(unix)]
    process::share_one_heap();
    let (mut config, problems) = env::load_config(options.config.clone());
    config.permission.extend(options.rules.iter().cloned());
    if let Some(workspace) = &options.workspace {
        config.workspace = workspace.clone();
    }
    problems.iter().for_each(|problem| tracing::warn!("{problem}"));
    if let Some(model) = &options.model {
        check_model(model, &config)?;
    }
    explain_to_a_person();
    let models = find_models(&options, &config)?;
    let settings = Settings::new(config, problems, env::directories());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve_client(options, models, settings))?;
    tools::bash::finish_checks();
    log::flush();
    // The reader may still be blocked in a read.
    std::process::exit(0)
}

/// The models of a run, and where sessions are stored.
pub(crate) struct Models {
    pub(crate) hub: HubOptions,
    /// Takes the API keys of clients.
    keys: Option<Arc<dyn ClientKeys>>,
    pub(crate) is_scripted: bool,
}

/// Finds out whether the model is scripted, and otherwise where models come from.
pub(crate) fn find_models(options: &AcpOptions, config: &Config) -> anyhow::Result<Models> {
    let model = options.model.clone().or_else(|| config.model.clone());
    let is_real = |model: &String| !model.starts_with("script:") && model.contains('/');
    let (real, scripted) = match model {
        Some(model) if is_real(&model) => (Some(model), None),
        model => (None, model),
    };
    let mut hub = assemble::hub_options(scripted.as_deref())?;
    let keys = scripted.is_none().then(|| {
        let is_model_given = real.is_some();
        let sources = ModelSources::new(config.clone(), real, Arc::clone(&hub.models));
        hub.find_models = Some(sources.finder());
        if !options.forget {
            let (sources, small_model) = (Arc::clone(&sources), config.small_model.clone());
            hub.preferences =
                Some(Arc::new(UserPreferences { sources, is_model_given, small_model }));
        }
        sources as Arc<dyn ClientKeys>
    });
    Ok(Models { hub, keys, is_scripted: scripted.is_some() })
}

/// Serves the client until it closes its end or a signal stops us.
async fn serve_client(
    options: AcpOptions,
    mut models: Models,
    mut settings: Settings,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    watch_signals(stop.clone(), || ())?;
    let config = &settings.config;
    let configured = config.dialect.as_deref().and_then(Dialect::from_name);
    let dialect = options.dialect.or(configured);
    let trace = options.trace.or_else(env::trace_file).or_else(|| config.trace.clone());
    let observer = Observer::new(trace.as_deref(), dialect)?;
    let observer = Arc::new(observer.passing_context_on(config.trace_context));
    if !options.forget {
        models.hub.journal = Arc::new(storage::observed_store(config, observer.clone()));
    }
    models.hub.spans = Some(observer.clone());
    let tape = match &options.record {
        Some(directory) => {
            Some(record_command::begin(directory, dialect, config, &mut models.hub)?)
        }
        None => None,
    };
    let pipes = stdio::pipes(&mut tasks)?;
    tasks.spawn(listen_later(observer.clone()));
    // If the current directory was deleted, `.` stays as it is, and a client that sends it is refused.
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    settings.answers.take_if(|_| options.forget);
    let helper = std::env::current_exe().unwrap_or_default();
    let workspaces =
        assemble::taped_workspaces(settings, helper, models.is_scripted, &observer, tape.clone());
    let options = serve::Options {
        hub: models.hub,
        dialect,
        cwd,
        stop,
        workspaces: Arc::clone(&workspaces),
        keys: models.keys,
        watcher: Some(observer.clone()),
        tape: tape.clone(),
    };
    // A task of its own: waking the task that the runtime blocks on costs a system call each time.
    let mut connection = tokio::task::JoinSet::new();
    connection.spawn(serve::serve(pipes, options));
    connection.join_next().await.transpose().context("the connection failed")?;
    workspaces.end().await;
    observer.end();
    if let Some(Tape::Record(recorder)) = tape {
        recorder.end();
    }
    Ok(())
}

/// Says what the command is for, if a person started it in a terminal.
fn explain_to_a_person() {
    if std::io::stdin().is_terminal() {
        eprintln!(
            "purlin acp communicates with an editor on stdin and stdout. To send a prompt from the shell: purlin run \"…\""
        );
    }
}

/// Checks a model of the command line, as far as possible without a request.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn check_model(model: &str, config: &Config) -> anyhow::Result<()> {
    if let Some(problem) = problem_of_model(model, &config.provider, &env::environment()) {
        anyhow::bail!("`--model` {problem}");
    }
    let provider = model.split('/').next().unwrap_or_default();
    if model.contains('/') && !config.uses_provider(provider) {
        anyhow::bail!(
            "`--model` names the provider `{provider}`, which your configuration turns off"
        );
    }
    if model.starts_with("script:") {
        assemble::hub_options(Some(model))?;
    }
    Ok(())
}

/// Lets others watch, but not before the first answer: the client waits for it.
async fn listen_later(observer: Arc<Observer>) {
    tokio::time::sleep(Duration::from_millis(100)).await;
    observer.listen();
}

/// Watches signals on a thread with its own runtime: they must work even if the other one is stuck.
fn watch_signals(
    stop: CancellationToken,
    ready: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let watch = move || {
        runtime.block_on(async {
            match Signals::listen() {
                Ok(signals) => {
                    ready();
                    stop_on_signals(signals, stop).await;
                }
                Err(err) => tracing::error!("cannot watch signals: {err}"),
            }
        })
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
    Ok(())
}

/// Fires `stop` on the first signal and exits on the second. The watchdog starts with the first signal, or with the end
/// of input.
async fn stop_on_signals(mut signals: Signals, stop: CancellationToken) {
    tokio::select! {
        () = signals.next() => stop.cancel(),
        () = stop.cancelled() => {}
    }
    watchdog();
    signals.next().await;
    std::process::exit(130);
}

/// A plain thread, so that it works even if the runtime is stuck.
fn watchdog() {
    let started = std::thread::Builder::new().name("watchdog".to_owned()).spawn(|| {
        std::thread::sleep(WATCHDOG);
        std::process::exit(1);
    });
    if let Err(err) = started {
        tracing::error!("no watchdog: {err}");
    }
}

/// The signals that ask the program to stop.
#[cfg(unix)]
pub(crate) struct Signals([tokio::signal::unix::Signal; 3]);

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Signals([signal(terminate)?, signal(interrupt)?, signal(SignalKind::hangup())?]))
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> std::io::Result<Signals> {
        Ok(Signals)
    }

    pub(crate) async fn next(&mut self) {
        if let Err(err) = tokio::signal::ctrl_c().await {
            tracing::error!("cannot watch signals: {err}");
            std::future::pending().await
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    /// As if the runtime of the connection were stuck: this thread runs none.
    // R: T7
    #[test]
    fn signal_is_noticed_although_no_runtime_of_this_thread_runs() {
        let stop = CancellationToken::new();
        let (sender, started) = std::sync::mpsc::channel();
        watch_signals(stop.clone(), move || sender.send(()).unwrap()).unwrap();
        started.recv().unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        while !stop.is_cancelled() {
            std::thread::yield_now();
        }
    }
}
