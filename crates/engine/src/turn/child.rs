//! A child: an agent that works on a task inside a turn, with its own conversation.
//!
//! The client sees it as one tool call with its progress, including its plan. A call of the child is shown on its own only
//! if the user is asked about it. A child may never do more than its turn: the policy is the same, modes only restrict,
//! and it gives no tasks itself. `task` is the tool that starts it.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::cx::{Conversation, Parent, Turn, TurnCx, TurnError, TurnLimits};
use super::steering::Steering;
use super::{helpers, run_turn};
use crate::ports::{
    ChildTask, Error, Event, Form, Helper, Output, Record, Settings, SpanEnd, SpanFacts, SpanKind,
    ToolCx, ToolError,
};
use crate::words::{
    Block, History, Message, Mode, PlanEntry, PlanStatus, Prompt, Question, StopReason, ToolCall,
    ToolCallId, ToolContent, ToolKind, ToolRequest, ToolStatus, ToolUpdate, visible,
};

/// How many bytes of a child's last message go back to its turn.
const MAX_RESULT: usize = 32 * 1024;
/// How many calls of a child are listed as its progress.
const LISTED: usize = 6;
/// How many characters of a call's title are listed.
const TITLE: usize = 120;

/// Runs a task to its end. A failure goes back to the model that started the task; a cancel and internal errors end the turn.
pub(crate) async fn run(
    parent: &TurnCx<'_>,
    tool: &ToolCx<'_>,
    task: ChildTask,
) -> Result<Output, ToolError> {
    let child =
        Child { turn: parent, call: tool.id, title: &task.title, progress: Mutex::default() };
    let settings = watch::Sender::new(settings(parent, &task.helper));
    let limits = TurnLimits {
        max_requests: helpers::max_requests(&task.helper).min(parent.turn.limits.max_requests),
        ..parent.turn.limits
    };
    let mut history = History::default();
    history.push(Message::User(Prompt::from(vec![Block::Text(task.prompt.clone())])));
    let facts = SpanFacts {
        call: Some(tool.id.clone()),
        model: Some(settings.borrow().model.clone()),
        ..SpanFacts::default()
    };
    let span = tool.spans.begin(SpanKind::Subagent, &task.helper.agent.name, facts);
    let turn = Turn::new(limits, parent.turn.cancel.child_token(), parent.turn.spans.inside(&span));
    let mut cx = TurnCx {
        ports: parent.ports,
        conversation: Conversation {
            session: parent.conversation.session,
            cwd: parent.conversation.cwd,
            settings: &settings,
            history: &mut history,
            context: &mut parent.conversation.context.for_child(),
            meter: parent.conversation.meter,
            steering: &Steering::default(),
            asking: parent.conversation.asking,
        },
        turn: Turn { parent: Some(&child), ..turn },
    };
    // On the heap: this is where a turn contains another one.
    let running: BoxFuture<'_, Result<StopReason, TurnError>> = Box::pin(run_turn(&mut cx));
    let ended = AssertUnwindSafe(running).catch_unwind().await;
    let said = last_words(&history);
    let ended = ended.unwrap_or(Err(TurnError::Failed(Error::Broken)));
    span.end(match &ended {
        Ok(_) => SpanEnd::Completed,
        Err(err) => err.span_end(),
    });
    match ended {
        Ok(StopReason::MaxTurnRequests) => {
            let limit = limits.max_requests;
            Ok(report(format!(
                "(not finished: the agent reached its limit of {limit} requests. Its last message:)\n{said}"
            )))
        }
        Ok(_) if said.is_empty() => Ok(report("(the agent ended without a message)".to_owned())),
        Ok(_) => Ok(report(said)),
        Err(TurnError::Cancelled) => Err(ToolError::Cancelled),
        Err(TurnError::Failed(err)) => {
            let mut why = format!("The task failed: {err}");
            if !said.is_empty() {
                why.push_str(&format!("\nThe agent's last message:\n{said}"));
            }
            Err(ToolError::Model(capped(why)))
        }
    }
}

/// Returns the settings of a child: the mode made from its helper, and the model that it prefers, if available.
fn settings(parent: &TurnCx<'_>, helper: &Helper) -> Settings {
    let mut settings = parent.settings();
    let mode = helpers::mode(helper, settings.mode());
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

/// Returns the first line of a text, cut to the length of a list item.
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

/// Stands between a child's turn and the turn that started it.
struct Child<'a> {
    turn: &'a TurnCx<'a>,
    /// The call that the client sees it as.
    call: &'a ToolCallId,
    title: &'a str,
    /// Never locked across an await.
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// How many calls there were.
    count: usize,
    /// The titles of the last of them.
    last: VecDeque<String>,
    /// The child's plan.
    plan: Vec<PlanEntry>,
    /// The calls that have not ended.
    open: Vec<Open>,
}

/// A call of the child that has not ended.
struct Open {
    call: ToolCall,
    /// Whether the client knows it, because the user was asked about it.
    is_shown: bool,
}

impl Parent for Child<'_> {
    fn call_id(&self, id: &ToolCallId) -> ToolCallId {
        ToolCallId::new(format!("{}/{id}", self.call))
    }

    fn mode(&self) -> Mode {
        self.turn.conversation.settings.borrow().mode().clone()
    }

    fn emit(&self, event: Event) -> BoxFuture<'_, Result<(), TurnError>> {
        let shown = self.translate(event);
        async move {
            match shown {
                Some(event) => self.turn.emit(event).await,
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn record<'a>(&'a self, record: Record<'a>) -> BoxFuture<'a, Result<(), TurnError>> {
        async move {
            match record {
                Record::Spent { .. } => self.turn.record(record).await,
                Record::ToolIntent(request) => match self.intent(request) {
                    Some(request) => self.turn.record(Record::ToolIntent(&request)).await,
                    None => Ok(()),
                },
                _ => Ok(()),
            }
        }
        .boxed()
    }

    fn present(&self, mut question: Question) -> BoxFuture<'_, Result<Question, TurnError>> {
        async move {
            question.call.title = self.with_name(&question.call.title);
            self.show_call(&question.call.id).await?;
            Ok(question)
        }
        .boxed()
    }

    fn present_form(&self, form: Form) -> BoxFuture<'_, Result<Form, TurnError>> {
        async move {
            if let Some(call) = &form.call {
                self.show_call(call).await?;
            }
            Ok(Form { message: self.with_name(&form.message), ..form })
        }
        .boxed()
    }
}

impl Child<'_> {
    /// Returns what an event of the child means for the parent's turn.
    fn translate(&self, event: Event) -> Option<Event> {
        match event {
            Event::ToolCall(call) => Some(self.begin(*call)),
            Event::ToolUpdate(id, update) => self.update(id, update),
            Event::Usage { cost: Some(cost), .. } => {
                let (used, size) = self.turn.conversation.meter.window();
                Some(Event::Usage { used, size, cost: Some(cost) })
            }
            Event::Notice { .. } => Some(event),
            // The plan that the user sees is the parent's; the child's is part of its progress.
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
        }
    }

    /// Counts a new call of the child, which is its progress.
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
            count => format!("{count} calls, most recently:"),
        });
        for line in &progress.last {
            text.push_str(&format!("\n- {line}"));
        }
        let content = Some(vec![ToolContent::Block(Block::Text(text))]);
        let update = ToolUpdate { content, ..ToolUpdate::default() };
        Event::ToolUpdate(self.call.clone(), Box::new(update))
    }

    /// Passes on an update of a call that the client knows.
    fn update(&self, id: ToolCallId, update: Box<ToolUpdate>) -> Option<Event> {
        let mut progress = self.progress();
        let at = progress.open.iter().position(|open| open.call.id == id)?;
        let is_shown = progress.open[at].is_shown;
        if matches!(update.status, Some(ToolStatus::Completed | ToolStatus::Failed)) {
            progress.open.swap_remove(at);
        }
        is_shown.then_some(Event::ToolUpdate(id, update))
    }

    /// Returns what the journal needs of a call: that the user was asked about it, or that a command ran.
    fn intent(&self, request: &ToolRequest) -> Option<ToolRequest> {
        let progress = self.progress();
        let open = progress.open.iter().find(|open| open.call.id == request.id)?;
        let is_command = matches!(open.call.kind, ToolKind::Execute | ToolKind::Other);
        (open.is_shown || is_command).then(|| ToolRequest {
            id: request.id.clone(),
            name: open.call.title.clone(),
            input: serde_json::Value::Null.into(),
        })
    }

    fn with_name(&self, words: &str) -> String {
        format!("{}: {words}", visible(self.title))
    }

    async fn show_call(&self, id: &ToolCallId) -> Result<(), TurnError> {
        let shown = {
            let mut progress = self.progress();
            let open = progress.open.iter_mut().find(|open| open.call.id == *id);
            open.map(|open| {
                open.is_shown = true;
                ToolCall { title: self.with_name(&open.call.title), ..open.call.clone() }
            })
        };
        match shown {
            Some(call) => self.turn.emit(Event::ToolCall(Box::new(call))).await,
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
    fn long_result_is_cut_and_says_so() {
        let text = capped("ä".repeat(MAX_RESULT));
        assert!(text.len() < MAX_RESULT + 100);
        assert!(
            text.ends_with("(cut: the result had 65536 bytes; ask for a shorter one)"),
            "{text}"
        );
        assert_eq!(capped("short".to_owned()), "short");
    }
}
