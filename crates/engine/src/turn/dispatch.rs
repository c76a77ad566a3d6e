//! One tool call: find the tool, plan and show the call, ask for permission, run it, report the result.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::context;
use super::cx::{TurnCx, TurnError};
use super::hooks;
use super::instructions;
use super::short_input::shorten;
use super::slow::{SlowCall, notice_if_slow};
use crate::permission;
use crate::permission::policy::Judgement;
use crate::ports::{
    EditorError, Event, Intent, OpenSpan, Outline, Output, Planned, Record, Severity, SpanEnd,
    SpanFacts, SpanKind, SpanScope, ToolCx, ToolError, ToolSpec, Wait,
};
use crate::words::{
    Access, Answer, Block, Decision, HookOutcome, Location, Mode, Question, ToolCall, ToolCallId,
    ToolContent, ToolFailure, ToolKind, ToolRequest, ToolStatus, ToolUpdate, inert, inert_title,
    pictures_in, visible,
};

/// The result of a call.
pub(crate) struct Done {
    /// Which call.
    pub(crate) id: ToolCallId,
    /// The result for the model.
    pub(crate) text: String,
    /// Whether it failed.
    pub(crate) failed: bool,
    /// The pictures in the result.
    pub(crate) pictures: Vec<Block>,
}

/// A call after it was announced.
pub(crate) enum Step {
    /// It is allowed, and its intent is journalled: it may run. With the id that the model gave it.
    Ready(ToolCallId, Box<Ready>),
    /// It ended before it could run.
    Done(Done),
}

/// A call that may run.
pub(crate) struct Ready {
    planned: Box<dyn Planned>,
    /// With the id that the client knows.
    request: ToolRequest,
    locations: Vec<Location>,
    content: Vec<ToolContent>,
    /// What hooks add to its result.
    said: Vec<String>,
    span: OpenSpan,
}

/// Brings a tool call to the point where it may run. Failures of the tool go back to the model; only a cancel and internal
/// errors are returned.
pub(crate) async fn prepare(cx: &TurnCx<'_>, mut request: ToolRequest) -> Result<Step, TurnError> {
    let given_id = request.id.clone();
    if let Some(parent) = cx.turn.parent {
        request.id = parent.call_id(&given_id);
    }
    let facts = SpanFacts { call: Some(request.id.clone()), ..SpanFacts::default() };
    let span = cx.turn.spans.begin(SpanKind::Tool, &visible(&request.name), facts);
    Ok(match make_ready(cx, request, span).await? {
        Ok(ready) => Step::Ready(given_id, Box::new(ready)),
        Err(done) => Step::Done(Done { id: given_id, ..done }),
    })
}

/// Returns the call if it may run, otherwise its result.
async fn make_ready(
    cx: &TurnCx<'_>,
    request: ToolRequest,
    span: OpenSpan,
) -> Result<Result<Ready, Done>, TurnError> {
    let spans = cx.turn.spans.inside(&span);
    let tools = cx.tools();
    let Some(tool) = tools.iter().find(|tool| tool.spec().name == request.name).cloned() else {
        let why = ToolSpec::unknown(&request.name, &context::offered(cx));
        let intent = Intent { title: request.name.clone(), ..Intent::default() };
        announce(cx, &request, ToolKind::Other, intent).await?;
        return fail(cx, request, span, ToolError::failed(ToolFailure::ToolNotFound, why)).await;
    };
    let (kind, outline) = (tool.kind(), tool.outline(&request.input));
    let planned = with_tool_cx(cx, &request.id, &spans, async |tool_cx| {
        tool.plan(tool_cx, &request.input).await
    });
    let title = format!("Still reading what is needed for: {}", outline.title);
    let (intent, planned) = match notice_if_slow(cx, &title, planned).await?? {
        Ok(planned) => planned,
        Err(err) => {
            announce(cx, &request, kind, unplanned(cx, outline)).await?;
            return fail(cx, request, span, err).await;
        }
    };
    let access = intent.access.clone();
    let call = announce(cx, &request, kind, intent).await?;
    let (said, ask) = match hooks::before_tool(cx, &request).await {
        Ok(HookOutcome { objection: Some(why), .. }) => {
            return fail(cx, request, span, ToolError::Model(why)).await;
        }
        Ok(outcome) => (outcome.context, outcome.ask),
        Err(err) => return give_up(cx, request.id, err).await,
    };
    match permit(cx, &spans, &call, &access, ask.as_deref()).await {
        Ok(None) => {}
        Ok(Some(refusal)) => return fail(cx, request, span, refusal).await,
        Err(err) => return give_up(cx, request.id, err).await,
    }
    // The intent is journalled before anything happens: after a crash, an intent without a result shows what was running.
    // Long input is in the record of the answer already, so it is shortened here.
    let (id, name) = (request.id.clone(), request.name.clone());
    let intent = ToolRequest { id, name, input: call.raw_input.clone().into() };
    cx.record(Record::ToolIntent(&intent)).await?;
    let update = ToolUpdate { status: Some(ToolStatus::InProgress), ..ToolUpdate::default() };
    cx.emit(Event::ToolUpdate(request.id.clone(), Box::new(update))).await?;
    let ToolCall { locations, content, .. } = call;
    Ok(Ok(Ready { planned, request, locations, content, said, span }))
}

/// Returns what is shown of a call that cannot be planned.
fn unplanned(cx: &TurnCx<'_>, outline: Outline) -> Intent {
    let cwd = cx.conversation.cwd;
    let title = outline.title.replacen(&format!("{}/", cwd.display()), "", 1);
    let is_path = |path: &&String| !path.starts_with('~') && !path.contains("://");
    let location = |path: &String| Location { path: normal(&cwd.join(path)), line: None };
    let locations = outline.paths.iter().filter(is_path).map(location).collect();
    Intent { title, locations, ..Intent::default() }
}

/// Resolves `.` and `..` in a path by name, without looking at the disk.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// Runs a call that is ready, and reports its result.
pub(crate) async fn finish(cx: &TurnCx<'_>, step: Step) -> Result<Done, TurnError> {
    let (given_id, ready) = match step {
        Step::Ready(given_id, ready) => (given_id, ready),
        Step::Done(done) => return Ok(done),
    };
    let Ready { planned, request, locations, content, said, span } = *ready;
    if cx.turn.cancel.is_cancelled() {
        return give_up(cx, request.id, TurnError::Cancelled).await;
    }
    let mut slow = SlowCall { id: &request.id, content: &content, is_shown: false };
    let outer = cx.turn.spans.inside(&span);
    let facts = SpanFacts { call: Some(request.id.clone()), ..SpanFacts::default() };
    let run = outer.begin(SpanKind::Run, &visible(&request.name), facts);
    let inner = outer.inside(&run);
    let wait = planned.wait();
    let work = with_tool_cx(cx, &request.id, &inner, async |tool_cx| planned.run(tool_cx).await);
    let outcome = slow.wait_for(cx, wait, work).await.flatten();
    if let Ok(outcome) = &outcome {
        run.end_with(outcome);
    }
    let outcome = match outcome {
        Ok(outcome) => instructions::add_touched(cx, &locations, outcome).await?,
        Err(err) => {
            return give_up_with(cx, slow.id.clone(), slow.content_at_end(None, false), err).await;
        }
    };
    let wait =
        Wait { subject: Some("the hooks and checks of the project".to_owned()), limit: None };
    let hooks = hooks::after_tool(cx, &request, said, outcome);
    match slow.wait_for(cx, Some(wait), hooks).await.flatten() {
        Ok(outcome) => {
            span.end_with(&outcome);
            let outcome = outcome.map(|output| {
                let content = slow.content_at_end(output.content, true);
                Output { content, ..output }
            });
            Ok(Done { id: given_id, ..report(cx, request.id.clone(), outcome).await? })
        }
        Err(err) => give_up_with(cx, slow.id.clone(), slow.content_at_end(None, false), err).await,
    }
}

async fn announce(
    cx: &TurnCx<'_>,
    request: &ToolRequest,
    kind: ToolKind,
    intent: Intent,
) -> Result<ToolCall, TurnError> {
    let call = ToolCall {
        id: request.id.clone(),
        name: visible(&request.name),
        title: inert_title(&visible(&intent.title)),
        kind,
        status: ToolStatus::Pending,
        content: intent.content,
        locations: intent.locations,
        raw_input: shorten(&request.input),
    };
    cx.emit(Event::ToolCall(Box::new(call.clone()))).await?;
    Ok(call)
}

/// Decides whether the call may run: `None` means yes, otherwise why not. With a reason to `ask`, the user is asked even if
/// everything is allowed.
pub(super) async fn permit(
    cx: &TurnCx<'_>,
    spans: &SpanScope,
    call: &ToolCall,
    access: &[Access],
    ask: Option<&str>,
) -> Result<Option<ToolError>, TurnError> {
    let modes = cx.modes();
    if let Some(refusal) = refused_by_mode(&modes, call, access) {
        return Ok(Some(refusal));
    }
    let judge = |modes: &[Mode]| {
        let mut judgement = cx.ports.policy.judge_within(access, call.kind, modes);
        if let Some(why) = ask {
            judgement.ask_anyway(why);
        }
        judgement
    };
    let mut judgement = judge(&modes);
    let mut _asking = None;
    let mut wait = None;
    if judgement.decision == Decision::Ask {
        let facts = SpanFacts { call: Some(call.id.clone()), ..SpanFacts::default() };
        wait = Some(spans.begin(SpanKind::Permission, &call.name, facts));
        _asking = Some(cx.or_cancelled(cx.conversation.asking.lock()).await?);
        // The answer to another question, or a change of the mode, may have decided this one meanwhile.
        let modes = cx.modes();
        if let Some(refusal) = refused_by_mode(&modes, call, access) {
            return Ok(Some(refusal));
        }
        judgement = judge(&modes);
    }
    match judgement.decision {
        Decision::Allow => {
            end_wait(wait, SpanEnd::Completed);
            return Ok(None);
        }
        Decision::Reject => return Ok(Some(refused_by_rule(judgement))),
        Decision::Ask => {}
    }
    let mut question = permission::about(call.clone(), &judgement, cx.ports.policy.scope());
    if let Some(parent) = cx.turn.parent {
        question = parent.present(question).await?;
    }
    let answer = match ask_user(cx, call, question).await? {
        Ok(answer) => answer,
        Err(refusal) => {
            end_wait(wait, SpanEnd::Failed(refusal.to_string()));
            return Ok(Some(refusal));
        }
    };
    let (decision, problem) = cx.ports.policy.apply(&judgement.asked, answer);
    let is_allowed = decision == Decision::Allow;
    end_wait(wait, if is_allowed { SpanEnd::Completed } else { SpanEnd::Rejected });
    if let Some(problem) = problem {
        let title = "Your answer applies to this session only";
        cx.notify(Severity::Warning, title, Some(problem)).await?;
    }
    Ok(match decision {
        // The mode may have changed while the user was deciding.
        Decision::Allow => refused_by_mode(&cx.modes(), call, access),
        Decision::Reject | Decision::Ask => {
            Some(ToolError::Model("Rejected by the user".to_owned()))
        }
    })
}

/// Asks the user. Without an answer, returns why the call does not run.
async fn ask_user(
    cx: &TurnCx<'_>,
    call: &ToolCall,
    question: Question,
) -> Result<Result<Answer, ToolError>, TurnError> {
    match cx.or_cancelled(cx.ports.editor.ask_permission(question)).await? {
        Ok(answer) => Ok(Ok(answer)),
        Err(EditorError::TimedOut { advice: Some(advice), .. }) => {
            let title = format!("No answer to the permission request for `{}`", call.name);
            cx.notify(Severity::Warning, &title, Some(advice)).await?;
            let why = "Rejected: the permission request was not answered".to_owned();
            Ok(Err(ToolError::Model(why)))
        }
        Err(err) => Ok(Err(ToolError::Editor(err))),
    }
}

/// Ends the span of a wait for the user, if there was one.
fn end_wait(wait: Option<OpenSpan>, end: SpanEnd) {
    if let Some(wait) = wait {
        wait.end(end);
    }
}

fn refused_by_mode(modes: &[Mode], call: &ToolCall, access: &[Access]) -> Option<ToolError> {
    let refuses = |mode: &&Mode| !mode.has_tool(&call.name) || !mode.permits(call.kind, access);
    let mode = modes.iter().find(refuses)?;
    Some(match call.kind {
        ToolKind::SwitchMode => ToolError::Model(format!(
            "the mode is `{}`, so there is no plan mode to leave",
            mode.id
        )),
        _ => ToolError::failed(
            ToolFailure::ToolDisabled,
            format!(
                "the mode `{}` does not allow `{}`; ask the user to switch to `build`",
                mode.id, call.name
            ),
        ),
    })
}

/// Names the rule that refuses a call, so that the model does not try the same in another way.
fn refused_by_rule(judgement: Judgement) -> ToolError {
    let why = match judgement.refused {
        Some((access, Some(rule))) => {
            format!("the rule `{rule}` forbids {}; do not try it another way", access.words())
        }
        Some((access, None)) => {
            format!("{} needs a rule in the user's configuration, and none is set", access.words())
        }
        None => "this is forbidden".to_owned(),
    };
    ToolError::failed(ToolFailure::ToolDisabled, why)
}

/// How long a tool may clean up after a cancel before it is dropped.
const GRACE: Duration = Duration::from_secs(2);

async fn with_tool_cx<T>(
    cx: &TurnCx<'_>,
    id: &ToolCallId,
    spans: &SpanScope,
    work: impl AsyncFnOnce(&ToolCx<'_>) -> T,
) -> Result<T, TurnError> {
    let cancel = &cx.turn.cancel;
    let tool_cx = ToolCx {
        id,
        cwd: cx.conversation.cwd,
        editor: cx.ports.editor,
        cancel,
        session: cx.conversation.session,
        journal: cx.ports.journal,
        turn: cx,
        spans: spans.clone(),
    };
    let out_of_grace = async {
        cancel.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        done = work(&tool_cx) => if cancel.is_cancelled() { Err(TurnError::Cancelled) } else { Ok(done) },
        () = out_of_grace => Err(TurnError::Cancelled),
    }
}

/// Ends a call that cannot run.
async fn fail(
    cx: &TurnCx<'_>,
    request: ToolRequest,
    span: OpenSpan,
    err: ToolError,
) -> Result<Result<Ready, Done>, TurnError> {
    span.end(SpanEnd::Failed(err.to_string()));
    report(cx, request.id, Err(err)).await.map(Err)
}

/// Reports the result of a call to the user and the model.
async fn report(
    cx: &TurnCx<'_>,
    id: ToolCallId,
    outcome: Result<Output, ToolError>,
) -> Result<Done, TurnError> {
    let mut pictures = Vec::new();
    let (status, output) = match outcome {
        Ok(output) => {
            pictures = output.content.as_deref().map(pictures_in).unwrap_or_default();
            (ToolStatus::Completed, output)
        }
        Err(err) => (ToolStatus::Failed, failure_output(cx, err)),
    };
    let Output { text, content, raw: raw_output } = output;
    let text = context::fit_result(cx, text);
    let failed = status == ToolStatus::Failed;
    cx.record(Record::ToolResult { id: &id, text: &text, failed }).await?;
    let update = ToolUpdate { status: Some(status), content, raw_output, live: None };
    cx.emit(Event::ToolUpdate(id.clone(), Box::new(update))).await?;
    Ok(Done { id, text, failed, pictures })
}

fn failure_output(cx: &TurnCx<'_>, err: ToolError) -> Output {
    let text = err.to_string();
    let shown = || vec![ToolContent::Block(Block::Text(inert(&visible(&text))))];
    let (content, failure) = match err {
        ToolError::Failed { failure, content, .. } => (content.unwrap_or_else(shown), failure),
        ToolError::Editor(err) => (shown(), err.failure()),
        ToolError::Model(_) | ToolError::Cancelled | ToolError::Broken(_) => (shown(), None),
    };
    let raw = failure.and_then(|failure| cx.ports.editor.raw_failure(failure));
    Output { text, content: Some(content), raw }
}

/// Ends a call that was cut short: it must not stay pending forever.
async fn give_up<T>(cx: &TurnCx<'_>, id: ToolCallId, err: TurnError) -> Result<T, TurnError> {
    give_up_with(cx, id, None, err).await
}

/// Ends a call that was cut short, with other content if there is any.
async fn give_up_with<T>(
    cx: &TurnCx<'_>,
    id: ToolCallId,
    content: Option<Vec<ToolContent>>,
    err: TurnError,
) -> Result<T, TurnError> {
    let status = Some(ToolStatus::Failed);
    let update = ToolUpdate { status, content, ..ToolUpdate::default() };
    cx.emit(Event::ToolUpdate(id, Box::new(update))).await?;
    Err(err)
}
