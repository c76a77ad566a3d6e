//! Acts: what a tool, an extension or the journal does with the client and the turn while it works.
//!
//! The client's answers to them are in the recording anyway, as its lines; so a replay repeats each act at its place and
//! lets the engine and the client's lines do the rest. What the work returned at the end is written too.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::Event;
use engine::permission::{Access, Answer, PermissionKey, Question};
use engine::ports::{
    ChildTask, Denied, DisplayPermit, Editor, EditorError, Form, FormAnswer, Offers, Output, Page,
    TerminalCommand, TerminalOutput, ToolCx, ToolError, ToolHost,
};
use engine::words::{ExitStatus, TerminalId, ToolCall, ToolFailure};
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::player::Player;
use crate::recorder::Recorder;

/// Something that is done with the client or the turn.
#[derive(Serialize, Deserialize)]
pub(crate) enum Act {
    EditorShow(Event),
    AskPermission(Question),
    Read(PathBuf, Option<u32>, Option<u32>),
    Write(PathBuf, String),
    CreateTerminal(TerminalCommand),
    TerminalOutput(TerminalId),
    WaitForExit(TerminalId),
    KillTerminal(TerminalId),
    ReleaseTerminal(TerminalId),
    EditorElicit(Form),
    PageDone(Page),
    Show(Event),
    Warn(String, Option<String>),
    Elicit(Form),
    Require(ToolCall, Vec<Access>),
    Confirm(Question),
    SetMode(String),
}

/// One entry of an operation.
#[derive(Serialize, Deserialize)]
enum Entry<T> {
    /// An act begins; it has this number.
    Act(u64, Box<Act>),
    /// An act was given up before it ended.
    Dropped(u64),
    /// The operation ended with this result.
    Done(T),
}

/// An operation that is recorded. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Operation {
    recorder: Arc<Recorder>,
    key: Arc<str>,
    acts: Arc<AtomicU64>,
}

impl Operation {
    pub(crate) fn new(recorder: &Arc<Recorder>, key: &str) -> Operation {
        Operation { recorder: Arc::clone(recorder), key: key.into(), acts: Arc::default() }
    }

    /// Writes the result.
    pub(crate) fn done(&self, result: &impl Serialize) {
        self.recorder.step(&self.key, &Entry::Done(result));
    }

    /// Does an act: writes it when it begins, and when it is given up.
    fn act<'a, T: Send + 'a>(&self, act: Act, work: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        let this = self.clone();
        async move {
            let number = this.acts.fetch_add(1, Ordering::Relaxed);
            this.recorder.step(&this.key, &Entry::<()>::Act(number, Box::new(act)));
            let mut guard = Guard { of: Some(&this), number };
            let outcome = work.await;
            guard.of = None;
            outcome
        }
        .boxed()
    }
}

/// Writes that an act was given up.
struct Guard<'a> {
    of: Option<&'a Operation>,
    number: u64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(of) = self.of {
            of.recorder.step(&of.key, &Entry::<()>::Dropped(self.number));
        }
    }
}

/// Plays an operation: repeats its acts, and returns its result.
pub(crate) async fn play<T: DeserializeOwned>(
    player: &Player,
    key: &str,
    editor: &dyn Editor,
    host: Option<&dyn ToolHost>,
) -> T {
    let mut running = FuturesUnordered::new();
    let mut handles: HashMap<u64, AbortHandle> = HashMap::new();
    loop {
        let entry: Entry<T> = tokio::select! {
            biased;
            Some(_) = running.next() => continue,
            entry = player.step(key) => entry,
        };
        match entry {
            Entry::Act(number, act) => {
                let (handle, registration) = AbortHandle::new_pair();
                handles.insert(number, handle);
                running.push(Abortable::new(repeat(*act, editor, host), registration));
            }
            Entry::Dropped(number) => {
                if let Some(handle) = handles.remove(&number) {
                    handle.abort();
                }
            }
            Entry::Done(result) => return result,
        }
    }
}

/// Repeats an act. Its outcome went into the result of the operation, so it is not used.
fn repeat<'a>(
    act: Act,
    editor: &'a dyn Editor,
    host: Option<&'a dyn ToolHost>,
) -> BoxFuture<'a, ()> {
    async move {
        match (act, host) {
            (Act::EditorShow(event), _) => editor.show(event).await,
            (Act::AskPermission(question), _) => drop(editor.ask_permission(question).await),
            (Act::Read(path, line, limit), _) => {
                drop(editor.read_text_file(path, line, limit).await);
            }
            (Act::Write(path, content), _) => drop(editor.write_text_file(&path, &content).await),
            (Act::CreateTerminal(command), _) => drop(editor.create_terminal(command).await),
            (Act::TerminalOutput(id), _) => drop(editor.terminal_output(id).await),
            (Act::WaitForExit(id), _) => drop(editor.wait_for_exit(id).await),
            (Act::KillTerminal(id), _) => drop(editor.kill_terminal(id).await),
            (Act::ReleaseTerminal(id), _) => drop(editor.release_terminal(id).await),
            (Act::EditorElicit(form), _) => drop(editor.elicit(form).await),
            (Act::PageDone(page), _) => editor.page_done(&page).await,
            (Act::Show(event), Some(host)) => drop(host.show(event).await),
            (Act::Warn(title, text), Some(host)) => drop(host.warn(&title, text).await),
            (Act::Elicit(form), Some(host)) => drop(host.elicit(form).await),
            (Act::Require(call, access), Some(host)) => drop(host.require(call, &access).await),
            (Act::Confirm(question), Some(host)) => drop(host.confirm(question).await),
            (Act::SetMode(id), Some(host)) => drop(host.set_mode(&id).await),
            (_, None) => {}
        }
    }
    .boxed()
}

/// An editor whose use is recorded.
pub(crate) struct RecordedEditor<E> {
    pub(crate) inner: E,
    pub(crate) operation: Operation,
}

/// Makes an operation's editor of a borrowed one.
pub(crate) fn recorded<'a>(
    inner: &'a dyn Editor,
    operation: &Operation,
) -> RecordedEditor<&'a dyn Editor> {
    RecordedEditor { inner, operation: operation.clone() }
}

/// A borrowed or a shared editor.
pub(crate) trait HasEditor: Send + Sync {
    fn editor(&self) -> &dyn Editor;
}

impl HasEditor for &dyn Editor {
    fn editor(&self) -> &dyn Editor {
        *self
    }
}

impl HasEditor for Arc<dyn Editor> {
    fn editor(&self) -> &dyn Editor {
        &**self
    }
}

impl<E: HasEditor> Editor for RecordedEditor<E> {
    fn reserve<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Option<DisplayPermit>> {
        self.operation.act(Act::EditorShow(event.clone()), self.inner.editor().reserve(event))
    }

    fn offers(&self) -> Offers {
        self.inner.editor().offers()
    }

    fn raw_failure(&self, failure: ToolFailure) -> Option<Value> {
        self.inner.editor().raw_failure(failure)
    }

    fn ask_permission(&self, question: Question) -> BoxFuture<'_, Result<Answer, EditorError>> {
        let act = Act::AskPermission(question.clone());
        self.operation.act(act, self.inner.editor().ask_permission(question))
    }

    fn read_text_file(
        &self,
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> BoxFuture<'_, Result<String, EditorError>> {
        let act = Act::Read(path.clone(), line, limit);
        self.operation.act(act, self.inner.editor().read_text_file(path, line, limit))
    }

    fn write_text_file<'a>(
        &'a self,
        path: &'a Path,
        content: &'a str,
    ) -> BoxFuture<'a, Result<(), EditorError>> {
        let act = Act::Write(path.to_owned(), content.to_owned());
        self.operation.act(act, self.inner.editor().write_text_file(path, content))
    }

    fn create_terminal(
        &self,
        command: TerminalCommand,
    ) -> BoxFuture<'_, Result<TerminalId, EditorError>> {
        let act = Act::CreateTerminal(command.clone());
        self.operation.act(act, self.inner.editor().create_terminal(command))
    }

    fn terminal_output(
        &self,
        terminal: TerminalId,
    ) -> BoxFuture<'_, Result<TerminalOutput, EditorError>> {
        let act = Act::TerminalOutput(terminal.clone());
        self.operation.act(act, self.inner.editor().terminal_output(terminal))
    }

    fn wait_for_exit(
        &self,
        terminal: TerminalId,
    ) -> BoxFuture<'_, Result<ExitStatus, EditorError>> {
        let act = Act::WaitForExit(terminal.clone());
        self.operation.act(act, self.inner.editor().wait_for_exit(terminal))
    }

    fn kill_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        let act = Act::KillTerminal(terminal.clone());
        self.operation.act(act, self.inner.editor().kill_terminal(terminal))
    }

    fn release_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        let act = Act::ReleaseTerminal(terminal.clone());
        self.operation.act(act, self.inner.editor().release_terminal(terminal))
    }

    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, EditorError>> {
        self.operation.act(Act::EditorElicit(form.clone()), self.inner.editor().elicit(form))
    }

    fn page_done(&self, page: &Page) -> BoxFuture<'_, ()> {
        self.operation.act(Act::PageDone(page.clone()), self.inner.editor().page_done(page))
    }
}

/// A turn whose use by a tool is recorded.
pub(crate) struct RecordedHost<'a> {
    pub(crate) inner: &'a dyn ToolHost,
    pub(crate) operation: Operation,
}

impl ToolHost for RecordedHost<'_> {
    fn result_limit(&self) -> usize {
        self.inner.result_limit()
    }

    fn sees_pictures(&self) -> bool {
        self.inner.sees_pictures()
    }

    fn denied(&self, key: &PermissionKey) -> Arc<dyn Denied> {
        self.inner.denied(key)
    }

    fn allows(&self, access: &[Access]) -> bool {
        self.inner.allows(access)
    }

    fn show(&self, event: Event) -> BoxFuture<'_, Result<(), ToolError>> {
        self.operation.act(Act::Show(event.clone()), self.inner.show(event))
    }

    fn warn<'a>(
        &'a self,
        title: &'a str,
        description: Option<String>,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        let act = Act::Warn(title.to_owned(), description.clone());
        self.operation.act(act, self.inner.warn(title, description))
    }

    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, ToolError>> {
        self.operation.act(Act::Elicit(form.clone()), self.inner.elicit(form))
    }

    fn require<'a>(
        &'a self,
        call: ToolCall,
        access: &'a [Access],
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        let act = Act::Require(call.clone(), access.to_vec());
        self.operation.act(act, self.inner.require(call, access))
    }

    fn confirm(&self, question: Question) -> BoxFuture<'_, Result<Answer, ToolError>> {
        self.operation.act(Act::Confirm(question.clone()), self.inner.confirm(question))
    }

    fn set_mode<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, ToolError>> {
        self.operation.act(Act::SetMode(id.to_owned()), self.inner.set_mode(id))
    }

    /// The tool that starts agents is the engine's own, which is not wrapped.
    fn run_child<'a>(
        &'a self,
        cx: &'a ToolCx<'a>,
        task: ChildTask,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        self.inner.run_child(cx, task)
    }
}
