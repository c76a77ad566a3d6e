//! The client of a shared session: whichever connection is attached to it.
//!
//! Events go to the stage, so they never wait for a client. Calls go to the connection that wrote last; while there is
//! none, they wait for one. A call whose connection ends is made again on the next one, unless it may have changed
//! something.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::Event;
use engine::permission::{Answer, Question};
use engine::ports::{
    DisplayPermit, Editor, EditorError, Form, FormAnswer, Offers, Page, TerminalCommand,
    TerminalOutput,
};
use engine::words::{ExitStatus, TerminalId, ToolFailure};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::stage::Stage;
use crate::bridge::editor::AcpEditor;
use crate::bridge::size;
use crate::error_table::tool_failure_code;
use crate::outbox::SESSION_BUDGET;

/// How long a call for a file or a terminal waits for a connection.
const RECONNECT: Duration = Duration::from_secs(120);

/// The client of a shared session.
pub(crate) struct SharedEditor {
    stage: Arc<Stage>,
}

impl SharedEditor {
    pub(crate) fn new(stage: Arc<Stage>) -> SharedEditor {
        SharedEditor { stage }
    }

    async fn writer(&self) -> Result<Arc<AcpEditor>, EditorError> {
        timeout(RECONNECT, self.stage.writer()).await.map_err(|_| EditorError::Gone)
    }
}

/// Makes a call on one connection after the other until one answers it.
macro_rules! until_answered {
    ($self:ident, $editor:ident => $call:expr) => {
        async move {
            loop {
                let $editor = $self.writer().await?;
                match $call.await {
                    Err(EditorError::Gone) => tokio::task::yield_now().await,
                    answer => return answer,
                }
            }
        }
        .boxed()
    };
}

impl Editor for SharedEditor {
    fn reserve<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Option<DisplayPermit>> {
        async move {
            let cost = size::weight(event).min(SESSION_BUDGET);
            let permits = u32::try_from(cost).ok()?;
            let room = self.stage.in_flight().acquire_many_owned(permits).await.ok()?;
            let stage = Arc::clone(&self.stage);
            let show: DisplayPermit = Box::new(move |event, place| {
                stage.show(event, place);
                drop(room);
            });
            Some(show)
        }
        .boxed()
    }

    fn offers(&self) -> Offers {
        self.stage.offers()
    }

    fn raw_failure(&self, failure: ToolFailure) -> Option<Value> {
        Some(json!({ "code": tool_failure_code(failure) }))
    }

    /// Waits without end while nobody is attached: the question is asked again on the next connection.
    fn ask_permission(&self, question: Question) -> BoxFuture<'_, Result<Answer, EditorError>> {
        async move {
            loop {
                let editor = self.stage.writer().await;
                match editor.ask_permission(question.clone()).await {
                    Err(EditorError::Gone) => tokio::task::yield_now().await,
                    answer => return answer,
                }
            }
        }
        .boxed()
    }

    fn read_text_file(
        &self,
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> BoxFuture<'_, Result<String, EditorError>> {
        until_answered!(self, editor => editor.read_text_file(path.clone(), line, limit))
    }

    fn write_text_file<'a>(
        &'a self,
        path: &'a Path,
        content: &'a str,
    ) -> BoxFuture<'a, Result<(), EditorError>> {
        async move { self.writer().await?.write_text_file(path, content).await }.boxed()
    }

    fn create_terminal(
        &self,
        command: TerminalCommand,
    ) -> BoxFuture<'_, Result<TerminalId, EditorError>> {
        async move { self.writer().await?.create_terminal(command).await }.boxed()
    }

    fn terminal_output(
        &self,
        terminal: TerminalId,
    ) -> BoxFuture<'_, Result<TerminalOutput, EditorError>> {
        until_answered!(self, editor => editor.terminal_output(terminal.clone()))
    }

    fn wait_for_exit(
        &self,
        terminal: TerminalId,
    ) -> BoxFuture<'_, Result<ExitStatus, EditorError>> {
        until_answered!(self, editor => editor.wait_for_exit(terminal.clone()))
    }

    fn kill_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        until_answered!(self, editor => editor.kill_terminal(terminal.clone()))
    }

    fn release_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        until_answered!(self, editor => editor.release_terminal(terminal.clone()))
    }

    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, EditorError>> {
        until_answered!(self, editor => editor.elicit(form.clone()))
    }

    fn page_done(&self, page: &Page) -> BoxFuture<'_, ()> {
        let page = page.clone();
        async move {
            if let Ok(editor) = self.writer().await {
                editor.page_done(&page).await;
            }
        }
        .boxed()
    }
}
