//! The client for the engine: shows events and asks for files, terminals and permission, with limits and time-outs.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::Event;
use engine::permission::{Answer, Choice, Question};
use engine::ports::{
    DisplayPermit, Editor, EditorError, Form, FormAnswer, Offers, Page, TerminalCommand,
    TerminalOutput,
};
use engine::words::{ExitStatus, SessionId, TerminalId, ToolFailure};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use recording::Tape;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use settings::limits::{Limits, lasting};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tools::scope::Scope;
use wire::acp::files::write_params;
use wire::acp::schema;
use wire::{Code, RpcError, rpc};

use super::call::CallOut;
use super::{fit, size};
use crate::client_call::ClientCall;
use crate::error_table::{editor_error, exceeded_limit, tool_failure_code};
use crate::outbox::SESSION_BUDGET;
use crate::outlet::{FromSession, Outlet};
use crate::rate::Window;

/// Which files may be read and written through the client.
pub(crate) struct Paths {
    pub(crate) scope: Scope,
    pub(crate) tape: Option<Tape>,
}

impl Paths {
    fn check(&self, session: &SessionId, path: &Path) -> Result<PathBuf, EditorError> {
        match &self.tape {
            Some(tape) => tape.path(session, path, || self.scope.check(path)),
            None => self.scope.check(path),
        }
    }
}

/// The client of one session.
pub(crate) struct AcpEditor {
    session: SessionId,
    outlet: Outlet,
    budget: Arc<Semaphore>,
    offers: Offers,
    limits: Arc<Limits>,
    paths: Paths,
    /// How long to wait for the answer to a permission request; `None` waits without end.
    permission_timeout: Option<Duration>,
    reads: Mutex<Window>,
    writes: Mutex<Window>,
}

impl AcpEditor {
    pub(crate) fn new(
        session: SessionId,
        outlet: Outlet,
        budget: Arc<Semaphore>,
        offers: Offers,
        limits: Arc<Limits>,
        paths: Paths,
        permission_timeout: Option<Duration>,
    ) -> AcpEditor {
        AcpEditor {
            session,
            outlet,
            budget,
            offers,
            paths,
            permission_timeout,
            reads: Mutex::new(Window::new(limits.reads_per_minute)),
            writes: Mutex::new(Window::new(limits.writes_per_minute)),
            limits,
        }
    }

    /// Reserves room in the budgets of the session and the connection.
    async fn take_room(&self, bytes: usize) -> Option<Room> {
        let cost = bytes.min(SESSION_BUDGET);
        let permits = u32::try_from(cost).ok()?;
        let of_session = Arc::clone(&self.budget).acquire_many_owned(permits).await.ok()?;
        let of_all = Arc::clone(&self.outlet.total).acquire_many_owned(permits).await.ok()?;
        Some(Room { cost, of_session, of_all })
    }

    /// Sends a message behind earlier ones of this session. Waits while the client is slow.
    async fn send(&self, bytes: usize, what: impl FnOnce(SessionId, usize) -> FromSession) {
        let Some(room) = self.take_room(bytes).await else {
            return;
        };
        match self.outlet.to_dispatcher.reserve().await {
            Ok(place) => place.send(what(self.session.clone(), room.spend())),
            Err(_) => tracing::debug!(session = %self.session, "the client is gone"),
        }
    }

    /// Calls the client and waits for its answer. Dropping the future tells the client to stop.
    async fn call<T: DeserializeOwned + Send + 'static>(
        &self,
        method: &'static str,
        params: &(impl Serialize + Sync),
    ) -> Result<T, CallError> {
        self.call_raw(method, to_raw_value(params)).await
    }

    /// Calls the client with serialised parameters.
    async fn call_raw<T: DeserializeOwned + Send + 'static>(
        &self,
        method: &'static str,
        params: serde_json::Result<Box<RawValue>>,
    ) -> Result<T, CallError> {
        let params = params.map_err(|err| CallError::Unwritable(err.to_string()))?;
        let room = self.take_room(params.get().len() + 64).await.ok_or(CallError::Gone)?;
        let permit = self.outlet.abandoned.clone().reserve_owned().await;
        let permit = permit.map_err(|_| CallError::Gone)?;
        let number = self.outlet.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        let call = ClientCall {
            number,
            method,
            params,
            // A caller that is gone needs no answer.
            answer: Box::new(move |outcome| {
                drop(sender.send(outcome.and_then(wire::acp::read_answer)))
            }),
        };
        let place = self.outlet.to_dispatcher.reserve().await.map_err(|_| CallError::Gone)?;
        place.send(FromSession::Call { session: self.session.clone(), call, cost: room.spend() });
        let mut guard = Abandon { permit: Some(permit), number };
        let outcome = answer.await;
        guard.permit = None;
        outcome.map_err(|_| CallError::Gone)?.map_err(CallError::Answered)
    }

    async fn call_in_time<T: DeserializeOwned + Send + 'static>(
        &self,
        method: &'static str,
        params: &(impl Serialize + Sync),
        seconds: u64,
    ) -> Result<T, EditorError> {
        match timeout(lasting(seconds), self.call(method, params)).await {
            Ok(outcome) => outcome.map_err(|err| err.into_editor(None)),
            Err(_) => Err(EditorError::TimedOut { call: method, advice: None }),
        }
    }

    /// Calls with a time-out, and once more if it expires, for calls that may be repeated.
    async fn call_twice<T: DeserializeOwned + Send + 'static>(
        &self,
        method: &'static str,
        params: impl Fn() -> serde_json::Result<Box<RawValue>>,
        seconds: u64,
        path: &Path,
    ) -> Result<T, EditorError> {
        for _ in 0..2 {
            let call = self.call_raw(method, params());
            if let Ok(outcome) = timeout(lasting(seconds), call).await {
                return outcome.map_err(|err| err.into_editor(Some(path)));
            }
            tracing::warn!(session = %self.session, method, "the client did not answer in time");
        }
        Err(EditorError::TimedOut { call: method, advice: None })
    }

    /// Asks for permission, with less and less of the call until the request fits.
    async fn ask_within_limits(
        &self,
        question: &Question,
    ) -> Result<schema::RequestPermissionResponse, CallError> {
        let mut room = usize::MAX;
        let mut shortened = None;
        loop {
            let params = PermissionParams {
                session_id: self.session.as_str(),
                tool_call: CallOut::asked(shortened.as_ref().unwrap_or(&question.call)),
                options: question.choices.iter().map(option_out).collect(),
            };
            match self.call("session/request_permission", &params).await {
                Err(CallError::Answered(err)) if room > SMALLEST_CALL => {
                    let Some(limit) = exceeded_limit(&err) else {
                        return Err(CallError::Answered(err));
                    };
                    room = room.min(limit) / 2;
                    shortened = Some(fit::shorten_call(question.call.clone(), room));
                }
                answer => return answer,
            }
        }
    }

    fn session_id(&self) -> schema::SessionId {
        schema::SessionId::new(self.session.to_shared())
    }

    fn terminal_params(&self, terminal: &TerminalId) -> TerminalParams {
        TerminalParams {
            session_id: self.session_id(),
            terminal_id: schema::TerminalId::new(terminal.to_shared()),
        }
    }
}

/// With less room nothing useful is left of a call in a permission request.
const SMALLEST_CALL: usize = 256;

fn option_out(choice: &Choice) -> schema::PermissionOption {
    let kind = match choice.answer {
        Answer::AllowOnce => schema::PermissionOptionKind::AllowOnce,
        Answer::AllowSession | Answer::AllowAlways | Answer::AllowReading => {
            schema::PermissionOptionKind::AllowAlways
        }
        Answer::RejectAlways => schema::PermissionOptionKind::RejectAlways,
        Answer::RejectOnce | Answer::Cancelled => schema::PermissionOptionKind::RejectOnce,
    };
    schema::PermissionOption::new(choice.id.to_string(), choice.name.clone(), kind)
}

/// Says that a permission request timed out, and how a client answers one.
fn unanswered(limit: Duration) -> EditorError {
    let advice = format!(
        "Rejected: no answer to the permission request within {} s. Clients answer \
         `session/request_permission` with {{\"outcome\":{{\"outcome\":\"selected\",\"optionId\":\"once\"}}}}; \
         `permission_wait_seconds` in purlin.json sets the time-out.",
        limit.as_secs()
    );
    EditorError::TimedOut { call: "session/request_permission", advice: Some(advice) }
}

/// Says that the client has no permission requests, and what the user can do.
fn no_requests() -> EditorError {
    let advice = "Rejected: this client does not know `session/request_permission`. Allow what it may do with rules under \
                  `permission` in purlin.json."
        .to_owned();
    EditorError::TimedOut { call: "session/request_permission", advice: Some(advice) }
}

/// Why a call to the client has no result.
enum CallError {
    /// The client answered with an error.
    Answered(RpcError),
    /// The call could not be written.
    Unwritable(String),
    /// The client is gone.
    Gone,
}

impl CallError {
    fn into_editor(self, path: Option<&Path>) -> EditorError {
        match self {
            CallError::Answered(err) => editor_error(&err, path),
            CallError::Unwritable(why) => EditorError::Refused(why),
            CallError::Gone => EditorError::Gone,
        }
    }
}

/// Room in the budgets. Returned when it is dropped: a turn may be cancelled while it waits to send.
struct Room {
    cost: usize,
    of_session: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

impl Room {
    /// Uses the room for a message that is sent now; the outbox returns it. Returns its size.
    fn spend(self) -> usize {
        self.of_session.forget();
        self.of_all.forget();
        self.cost
    }
}

/// Abandons a call when it is dropped before the answer.
struct Abandon {
    permit: Option<mpsc::OwnedPermit<u64>>,
    number: u64,
}

impl Drop for Abandon {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.send(self.number);
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PermissionParams<'a> {
    session_id: &'a str,
    tool_call: CallOut<'a>,
    options: Vec<schema::PermissionOption>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TerminalParams {
    session_id: schema::SessionId,
    terminal_id: schema::TerminalId,
}

/// Tells whether a client with these capabilities wants an event.
pub(crate) fn is_wanted(event: &Event, offers: Offers) -> bool {
    match event {
        Event::Notice { .. } => offers.notices,
        Event::Compaction { .. } | Event::CompactionSummary { .. } => offers.compaction,
        Event::Usage { .. } | Event::Info { .. } | Event::Settings(_) => offers.later_updates,
        _ => true,
    }
}

/// Waits until the rate limit allows one more.
async fn wait_for(window: &Mutex<Window>) {
    loop {
        let taken = window.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        match taken {
            Ok(()) => return,
            Err(wait) => sleep(wait).await,
        }
    }
}

impl Editor for AcpEditor {
    fn reserve<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Option<DisplayPermit>> {
        async move {
            if !is_wanted(event, self.offers) {
                return None;
            }
            let bytes = size::weight(event);
            let room = self.take_room(bytes).await?;
            let place = self.outlet.to_dispatcher.clone().reserve_owned().await.ok()?;
            let session = self.session.clone();
            let show: DisplayPermit = Box::new(move |event, _| {
                let (cost, seq, attachment) = (room.spend(), None, None);
                place.send(FromSession::Event { session, event, cost, seq, attachment });
            });
            Some(show)
        }
        .boxed()
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn raw_failure(&self, failure: ToolFailure) -> Option<Value> {
        Some(json!({ "code": tool_failure_code(failure) }))
    }

    fn ask_permission(&self, question: Question) -> BoxFuture<'_, Result<Answer, EditorError>> {
        async move {
            let answer = self.ask_within_limits(&question);
            let answer = match self.permission_timeout {
                None => answer.await,
                Some(limit) => timeout(limit, answer).await.map_err(|_| unanswered(limit))?,
            }
            .map_err(|err| match err {
                CallError::Answered(err) if err.code == Code::METHOD_NOT_FOUND => no_requests(),
                err => err.into_editor(None),
            })?;
            Ok(match answer.outcome {
                schema::RequestPermissionOutcome::Selected(chosen) => {
                    question.answer(&chosen.option_id.0)
                }
                _ => Answer::Cancelled,
            })
        }
        .boxed()
    }

    fn read_text_file(
        &self,
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> BoxFuture<'_, Result<String, EditorError>> {
        async move {
            if !self.offers.read {
                return Err(EditorError::NotOffered("file reads"));
            }
            let path = self.paths.check(&self.session, &path)?;
            wait_for(&self.reads).await;
            let params =
                schema::ReadTextFileRequest::new(self.session_id(), &path).line(line).limit(limit);
            let params = || to_raw_value(&params);
            let seconds = self.limits.read_timeout_seconds;
            let answer: schema::ReadTextFileResponse =
                self.call_twice("fs/read_text_file", params, seconds, &path).await?;
            Ok(answer.content)
        }
        .boxed()
    }

    fn write_text_file<'a>(
        &'a self,
        path: &'a Path,
        content: &'a str,
    ) -> BoxFuture<'a, Result<(), EditorError>> {
        async move {
            if !self.offers.write {
                return Err(EditorError::NotOffered("file writes"));
            }
            let path = self.paths.check(&self.session, path)?;
            wait_for(&self.writes).await;
            let params = || write_params(self.session.as_str(), &path, content);
            let seconds = self.limits.write_timeout_seconds;
            let _: schema::WriteTextFileResponse =
                self.call_twice("fs/write_text_file", params, seconds, &path).await?;
            Ok(())
        }
        .boxed()
    }

    fn create_terminal(
        &self,
        command: TerminalCommand,
    ) -> BoxFuture<'_, Result<TerminalId, EditorError>> {
        async move {
            if !self.offers.terminal {
                return Err(EditorError::NotOffered("terminals"));
            }
            let params = schema::CreateTerminalRequest::new(self.session_id(), command.command)
                .args(command.args)
                .cwd(command.cwd)
                .output_byte_limit(command.output_limit);
            let seconds = self.limits.terminal_timeout_seconds;
            let answer: schema::CreateTerminalResponse =
                self.call_in_time("terminal/create", &params, seconds).await?;
            Ok(TerminalId::new(answer.terminal_id.0))
        }
        .boxed()
    }

    fn terminal_output(
        &self,
        terminal: TerminalId,
    ) -> BoxFuture<'_, Result<TerminalOutput, EditorError>> {
        async move {
            let seconds = self.limits.terminal_timeout_seconds;
            let answer: schema::TerminalOutputResponse = self
                .call_in_time("terminal/output", &self.terminal_params(&terminal), seconds)
                .await?;
            Ok(TerminalOutput { text: answer.output, is_truncated: answer.truncated })
        }
        .boxed()
    }

    fn wait_for_exit(
        &self,
        terminal: TerminalId,
    ) -> BoxFuture<'_, Result<ExitStatus, EditorError>> {
        async move {
            let answer: schema::WaitForTerminalExitResponse = self
                .call("terminal/wait_for_exit", &self.terminal_params(&terminal))
                .await
                .map_err(|err| err.into_editor(None))?;
            Ok(ExitStatus { code: answer.exit_status.exit_code, signal: answer.exit_status.signal })
        }
        .boxed()
    }

    fn kill_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        async move {
            let seconds = self.limits.terminal_timeout_seconds;
            let _: schema::KillTerminalResponse = self
                .call_in_time("terminal/kill", &self.terminal_params(&terminal), seconds)
                .await?;
            Ok(())
        }
        .boxed()
    }

    fn release_terminal(&self, terminal: TerminalId) -> BoxFuture<'_, Result<(), EditorError>> {
        async move {
            let seconds = self.limits.terminal_timeout_seconds;
            let _: schema::ReleaseTerminalResponse = self
                .call_in_time("terminal/release", &self.terminal_params(&terminal), seconds)
                .await?;
            Ok(())
        }
        .boxed()
    }

    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, EditorError>> {
        async move {
            let is_offered = if form.page.is_some() { self.offers.page } else { self.offers.form };
            if !is_offered {
                return Err(EditorError::NotOffered("questions to the user"));
            }
            let mut scope = schema::ElicitationSessionScope::new(self.session_id());
            scope.tool_call_id = form.call.map(|call| schema::ToolCallId::new(call.to_shared()));
            let has_fields = form.fields.is_some();
            let mode: schema::ElicitationMode = match (form.page, form.fields) {
                (Some(page), _) => schema::ElicitationUrlMode::new(scope, page.id, page.url).into(),
                (None, Some(fields)) => {
                    let fields: schema::ElicitationSchema = serde_json::from_value(fields)
                        .map_err(|_| EditorError::NotOffered("such fields"))?;
                    schema::ElicitationFormMode::new(scope, fields).into()
                }
                (None, None) => {
                    let answer = schema::StringPropertySchema::new();
                    let fields = schema::ElicitationSchema::new().property("answer", answer, true);
                    schema::ElicitationFormMode::new(scope, fields).into()
                }
            };
            let params = schema::CreateElicitationRequest::new(mode, form.message);
            let answer: schema::CreateElicitationResponse = self
                .call("elicitation/create", &params)
                .await
                .map_err(|err| err.into_editor(None))?;
            Ok(match answer.action {
                schema::ElicitationAction::Accept(accept) if has_fields => {
                    let given = serde_json::to_value(accept.content.unwrap_or_default());
                    match given {
                        Ok(serde_json::Value::Object(fields)) => FormAnswer::Fields(fields),
                        _ => FormAnswer::Declined,
                    }
                }
                schema::ElicitationAction::Accept(accept) => {
                    let given = accept.content.and_then(|mut content| content.remove("answer"));
                    match given {
                        Some(schema::ElicitationContentValue::String(text)) => {
                            FormAnswer::Text(text)
                        }
                        _ => FormAnswer::Text(String::new()),
                    }
                }
                schema::ElicitationAction::Cancel => FormAnswer::Cancelled,
                _ => FormAnswer::Declined,
            })
        }
        .boxed()
    }

    fn page_done(&self, page: &Page) -> BoxFuture<'_, ()> {
        let params = schema::CompleteElicitationNotification::new(page.id.clone());
        async move {
            let mut line = Vec::new();
            if let Err(err) = rpc::print_note(&mut line, "elicitation/complete", &params) {
                tracing::error!(session = %self.session, "cannot write a notification: {err}");
                return;
            }
            self.send(line.len(), |session, cost| FromSession::Line { session, line, cost }).await;
        }
        .boxed()
    }
}
