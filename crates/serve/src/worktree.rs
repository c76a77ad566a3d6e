//! Worktrees of sessions: `"workspace": "worktree"` and `/worktree`.
//!
//! A session in a worktree belongs to the project all the same: it is listed there, and the project's settings, trust and saved
//! answers apply. Only its working directory is another.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use engine::hub::NextWorkspace;
use engine::ports::{Expanded, Extension};
use engine::words::{Prompt, SessionId, SlashCommand, visible};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use settings::Settings;
use settings::worktrees::{self, Worktree};
use tools::bash::Bash;
use tools::worktree::{self, is_name, top_of};

use crate::workspace::{OpenSpec, Workspaces};

const USAGE: &str = "\
Usage: `/worktree` or `/worktree NAME` gives this session a git worktree and a branch of its own. Then:\n\
- `/worktree` shows its state\n\
- `/worktree merge` merges its branch into the project's and removes it\n\
- `/worktree keep` returns to the project; worktree and branch stay\n\
- `/worktree remove` returns to the project and removes the worktree, if nothing in it is uncommitted";

/// The title of the notice about a session that has a worktree.
pub(crate) const NOTICE: &str = "This session has its own worktree";
/// The title of the notice about a session that could not get one.
pub(crate) const FAILED: &str = "This session has no worktree";

/// `/worktree` in a session.
pub(crate) struct WorktreeExtension {
    workspaces: Arc<Workspaces>,
    spec: OpenSpec,
    next: NextWorkspace,
    /// Where the session is now, if it is in a worktree.
    now: Option<Worktree>,
}

/// Returns the directory in a worktree that corresponds to a directory of the project.
pub(crate) fn inside(worktree: &Worktree, cwd: &Path) -> PathBuf {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match real(cwd).strip_prefix(real(&worktree.top)) {
        Ok(below) if worktree.path.join(below).is_dir() => worktree.path.join(below),
        _ => worktree.path.clone(),
    }
}

/// Tells whether a session in this directory can have a worktree.
pub(crate) fn is_possible(settings: &Settings, cwd: &Path) -> bool {
    settings.directories.data.is_some() && top_of(cwd).is_some()
}

impl Workspaces {
    /// Finds the worktree of a session that has one, or makes one for a new session if the user wants that. Also returns why there is none.
    pub(crate) async fn worktree_of(
        self: &Arc<Workspaces>,
        spec: &OpenSpec,
    ) -> (Option<Worktree>, Option<String>) {
        let Some(data) = self.settings().directories.data.clone() else { return (None, None) };
        let session = spec.session.clone();
        let found =
            tokio::task::spawn_blocking(move || worktrees::find(&data, session.as_str())).await;
        if let Ok(Some(found)) = found {
            return (Some(found), None);
        }
        if !self.settings().config.workspace.worktree || !spec.must_exist {
            return (None, None);
        }
        match self.make_worktree(spec, None).await {
            Ok((made, _)) => (Some(made), None),
            Err(why) => (None, Some(visible(&format!("{why}. It works in the project itself.")))),
        }
    }

    /// Makes a worktree and stores it as that of the session.
    async fn make_worktree(
        self: &Arc<Workspaces>,
        spec: &OpenSpec,
        name: Option<&str>,
    ) -> Result<(Worktree, usize), String> {
        let cwd = spec.directories.first().ok_or("the session has no folder")?;
        let directories = &self.settings().directories;
        let (data, root) = (directories.data.as_deref(), worktrees::root(directories));
        let (data, root) = data.zip(root).ok_or("there is no data folder to store it in")?;
        let top =
            top_of(cwd).ok_or_else(|| format!("{} is in no git repository", cwd.display()))?;
        let name = name.map_or_else(|| short(&spec.session), str::to_owned);
        let project = top.file_name().unwrap_or_default();
        let made = Worktree {
            session: spec.session.to_string(),
            path: root.join(project).join(&name),
            branch: format!("purlin/{name}"),
            top,
        };
        let bash = self.bash_for_git(&spec.session, &made.top).await?;
        let left_out = git_in(&bash, &made).create().await?;
        worktrees::add(data, made.clone())?;
        Ok((made, left_out))
    }

    /// Makes what runs git, on another thread: it looks at the disk.
    async fn bash_for_git(
        self: &Arc<Workspaces>,
        session: &SessionId,
        top: &Path,
    ) -> Result<Bash, String> {
        let (workspaces, session, top) = (Arc::clone(self), session.clone(), top.to_owned());
        let make = move || workspaces.machine().bash(&session, &[top]);
        tokio::task::spawn_blocking(make).await.map_err(|err| err.to_string())
    }
}

impl WorktreeExtension {
    pub(crate) fn new(
        workspaces: &Arc<Workspaces>,
        spec: &OpenSpec,
        next: NextWorkspace,
        now: Option<Worktree>,
    ) -> WorktreeExtension {
        let workspaces = Arc::clone(workspaces);
        WorktreeExtension { workspaces, spec: spec.clone(), next, now }
    }

    /// Does what the user asks for. Returns what to say.
    async fn run(&self, words: &str) -> Result<String, String> {
        let Some(now) = &self.now else {
            return match words {
                "" => self.begin(None).await,
                "merge" | "keep" | "remove" => {
                    Err(format!("This session has no worktree.\n\n{USAGE}"))
                }
                name if is_name(name) => self.begin(Some(name)).await,
                _ => Err(USAGE.to_owned()),
            };
        };
        let bash = self.workspaces.bash_for_git(&self.spec.session, &now.top).await?;
        let git = git_in(&bash, now);
        match words {
            "" => {
                let (changes, commits) = (git.changes().await?.len(), git.ahead().await?);
                Ok(format!(
                    "Worktree {} on branch `{}`: {changes} uncommitted changes, {commits} commits that the project does not have.\n\n{USAGE}",
                    now.path.display(),
                    now.branch
                ))
            }
            "merge" => {
                let merged = git.merge().await?;
                let removed = git.remove().await?;
                self.return_to_project().await?;
                Ok(format!("{merged}. {removed}. This session works in the project again."))
            }
            "keep" => {
                self.return_to_project().await?;
                Ok(format!(
                    "This session works in the project again. The worktree stays in {} on branch `{}`.",
                    now.path.display(),
                    now.branch
                ))
            }
            "remove" => {
                let removed = git.remove().await?;
                self.return_to_project().await?;
                Ok(format!("{removed}. This session works in the project again."))
            }
            _ => Err(USAGE.to_owned()),
        }
    }

    async fn begin(&self, name: Option<&str>) -> Result<String, String> {
        let (made, left_out) = self.workspaces.make_worktree(&self.spec, name).await?;
        self.reopen().await?;
        let left_out = match left_out {
            0 => String::new(),
            1 => " One uncommitted change of the project is not in it.".to_owned(),
            count => format!(" {count} uncommitted changes of the project are not in it."),
        };
        Ok(format!(
            "This session now works in {} on the new branch `{}`.{left_out} `/worktree merge`, `/worktree keep` or `/worktree remove` ends that.",
            made.path.display(),
            made.branch
        ))
    }

    async fn return_to_project(&self) -> Result<(), String> {
        if let Some(data) = &self.workspaces.settings().directories.data {
            worktrees::forget(data, self.spec.session.as_str())?;
        }
        self.reopen().await
    }

    /// Opens the session's workspace again; the session moves there when its turn has ended.
    async fn reopen(&self) -> Result<(), String> {
        let spec = OpenSpec { must_exist: false, ..self.spec.clone() };
        let opened =
            Arc::clone(&self.workspaces).open(spec).await.map_err(|err| err.to_string())?;
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(opened));
        Ok(())
    }
}

impl Extension for WorktreeExtension {
    fn commands(&self) -> Vec<SlashCommand> {
        vec![SlashCommand {
            name: "worktree".into(),
            description: "Work in a git worktree and branch of this session's own".into(),
            hint: Some("a name; merge, keep or remove".into()),
        }]
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        let words = match prompt.slash_command() {
            Some(("worktree", words)) => words.trim().to_owned(),
            _ => return futures_util::future::ready(Expanded::Prompt(prompt)).boxed(),
        };
        async move {
            Expanded::Answer(match self.run(&words).await {
                Ok(text) => text,
                Err(why) if why.ends_with(USAGE) => why,
                Err(why) => format!("Not done: {}.", visible(&why)),
            })
        }
        .boxed()
    }
}

fn git_in<'a>(bash: &'a Bash, worktree: &'a Worktree) -> worktree::Worktree<'a> {
    let Worktree { top, path, branch, .. } = worktree;
    worktree::Worktree { bash, top, path, branch }
}

/// Returns a short name that no other session has.
fn short(session: &SessionId) -> String {
    let plain = session.as_str().chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    plain[plain.len().saturating_sub(12)..].to_ascii_lowercase()
}
