//! A client that records what it is shown and gives prepared answers.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use engine::Event;
use engine::permission::{Answer, Question};
use engine::ports::*;
use engine::words::{TerminalId, ToolCall};
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serde_json::json;

/// A recording client.
#[derive(Default)]
pub(crate) struct Noting {
    pub(crate) events: Mutex<Vec<Event>>,
    pub(crate) asked: Mutex<Vec<ToolCall>>,
    pub(crate) forms: Mutex<Vec<Form>>,
    pub(crate) answer: Mutex<Option<Answer>>,
    pub(crate) shows_no_notices: bool,
}

fn no<T: Send + 'static>() -> BoxFuture<'static, Result<T, EditorError>> {
    future::ready(Err(EditorError::Gone)).boxed()
}

impl Editor for Noting {
    fn make_room<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Option<Show>> {
        self.events.lock().unwrap().push(event.clone());
        future::ready(None).boxed()
    }

    fn offers(&self) -> Offers {
        Offers { form: true, page: true, notices: !self.shows_no_notices, ..Offers::default() }
    }

    fn ask_permission(&self, question: Question) -> BoxFuture<'_, Result<Answer, EditorError>> {
        self.asked.lock().unwrap().push(question.call);
        let answer = self.answer.lock().unwrap().unwrap_or(Answer::AllowOnce);
        future::ready(Ok(answer)).boxed()
    }

    fn read_text_file(
        &self,
        _: PathBuf,
        _: Option<u32>,
        _: Option<u32>,
    ) -> BoxFuture<'_, Result<String, EditorError>> {
        no()
    }

    fn write_text_file<'a>(
        &'a self,
        _: &'a Path,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), EditorError>> {
        no()
    }

    fn create_terminal(
        &self,
        _: TerminalCommand,
    ) -> BoxFuture<'_, Result<TerminalId, EditorError>> {
        no()
    }

    fn terminal_output(&self, _: TerminalId) -> BoxFuture<'_, Result<TerminalOutput, EditorError>> {
        no()
    }

    fn wait_for_exit(&self, _: TerminalId) -> BoxFuture<'_, Result<ExitStatus, EditorError>> {
        no()
    }

    fn kill_terminal(&self, _: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        no()
    }

    fn release_terminal(&self, _: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        no()
    }

    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, EditorError>> {
        self.forms.lock().unwrap().push(form);
        let fields = json!({ "name": "Ada", "age": 36 }).as_object().cloned().unwrap();
        future::ready(Ok(FormAnswer::Fields(fields))).boxed()
    }

    fn page_done(&self, _: &Page) -> BoxFuture<'_, ()> {
        future::ready(()).boxed()
    }
}
