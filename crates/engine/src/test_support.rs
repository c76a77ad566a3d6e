//! Stand-ins for ports in tests: no files, an editor that records what it is shown, a turn for a single tool.
//!
//! Only with the feature `test-support`, which our other crates enable for their tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use tokio::sync::Notify;

use crate::ports::{
    ChildTask, Denied, DisplayPermit, Editor, EditorError, Event, FileError, Files, Form,
    FormAnswer, Offers, Output, Page, Severity, TerminalCommand, TerminalOutput, ToolCx, ToolError,
    ToolHost,
};
use crate::words::{
    Access, Answer, Decision, ExitStatus, PermissionKey, Question, TerminalId, ToolCall,
};

/// No files at all. For sessions without undo.
#[derive(Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read<'a>(
        &'a self,
        _: &'a dyn Editor,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, FileError>> {
        future::ready(Err(FileError::Outside(path.to_owned()))).boxed()
    }

    fn check<'a>(
        &'a self,
        _: &'a dyn Editor,
        path: &'a Path,
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<(), FileError>> {
        future::ready(Err(FileError::Outside(path.to_owned()))).boxed()
    }

    fn replace<'a>(
        &'a self,
        _: &'a dyn Editor,
        path: &'a Path,
        _: Option<[u8; 32]>,
        _: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<(), FileError>> {
        future::ready(Err(FileError::Outside(path.to_owned()))).boxed()
    }
}

/// An editor for tests. It records what it is shown and asked. Calls without a set answer return [`EditorError::Gone`].
pub struct StubEditor {
    offers: Offers,
    answer: Mutex<Option<Answer>>,
    form_answer: Mutex<Option<FormAnswer>>,
    events: Arc<Mutex<Vec<Event>>>,
    questions: Mutex<Vec<Question>>,
    forms: Mutex<Vec<Form>>,
    /// How many more events there is room for.
    room: AtomicUsize,
    is_full: Notify,
}

impl Default for StubEditor {
    fn default() -> StubEditor {
        StubEditor::with_room_for(usize::MAX)
    }
}

impl StubEditor {
    /// Makes an editor that takes this many events; then it waits forever.
    #[must_use]
    pub fn with_room_for(events: usize) -> StubEditor {
        StubEditor {
            offers: Offers::default(),
            answer: Mutex::default(),
            form_answer: Mutex::default(),
            events: Arc::default(),
            questions: Mutex::default(),
            forms: Mutex::default(),
            room: AtomicUsize::new(events),
            is_full: Notify::new(),
        }
    }

    /// Sets what the client supports.
    #[must_use]
    pub fn with_offers(self, offers: Offers) -> StubEditor {
        StubEditor { offers, ..self }
    }

    /// Sets the answer to permission requests.
    pub fn set_answer(&self, answer: Answer) {
        *lock(&self.answer) = Some(answer);
    }

    /// Sets the answer to forms.
    pub fn set_form_answer(&self, answer: FormAnswer) {
        *lock(&self.form_answer) = Some(answer);
    }

    /// Returns the events that were shown.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }

    /// Forgets the events that were shown.
    pub fn clear_events(&self) {
        lock(&self.events).clear();
    }

    /// Returns the permission requests.
    #[must_use]
    pub fn questions(&self) -> Vec<Question> {
        lock(&self.questions).clone()
    }

    /// Returns the forms.
    #[must_use]
    pub fn forms(&self) -> Vec<Form> {
        lock(&self.forms).clone()
    }

    /// Waits until an event finds no room.
    pub async fn is_full(&self) {
        self.is_full.notified().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the stub answers to everything else.
fn gone<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, EditorError>> {
    future::ready(Err(EditorError::Gone)).boxed()
}

impl Editor for StubEditor {
    fn reserve<'a>(&'a self, _: &'a Event) -> BoxFuture<'a, Option<DisplayPermit>> {
        async {
            let left = |room: usize| room.checked_sub(1);
            if self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err() {
                self.is_full.notify_one();
                future::pending::<()>().await;
            }
            let events = Arc::clone(&self.events);
            Some(Box::new(move |event, _| lock(&events).push(event)) as DisplayPermit)
        }
        .boxed()
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn ask_permission(&self, question: Question) -> BoxFuture<'_, Result<Answer, EditorError>> {
        lock(&self.questions).push(question);
        let answer = *lock(&self.answer);
        future::ready(answer.ok_or(EditorError::Gone)).boxed()
    }

    fn read_text_file(
        &self,
        _: PathBuf,
        _: Option<u32>,
        _: Option<u32>,
    ) -> BoxFuture<'_, Result<String, EditorError>> {
        gone()
    }

    fn write_text_file<'a>(
        &'a self,
        _: &'a Path,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), EditorError>> {
        gone()
    }

    fn create_terminal(
        &self,
        _: TerminalCommand,
    ) -> BoxFuture<'_, Result<TerminalId, EditorError>> {
        gone()
    }

    fn terminal_output(&self, _: TerminalId) -> BoxFuture<'_, Result<TerminalOutput, EditorError>> {
        gone()
    }

    fn wait_for_exit(&self, _: TerminalId) -> BoxFuture<'_, Result<ExitStatus, EditorError>> {
        gone()
    }

    fn kill_terminal(&self, _: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        gone()
    }

    fn release_terminal(&self, _: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        gone()
    }

    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, EditorError>> {
        lock(&self.forms).push(form);
        let answer = lock(&self.form_answer).clone();
        future::ready(answer.ok_or(EditorError::Gone)).boxed()
    }

    fn page_done(&self, _: &Page) -> BoxFuture<'_, ()> {
        future::ready(()).boxed()
    }
}

/// A turn for a tool that is tested alone: events are shown without a journal, nothing is denied, no task can be given.
pub struct NoTurn<'a>(pub &'a dyn Editor);

impl ToolHost for NoTurn<'_> {
    fn result_limit(&self) -> usize {
        usize::MAX
    }

    fn sees_pictures(&self) -> bool {
        true
    }

    fn denied(&self, _: &PermissionKey) -> Arc<dyn Denied> {
        Arc::new(NothingDenied)
    }

    fn show(&self, event: Event) -> BoxFuture<'_, Result<(), ToolError>> {
        async move {
            self.0.show(event).await;
            Ok(())
        }
        .boxed()
    }

    fn warn<'a>(
        &'a self,
        title: &'a str,
        description: Option<String>,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        let title = title.to_owned();
        self.show(Event::Notice { severity: Severity::Warning, title, description })
    }

    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, ToolError>> {
        async move { Ok(self.0.elicit(form).await?) }.boxed()
    }

    fn require<'a>(
        &'a self,
        _: ToolCall,
        access: &'a [Access],
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        let refused = access.iter().find(|access| access.default == Decision::Reject);
        let refused = refused.map(|access| ToolError::Model(access.words()));
        future::ready(refused.map_or(Ok(()), Err)).boxed()
    }

    fn confirm(&self, question: Question) -> BoxFuture<'_, Result<Answer, ToolError>> {
        async move { Ok(self.0.ask_permission(question).await?) }.boxed()
    }

    fn set_mode<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, ToolError>> {
        future::ready(Ok(false)).boxed()
    }

    fn run_child<'a>(
        &'a self,
        _: &'a ToolCx<'a>,
        _: ChildTask,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        future::ready(Err(ToolError::Model("tasks need a turn".to_owned()))).boxed()
    }
}

struct NothingDenied;

impl Denied for NothingDenied {
    fn is_empty(&self) -> bool {
        true
    }

    fn has(&self, _: &Access) -> bool {
        false
    }
}
