//! One tool call: find the tool, show the call, ask where needed, run it, report what came of it.

use std::sync::Arc;
use std::time::Duration;

use crate::turn::short_input::shorten;
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};

use crate::permission::policy::Judgement;
use crate::permission::{Access, Decision, Question};
use crate::ports::event::{Event, Severity};
use crate::ports::{AnyTool, EditorError, Inside, Intent, Output, Record, ToolCx, ToolError};
use crate::turn::child::Child;
use crate::turn::context;
use crate::turn::hooks::{self, Ruling};
use crate::turn::instructions as primer;
use crate::turn::{TurnCx, TurnError};
use crate::words::modes::Mode;
use crate::words::pictures::pictures_in;
use crate::words::visible::visible;
use crate::words::{
    Block, ToolCall, ToolCallId, ToolContent, ToolKind, ToolRequest, ToolStatus, ToolUpdate,
};

/// So many characters of a command are the title of a call that cannot be planned.
const LONGEST_TITLE: usize = 200;

/// What came of a call.
pub(crate) struct Done {
    /// Which call.
    pub(crate) id: ToolCallId,
    /// What the model is told.
    pub(crate) text: String,
    /// Whether it went wrong.
    pub(crate) failed: bool,
    /// The pictures that came of it.
    pub(crate) pictures: Vec<Block>,
}

/// A call on its way.
pub(crate) enum Step {
    /// It is announced and allowed, and its intent is kept: it may run.
    Ready(Box<Ready>),
    /// It came to its end before it ran.
    Done(Done),
}

/// A call that may run.
pub(crate) struct Ready {
    /// How the model calls it.
    id: ToolCallId,
    tool: Arc<dyn AnyTool>,
    request: ToolRequest,
    call: ToolCall,
    /// What hooks have to add to its result.
    said: Vec<String>,
}

/// Brings a tool call to the point where it runs. Failures of the tool go back to the model; only cancel and our own faults
/// return.
pub(crate) fn begin<'a>(
    cx: &'a TurnCx<'_>,
    request: ToolRequest,
) -> BoxFuture<'a, Result<Step, TurnError>> {
    begin_named(cx, request).boxed()
}

/// Runs a call that is ready.
pub(crate) fn carry_out<'a>(
    cx: &'a TurnCx<'_>,
    step: Step,
) -> BoxFuture<'a, Result<Done, TurnError>> {
    match step {
        Step::Ready(ready) => run(cx, *ready).boxed(),
        Step::Done(done) => future::ready(Ok(done)).boxed(),
    }
}

async fn begin_named(cx: &TurnCx<'_>, mut request: ToolRequest) -> Result<Step, TurnError> {
    let id = request.id.clone();
    if let Some(child) = cx.child {
        request.id = child.call_id(&id);
    }
    Ok(match make_ready(cx, request).await? {
        Step::Ready(ready) => Step::Ready(Box::new(Ready { id, ..*ready })),
        Step::Done(done) => Step::Done(Done { id, ..done }),
    })
}

async fn make_ready(cx: &TurnCx<'_>, request: ToolRequest) -> Result<Step, TurnError> {
    let tools = cx.tools.now();
    let Some(tool) = tools.iter().find(|tool| tool.spec().name == request.name).cloned() else {
        let known: Vec<String> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
        let why = format!(
            "error -31800: there is no tool `{}`; there are {}",
            request.name,
            known.join(", ")
        );
        let intent = Intent { title: request.name.clone(), ..Intent::default() };
        announce(cx, &request, ToolKind::Other, intent).await?;
        return finish(cx, request.id, Err(ToolError::Model(why))).await.map(Step::Done);
    };
    let intent = match with_tool_cx(cx, &request.id, async |tool_cx| {
        tool.intent(tool_cx, &request.input).await
    })
    .await?
    {
        Ok(intent) => intent,
        Err(err) => {
            // The first line of a command says more than the tool's name.
            let command = request.input["command"].as_str().and_then(|text| text.lines().next());
            let title = command.map(|line| line.chars().take(LONGEST_TITLE).collect());
            let title = title.unwrap_or_else(|| request.name.clone());
            let intent = Intent { title, ..Intent::default() };
            announce(cx, &request, tool.kind(), intent).await?;
            return finish(cx, request.id, Err(err)).await.map(Step::Done);
        }
    };
    let access = intent.access.clone();
    let call = announce(cx, &request, tool.kind(), intent).await?;
    let said = match hooks::before_tool(cx, &request).await {
        Ok(Ruling { objection: Some(why), .. }) => {
            return finish(cx, request.id, Err(ToolError::Model(why))).await.map(Step::Done);
        }
        Ok(ruling) => ruling.context,
        Err(err) => return give_up(cx, request.id, err).await,
    };
    match permit(cx, &call, &access).await {
        Ok(None) => {}
        Ok(Some(refusal)) => {
            return finish(cx, request.id, Err(refusal)).await.map(Step::Done);
        }
        Err(err) => return give_up(cx, request.id, err).await,
    }
    // The intent is on record before anything happens: after a crash an intent without a result is told as such.
    // What is long in its input stands in the answer that asked for it, and is not kept a second time.
    let (id, name) = (request.id.clone(), request.name.clone());
    let intent = ToolRequest { id, name, input: call.raw_input.clone().into() };
    cx.record(Record::ToolIntent(&intent)).await?;
    let update = ToolUpdate { status: Some(ToolStatus::InProgress), ..ToolUpdate::default() };
    cx.emit(Event::ToolUpdate(request.id.clone(), Box::new(update))).await?;
    let id = request.id.clone();
    Ok(Step::Ready(Box::new(Ready { id, tool, request, call, said })))
}

async fn run(cx: &TurnCx<'_>, ready: Ready) -> Result<Done, TurnError> {
    let Ready { id, tool, request, call, said } = ready;
    if cx.cancel.is_cancelled() {
        return give_up(cx, request.id, TurnError::Cancelled).await;
    }
    let work =
        with_tool_cx(cx, &request.id, async |tool_cx| tool.run(tool_cx, &request.input).await);
    let outcome = match work.await {
        Ok(outcome) => primer::add_touched(cx, &call.locations, outcome).await?,
        Err(err) => return give_up(cx, request.id, err).await,
    };
    match hooks::after_tool(cx, &request, said, outcome).await {
        Ok(outcome) => Ok(Done { id, ..finish(cx, request.id, outcome).await? }),
        Err(err) => give_up(cx, request.id, err).await,
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
        title: visible(&intent.title),
        kind,
        status: ToolStatus::Pending,
        content: intent.content,
        locations: intent.locations,
        raw_input: shorten(&request.input),
    };
    cx.emit(Event::ToolCall(Box::new(call.clone()))).await?;
    Ok(call)
}

/// Decides whether the call may run: `None` means yes, otherwise what the model is told.
fn permit<'a>(
    cx: &'a TurnCx<'_>,
    call: &'a ToolCall,
    access: &'a [Access],
) -> BoxFuture<'a, Result<Option<ToolError>, TurnError>> {
    decide(cx, call, access).boxed()
}

async fn decide(
    cx: &TurnCx<'_>,
    call: &ToolCall,
    access: &[Access],
) -> Result<Option<ToolError>, TurnError> {
    let modes = modes(cx);
    if let Some(refusal) = refused_by_mode(&modes, call, access) {
        return Ok(Some(refusal));
    }
    let mut judgement = cx.policy.judge_within(access, &modes);
    let mut _asking = None;
    if judgement.decision == Decision::Ask {
        _asking = Some(cx.or_cancelled(cx.asking.lock()).await?);
        // The answer to another question may have decided this one, too, and so may another mode.
        let modes = self::modes(cx);
        if let Some(refusal) = refused_by_mode(&modes, call, access) {
            return Ok(Some(refusal));
        }
        judgement = cx.policy.judge_within(access, &modes);
    }
    let asked = match judgement.decision {
        Decision::Allow => return Ok(None),
        Decision::Reject => return Ok(Some(refusal(judgement))),
        Decision::Ask => judgement.asked,
    };
    let mut question = Question::new(call.clone(), &asked, cx.policy.reach());
    if let Some(child) = cx.child {
        question = child.present(question).await?;
    }
    let answer = match cx.or_cancelled(cx.editor.ask_permission(question)).await? {
        Ok(answer) => answer,
        Err(EditorError::Unanswered(how)) => {
            let title = format!("Nobody answered whether `{}` may be used", call.name);
            warn(cx, title, how).await?;
            let why = "nobody answered whether this may be done, so it was not";
            return Ok(Some(ToolError::Model(why.to_owned())));
        }
        Err(err) => return Ok(Some(ToolError::Editor(err))),
    };
    let (decision, problem) = cx.policy.keep(&asked, answer);
    if let Some(problem) = problem {
        warn(cx, "Your answer holds for this session alone".to_owned(), problem).await?;
    }
    Ok(match decision {
        // The mode may have become another while the user thought.
        Decision::Allow => refused_by_mode(&self::modes(cx), call, access),
        Decision::Reject | Decision::Ask => {
            Some(ToolError::Model("the user did not allow this".to_owned()))
        }
    })
}

/// The modes that a call is held to: a child may do what its own and that of its turn allow.
pub(crate) fn modes(cx: &TurnCx<'_>) -> Vec<Mode> {
    let own = cx.settings.borrow().mode().clone();
    cx.child.map(Child::mode_above).into_iter().chain([own]).collect()
}

fn refused_by_mode(modes: &[Mode], call: &ToolCall, access: &[Access]) -> Option<ToolError> {
    let refuses = |mode: &&Mode| !mode.has_tool(&call.name) || !mode.permits(call.kind, access);
    let mode = modes.iter().find(refuses)?;
    Some(ToolError::Model(match call.kind {
        ToolKind::SwitchMode => {
            format!("the mode is `{}`: there is no plan mode to leave", mode.id)
        }
        _ => format!(
            "error -31801: the mode `{}` does not allow `{}`; ask the user to switch to `build`",
            mode.id, call.name
        ),
    }))
}

/// What the model is told when a rule refuses: which, so that it does not try the same in other words.
fn refusal(judgement: Judgement) -> ToolError {
    let why = match judgement.refused {
        Some((access, Some(rule))) => {
            format!("the rule `{rule}` forbids {}; do not try it another way", access.words())
        }
        Some((access, None)) => {
            format!(
                "{} needs a rule in the user's configuration, and there is none",
                access.words()
            )
        }
        None => "this is forbidden".to_owned(),
    };
    ToolError::Model(why)
}

async fn warn(cx: &TurnCx<'_>, title: String, description: String) -> Result<(), TurnError> {
    let severity = Severity::Warning;
    cx.emit(Event::Notice { severity, title, description: Some(description) }).await
}

/// How long a tool may clean up after a cancel before it is dropped.
const GRACE: Duration = Duration::from_secs(2);

async fn with_tool_cx<T>(
    cx: &TurnCx<'_>,
    id: &ToolCallId,
    work: impl AsyncFnOnce(&ToolCx<'_>) -> T,
) -> Result<T, TurnError> {
    let tool_cx = ToolCx {
        id,
        cwd: cx.cwd,
        editor: cx.editor,
        cancel: &cx.cancel,
        session: cx.session,
        journal: cx.journal,
        inside: Some(Inside(cx)),
    };
    let out_of_grace = async {
        cx.cancel.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        done = work(&tool_cx) => if cx.cancel.is_cancelled() { Err(TurnError::Cancelled) } else { Ok(done) },
        () = out_of_grace => Err(TurnError::Cancelled),
    }
}

/// Tells the user and the model what came of the call.
async fn finish(
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
        Err(err) => {
            let text = explain(&err);
            let content = match err {
                ToolError::Shown { content, .. } => content,
                _ => vec![ToolContent::Block(Block::Text(visible(&text)))],
            };
            (ToolStatus::Failed, Output { text, content: Some(content), raw: None })
        }
    };
    let Output { text, content, raw: raw_output } = output;
    let text = context::fit_result(cx, text);
    let failed = status == ToolStatus::Failed;
    cx.record(Record::ToolResult { id: &id, text: &text, failed }).await?;
    let update = ToolUpdate { status: Some(status), content, raw_output, live: None };
    cx.emit(Event::ToolUpdate(id.clone(), Box::new(update))).await?;
    Ok(Done { id, text, failed, pictures })
}

/// Ends a call that was cut short: it must not stay pending for ever.
async fn give_up<T>(cx: &TurnCx<'_>, id: ToolCallId, err: TurnError) -> Result<T, TurnError> {
    let update = ToolUpdate { status: Some(ToolStatus::Failed), ..ToolUpdate::default() };
    cx.emit(Event::ToolUpdate(id, Box::new(update))).await?;
    Err(err)
}

fn explain(err: &ToolError) -> String {
    match err {
        ToolError::Editor(EditorError::NotOffered(what)) => {
            format!("The editor does not offer {what}, and this tool needs it")
        }
        ToolError::Model(_)
        | ToolError::Shown { .. }
        | ToolError::Editor(_)
        | ToolError::Cancelled
        | ToolError::Broken(_) => err.to_string(),
    }
}
