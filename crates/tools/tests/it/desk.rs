//! A temporary session: a working directory, its tools, and a client with or without file access.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use engine::Event;
use engine::permission::{Access, Answer, Decision, PermissionKey, Question};
use engine::ports::SpanScope;
use engine::ports::{
    DisplayPermit, Editor, EditorError, Form, FormAnswer, Intent, NoJournal, Offers, Page,
    TerminalCommand, TerminalOutput, Tool, ToolCx,
};
use engine::test_support::NoTurn;
use engine::words::{ExitStatus, SessionId, TerminalId, ToolCallId};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tools::Files;
use tools::scope::Scope;

/// The result of a call.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Done(String),
    Failed(String),
    /// It needs permission for more than an edit inside.
    Asked(Vec<Access>),
}

impl Outcome {
    #[track_caller]
    pub(crate) fn done(self) -> String {
        match self {
            Outcome::Done(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn failed(self) -> String {
        match self {
            Outcome::Failed(why) => why,
            other => panic!("{other:?}"),
        }
    }
}

/// A session's tools in a temporary directory.
pub(crate) struct Desk {
    /// Contains the working directory `w` and what is outside of it.
    pub(crate) top: PathBuf,
    pub(crate) client: Client,
    /// As undo, redo and rewind use them.
    pub(crate) files: Arc<Files>,
    tools: Vec<Arc<dyn Tool>>,
    calls: AtomicUsize,
    _removed_on_drop: TempDir,
    /// Whether access outside is allowed.
    pub(crate) goes_out: bool,
}

impl Desk {
    /// Makes a desk whose client offers no files.
    pub(crate) fn new() -> Desk {
        Desk::with(Client::default())
    }

    pub(crate) fn with(client: Client) -> Desk {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("w")).unwrap();
        // Purlin's own directory, inside the working directory.
        let files = Arc::new(Files::new(
            Scope::new(vec![top.join("w")])
                .without(&[top.join("w/own")])
                .with_hidden(Arc::new([
                    top.join("w/.kube"),
                    top.join("w/.history"),
                    top.join(".none"),
                ]))
                .with_outputs(Some(top.join("outputs/s"))),
        ));
        let tools = tools::all(&files);
        Desk {
            top,
            client,
            files,
            tools,
            calls: AtomicUsize::new(0),
            goes_out: false,
            _removed_on_drop: directory,
        }
    }

    /// Returns a path in the working directory.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.top.join("w").join(path)
    }

    pub(crate) fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.at(path)).unwrap()
    }

    /// Makes a call as a turn does: plans it, then runs it if it needs no permission beyond an edit inside.
    pub(crate) async fn call(&self, tool: &str, input: Value) -> Outcome {
        self.call_after(tool, input, |_| {}).await
    }

    /// Makes a call, and runs `between` after the plan, as while the user is asked.
    pub(crate) async fn call_after(
        &self,
        tool: &str,
        input: Value,
        between: impl FnOnce(&Intent),
    ) -> Outcome {
        let tool = self.tools.iter().find(|known| known.spec().name == tool).unwrap();
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let (id, session) = (ToolCallId::new(format!("t{number}")), SessionId::new("s"));
        let (cancel, journal) = (CancellationToken::new(), NoJournal);
        let cwd = self.top.join("w");
        let cx = ToolCx {
            id: &id,
            cwd: &cwd,
            editor: &self.client,
            cancel: &cancel,
            session: &session,
            journal: &journal,
            turn: &NoTurn(&self.client),
            spans: SpanScope::default(),
        };
        let (intent, planned) = match Arc::clone(tool).plan(&cx, &input).await {
            Ok(planned) => planned,
            Err(err) => return Outcome::Failed(err.to_string()),
        };
        let open = |access: &&Access| {
            access.default != Decision::Allow && access.key != PermissionKey::Edit && !self.goes_out
        };
        let asked: Vec<Access> = intent.access.iter().filter(open).cloned().collect();
        if !asked.is_empty() {
            return Outcome::Asked(asked);
        }
        between(&intent);
        match planned.run(&cx).await {
            Ok(output) => Outcome::Done(output.text),
            Err(err) => Outcome::Failed(err.to_string()),
        }
    }
}

/// A client that serves files from memory, as an editor serves its buffers. `engine::test_support::StubEditor` answers no file
/// requests, and these tests also count them.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) offers: Offers,
    /// Announces the methods but does not support them.
    pub(crate) is_incomplete: bool,
    /// Answers with an empty text for a file that it does not have, as several editors do.
    pub(crate) has_empty_for_missing: bool,
    pub(crate) buffers: Mutex<HashMap<PathBuf, String>>,
    pub(crate) reads: AtomicUsize,
    pub(crate) writes: AtomicUsize,
}

impl Client {
    pub(crate) fn with_files() -> Client {
        let offers = Offers { read: true, write: true, ..Offers::default() };
        Client { offers, ..Client::default() }
    }

    pub(crate) fn open(&self, path: &Path, text: &str) {
        self.buffers.lock().unwrap().insert(path.to_owned(), text.to_owned());
    }

    pub(crate) fn buffer(&self, path: &Path) -> Option<String> {
        self.buffers.lock().unwrap().get(path).cloned()
    }
}

fn not_offered<T: Send + 'static>() -> BoxFuture<'static, Result<T, EditorError>> {
    ready(Err(EditorError::NotOffered("this"))).boxed()
}

impl Editor for Client {
    fn reserve<'a>(&'a self, _: &'a Event) -> BoxFuture<'a, Option<DisplayPermit>> {
        ready(None).boxed()
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn ask_permission(&self, _: Question) -> BoxFuture<'_, Result<Answer, EditorError>> {
        not_offered()
    }

    fn read_text_file(
        &self,
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> BoxFuture<'_, Result<String, EditorError>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.is_incomplete {
            return not_offered();
        }
        let text = self.buffer(&path).map(|text| {
            let lines = text.split_inclusive('\n').skip(line.unwrap_or(1).max(1) as usize - 1);
            lines.take(limit.map_or(usize::MAX, |limit| limit as usize)).collect()
        });
        let text = text.or(self.has_empty_for_missing.then(String::new));
        ready(text.ok_or(EditorError::FileNotFound(path))).boxed()
    }

    fn write_text_file<'a>(
        &'a self,
        path: &'a Path,
        content: &'a str,
    ) -> BoxFuture<'a, Result<(), EditorError>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if self.is_incomplete {
            return not_offered();
        }
        self.buffers.lock().unwrap().insert(path.to_owned(), content.to_owned());
        ready(Ok(())).boxed()
    }

    fn create_terminal(
        &self,
        _: TerminalCommand,
    ) -> BoxFuture<'_, Result<TerminalId, EditorError>> {
        not_offered()
    }

    fn terminal_output(&self, _: TerminalId) -> BoxFuture<'_, Result<TerminalOutput, EditorError>> {
        not_offered()
    }

    fn wait_for_exit(&self, _: TerminalId) -> BoxFuture<'_, Result<ExitStatus, EditorError>> {
        not_offered()
    }

    fn kill_terminal(&self, _: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        not_offered()
    }

    fn release_terminal(&self, _: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        not_offered()
    }

    fn elicit(&self, _: Form) -> BoxFuture<'_, Result<FormAnswer, EditorError>> {
        not_offered()
    }

    fn page_done(&self, _: &Page) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}
