//! The MCP servers of one session, an extension of its toolbox.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use engine::ports::{
    Editor, Event, Expanded, Extension, ExtensionContext, Severity, Tool, Toolbox,
};
use engine::words::{Prompt, SlashCommand};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use process::container::Containers;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clean::clean_line;
use crate::config::ServerConfig;
use crate::host::{Host, Lease};
use crate::offer::{public_name, shared_names};
use crate::server::{Phase, Server, Status, lock};
use crate::tool::McpTool;
use crate::{attach, report};

/// The most servers of one session.
const MAX_SERVERS: usize = 32;
/// The most tools of all servers together. With more, some providers reject the request.
pub(crate) const MAX_TOOLS: usize = 512;
const MAX_PROBLEM: usize = 300;

/// How long after its start a server may delay a prompt. Most servers are ready by then; an immediate prompt would miss
/// their tools.
const START_WAIT: Duration = Duration::from_secs(1);

/// The servers of one session and their current tools.
pub struct SessionServers {
    host: Arc<Host>,
    roots: Vec<PathBuf>,
    /// Its id, for the log.
    session: Arc<str>,
    /// The containers of the session, if it has any.
    containers: Option<Arc<Containers>>,
    chosen: Mutex<Chosen>,
    running: Mutex<Option<Running>>,
    listed: Mutex<Listed>,
}

/// Which servers a session has.
struct Chosen {
    configs: Vec<ServerConfig>,
    /// The problems with servers that are ignored.
    problems: Vec<String>,
}

impl Chosen {
    fn new(configs: Vec<ServerConfig>, problems: Vec<String>) -> Chosen {
        let mut problems: Vec<String> =
            problems.iter().map(|problem| clean_line(problem, MAX_PROBLEM)).collect();
        let mut chosen: Vec<ServerConfig> = Vec::new();
        for config in configs {
            let name = &config.name;
            match chosen.iter().find(|first| first.name == *name) {
                // The same server, configured in two places.
                Some(first) if first.transport == config.transport => {}
                Some(_) => problems.push(format!(
                    "`{name}`: this session already has another server with this name; rename one of them"
                )),
                None if chosen.len() == MAX_SERVERS => problems
                    .push(format!("`{name}`: a session has at most {MAX_SERVERS} servers")),
                None => chosen.push(config),
            }
        }
        Chosen { configs: chosen, problems }
    }

    fn is_empty(&self) -> bool {
        self.configs.is_empty() && self.problems.is_empty()
    }
}

/// The running servers of a session.
struct Running {
    leases: Vec<Arc<Lease>>,
    since: Instant,
    /// What was already reported about each server. Only for a client that shows no notices: it gets them with its next turn.
    reported: Option<Vec<report::Reported>>,
    /// Other notices for the next turn.
    notices: Vec<String>,
    /// Stops the tasks that report changes when it is dropped.
    _watching: DropGuard,
}

/// The cached list of tools, and what it was made from.
#[derive(Default)]
struct Listed {
    versions: Vec<u64>,
    /// The number of tools that precede these.
    before: usize,
    tools: Arc<[Arc<dyn Tool>]>,
}

impl SessionServers {
    /// Creates the servers of a session. [`Extension::start`] starts them.
    ///
    /// If several servers have the same name, the first one is used, and the others are reported to the user, as are
    /// `problems`.
    #[must_use]
    pub fn new(
        host: &Arc<Host>,
        configs: Vec<ServerConfig>,
        problems: Vec<String>,
        roots: Vec<PathBuf>,
    ) -> SessionServers {
        SessionServers {
            host: Arc::clone(host),
            roots,
            containers: None,
            session: "".into(),
            chosen: Mutex::new(Chosen::new(configs, problems)),
            running: Mutex::default(),
            listed: Mutex::default(),
        }
    }

    /// Names the session that the servers belong to, for the log.
    #[must_use]
    pub fn with_session(self, session: &str) -> SessionServers {
        SessionServers { session: session.into(), ..self }
    }

    /// Runs servers in these containers, if their configuration says so.
    #[must_use]
    pub fn with_containers(self, containers: Option<Arc<Containers>>) -> SessionServers {
        SessionServers { containers, ..self }
    }

    /// Stops the servers and takes others instead, which [`Extension::start`] starts.
    pub fn replace(&self, configs: Vec<ServerConfig>, problems: Vec<String>) {
        *lock(&self.chosen) = Chosen::new(configs, problems);
        self.pause();
    }

    /// Returns the state of the servers, as `/mcp` shows it.
    #[must_use]
    pub fn overview(&self) -> String {
        report::overview(self, &self.servers())
    }

    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        let running = lock(&self.running);
        let leases = running.iter().flat_map(|running| &running.leases);
        leases.map(|lease| Arc::clone(&lease.server)).collect()
    }

    /// Waits briefly for servers that were just started.
    pub(crate) async fn wait_for_start(&self) {
        let since = lock(&self.running).as_ref().map(|running| running.since);
        let Some(since) = since else {
            return;
        };
        for server in self.servers() {
            let mut status = server.watch();
            let started = status.wait_for(|status| status.phase != Phase::Starting);
            if timeout_at(since + START_WAIT, started).await.is_err() {
                return;
            }
        }
    }

    /// Returns the problems with servers that are ignored.
    pub(crate) fn problems(&self) -> Vec<String> {
        lock(&self.chosen).problems.clone()
    }

    fn begin(
        &self,
        chosen: &Chosen,
        ExtensionContext { editor, toolbox }: &ExtensionContext,
    ) -> Running {
        let stop = CancellationToken::new();
        let leases: Vec<Arc<Lease>> = chosen
            .configs
            .iter()
            .map(|config| {
                self.host.lease(config, &self.roots, self.containers.as_ref(), &self.session)
            })
            .collect();
        for lease in &leases {
            if !lease.server.config.is_shared {
                lease.server.set_editor(Some(Arc::clone(editor)));
            }
            let reporter = Reporter {
                server: Arc::clone(&lease.server),
                editor: Arc::clone(editor),
                toolbox: Weak::clone(toolbox),
            };
            let (status, stop) = (lease.server.watch(), stop.clone());
            self.host.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = reporter.run(status) => {}
                }
            });
        }
        let problems = chosen.problems.iter();
        let mut notices: Vec<String> =
            problems.map(|problem| format!("Ignored MCP server: {problem}")).collect();
        let shows_notices = editor.offers().notices;
        if shows_notices {
            let (titles, editor) = (std::mem::take(&mut notices), Arc::clone(editor));
            self.host.spawn(async move {
                for title in titles {
                    let (severity, description) = (Severity::Warning, None);
                    editor.show(Event::Notice { severity, title, description }).await;
                }
            });
        }
        let reported =
            (!shows_notices).then(|| leases.iter().map(|_| report::Reported::default()).collect());
        Running { leases, since: Instant::now(), reported, notices, _watching: stop.drop_guard() }
    }
}

impl Extension for SessionServers {
    fn tools(&self, before: &[Arc<dyn Tool>]) -> Arc<[Arc<dyn Tool>]> {
        let servers = self.servers();
        let states: Vec<Status> = servers.iter().map(|server| server.status()).collect();
        let versions: Vec<u64> = states.iter().map(|status| status.version).collect();
        let mut listed = lock(&self.listed);
        if listed.before == before.len() && listed.versions == versions {
            return Arc::clone(&listed.tools);
        }
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        let mut names: HashSet<String> =
            before.iter().map(|tool| tool.spec().name.clone()).collect();
        // A name that two servers would have belongs to neither: a rule for a tool must never apply to one that another server
        // adds later.
        let offered = servers.iter().zip(&states).flat_map(|(server, status)| {
            status.offer.tools.iter().map(|info| (server.name(), info.name.as_str()))
        });
        names.extend(shared_names(offered));
        for (server, status) in servers.iter().zip(&states) {
            // The tools of a failed server remain listed: a call of one returns the reason.
            for info in status.offer.tools.iter().take(MAX_TOOLS - tools.len()) {
                let name = public_name(server.name(), &info.name, &mut names);
                tools.push(Arc::new(McpTool::new(server, info, name, self.host.options.timing)));
            }
        }
        *listed = Listed { versions, before: before.len(), tools: tools.into() };
        Arc::clone(&listed.tools)
    }

    fn start(&self, session: &ExtensionContext) {
        let mut running = lock(&self.running);
        let chosen = lock(&self.chosen);
        if running.is_none() && !chosen.is_empty() {
            *running = Some(self.begin(&chosen, session));
        }
    }

    fn pause(&self) {
        *lock(&self.running) = None;
        *lock(&self.listed) = Listed::default();
    }

    fn commands(&self) -> Vec<SlashCommand> {
        let mut commands = Vec::new();
        if !lock(&self.chosen).is_empty() {
            commands.push(report::command());
        }
        commands.extend(attach::commands(&self.servers()));
        commands
    }

    fn take_notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if let Some(running) = &mut *lock(&self.running) {
            notices.append(&mut running.notices);
            for (lease, reported) in
                running.leases.iter().zip(running.reported.iter_mut().flatten())
            {
                let report = reported.next(lease.server.name(), &lease.server.status());
                notices.extend(report.map(|(_, title, details)| match details {
                    Some(details) => format!("{title}: {details}"),
                    None => title,
                }));
            }
        }
        notices
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        attach::expand(self, prompt).boxed()
    }
}

/// Reports the state of a server to the user.
struct Reporter {
    server: Arc<Server>,
    editor: Arc<dyn Editor>,
    toolbox: Weak<Toolbox>,
}

impl Reporter {
    async fn run(self, mut status: watch::Receiver<Status>) {
        let mut reported = report::Reported::default();
        let mut prompts = Vec::new();
        // A shared server may have been running for a long time.
        status.mark_changed();
        while status.changed().await.is_ok() {
            let now = status.borrow_and_update().clone();
            // A client that shows no notices ignores this event and gets the notice with its next turn.
            if let Some((severity, title, description)) = reported.next(self.server.name(), &now) {
                self.editor.show(Event::Notice { severity, title, description }).await;
            }
            if now.offer.prompts != prompts {
                prompts.clone_from(&now.offer.prompts);
                if let Some(toolbox) = self.toolbox.upgrade() {
                    self.editor.show(Event::Commands(toolbox.commands())).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Command;

    fn server(name: &str, program: &str) -> ServerConfig {
        let (program, args, env, cwd) = (program.to_owned(), Vec::new(), Vec::new(), None);
        ServerConfig::command(name, Command { program, args, env, cwd }).unwrap()
    }

    // R: M2
    #[test]
    fn server_whose_name_is_taken_is_reported() {
        let all = vec![
            server("a", "/one"),
            server("b", "/two"),
            server("a", "/three"),
            server("a", "/one"),
        ];
        let chosen = Chosen::new(all, Vec::new());
        assert_eq!(chosen.configs, [server("a", "/one"), server("b", "/two")]);
        let [problem] = &chosen.problems[..] else { panic!("{:?}", chosen.problems) };
        assert!(problem.starts_with("`a`: ") && problem.contains("with this name"), "{problem}");
    }
}
