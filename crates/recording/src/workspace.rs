//! Workspaces: what a session works with, as it was opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::Error;
use engine::hub::{NextWorkspace, Workspace};
use engine::permission::policy::Policy;
use engine::permission::rules::{AskFloor, Rule};
use engine::ports::{
    Editor, EditorError, Extension, FileError, Files, InstructionFile, InstructionSource,
    Instructions, Toolbox,
};
use engine::words::{Agent, SessionId};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::act::{Operation, play, recorded};
use crate::error_value::EditorErrorValue;
use crate::extension::TapedExtension;
use crate::tape::Tape;
use crate::tool::{self, ToolValue};

/// A workspace as it is written.
#[derive(Serialize, Deserialize)]
enum OpenValue {
    Opened(Box<WorkspaceValue>),
    BadDirectory(usize, String),
    Broken,
}

#[derive(Serialize, Deserialize)]
struct WorkspaceValue {
    tools: Vec<ToolValue>,
    /// The agents of each extension.
    extensions: Vec<Vec<Arc<Agent>>>,
    restrictions: Vec<(String, bool)>,
    rules: Vec<Rule>,
    floors: Vec<AskFloor>,
    roots: Vec<PathBuf>,
    has_store: bool,
    notices: Vec<(String, String)>,
    cwd: Option<PathBuf>,
}

impl Tape {
    /// Wraps a workspace that was opened, while a recording is made.
    ///
    /// # Errors
    /// The same as before.
    pub fn opened(
        &self,
        session: &SessionId,
        opened: Result<Workspace, Error>,
    ) -> Result<Workspace, Error> {
        let Tape::Record(recorder) = self else { return opened };
        let key = format!("open {session}");
        let workspace = match opened {
            Ok(workspace) => workspace,
            Err(err) => {
                let value = match &err {
                    Error::BadDirectory { number, why } => {
                        OpenValue::BadDirectory(*number, (*why).to_owned())
                    }
                    _ => OpenValue::Broken,
                };
                recorder.step(&key, &value);
                return Err(err);
            }
        };
        let (tools, extensions, restrictions) = workspace.toolbox.into_parts();
        let restrictions = restrictions.tools;
        let agents: Vec<Vec<Arc<Agent>>> = extensions.iter().map(|one| one.agents()).collect();
        let (rules, floors, roots, has_store) = workspace.policy.parts();
        let notices = workspace.notices.iter();
        let value = WorkspaceValue {
            tools: tools.iter().map(|tool| ToolValue::of(&**tool)).collect(),
            extensions: agents.clone(),
            restrictions: restrictions.clone(),
            rules,
            floors,
            roots,
            has_store,
            notices: notices.map(|(title, text)| ((*title).to_owned(), text.clone())).collect(),
            cwd: workspace.cwd.clone(),
        };
        recorder.step(&key, &OpenValue::Opened(Box::new(value)));
        let tools = tools.iter().map(|inner| tool::tool(self, session, inner)).collect();
        let extensions = extensions.into_iter().map(Some).zip(agents);
        let extensions = self.extensions(session, extensions);
        let toolbox = Toolbox::new(tools, extensions).restricted_to(restrictions);
        let instructions = self.instructions(session, Some(workspace.instructions));
        let files = Arc::new(self.files(session, Some(workspace.files)));
        Ok(Workspace { toolbox, instructions, files, ..workspace })
    }

    /// Opens a workspace in a replay.
    ///
    /// # Errors
    /// The same as when it was recorded.
    pub async fn open(
        &self,
        session: &SessionId,
        editor: Arc<dyn Editor>,
    ) -> Result<Workspace, Error> {
        let Tape::Play(player) = self else { return Err(Error::Broken) };
        let value = match player.step(&format!("open {session}")).await {
            OpenValue::Opened(value) => *value,
            OpenValue::BadDirectory(number, why) => {
                return Err(Error::BadDirectory { number, why: why.leak() });
            }
            OpenValue::Broken => return Err(Error::Broken),
        };
        let tools = value.tools.into_iter().map(|value| tool::played(self, session, value));
        let extensions = value.extensions.into_iter().map(|agents| (None, agents));
        let extensions = self.extensions(session, extensions);
        let toolbox = Toolbox::new(tools.collect(), extensions);
        let store = value.has_store.then(|| self.played_answers(session.as_str()));
        let policy = Policy::new(value.rules, value.roots, store).with_floors(value.floors);
        // A replay is short, so titles may stay in memory until it ends.
        let notices = value.notices.into_iter().map(|(title, text)| (&*title.leak(), text));
        Ok(Workspace {
            editor,
            files: Arc::new(self.files(session, None)),
            instructions: self.instructions(session, None),
            toolbox: toolbox.restricted_to(value.restrictions),
            policy: Arc::new(policy),
            notices: notices.collect(),
            cwd: value.cwd,
            next: NextWorkspace::default(),
        })
    }

    /// Makes the extensions of a session from the real ones, if it is recorded, and their agents.
    fn extensions(
        &self,
        session: &SessionId,
        all: impl Iterator<Item = (Option<Arc<dyn Extension>>, Vec<Arc<Agent>>)>,
    ) -> Vec<Arc<dyn Extension>> {
        let make = |(number, (inner, agents))| {
            let extension = TapedExtension::new(self, session, number, agents, inner);
            Arc::new(extension) as Arc<dyn Extension>
        };
        all.enumerate().map(make).collect()
    }

    fn instructions(
        &self,
        session: &SessionId,
        inner: Option<Arc<dyn InstructionSource>>,
    ) -> Arc<dyn InstructionSource> {
        let key = format!("instructions {session}");
        Arc::new(TapedInstructions { tape: self.clone(), key, inner })
    }

    fn files(&self, session: &SessionId, inner: Option<Arc<dyn Files>>) -> TapedFiles {
        TapedFiles { tape: self.clone(), key: format!("files {session}"), inner }
    }

    /// Checks a path of the client's files: whether it is inside the session's directories, and what it really is.
    ///
    /// # Errors
    /// What the check found.
    pub fn path(
        &self,
        session: &SessionId,
        path: &Path,
        check: impl FnOnce() -> Result<PathBuf, EditorError>,
    ) -> Result<PathBuf, EditorError> {
        let key = format!("path {session} {}", path.display());
        let checked: Result<PathBuf, EditorErrorValue> =
            self.state(&key, || match self.is_played() {
                true => Ok(path.to_owned()),
                false => check().map_err(|err| EditorErrorValue::from(&err)),
            });
        checked.map_err(EditorError::from)
    }
}

struct TapedInstructions {
    tape: Tape,
    key: String,
    inner: Option<Arc<dyn InstructionSource>>,
}

impl InstructionSource for TapedInstructions {
    fn find(&self) -> BoxFuture<'_, Instructions> {
        let work = async {
            match &self.inner {
                Some(inner) => inner.find().await,
                None => Instructions::default(),
            }
        };
        async move { self.tape.step(&self.key, work).await }.boxed()
    }

    fn find_for<'a>(&'a self, paths: &'a [PathBuf]) -> BoxFuture<'a, Vec<InstructionFile>> {
        let work = async {
            match &self.inner {
                Some(inner) => inner.find_for(paths).await,
                None => Vec::new(),
            }
        };
        async move { self.tape.step(&format!("{} {paths:?}", self.key), work).await }.boxed()
    }
}

struct TapedFiles {
    tape: Tape,
    key: String,
    inner: Option<Arc<dyn Files>>,
}

impl TapedFiles {
    fn key(&self, what: &str, path: &Path) -> String {
        let key = format!("{} {what} {}", self.key, path.display());
        format!("{key} {}", self.tape.ordinal(&key))
    }
}

/// Records or plays a use of files, whose result can be written as it is.
macro_rules! operate {
    ($this:ident, $key:ident, $editor:ident, |$inner:ident, $with:ident| $work:expr) => {
        match (&$this.tape, &$this.inner) {
            (Tape::Record(recorder), Some($inner)) => {
                let operation = Operation::new(recorder, &$key);
                let $with = recorded($editor, &operation);
                let outcome = $work.await;
                operation.done(&outcome);
                outcome
            }
            (Tape::Play(player), _) => play(player, &$key, $editor, None).await,
            (Tape::Record(_), None) => Err(FileError::Gone),
        }
    };
}

impl Files for TapedFiles {
    fn read<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, FileError>> {
        let key = self.key("read", path);
        async move { operate!(self, key, editor, |inner, with| inner.read(&with, path)) }.boxed()
    }

    fn check<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
        new: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<(), FileError>> {
        let key = self.key("check", path);
        async move { operate!(self, key, editor, |inner, with| inner.check(&with, path, new)) }
            .boxed()
    }

    fn replace<'a>(
        &'a self,
        editor: &'a dyn Editor,
        path: &'a Path,
        expected: Option<[u8; 32]>,
        new: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<(), FileError>> {
        let key = self.key("replace", path);
        async move {
            operate!(self, key, editor, |inner, with| inner.replace(&with, path, expected, new))
        }
        .boxed()
    }
}
