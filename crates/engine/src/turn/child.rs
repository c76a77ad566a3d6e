//! A child: an agent that works on a task inside a turn, with a conversation of its own.
//!
//! The client sees it as one tool call with its progress, its plan among it; a call of the child is shown on its own only if
//! the user is asked about it, or something by it. What the child may do is never more than its turn may: the policy is the same, modes only narrow, and it gives
//! no tasks itself. `task` is the tool that starts it.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::permission::Question;
use crate::ports::error::Error;
use crate::ports::event::Event;
use crate::ports::{AnyTool, Form, Output, Record, ToolError, Tools};
use crate::turn::context::History;
use crate::turn::helpers::Helper;
use crate::turn::hooks::{Moment, Ruling};
use crate::turn::session::Settings;
use crate::turn::steering::Steering;
use crate::turn::task::{self, Order};
use crate::turn::{self, TurnCx, TurnError, TurnLimits};
use crate::words::modes::Mode;
use crate::words::visible::visible;
use crate::words::{
    Block, Message, PlanEntry, PlanStatus, Prompt, StopReason, ToolCall, ToolCallId, ToolContent,
    ToolKind, ToolRequest, ToolStatus, ToolUpdate,
};

/// How much of what a child says at the end goes back to its turn.
const MAX_RESULT: usize = 32 * 1024;
/// How many calls of a child are listed as its progress.
const LISTED: usize = 6;
/// How much of a call's title is listed, in characters.
const TITLE: usize = 120;

/// Runs a task to its end. That it fails is told to the model that gave it; only a cancel and our own faults are not.
pub(crate) fn run<'a>(
    turn: &'a TurnCx<'a>,
    call: &'a ToolCallId,
    order: Order<'a>,
) -> BoxFuture<'a, Result<Output, ToolError>> {
    work(turn, call, order).boxed()
}

async fn work(turn: &TurnCx<'_>, call: &ToolCallId, order: Order<'_>) -> Result<Output, ToolError> {
    let child = Child { turn, call, title: order.title, progress: Mutex::default() };
    let settings = watch::Sender::new(settings(turn, order.helper));
    let limits = TurnLimits {
        max_requests: order.helper.max_requests().min(turn.limits.max_requests),
        ..turn.limits
    };
    let mut history = History::default();
    history.push(Message::User(Prompt::from(vec![Block::Text(order.prompt.to_owned())])));
    let mut cx = TurnCx {
        session: turn.session,
        cwd: turn.cwd,
        settings: &settings,
        history: &mut history,
        mind: &mut turn.mind.for_child(),
        primer: turn.primer,
        policy: turn.policy,
        asking: turn.asking,
        has_title: turn.has_title,
        meter: turn.meter,
        steering: &Steering::default(),
        titler: None,
        keeping: None,
        waits: 0,
        tools: &ForChildren(turn.tools),
        editor: turn.editor,
        files: turn.files,
        journal: turn.journal,
        clock: turn.clock,
        limits,
        cancel: turn.cancel.child_token(),
        child: Some(&child),
    };
    let ended = AssertUnwindSafe(turn::converse(&mut cx)).catch_unwind().await;
    let said = last_words(&history);
    match ended.unwrap_or(Err(TurnError::Failed(Error::Broken))) {
        Ok(StopReason::MaxTurnRequests) => {
            let limit = limits.max_requests;
            Ok(report(format!(
                "(not done: it had asked its model {limit} times, which is all it may. What it said last:)\n{said}"
            )))
        }
        Ok(_) if said.is_empty() => Ok(report("(it ended and said nothing)".to_owned())),
        Ok(_) => Ok(report(said)),
        Err(TurnError::Cancelled) => Err(ToolError::Cancelled),
        Err(TurnError::Failed(err)) => {
            let mut why = format!("the task failed: {err}");
            if !said.is_empty() {
                why.push_str(&format!("\nWhat it said before:\n{said}"));
            }
            Err(ToolError::Model(capped(why)))
        }
    }
}

/// The child's own settings: the mode made of its helper, and its model, if there is such.
fn settings(turn: &TurnCx<'_>, helper: &Helper) -> Settings {
    let mut settings = turn.settings.borrow().clone();
    let mode = helper.mode(settings.mode());
    settings.begin(&mode);
    settings.modes = Arc::new([mode]);
    settings
}

fn last_words(history: &History) -> String {
    let last = history.messages().iter().rev().find_map(|message| match &**message {
        Message::Agent { text, .. } if !text.trim().is_empty() => Some(text.trim().to_owned()),
        Message::Agent { .. } | Message::User(_) | Message::ToolResult { .. } => None,
    });
    last.unwrap_or_default()
}

fn report(text: String) -> Output {
    let text = capped(text);
    Output { content: Some(vec![ToolContent::Block(Block::Text(text.clone()))]), text, raw: None }
}

/// What of a text is listed: its first line, cut.
fn line_of(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(TITLE).collect()
}

/// Cuts a long result, and says so.
fn capped(mut text: String) -> String {
    if text.len() > MAX_RESULT {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(MAX_RESULT));
        text.push_str(&format!("\n(cut: the result had {whole} bytes; ask for a shorter one)"));
    }
    text
}

/// The tools of a turn, as far as children get them; modes say the rest.
struct ForChildren<'a>(&'a dyn Tools);

impl Tools for ForChildren<'_> {
    fn now(&self) -> Arc<[Arc<dyn AnyTool>]> {
        // It gives no tasks, and it does not change the mode.
        let is_given = |tool: &&Arc<dyn AnyTool>| {
            tool.kind() != ToolKind::SwitchMode && tool.spec().name != task::NAME
        };
        self.0.now().iter().filter(is_given).cloned().collect()
    }

    // A child has no commands, agents or scenes of its own.
    fn inner(&self) -> Option<&dyn Tools> {
        None
    }

    // What guards the session's tools guards a child's use of them, too.
    fn hook<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, Ruling> {
        self.0.hook(moment)
    }
}

/// What a child's turn is to the turn that started it.
pub(crate) struct Child<'a> {
    turn: &'a TurnCx<'a>,
    /// The call that the client sees it as.
    call: &'a ToolCallId,
    title: &'a str,
    /// Never held across an await.
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// How many calls there were.
    count: usize,
    /// What the last of them did.
    last: VecDeque<String>,
    /// What the child plans.
    plan: Vec<PlanEntry>,
    /// Those that have not ended.
    open: Vec<Open>,
}

/// A call of the child that has not ended.
struct Open {
    call: ToolCall,
    /// Whether the client knows it, because the user was asked about it.
    is_shown: bool,
}

impl Child<'_> {
    /// Returns the id of one of the child's calls that no other call has, whatever models number theirs by.
    pub(crate) fn call_id(&self, id: &ToolCallId) -> ToolCallId {
        ToolCallId::new(format!("{}/{id}", self.call))
    }

    /// Returns the mode that the turn is in now: it may have been narrowed since the child began.
    pub(crate) fn mode_above(&self) -> Mode {
        self.turn.settings.borrow().mode().clone()
    }

    /// Shows what an event of the child means for whoever watches the turn.
    pub(crate) async fn emit(&self, event: Event) -> Result<(), TurnError> {
        let shown = match event {
            Event::ToolCall(call) => Some(self.begin(*call)),
            Event::ToolUpdate(id, update) => self.go_on(id, update),
            Event::Usage { cost: Some(cost), .. } => {
                let (used, size) = self.turn.meter.window();
                Some(Event::Usage { used, size, cost: Some(cost) })
            }
            Event::Notice { .. } => Some(event),
            // The plan that the user sees is that of the turn.
            Event::Plan(plan) => {
                let mut progress = self.progress();
                progress.plan = plan;
                Some(self.show_progress(&progress))
            }
            Event::Usage { cost: None, .. }
            | Event::User { .. }
            | Event::Text { .. }
            | Event::Thought { .. }
            | Event::Block { .. }
            | Event::Commands(_)
            | Event::Mode(_)
            | Event::Settings(_)
            | Event::Info { .. }
            | Event::Compaction { .. }
            | Event::CompactionSummary { .. } => None,
        };
        match shown {
            Some(event) => Box::pin(self.turn.emit(event)).await,
            None => Ok(()),
        }
    }

    /// A call of the child begins: that is its progress.
    fn begin(&self, call: ToolCall) -> Event {
        let mut progress = self.progress();
        progress.count += 1;
        progress.last.push_back(line_of(&call.title));
        let earlier = progress.count.saturating_sub(LISTED);
        if earlier > 0 {
            progress.last.pop_front();
        }
        progress.open.push(Open { call, is_shown: false });
        self.show_progress(&progress)
    }

    fn show_progress(&self, progress: &Progress) -> Event {
        let mut text = String::new();
        for PlanEntry { content, status, .. } in &progress.plan {
            let mark = match status {
                PlanStatus::Pending => "[ ]",
                PlanStatus::InProgress => "[>]",
                PlanStatus::Completed => "[x]",
            };
            text.push_str(&format!("{mark} {}\n", line_of(content)));
        }
        text.push_str(&match progress.count {
            1 => "1 call".to_owned(),
            count => format!("{count} calls, the last of them:"),
        });
        for line in &progress.last {
            text.push_str(&format!("\n- {line}"));
        }
        let content = Some(vec![ToolContent::Block(Block::Text(text))]);
        let update = ToolUpdate { content, ..ToolUpdate::default() };
        Event::ToolUpdate(self.call.clone(), Box::new(update))
    }

    /// A call of the child goes on: the client is told if it knows the call.
    fn go_on(&self, id: ToolCallId, update: Box<ToolUpdate>) -> Option<Event> {
        let mut progress = self.progress();
        let at = progress.open.iter().position(|open| open.call.id == id)?;
        let is_shown = progress.open[at].is_shown;
        if matches!(update.status, Some(ToolStatus::Completed | ToolStatus::Failed)) {
            progress.open.swap_remove(at);
        }
        is_shown.then_some(Event::ToolUpdate(id, update))
    }

    /// Shows the call that the user is asked about, and names the child in the question.
    pub(crate) async fn present(&self, mut question: Question) -> Result<Question, TurnError> {
        question.call.title = self.entitle(&question.call.title);
        self.show_call(&question.call.id).await?;
        Ok(question)
    }

    /// Shows the call that asks the user something, and names the child in what is asked.
    pub(crate) async fn present_form(&self, form: Form) -> Result<Form, TurnError> {
        if let Some(call) = &form.call {
            self.show_call(call).await?;
        }
        Ok(Form { message: self.entitle(&form.message), ..form })
    }

    fn entitle(&self, words: &str) -> String {
        format!("{}: {words}", visible(self.title))
    }

    async fn show_call(&self, id: &ToolCallId) -> Result<(), TurnError> {
        let shown = {
            let mut progress = self.progress();
            let open = progress.open.iter_mut().find(|open| open.call.id == *id);
            open.map(|open| {
                open.is_shown = true;
                ToolCall { title: self.entitle(&open.call.title), ..open.call.clone() }
            })
        };
        match shown {
            Some(call) => Box::pin(self.turn.emit(Event::ToolCall(Box::new(call)))).await,
            None => Ok(()),
        }
    }

    /// Keeps what must be known of a child after a crash or when its turn is taken back: what it cost, and that a
    /// command ran.
    pub(crate) async fn record(&self, record: Record<'_>) -> Result<(), TurnError> {
        if let Record::Spent { .. } = record {
            return Box::pin(self.turn.record(record)).await;
        }
        let Record::ToolIntent(request) = record else { return Ok(()) };
        let kept = {
            let progress = self.progress();
            let open = progress.open.iter().find(|open| open.call.id == request.id);
            let is_command =
                |open: &&Open| matches!(open.call.kind, ToolKind::Execute | ToolKind::Other);
            open.filter(|open| open.is_shown || is_command(open)).map(|open| ToolRequest {
                id: request.id.clone(),
                name: open.call.title.clone(),
                input: serde_json::Value::Null.into(),
            })
        };
        match kept {
            Some(request) => Box::pin(self.turn.record(Record::ToolIntent(&request))).await,
            None => Ok(()),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_result_is_cut_and_says_so() {
        let text = capped("ä".repeat(MAX_RESULT));
        assert!(text.len() < MAX_RESULT + 100);
        assert!(
            text.ends_with("(cut: the result had 65536 bytes; ask for a shorter one)"),
            "{text}"
        );
        assert_eq!(capped("short".to_owned()), "short");
    }
}
