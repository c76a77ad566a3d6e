//! Opens workspaces: builds everything that a session works with, once, from top to bottom.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use engine::Error;
use engine::hub::{NextWorkspace, Workspace};
use engine::permission::PermissionKey;
use engine::permission::policy::Policy;
use engine::permission::rules::AskFloor;
use engine::ports::{AnswerStore, Editor, Extension, Tool, Toolbox};
use engine::script::OpenPage;
use engine::session::IGNORED_SETTINGS;
use engine::words::{SessionId, visible};
use recording::Tape;
use settings::answer_store::DirectoryAnswers;
use settings::credentials::load_keys;
use settings::custom::Custom;
use settings::instructions::{Patterns, Places, ProjectFiles};
use settings::worktrees::Worktree;
use settings::{Project, Settings};
use tools::Files;
use tools::bash::Bash;
use tools::diagnostics::Diagnostics;
use tools::scope::Scope;
use tools::web_search::{self, SearchEngine};

use crate::container;
use crate::custom::CustomExtension;
use crate::diagnostics::{DiagnosticsExtension, options_of};
use crate::forge::{ForgeExtension, GitHubEnvironment};
use crate::hooks::HookContext;
use crate::instructions::{ProjectInstructions, ScopedFiles};
use crate::machine::Machine;
use crate::mcp_servers::{ReplaceableServers, RequestedServers};
use crate::skill_tool::SkillTool;
use crate::worktree::{self, WorktreeExtension};

/// The titles of notices about what cannot be protected or understood.
const EVERYTHING_ASKS: &str = "More is asked for than your rules say";
const EVERY_COMMAND_ASKS: &str = "Every command asks";

/// Opens the workspaces of sessions. The machine is made when the first session opens, so that the program starts fast.
pub struct Workspaces {
    settings: Settings,
    machine: OnceLock<Machine>,
    options: WorkspaceOptions,
}

/// What the program adds to every workspace.
pub struct WorkspaceOptions {
    /// Describes this machine: what its sandbox can do, and where its programs are.
    pub machine: Box<dyn Fn() -> Machine + Send + Sync>,
    /// Whether the model is scripted; some tools are for scripts only.
    pub is_scripted: bool,
    /// What the environment has for GitHub.
    pub github: GitHubEnvironment,
    /// Makes the program's own extensions of a session.
    pub extensions: Vec<MakeExtension>,
    /// Records the answers that are stored for projects.
    pub tape: Option<Tape>,
}

/// Makes an extension of a session.
pub type MakeExtension =
    Box<dyn Fn(&Arc<Workspaces>, &SessionId) -> Arc<dyn Extension> + Send + Sync>;

/// Makes the editor of a session, which may touch what the scope allows.
pub(crate) type Connect = Arc<dyn Fn(Scope) -> Arc<dyn Editor> + Send + Sync>;
/// The MCP servers of a session that is open.
pub(crate) type ServersSlot = Arc<Mutex<Option<ReplaceableServers>>>;

/// What the workspace of a session is opened for.
#[derive(Clone)]
pub(crate) struct OpenSpec {
    pub(crate) session: SessionId,
    /// The directories that the client named, the working directory first.
    pub(crate) directories: Vec<PathBuf>,
    /// Whether the session is new, so that its directories must exist.
    pub(crate) must_exist: bool,
    pub(crate) requested: RequestedServers,
    pub(crate) connect: Connect,
    /// Gets the session's MCP servers, which the client can replace later.
    pub(crate) servers: ServersSlot,
}

impl Workspaces {
    /// Makes an opener of workspaces. Builds nothing yet.
    #[must_use]
    pub fn new(settings: Settings, options: WorkspaceOptions) -> Arc<Workspaces> {
        Arc::new(Workspaces { settings, machine: OnceLock::new(), options })
    }

    /// Returns the settings of all sessions.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn machine(&self) -> &Machine {
        self.machine.get_or_init(|| (self.options.machine)())
    }

    /// Ends what still runs for sessions.
    pub async fn end(&self) {
        if let Some(machine) = self.machine.get() {
            machine.host.end().await;
        }
    }

    /// Opens the workspace of a session.
    ///
    /// # Errors
    /// Says which directory cannot be used, if all must exist.
    pub(crate) async fn open(self: Arc<Workspaces>, spec: OpenSpec) -> Result<Workspace, Error> {
        let broken = |err: tokio::task::JoinError| {
            tracing::error!("a workspace could not be opened: {err}");
            Error::Broken
        };
        // The disk may be slow or hang, and all other sessions are on this thread.
        if spec.must_exist {
            let directories = spec.directories.clone();
            let checked = tokio::task::spawn_blocking(move || check_exist(&directories));
            checked.await.map_err(broken)??;
        }
        let (worktree, problem) = self.worktree_of(&spec).await;
        let build = move || self.build(&spec, worktree, problem);
        tokio::task::spawn_blocking(build).await.map_err(broken)
    }

    /// Builds everything that a session works with, once, from top to bottom. Reads files.
    fn build(
        self: &Arc<Workspaces>,
        spec: &OpenSpec,
        worktree: Option<Worktree>,
        problem: Option<String>,
    ) -> Workspace {
        let (machine, settings) = (self.machine(), &self.settings);
        let OpenSpec { session, directories: named, requested, connect, .. } = spec;

        // The projects: each file is read once, and trust is checked once.
        let projects: Vec<Project> =
            named.iter().map(|directory| settings.project(directory)).collect();
        let (project, named_cwd) = (projects.first(), named.first().cloned().unwrap_or_default());
        let mut notices = notices(settings, &projects, &named_cwd);
        notices.extend(problem.map(|why| (worktree::FAILED, why)));
        notices.extend(worktree.as_ref().map(worktree_notice));

        // In a worktree only the directory is another: it has the project's settings.
        let cwd =
            worktree.as_ref().map_or(named_cwd.clone(), |it| worktree::inside(it, &named_cwd));
        let directories: Vec<PathBuf> =
            std::iter::once(cwd.clone()).chain(named.iter().skip(1).cloned()).collect();
        let directories = &directories[..];

        // Files and commands.
        let (containers, said) = container::containers(settings, machine, &named_cwd, &cwd);
        notices.extend(said.into_iter().map(|what| (container::NOTICE, what)));
        let scope = machine.scope(directories.to_vec()).with_outputs(machine.outputs(session));
        let scope = scope.with_aliases(container::aliases(containers.as_deref()));
        let files = Arc::new(Files::new(scope.clone()));
        let bash = Arc::new(machine.bash_in(session, directories, containers.clone()));

        let (instructions, skill) = self.instructions(directories, project);
        let other = worktree.as_ref().map(|_| &*cwd);
        let policy = self.guarded_policy(session, &projects, directories, other, &mut notices);

        // Tools, and what adds to them: the program, the user and the project, MCP servers.
        let tools = self.builtin_tools(&files, &bash, skill);
        let mut extensions: Vec<Arc<dyn Extension>> =
            self.options.extensions.iter().map(|make| make(self, session)).collect();
        extensions.push(Arc::new(CustomExtension::new(
            Custom::gather(settings, project),
            Arc::clone(&bash),
            scope.clone(),
            Arc::clone(&policy),
            HookContext { session: session.clone(), cwd: cwd.clone() },
        )));
        extensions.extend(self.diagnostics(&projects, bash, scope.clone(), &cwd));
        extensions.extend(self.forge(&cwd));
        let next = NextWorkspace::default();
        if worktree.is_some() || worktree::is_possible(settings, &cwd) {
            let command = WorktreeExtension::new(self, spec, Arc::clone(&next), worktree);
            extensions.push(Arc::new(command));
        }
        let mcp = settings.config.servers_for(&named_cwd);
        let (configured, requested) = ((&mcp, project), requested.clone());
        let host = &machine.host;
        let servers =
            ReplaceableServers::new(host, requested, configured, session, directories, containers);
        extensions.push(servers.extension());
        *spec.servers.lock().unwrap_or_else(PoisonError::into_inner) = Some(servers);

        let mut restrictions = settings.config.tools.clone();
        restrictions.extend(projects.iter().flat_map(Project::removed_tools));
        let toolbox = Toolbox::new(tools, extensions).restricted_to(restrictions);
        let editor = connect(scope);
        let cwd = Some(cwd);
        Workspace { editor, files, instructions, toolbox, policy, notices, cwd, next }
    }

    /// Makes the policy, which asks for every command where one could change a file that rules or keys come from.
    fn guarded_policy(
        &self,
        session: &SessionId,
        projects: &[Project],
        directories: &[PathBuf],
        other: Option<&Path>,
        notices: &mut Vec<(&'static str, String)>,
    ) -> Arc<Policy> {
        let mut policy = policy_in(&self.settings, projects, other);
        if let Some(tape) = &self.options.tape {
            policy = policy.map_store(|store| tape.answers(session.as_str(), store));
        }
        let unprotected = self.machine().unprotected(directories);
        notices.extend(unprotected.iter().map(|why| (EVERY_COMMAND_ASKS, visible(why))));
        policy.add_floor(unprotected.map(|why| AskFloor {
            key: PermissionKey::RunCommand.to_string(),
            pattern: "*".to_owned(),
            why,
        }));
        Arc::new(policy)
    }

    /// Finds instructions and skills, which may be above the session's directories.
    fn instructions(
        &self,
        directories: &[PathBuf],
        project: Option<&Project>,
    ) -> (Arc<ProjectInstructions>, Option<SkillTool>) {
        let (machine, settings) = (self.machine(), &self.settings);
        let places = Places::new(directories, &settings.directories);
        let above = machine.scope(places.roots().to_vec());
        let files: Arc<dyn ProjectFiles> = Arc::new(ScopedFiles(above));
        let patterns = Arc::new(Patterns {
            user: settings.config.instructions.clone(),
            project: project.map(Project::instructions).unwrap_or_default(),
        });
        let skill = SkillTool::find(&places, &files);
        let scope = machine.scope(directories.to_vec());
        (Arc::new(ProjectInstructions { places, files, patterns, scope }), skill)
    }

    /// Makes what reports diagnostics after an edit, if any is configured.
    fn diagnostics(
        &self,
        projects: &[Project],
        bash: Arc<Bash>,
        scope: Scope,
        cwd: &Path,
    ) -> Option<Arc<dyn Extension>> {
        let mut found = self.settings.config.diagnostics.clone();
        projects.iter().for_each(|project| found.extend(project.diagnostics()));
        let (checkers, language_servers) = options_of(found);
        let diagnostics = Diagnostics::new(checkers, language_servers, bash, scope, cwd.to_owned());
        (!diagnostics.is_empty()).then(|| Arc::new(DiagnosticsExtension(diagnostics)) as _)
    }

    /// Tells whether a session in this directory has GitHub's tools at once: its repository is there, and a token is known.
    pub(crate) fn has_github(&self, cwd: &Path) -> bool {
        ForgeExtension::find(&self.settings, &self.options.github, &[], cwd).is_some()
    }

    /// Makes the tools and commands for the project's repository on GitHub, if it is there.
    fn forge(&self, cwd: &Path) -> Option<Arc<dyn Extension>> {
        ForgeExtension::find(&self.settings, &self.options.github, self.machine().search(), cwd)
    }

    /// Makes the built-in tools of a session.
    fn builtin_tools(
        &self,
        files: &Arc<Files>,
        bash: &Arc<Bash>,
        skill: Option<SkillTool>,
    ) -> Vec<Arc<dyn Tool>> {
        let mut all = tools::all(files);
        all.push(Arc::clone(bash) as Arc<dyn Tool>);
        all.extend(tools::bash::background_tools(bash));
        all.extend(self.search_tool());
        all.extend(skill.map(|skill| Arc::new(skill) as Arc<dyn Tool>));
        if self.options.is_scripted {
            all.push(Arc::new(OpenPage));
        }
        all
    }

    /// Makes the tool that searches the web, if the user configured a search engine.
    fn search_tool(&self) -> Option<Arc<dyn Tool>> {
        let search = self.settings.config.search.clone()?;
        let engine = SearchEngine::find(&search.provider)?;
        let stored = || load_keys(&self.settings.directories).remove(engine.name());
        let (url, results) = (search.url, search.results);
        let key = search.key.or_else(stored);
        Some(web_search::tool(web_search::Options { engine, url, key, results }))
    }

    /// Makes built-in tools for another directory, which has no settings of its own and which the client does not have.
    #[must_use]
    pub fn open_bare(&self, session: &SessionId, directory: &Path) -> Vec<Arc<dyn Tool>> {
        let machine = self.machine();
        let directories = vec![directory.to_owned()];
        let bash = Arc::new(machine.bash(session, &directories).without_terminals());
        let scope = machine.scope(directories).with_outputs(machine.outputs(session));
        let files = Arc::new(Files::new(scope).without_editor());
        self.builtin_tools(&files, &bash, None)
    }
}

/// Checks that the directories of a new session exist.
fn check_exist(directories: &[PathBuf]) -> Result<(), Error> {
    for (number, directory) in directories.iter().enumerate() {
        let why = match directory.metadata() {
            Ok(found) if found.is_dir() => continue,
            Ok(_) => "not a folder",
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => "not found",
            Err(_) => "not accessible",
        };
        return Err(Error::BadDirectory { number, why });
    }
    Ok(())
}

/// Makes the policy of a session from the rules of the user and of its projects.
#[must_use]
pub fn policy(settings: &Settings, projects: &[Project]) -> Policy {
    policy_in(settings, projects, None)
}

/// The same for a session that works in another directory than its project's, with the project's saved answers.
fn policy_in(settings: &Settings, projects: &[Project], other: Option<&Path>) -> Policy {
    let mut rules = settings.config.permission.clone();
    let mut roots: Vec<PathBuf> =
        projects.iter().map(|project| project.directory().to_owned()).collect();
    for project in projects {
        rules.extend(project.rules());
        let directory = project.directory();
        roots.extend(directory.canonicalize().ok().filter(|real| real != directory));
    }
    if let Some(other) = other {
        roots.push(other.to_owned());
        roots.extend(other.canonicalize().ok().filter(|real| real != other));
    }
    let cwd = projects.first().map(Project::directory);
    let cwd = cwd.map(|cwd| cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned()));
    let saved = settings.answers.as_deref().zip(cwd);
    let saved =
        saved.map(|(data, cwd)| Arc::new(DirectoryAnswers::new(data, cwd)) as Arc<dyn AnswerStore>);
    let floors = settings.config.floors.iter().chain(projects.iter().flat_map(Project::floors));
    Policy::new(rules, roots, saved).with_floors(floors.cloned().collect())
}

/// Lists what the user should know when a session opens.
fn notices(settings: &Settings, projects: &[Project], cwd: &Path) -> Vec<(&'static str, String)> {
    let floors = || settings.config.floors.iter().chain(projects.iter().flat_map(Project::floors));
    let is_new = |problem: &&String| !floors().any(|floor| floor.why == **problem);
    let user = settings.problems.iter().filter(is_new).map(|problem| visible(problem));
    let mut of_projects = Vec::new();
    for project in projects {
        project.problems().iter().for_each(|problem| tracing::warn!("{}", visible(problem)));
        of_projects.extend(project.notices());
    }
    let unused = user.chain(of_projects).map(|problem| (IGNORED_SETTINGS, problem));
    let asks = floors().map(|floor| (EVERYTHING_ASKS, visible(&floor.why)));
    let gone = (!cwd.is_dir()).then(|| gone(cwd));
    asks.chain(unused).chain(gone).collect()
}

/// The notice for a session that has a worktree.
fn worktree_notice(worktree: &Worktree) -> (&'static str, String) {
    let (path, branch) = (worktree.path.display(), &worktree.branch);
    (worktree::NOTICE, visible(&format!("{path}, on branch {branch}")))
}

/// The notice for a session whose directory does not exist any more.
fn gone(cwd: &Path) -> (&'static str, String) {
    let cwd = visible(&cwd.to_string_lossy());
    let text = format!("{cwd} not found. The history can be read, but tools cannot work there.");
    ("The folder of this session is gone", text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::mpsc;

    use engine::test_support::StubEditor;
    use settings::{Config, Directories, DiskReader, ReadText};
    use tokio::sync::Notify;

    use super::*;
    use crate::machine::MachineOptions;

    /// Counts the reads of each file.
    #[derive(Default)]
    struct Counter(Mutex<BTreeMap<String, usize>>);

    impl ReadText for Counter {
        fn read_text(&self, path: &Path, most: u64) -> Result<Option<String>, String> {
            let text = DiskReader.read_text(path, most);
            if matches!(text, Ok(Some(_))) {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                *self.0.lock().unwrap().entry(name).or_default() += 1;
            }
            text
        }
    }

    /// Reads nothing of a directory named `slow` until it is told to continue.
    struct SlowDisk {
        is_reached: Notify,
        may_continue: Mutex<mpsc::Receiver<()>>,
    }

    impl ReadText for SlowDisk {
        fn read_text(&self, path: &Path, most: u64) -> Result<Option<String>, String> {
            if path.ends_with("slow/purlin.json") {
                self.is_reached.notify_one();
                self.may_continue.lock().unwrap().recv().unwrap();
            }
            DiskReader.read_text(path, most)
        }
    }

    fn workspaces(reader: Arc<dyn ReadText>, directories: Directories) -> Arc<Workspaces> {
        let config = Config::default();
        let settings =
            Settings { reader, ..Settings::new(config, Vec::new(), directories.clone()) };
        let machine = MachineOptions {
            helper: PathBuf::new(),
            directories,
            policy_files: Vec::new(),
            temporary: tempfile::env::temp_dir(),
            search: Vec::new(),
            command_environment: Vec::new(),
            server_environment: Vec::new(),
            engine_environment: Vec::new(),
        };
        let options = WorkspaceOptions {
            machine: Box::new(move || Machine::new(machine.clone())),
            is_scripted: false,
            github: GitHubEnvironment::default(),
            extensions: Vec::new(),
            tape: None,
        };
        Workspaces::new(settings, options)
    }

    async fn open(workspaces: Arc<Workspaces>, directory: PathBuf) -> Result<Workspace, Error> {
        let spec = OpenSpec {
            session: SessionId::new("s"),
            directories: vec![directory],
            must_exist: true,
            requested: RequestedServers::default(),
            connect: Arc::new(|_| Arc::new(StubEditor::default())),
            servers: ServersSlot::default(),
        };
        workspaces.open(spec).await
    }

    // R: W19
    #[tokio::test]
    async fn opening_a_session_reads_each_settings_file_once_and_checks_trust_once() {
        let directory = tempfile::tempdir().unwrap();
        let (project, user) = (directory.path().join("project"), directory.path().join("user"));
        let ours = r#"{
            "permission": { "bash": { "ls *": "allow" } },
            "mcp": { "x": { "command": ["x"] } },
            "hooks": { "before_tool": [{ "command": "x" }] },
            "command": { "x": { "template": "!`x`" } },
            "agent": { "x": { "prompt": "x" } },
            "instructions": ["x.md"],
        }"#;
        let files = [
            (project.join("purlin.json"), ours),
            (project.join("opencode.json"), "{}"),
            (project.join(".purlin/agent/a.md"), "Agent"),
            (project.join(".claude/commands/c.md"), "Command"),
            (user.join("agent/user-a.md"), "Agent"),
            (user.join("command/user-c.md"), "Command"),
            (user.join("trust.json"), "[]"),
        ];
        for (file, text) in &files {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let directories =
            Directories { data: Some(user.clone()), config: Some(user), ..Directories::default() };
        let reader = Arc::new(Counter::default());
        let workspaces = workspaces(Arc::clone(&reader) as Arc<dyn ReadText>, directories);
        let workspace = open(workspaces, project).await.unwrap();
        assert_eq!(workspace.notices.len(), 1, "{:?}", workspace.notices);
        let reads: Vec<(String, usize)> = reader.0.lock().unwrap().clone().into_iter().collect();
        let mut names: Vec<String> = files
            .iter()
            .map(|(file, _)| file.file_name().unwrap().to_str().unwrap().into())
            .collect();
        names.sort();
        let once: Vec<(String, usize)> = names.into_iter().map(|name| (name, 1)).collect();
        assert_eq!(reads, once);
    }

    /// Everything else is on the same thread, so a read that hangs there would hang all sessions.
    // R: W19
    #[tokio::test]
    async fn project_on_a_disk_that_hangs_does_not_stop_other_sessions() {
        let directory = tempfile::tempdir().unwrap();
        let (slow, other) = (directory.path().join("slow"), directory.path().join("other"));
        for directory in [&slow, &other] {
            std::fs::create_dir(directory).unwrap();
        }
        let (go_on, may_continue) = mpsc::channel();
        let may_continue = Mutex::new(may_continue);
        let disk = Arc::new(SlowDisk { is_reached: Notify::new(), may_continue });
        let workspaces = workspaces(Arc::clone(&disk) as Arc<dyn ReadText>, Directories::default());
        let mut opening = tokio::task::JoinSet::new();
        opening.spawn(open(Arc::clone(&workspaces), slow));
        disk.is_reached.notified().await;
        open(workspaces, other).await.unwrap();
        assert!(opening.try_join_next().is_none(), "the slow session waits");
        go_on.send(()).unwrap();
        assert!(opening.join_next().await.unwrap().unwrap().is_ok());
    }

    #[tokio::test]
    async fn new_session_needs_an_existing_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let workspaces = workspaces(Arc::new(DiskReader), Directories::default());
        for (directory, expected) in
            [(directory.path().join("gone"), "not found"), (file, "not a folder")]
        {
            let opened = open(Arc::clone(&workspaces), directory).await;
            let Err(Error::BadDirectory { number: 0, why }) = opened else {
                panic!("it was opened")
            };
            assert_eq!(why, expected);
        }
    }
}
