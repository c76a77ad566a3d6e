//! The servers of one session, together with the tools it has anyway.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::commands::SlashCommand;
use engine::event::{Event, Severity};
use engine::ports::{AnyTool, Editor, Expanded, Tools};
use engine::words::Prompt;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clean::clean_line;
use crate::config::ServerConfig;
use crate::host::{Host, Lease};
use crate::offer::public_name;
use crate::server::{Phase, Server, Status, lock};
use crate::tool::McpTool;
use crate::{attach, report};

/// How many servers one session has.
const MAX_SERVERS: usize = 32;
/// How many tools of all servers together a model is listed. More, and some providers refuse the request.
const MAX_TOOLS: usize = 512;
const MAX_PROBLEM: usize = 300;

/// How long after its start a server may hold up a prompt: most are ready by then, and a prompt that comes at once would
/// miss their tools.
const HEAD_START: Duration = Duration::from_secs(1);

/// The tools of one session: its own, and those of its servers as they come and go.
pub struct SessionServers {
    host: Arc<Host>,
    own: Arc<dyn Tools>,
    configs: Vec<ServerConfig>,
    problems: Vec<String>,
    roots: Vec<PathBuf>,
    running: Mutex<Option<Running>>,
    listed: Mutex<Listed>,
}

/// What runs for a session that is in use.
struct Running {
    leases: Vec<Arc<Lease>>,
    since: Instant,
    /// What the user was told of each server, where the client shows no notices; it is told with the next turn then.
    told: Option<Vec<report::Told>>,
    /// What the user is to be told with the next turn besides.
    news: Vec<String>,
    /// Ends the tasks that tell the user of changes.
    _watching: DropGuard,
}

/// The tools as they were listed last, and of which versions.
#[derive(Default)]
struct Listed {
    versions: Vec<u64>,
    own: Option<Arc<[Arc<dyn AnyTool>]>>,
    tools: Arc<[Arc<dyn AnyTool>]>,
}

impl SessionServers {
    /// Makes the tools of a session. Starts nothing: [`Tools::start`] does.
    ///
    /// Of several servers with one name the first counts. `problems` are told to the user with the rest.
    #[must_use]
    pub fn new(
        host: &Arc<Host>,
        own: Arc<dyn Tools>,
        configs: Vec<ServerConfig>,
        problems: Vec<String>,
        roots: Vec<PathBuf>,
    ) -> SessionServers {
        let mut names = HashSet::new();
        let mut configs: Vec<ServerConfig> =
            configs.into_iter().filter(|config| names.insert(config.name.clone())).collect();
        let mut problems: Vec<String> =
            problems.iter().map(|problem| clean_line(problem, MAX_PROBLEM)).collect();
        for config in configs.drain(MAX_SERVERS.min(configs.len())..) {
            problems.push(format!("`{}`, for a session has at most {MAX_SERVERS}", config.name));
        }
        SessionServers {
            host: Arc::clone(host),
            own,
            configs,
            problems,
            roots,
            running: Mutex::default(),
            listed: Mutex::default(),
        }
    }

    /// Returns how the servers fare, as `/mcp` shows it.
    #[must_use]
    pub fn overview(&self) -> String {
        report::overview(self, &self.servers())
    }

    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        let running = lock(&self.running);
        let leases = running.iter().flat_map(|running| &running.leases);
        leases.map(|lease| Arc::clone(&lease.server)).collect()
    }

    /// Waits for servers that were started a moment ago, and no longer than that moment.
    pub(crate) async fn head_start(&self) {
        let since = lock(&self.running).as_ref().map(|running| running.since);
        let Some(since) = since else {
            return;
        };
        for server in self.servers() {
            let mut status = server.watch();
            let started = status.wait_for(|status| status.phase != Phase::Starting);
            if timeout_at(since + HEAD_START, started).await.is_err() {
                return;
            }
        }
    }

    /// Returns the problems that keep servers from being started at all.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    fn begin(&self, editor: &Arc<dyn Editor>) -> Running {
        let stop = CancellationToken::new();
        let leases: Vec<Arc<Lease>> =
            self.configs.iter().map(|config| self.host.lease(config, &self.roots)).collect();
        for lease in &leases {
            if !lease.server.config.is_shared {
                lease.server.set_editor(Some(Arc::clone(editor)));
            }
            let teller = Teller {
                server: Arc::clone(&lease.server),
                editor: Arc::clone(editor),
                others: leases.iter().map(|lease| Arc::clone(&lease.server)).collect(),
                own: Arc::clone(&self.own),
            };
            let (status, stop) = (lease.server.watch(), stop.clone());
            self.host.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = teller.tell(status) => {}
                }
            });
        }
        let problems = self.problems.iter();
        let mut news: Vec<String> =
            problems.map(|problem| format!("An MCP server was left out: {problem}")).collect();
        let shows_notices = editor.offers().notices;
        if shows_notices {
            let (titles, editor) = (std::mem::take(&mut news), Arc::clone(editor));
            self.host.spawn(async move {
                for title in titles {
                    let (severity, description) = (Severity::Warning, None);
                    editor.show(Event::Notice { severity, title, description }).await;
                }
            });
        }
        let told =
            (!shows_notices).then(|| leases.iter().map(|_| report::Told::default()).collect());
        Running { leases, since: Instant::now(), told, news, _watching: stop.drop_guard() }
    }
}

impl Tools for SessionServers {
    fn now(&self) -> Arc<[Arc<dyn AnyTool>]> {
        let own = self.own.now();
        let servers = self.servers();
        let states: Vec<Status> = servers.iter().map(|server| server.status()).collect();
        let versions: Vec<u64> = states.iter().map(|status| status.version).collect();
        let mut listed = lock(&self.listed);
        let is_same = listed.own.as_ref().is_some_and(|before| Arc::ptr_eq(before, &own));
        if is_same && listed.versions == versions {
            return Arc::clone(&listed.tools);
        }
        let mut tools: Vec<Arc<dyn AnyTool>> = own.to_vec();
        let mut names: HashSet<String> = own.iter().map(|tool| tool.spec().name.clone()).collect();
        for (server, status) in servers.iter().zip(&states) {
            // A server that failed keeps its tools: a model that calls one is told what is wrong.
            for offered in status.offer.tools.iter().take(MAX_TOOLS - (tools.len() - own.len())) {
                let name = public_name(server.name(), &offered.name, &mut names);
                tools.push(Arc::new(McpTool::new(server, offered, name, self.host.options.timing)));
            }
        }
        *listed = Listed { versions, own: Some(own), tools: tools.into() };
        Arc::clone(&listed.tools)
    }

    fn inner(&self) -> Option<&dyn Tools> {
        Some(&*self.own)
    }

    fn start(&self, editor: &Arc<dyn Editor>) {
        self.own.start(editor);
        let mut running = lock(&self.running);
        if running.is_none() && (!self.configs.is_empty() || !self.problems.is_empty()) {
            *running = Some(self.begin(editor));
        }
    }

    fn rest(&self) {
        self.own.rest();
        *lock(&self.running) = None;
        *lock(&self.listed) = Listed::default();
    }

    fn commands(&self) -> Vec<SlashCommand> {
        let mut commands = self.own.commands();
        if !self.configs.is_empty() || !self.problems.is_empty() {
            commands.push(report::command());
        }
        commands.extend(attach::commands(&self.servers()));
        commands
    }

    fn news(&self) -> Vec<String> {
        let mut news = self.own.news();
        if let Some(running) = &mut *lock(&self.running) {
            news.append(&mut running.news);
            for (lease, told) in running.leases.iter().zip(running.told.iter_mut().flatten()) {
                let said = told.next(lease.server.name(), &lease.server.status());
                news.extend(said.map(|(_, title, more)| match more {
                    Some(more) => format!("{title}: {more}"),
                    None => title,
                }));
            }
        }
        news
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        async move {
            match self.own.expand(prompt).await {
                Expanded::Prompt(prompt) => attach::expand(self, prompt).await,
                Expanded::As(prompt, guise) => match attach::expand(self, prompt).await {
                    Expanded::Prompt(prompt) => Expanded::As(prompt, guise),
                    other => other,
                },
                said @ Expanded::Say(_) => said,
            }
        }
        .boxed()
    }
}

/// Tells the user how a server fares.
struct Teller {
    server: Arc<Server>,
    editor: Arc<dyn Editor>,
    others: Vec<Arc<Server>>,
    own: Arc<dyn Tools>,
}

impl Teller {
    async fn tell(self, mut status: watch::Receiver<Status>) {
        let mut told = report::Told::default();
        let mut prompts = Vec::new();
        // A server that is shared may have been at this for long.
        status.mark_changed();
        while status.changed().await.is_ok() {
            let now = status.borrow_and_update().clone();
            // Not wanted by a client that shows none; that one is told with its next turn.
            if let Some((severity, title, description)) = told.next(self.server.name(), &now) {
                self.editor.show(Event::Notice { severity, title, description }).await;
            }
            if now.offer.prompts != prompts {
                prompts.clone_from(&now.offer.prompts);
                let mut commands: Vec<SlashCommand> = engine::commands::all(&*self.own);
                commands.push(report::command());
                commands.extend(attach::commands(&self.others));
                self.editor.show(Event::Commands(commands)).await;
            }
        }
    }
}
