//! Opens workspaces: builds everything that a session works with, once, from top to bottom.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use engine::hub::Workspace;
use engine::permission::policy::Policy;
use engine::ports::{AnswerStore, Editor, Extension, Tool, Toolbox};
use engine::script::tools::OpenPage;
use engine::session::IGNORED_SETTINGS;
use engine::words::{SessionId, visible};
use futures_util::future::BoxFuture;
use mcp::SessionServers;
use settings::answer_store::FolderAnswers;
use settings::custom::Custom;
use settings::instructions::{Patterns, Places, ProjectFiles};
use settings::{Project, Settings};
use tools::Files;
use tools::bash::Bash;
use tools::scope::Scope;

use crate::custom::CustomTools;
use crate::instructions::{ProjectInstructions, ScopedFiles};
use crate::machine::Machine;
use crate::mcp_servers::{self, RequestedServers};
use crate::skill_tool::SkillTool;

/// Opens the workspaces of sessions. The machine is made when the first session opens, not when the program starts.
pub struct Workspaces {
    settings: Settings,
    machine: OnceLock<Machine>,
    options: WorkspaceOptions,
}

/// What the program adds to every workspace.
pub struct WorkspaceOptions {
    /// Makes the machine.
    pub machine: Box<dyn Fn() -> Machine + Send + Sync>,
    /// Whether the model is scripted; some tools are for scripts only.
    pub is_scripted: bool,
    /// Makes an extension of every session.
    pub extend: Option<Extend>,
    /// Answers `/doctor`.
    pub report: Report,
}

/// Makes an extension of a session.
pub type Extend = Box<dyn Fn(&Arc<Workspaces>, &SessionId) -> Arc<dyn Extension> + Send + Sync>;

/// Says whether everything works.
pub type Report = Arc<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>;

/// What a session's directories hold, and what may be done in them.
struct Found {
    /// The project of each directory.
    projects: Vec<Project>,
    /// What tools may touch.
    scope: Scope,
    /// Reads and changes files.
    files: Arc<Files>,
    bash: Arc<Bash>,
    /// Where instructions are looked for.
    places: Places,
    /// Reads instructions.
    project_files: Arc<dyn ProjectFiles>,
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

    fn machine(&self) -> &Machine {
        self.machine.get_or_init(|| (self.options.machine)())
    }

    /// Ends what still runs for sessions.
    pub async fn end(&self) {
        if let Some(machine) = self.machine.get() {
            machine.host.end().await;
        }
    }

    /// Builds what a session in these directories works with, the working directory first.
    ///
    /// `connect` makes the session's editor, which may touch what the scope allows.
    pub(crate) fn open(
        self: &Arc<Workspaces>,
        session: &SessionId,
        folders: &[PathBuf],
        requested: RequestedServers,
        connect: impl FnOnce(Scope) -> Arc<dyn Editor>,
    ) -> Workspace {
        let found = self.look_at(session, folders);
        let toolbox = self.toolbox(session, folders, &found, requested);
        let editor = connect(found.scope.clone());
        let patterns = Patterns {
            user: self.settings.config.instructions.clone(),
            project: found.projects.first().map(Project::instructions).unwrap_or_default(),
        };
        Workspace {
            files: found.files,
            editor,
            toolbox,
            policy: policy(&self.settings, &found.projects),
            notices: notices(&self.settings, &found.projects, folders.first()),
            instructions: Arc::new(ProjectInstructions {
                places: found.places,
                files: found.project_files,
                patterns: Arc::new(patterns),
            }),
        }
    }

    /// Builds the tools of a session that is open already, with other MCP servers.
    pub(crate) fn open_toolbox(
        self: &Arc<Workspaces>,
        session: &SessionId,
        folders: &[PathBuf],
        requested: RequestedServers,
    ) -> Toolbox {
        let found = self.look_at(session, folders);
        self.toolbox(session, folders, &found, requested)
    }

    /// Reads the projects of a session, and makes its scope and its shell.
    fn look_at(&self, session: &SessionId, folders: &[PathBuf]) -> Found {
        let machine = self.machine();
        let places = Places::new(folders, &self.settings.directories);
        let roots = machine.scope(places.roots().to_vec());
        let scope = machine.scope(folders.to_vec()).with_outputs(machine.outputs(session));
        Found {
            projects: folders.iter().map(|folder| self.settings.project(folder)).collect(),
            files: Arc::new(Files::new(scope.clone())),
            scope,
            bash: Arc::new(machine.bash(session, folders)),
            places,
            project_files: Arc::new(ScopedFiles(roots)),
        }
    }

    /// Makes the tools of a session: built-in ones, what the user and the project add, and those of MCP servers.
    fn toolbox(
        self: &Arc<Workspaces>,
        session: &SessionId,
        folders: &[PathBuf],
        found: &Found,
        requested: RequestedServers,
    ) -> Toolbox {
        let settings = &self.settings;
        let project = found.projects.first();
        let skill = SkillTool::find(&found.places, &found.project_files);
        let tools = self.builtin_tools(&found.files, &found.bash, skill);
        let mut extensions: Vec<Arc<dyn Extension>> = Vec::new();
        extensions.extend(self.options.extend.as_ref().map(|extend| extend(self, session)));
        let custom = Custom::gather(&settings.config.additions, &settings.directories, project);
        let custom = CustomTools::new(
            custom,
            Arc::clone(&found.bash),
            found.scope.clone(),
            policy(settings, &found.projects),
            (session.clone(), folders.first().cloned().unwrap_or_default()),
            Arc::clone(&self.options.report),
        );
        let RequestedServers { servers, problems } =
            mcp_servers::choose(requested, &settings.config.mcp, project);
        let (host, roots) = (&self.machine().host, folders.to_vec());
        let servers = SessionServers::new(host, servers, problems, roots);
        extensions.push(Arc::new(custom));
        extensions.push(Arc::new(servers));
        Toolbox::new(tools, extensions)
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
        all.extend(skill.map(|skill| Arc::new(skill) as Arc<dyn Tool>));
        if self.options.is_scripted {
            all.push(Arc::new(OpenPage));
        }
        all
    }

    /// Makes built-in tools for another directory, which has no settings of its own and which the client does not have.
    #[must_use]
    pub fn open_bare(&self, session: &SessionId, folder: &Path) -> Vec<Arc<dyn Tool>> {
        let machine = self.machine();
        let folders = vec![folder.to_owned()];
        let bash = Arc::new(machine.bash(session, &folders).without_terminals());
        let scope = machine.scope(folders).with_outputs(machine.outputs(session));
        let files = Arc::new(Files::new(scope).without_editor());
        self.builtin_tools(&files, &bash, None)
    }
}

/// Makes what decides about tool calls, from the rules of the user and of the session's projects.
#[must_use]
pub fn policy(settings: &Settings, projects: &[Project]) -> Policy {
    let mut rules = settings.config.permission.clone();
    let mut roots: Vec<PathBuf> =
        projects.iter().map(|project| project.folder().to_owned()).collect();
    for project in projects {
        rules.extend(project.rules());
        let folder = project.folder();
        roots.extend(folder.canonicalize().ok().filter(|real| real != folder));
    }
    let cwd = projects.first().map(Project::folder);
    let cwd = cwd.map(|cwd| cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned()));
    let saved = settings.answers.as_deref().zip(cwd);
    let saved =
        saved.map(|(data, cwd)| Arc::new(FolderAnswers::new(data, cwd)) as Arc<dyn AnswerStore>);
    Policy::new(rules, roots, saved)
}

/// Lists what the user should know when a session opens.
fn notices(
    settings: &Settings,
    projects: &[Project],
    cwd: Option<&PathBuf>,
) -> Vec<(&'static str, String)> {
    let user = settings.problems.iter().map(|problem| visible(problem));
    let mut of_projects = Vec::new();
    for project in projects {
        project.problems().iter().for_each(|problem| tracing::warn!("{}", visible(problem)));
        of_projects.extend(project.notices());
    }
    let unused = user.chain(of_projects).map(|problem| (IGNORED_SETTINGS, problem));
    let gone = cwd.filter(|cwd| !cwd.is_dir()).map(|cwd| gone(cwd));
    unused.chain(gone).collect()
}

/// What the user is told of a session whose directory does not exist any more.
fn gone(cwd: &Path) -> (&'static str, String) {
    let cwd = visible(&cwd.to_string_lossy());
    let words = format!("{cwd} not found. The history can be read, but tools cannot work there.");
    ("The folder of this session is gone", words)
}
