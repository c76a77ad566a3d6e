//! `bash`: runs a command in the sandbox, in the editor's terminal if it has one, else in our own shell.
//!
//! This file plans a call: what permissions it needs (`requirement`) and what the question shows (`title`, `extra_permissions`).
//! `judged` finds that out on another thread,
//! `planned` runs it, with `client` in a terminal of the editor, with `run` here or with `background`, and `output` captures what
//! it prints.
//! `profile` says what the sandbox allows; `outside` and `repositories` are parts of that. `git_redirects` and `quarantine` check what
//! a command leaves behind.

mod aliases;
mod background;
mod before;
mod captured_run;
mod client;
mod container;
mod destroy;
mod extra_permissions;
mod git;
mod git_redirects;
mod input;
mod judged;
mod output;
mod outside;
mod planned;
mod profile;
mod project_tests;
mod quarantine;
mod repositories;
mod requirement;
mod run;
mod search_path;
mod title;
mod watch;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use engine::permission::{Access, PermissionKey, UNANALYSED};
use engine::ports::{Intent, Outline, Planned, Tool, ToolCx, ToolError, ToolSpec};
use engine::words::{
    Block, ToolContent, ToolFailure, ToolKind, count_blanks, fenced, has_markup, visible,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use process::container::Containers;
use process::sandbox::{Level, Sandbox, SharedDirectory};
use serde_json::Value;
use shell::{NeedKind, Verdict};

use background::Background;
use input::{Input, brief_spec, spec};
use judged::Judged;
use planned::PlannedCommand;
use repositories::Survey;
use title::{outline_of, title_of};

pub use background::tools as background_tools;
pub use before::finish_checks;
pub use captured_run::{CapturedRun, Ran};
pub use extra_permissions::ExtraPermissions;
pub use output::Plain;
pub(crate) use repositories::enclosing as enclosing_repository;
pub use requirement::Requirement;
pub(crate) use requirement::directory_rule;
pub use search_path::search_path;

/// Settings for the commands of one session.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directories of the session: what commands may write to.
    pub directories: Vec<PathBuf>,
    /// Our own configuration and data: hidden from commands, which must not create them inside the directories either.
    pub own: Arc<[PathBuf]>,
    /// Other paths that commands must not see.
    pub hidden: Arc<[PathBuf]>,
    /// The search path. Entries inside the directories are ignored: a project must not replace a program.
    pub search: Arc<[PathBuf]>,
    /// The environment, without the search path.
    pub environment: Arc<[(String, String)]>,
    /// Where long outputs are stored, if anywhere.
    pub outputs: Option<PathBuf>,
    /// The containers that commands run in, if not in the sandbox.
    pub containers: Option<Arc<Containers>>,
}

/// The tool.
#[derive(Debug)]
pub struct Bash {
    sandbox: Arc<Sandbox>,
    options: Options,
    /// The session's directories, resolved when it was opened.
    directories: Vec<PathBuf>,
    /// Whether the client announced terminals but does not support them.
    has_no_terminals: AtomicBool,
    background: Background,
    /// The temporary directory that its commands share; made for the first one. `None` if it cannot be made.
    temporary: OnceLock<Option<Arc<SharedDirectory>>>,
    /// What the user must know about programs that run without a question, such as a checker.
    warnings: Mutex<Vec<String>>,
    /// What the last search of the directories found.
    surveyed: Mutex<Option<Arc<Survey>>>,
    /// All repositories below the directories so far. They stay protected while the session lasts.
    repositories: Mutex<BTreeSet<PathBuf>>,
}

impl Bash {
    /// Makes the tool of one session.
    #[must_use]
    pub fn new(sandbox: Arc<Sandbox>, options: Options) -> Bash {
        // Resolved once: a link that changes later must not change the session's directories.
        let real =
            |directory: &PathBuf| directory.canonicalize().unwrap_or_else(|_| directory.clone());
        let directories = options.directories.iter().map(real).collect();
        Bash {
            sandbox,
            options,
            directories,
            has_no_terminals: AtomicBool::default(),
            background: Background::default(),
            temporary: OnceLock::new(),
            warnings: Mutex::default(),
            surveyed: Mutex::default(),
            repositories: Mutex::default(),
        }
    }

    /// Runs every command in our own shell, for a directory that the client does not have.
    #[must_use]
    pub fn without_terminals(self) -> Bash {
        self.has_no_terminals.store(true, Ordering::Relaxed);
        self
    }

    /// Returns what a command needs permission for at a level of the sandbox, and why. Without a sandbox everything needs permission.
    ///
    /// # Errors
    /// Fails with the reason if it cannot run even with permission.
    pub fn requirements(
        &self,
        cwd: &Path,
        command: &str,
        extra: &ExtraPermissions,
        level: Level,
    ) -> Result<Vec<Requirement>, String> {
        let outside = self.outside(&extra.write_outside, level)?;
        let mut writable = outside::own_places(level);
        writable.extend_from_slice(&outside);
        let is_sandboxed = level.confines();
        let at = shell::Context {
            cwd,
            roots: &self.options.directories,
            own: &self.options.own,
            home: self.home(),
            is_sandboxed,
            writable: &writable,
            real: &shell::real,
            is_deceptive: engine::words::deceives,
        };
        let mut needs = shell::needs(command, &at);
        // In a container, what it writes outside the project are the container's own files.
        needs.retain(|need| self.containers().is_none() || need.default != Verdict::Reject);
        if let Some(need) = needs.iter().find(|need| need.default == Verdict::Reject) {
            return Err(format!(
                "it cannot write to {}, which is outside the project's folders: request the folder with `write_outside`, \
                 or use `write`",
                need.subject
            ));
        }
        for (is_requested, kind, why) in [
            (extra.network, NeedKind::Network, "the command requests network access"),
            (extra.git, NeedKind::Git, "the command requests to change .git"),
            (!is_sandboxed, NeedKind::Unsandboxed, "no sandbox available"),
        ] {
            if is_requested {
                shell::require_extra(&mut needs, command, kind, why);
            }
        }
        let mut needed: Vec<Requirement> = needs.into_iter().map(Requirement::from).collect();
        for directory in outside.iter().map(|directory| directory.to_string_lossy()) {
            let requirement = |access, why: &str| Requirement { access, why: why.to_owned() };
            // Rules that forbid what is outside apply to it, too.
            let around = Access::allow(PermissionKey::ExternalDirectory, directory.clone());
            needed.push(requirement(around, "it is requested by `write_outside`"));
            let access =
                Access { is_shown: true, ..Access::ask(PermissionKey::WriteOutside, directory) };
            needed.push(requirement(access, "the command requests to write there"));
        }
        for path in self.auto_run_requests(&extra.write_outside) {
            let name = path.strip_prefix(cwd).unwrap_or(&path).to_string_lossy();
            let access = Access { is_shown: true, ..Access::ask(PermissionKey::AutoRun, name) };
            let why = "other programs run what is in it".to_owned();
            needed.push(Requirement { access, why });
        }
        if level == Level::Full && !self.survey().is_complete {
            needed.push(Requirement {
                access: Access {
                    always: None,
                    is_unclear: true,
                    notes: vec![TOO_MANY_DIRECTORIES.to_owned()],
                    ..Access::ask(PermissionKey::RunCommand, format!("{UNANALYSED}{command}"))
                },
                why: TOO_MANY_DIRECTORIES.to_owned(),
            });
        }
        Ok(needed)
    }

    /// Returns the temporary directory that the commands share. If it cannot be made, each command has its own.
    fn temporary(&self) -> Option<Arc<SharedDirectory>> {
        let made = self.temporary.get_or_init(|| match self.sandbox.shared_directory() {
            Ok(directory) => Some(Arc::new(directory)),
            Err(err) => {
                tracing::warn!("no temporary folder for the commands of a session: {err}");
                None
            }
        });
        made.clone()
    }

    fn home(&self) -> Option<&Path> {
        let home = self.options.environment.iter().find(|(name, _)| name == "HOME");
        home.map(|(_, home)| Path::new(home))
    }

    /// Tells whether the editor runs a command. If only our own shell can be restricted, that does.
    fn uses_terminal(&self, cx: &ToolCx<'_>, level: Level) -> bool {
        let is_offered =
            cx.editor.offers().terminal && !self.has_no_terminals.load(Ordering::Relaxed);
        let can_restrict = cfg!(target_os = "linux") || !level.confines();
        is_offered
            && self.containers().is_none()
            && can_restrict
            && self.sandbox.suits_terminal(&self.directories)
    }
}

impl Tool for Bash {
    fn spec(&self) -> Arc<ToolSpec> {
        // Needed for every call of any tool, and always the same.
        static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(spec);
        Arc::clone(&SPEC)
    }

    fn brief_spec(&self) -> Option<Arc<ToolSpec>> {
        static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(brief_spec);
        Some(Arc::clone(&SPEC))
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    /// Shows the first line of the command.
    fn outline(&self, input: &Value) -> Outline {
        let title = input["command"].as_str().map_or("bash".to_owned(), outline_of);
        Outline { title, paths: Vec::new() }
    }

    fn plan<'a>(
        self: Arc<Self>,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<(Intent, Box<dyn Planned>), ToolError>> {
        async move {
            let mut input = Input::read(input)?;
            if project_tests::is_requested(&input.command) {
                input.command = project_tests::find(&input.command, cx.cwd).await?;
            }
            let offers = cx.editor.offers();
            let level = self.found().await.level;
            let judged = cx.or_cancelled(self.judge(cx.cwd, input.clone(), level)).await?;
            let Judged { access, outside, granted, new_git, git } = judged.map_err(not_run)?;
            let mut content = Vec::new();
            if input.background {
                let words = "Runs in the background until it ends or the session does.";
                content.push(ToolContent::Block(Block::Text(words.to_owned())));
            } else if offers.live && !self.uses_terminal(cx, level) {
                content.push(ToolContent::Live { cwd: cx.cwd.to_owned() });
            }
            let reason = input.reason.as_deref();
            let words = input.extra.words(&git, &[outside.clone(), granted].concat(), reason);
            content.extend(words.map(|words| ToolContent::Block(Block::Text(words))));
            let command = visible(&input.command);
            let title = title_of(&command);
            if title != command || has_markup(&command) {
                // Not rendered: a comment would hide a part of it.
                content.push(ToolContent::Block(Block::Text(fenced(&count_blanks(&command)))));
            }
            let planned = PlannedCommand { bash: self, input, level, outside, new_git };
            let intent = Intent { title, content, access, ..Intent::default() };
            Ok((intent, Box::new(planned) as Box<dyn Planned>))
        }
        .boxed()
    }
}

/// Why every command asks in a project that is too large.
const TOO_MANY_DIRECTORIES: &str = "The project has too many folders to find every repository in it, so not all of them are protected.";

/// Makes the error of a command that was not run.
fn not_run(why: impl Display) -> ToolError {
    ToolError::Model(format!("the command was not run: {why}"))
}

/// Makes the error of a command that timed out. The user has seen the output in a terminal and gets only the reason.
fn timed_out(input: &Input, output: &str, terminal: Option<ToolContent>) -> ToolError {
    let seconds = input.timeout.as_secs_f64();
    let why = format!(
        "The command was ended after {seconds} seconds (timeout). It has no input and no terminal, so a command that \
         prompts or never ends cannot work; set a longer `timeout` if it only needs more time"
    );
    let text = format!("{why}\n{output}").trim_end().to_owned();
    let content = terminal.map(|terminal| vec![terminal, ToolContent::Block(Block::Text(why))]);
    ToolError::Failed { failure: Some(ToolFailure::TimedOut), text, content }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the tool of a session in these directories. In the home directory, `secret` is hidden and `own` is our own.
    pub(super) fn bash(top: &Path, directories: &[&Path], home: Option<&Path>) -> Bash {
        let in_home = |name: &str| home.map(|home| home.join(name)).into_iter().collect();
        let home = home.map(|home| ("HOME".to_owned(), home.display().to_string()));
        let options = Options {
            directories: directories.iter().map(|directory| (*directory).to_owned()).collect(),
            own: in_home("own"),
            hidden: in_home("secret"),
            search: Arc::new([]),
            environment: home.into_iter().collect(),
            outputs: None,
            containers: None,
        };
        let sandbox = Sandbox::new(top.join("helper"), top.join("scratch"));
        Bash::new(Arc::new(sandbox), options)
    }
}
