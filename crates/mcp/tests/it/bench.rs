//! A session with a scripted model and MCP servers, in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::hub::{Hub, HubCommand, HubLimits, HubOptions, Start, Workspace};
use engine::permission::Answer;
use engine::ports::{
    Event, Extension, FormAnswer, ModelChoice, NoInstructions, NoJournal, Offers, Reply,
    SystemClock, Tool, Toolbox,
};
use engine::script::ScriptedModel;
use engine::session::{Command as Ask, SessionHandle};
use engine::test_support::{NoFiles, StubEditor};
use engine::words::{Block, ModelId, Prompt, SessionId, StopReason, ToolContent, ToolStatus};
use mcp::oauth::{Login, Vault};
use mcp::{Command, Host, Options, ServerConfig, SessionServers, Timing};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A client that supports forms and notices, allows every call once and fills in forms.
pub(crate) fn editor() -> StubEditor {
    let offers = Offers { form: true, page: true, notices: true, ..Offers::default() };
    let editor = StubEditor::default().with_offers(offers);
    editor.set_answer(Answer::AllowOnce);
    let fields = json!({ "name": "Ada", "age": 36 }).as_object().cloned().unwrap();
    editor.set_form_answer(FormAnswer::Fields(fields));
    editor
}

/// How long a test waits for anything.
const DEADLINE: Duration = Duration::from_secs(60);

/// A vault without logins.
pub(crate) struct NoVault;

impl Vault for NoVault {
    fn load(&self, _: &str) -> Option<String> {
        None
    }

    fn save(&self, _: &str, _: Option<&str>) -> Result<(), String> {
        Err("this vault stores nothing".to_owned())
    }
}

/// Timeouts that are short enough for a test.
pub(crate) fn quick() -> Timing {
    Timing {
        start: Duration::from_secs(20),
        start_limit: Duration::from_secs(20),
        call: Duration::from_secs(20),
        call_limit: Duration::from_secs(40),
        first_wait: Duration::from_millis(20),
        longest_wait: Duration::from_millis(100),
        steady: Duration::from_secs(60),
    }
}

pub(crate) fn host(timing: Timing) -> Arc<Host> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Host::new(Options {
        timing,
        environment: vec![("PATH".into(), path)],
        directory: tempfile::env::temp_dir(),
        login: Login::new(Arc::new(NoVault)),
        guard: process::Guard::default(),
        starter: mcp::Starter::default(),
        confinement: None,
    })
}

/// Returns the test server `faulty_server` with these arguments: a fault and its argument, or none.
pub(crate) fn faulty(name: &str, args: &[&str]) -> ServerConfig {
    let mut target = std::env::current_exe().unwrap();
    target.pop();
    target.pop();
    let program = target.join("examples/faulty_server");
    assert!(program.exists(), "{} was not built with the tests", program.display());
    program_at(name, &program.to_string_lossy(), args)
}

pub(crate) fn program_at(name: &str, program: &str, args: &[&str]) -> ServerConfig {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let command = Command { program: program.to_owned(), args, env: Vec::new(), cwd: None };
    ServerConfig::command(name, command).unwrap()
}

/// A running session.
pub(crate) struct Bench {
    pub(crate) editor: Arc<StubEditor>,
    pub(crate) servers: Arc<SessionServers>,
    pub(crate) host: Arc<Host>,
    handle: Option<SessionHandle>,
    _tasks: JoinSet<()>,
}

/// The result of one prompt.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) stop: Option<StopReason>,
    /// The text of the model or a command.
    pub(crate) said: String,
    pub(crate) thought: String,
    /// How each call ended, and its output.
    pub(crate) calls: Vec<(ToolStatus, String)>,
    pub(crate) shown: Vec<ToolContent>,
}

impl Bench {
    /// Opens a session with these servers, whose model plays `script`.
    pub(crate) async fn open(script: &str, servers: Vec<ServerConfig>) -> Bench {
        Bench::with(script, servers, quick(), editor()).await
    }

    pub(crate) async fn with(
        script: &str,
        servers: Vec<ServerConfig>,
        timing: Timing,
        editor: StubEditor,
    ) -> Bench {
        Bench::on(&host(timing), script, servers, editor).await
    }

    pub(crate) async fn on(
        host: &Arc<Host>,
        script: &str,
        servers: Vec<ServerConfig>,
        editor: StubEditor,
    ) -> Bench {
        let model = ModelChoice {
            id: ModelId::new("script/test"),
            name: "Test".to_owned(),
            context_size: 1_000_000_000,
            price: None,
            can_think: false,
            profile: None,
            model: Arc::new(ScriptedModel::parse(script).unwrap()),
        };
        let options = HubOptions {
            models: vec![model].into(),
            find_models: None,
            preferences: None,
            journal: Arc::new(NoJournal),
            clock: Arc::new(SystemClock),
            spans: None,
        };
        let limits = HubLimits {
            max_requests_per_turn: 100,
            no_progress: DEADLINE,
            max_sessions: 10,
            idle_pause: Duration::ZERO,
        };
        let (hub, hub_handle) = Hub::new(options, limits);
        let mut tasks = JoinSet::new();
        tasks.spawn(hub.run());
        let directory = tempfile::env::temp_dir().canonicalize().unwrap();
        let roots = vec![directory.clone()];
        let servers = Arc::new(SessionServers::new(host, servers, Vec::new(), roots));
        let editor = Arc::new(editor);
        let extension = Arc::clone(&servers) as Arc<dyn Extension>;
        let workspace = Workspace {
            cwd: None,
            next: Default::default(),
            editor: Arc::clone(&editor) as _,
            files: Arc::new(NoFiles),
            instructions: Arc::new(NoInstructions),
            toolbox: Toolbox::new(Vec::new(), vec![extension]),
            policy: Default::default(),
            notices: Vec::new(),
        };
        let (sender, opened) = oneshot::channel();
        hub_handle.reserve().unwrap().send(HubCommand::Open {
            session: SessionId::new("s"),
            start: Start::New { cwd: directory },
            mode: None,
            workspace: Box::new(workspace),
            reply: Reply::new(move |opened| drop(sender.send(opened))),
        });
        let handle = opened.await.unwrap().unwrap().handle;
        handle.reserve().unwrap().send(Ask::Announce);
        Bench { editor, servers, host: Arc::clone(host), handle: Some(handle), _tasks: tasks }
    }

    /// Waits until all servers are ready.
    pub(crate) async fn ready(self) -> Bench {
        self.until("all servers are ready", |bench| {
            let state = bench.state();
            state.contains(": ready") && !state.contains("starting") && !state.contains("failed")
        })
        .await;
        self
    }

    /// Returns the current output of `/mcp`.
    pub(crate) fn state(&self) -> String {
        self.servers.overview()
    }

    /// Waits until a condition holds. Servers are other processes, so it has to be polled.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Bench) -> bool) {
        let end = tokio::time::Instant::now() + DEADLINE;
        while !holds(self) {
            assert!(
                tokio::time::Instant::now() < end,
                "timed out waiting until {what}\n{}",
                self.state()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for a notice with this text, and returns it.
    pub(crate) async fn notice(&self, text: &str) -> String {
        let find = |bench: &Bench| bench.notices().into_iter().find(|notice| notice.contains(text));
        self.until(text, |bench| find(bench).is_some()).await;
        find(self).unwrap()
    }

    pub(crate) fn notices(&self) -> Vec<String> {
        let events = self.editor.events();
        let text = |event: &Event| match event {
            Event::Notice { title, description, .. } => {
                Some(format!("{title}: {}", description.clone().unwrap_or_default()))
            }
            _ => None,
        };
        events.iter().filter_map(text).collect()
    }

    /// Returns the tools of the servers.
    pub(crate) fn tools(&self) -> Arc<[Arc<dyn Tool>]> {
        self.servers.tools(&[])
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tools().iter().map(|tool| tool.spec().name.clone()).collect()
    }

    /// Sends a prompt and waits for the end of the turn.
    pub(crate) async fn prompt(&self, text: &str) -> Turn {
        self.send(text, CancellationToken::new()).await
    }

    pub(crate) async fn send(&self, text: &str, cancel: CancellationToken) -> Turn {
        self.editor.clear_events();
        let prompt = Prompt::from(vec![Block::Text(text.to_owned())]);
        let (sender, ended) = oneshot::channel();
        let reply = Reply::new(move |stop| drop(sender.send(stop)));
        let handle = self.handle.as_ref().unwrap();
        handle.reserve().unwrap().send(Ask::Prompt {
            prompt,
            origin: Default::default(),
            cancel,
            reply,
        });
        let stop = tokio::time::timeout(DEADLINE, ended).await.expect("the turn ends in time");
        let mut turn =
            Turn { stop: stop.unwrap().ok().map(|report| report.stop), ..Turn::default() };
        for event in &self.editor.events() {
            match event {
                Event::Text { text, .. } => turn.said.push_str(text),
                Event::Thought { text, .. } => turn.thought.push_str(text),
                Event::ToolUpdate(_, update) => {
                    let content = update.content.clone().unwrap_or_default();
                    let texts: Vec<String> = content.iter().filter_map(text_of).collect();
                    if let Some(status @ (ToolStatus::Completed | ToolStatus::Failed)) =
                        update.status
                    {
                        turn.calls.push((status, texts.join("\n")));
                    }
                    turn.shown.extend(content);
                }
                _ => {}
            }
        }
        turn
    }

    /// Closes the session.
    pub(crate) fn close(&mut self) {
        self.handle = None;
        self.servers.pause();
    }
}

fn text_of(content: &ToolContent) -> Option<String> {
    match content {
        ToolContent::Block(Block::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Returns whether a process with this argument exists.
pub(crate) fn is_running(wanted: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path: PathBuf = entry.ok()?.path();
        path.file_name()?.to_str()?.parse::<u32>().ok()?;
        std::fs::read(path.join("cmdline")).ok()
    });
    let mut processes =
        processes.filter(|line| line.split(|byte| *byte == 0).any(|arg| arg == wanted.as_bytes()));
    processes.next().is_some()
}
