//! The tool calls of one answer: which of them run in parallel, and how their results enter the history.
//!
//! One call is the business of `dispatch`.

use std::sync::Arc;

use futures_util::{StreamExt, stream};

use super::cx::{TurnCx, TurnError};
use super::dispatch;
use crate::ports::Tool;
use crate::words::{Message, ToolRequest, pictures_message};

/// How many calls of one answer run at the same time.
const PARALLEL: usize = 8;

/// Runs the calls of one answer: those that only read in parallel, those that may change something one by one.
///
/// Results enter the history in the order of the calls. A cancel ends all running calls; finished results stay.
pub(crate) async fn run_all(cx: &mut TurnCx<'_>, calls: Vec<ToolRequest>) -> Result<(), TurnError> {
    let mut pictures = Vec::new();
    for group in groups(calls, &cx.tools()) {
        let turn = &*cx;
        // All are announced and allowed before the first runs, so that the user sees them in order.
        let (mut calls, mut ended) = (Vec::new(), Ok(()));
        for call in group {
            match dispatch::prepare(turn, call).await {
                Ok(step) => calls.push(dispatch::finish(turn, step)),
                Err(err) => {
                    ended = Err(err);
                    break;
                }
            }
        }
        let outcomes: Vec<_> = stream::iter(calls).buffered(PARALLEL).collect().await;
        for outcome in outcomes {
            match outcome {
                Ok(done) => {
                    let (id, text, failed) = (done.id, done.text, done.failed);
                    cx.conversation.history.push(Message::ToolResult { id, text, failed });
                    pictures.extend(done.pictures);
                }
                Err(err) => ended = ended.and(Err(err)),
            }
        }
        ended?;
    }
    if let Some(message) = pictures_message(pictures) {
        cx.conversation.history.push(message);
    }
    Ok(())
}

/// Splits calls into groups that run one after the other. Neighbours that may run in parallel are one group.
fn groups(calls: Vec<ToolRequest>, tools: &[Arc<dyn Tool>]) -> Vec<Vec<ToolRequest>> {
    let runs_parallel = |call: &ToolRequest| {
        tools.iter().any(|tool| tool.spec().name == call.name && tool.is_parallel())
    };
    let mut groups: Vec<Vec<ToolRequest>> = Vec::new();
    let mut is_open = false;
    for call in calls {
        let is_parallel = runs_parallel(&call);
        match groups.last_mut() {
            Some(group) if is_open && is_parallel => group.push(call),
            _ => groups.push(vec![call]),
        }
        is_open = is_parallel;
    }
    groups
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use serde_json::{Value, json};

    use super::*;
    use crate::ports::{Intent, Planned, ToolCx, ToolError, ToolSpec};
    use crate::words::{ToolCallId, ToolKind};

    struct Named(&'static str, ToolKind);

    impl Tool for Named {
        fn spec(&self) -> Arc<ToolSpec> {
            let (name, description) = (self.0.to_owned(), String::new());
            Arc::new(ToolSpec::new(name, description, json!({}).into()))
        }

        fn kind(&self) -> ToolKind {
            self.1
        }

        fn plan<'a>(
            self: Arc<Self>,
            _: &'a ToolCx<'a>,
            _: &'a Value,
        ) -> BoxFuture<'a, Result<(Intent, Box<dyn Planned>), ToolError>> {
            unreachable!("only the order of calls is tested")
        }
    }

    fn grouped(names: &[&str]) -> Vec<String> {
        let tools: [Arc<dyn Tool>; 3] = [
            Arc::new(Named("read", ToolKind::Read)),
            Arc::new(Named("grep", ToolKind::Search)),
            Arc::new(Named("edit", ToolKind::Edit)),
        ];
        let call = |name: &&str| ToolRequest {
            id: ToolCallId::new("t"),
            name: (*name).to_owned(),
            input: json!({}).into(),
        };
        let groups = groups(names.iter().map(call).collect(), &tools);
        let names = |group: Vec<ToolRequest>| -> Vec<String> {
            group.into_iter().map(|call| call.name).collect()
        };
        groups.into_iter().map(|group| names(group).join(" ")).collect()
    }

    #[test]
    fn calls_that_change_things_run_alone_and_in_order() {
        assert_eq!(
            grouped(&["read", "grep", "edit", "edit", "read", "nothing", "grep", "read"]),
            ["read grep", "edit", "edit", "read", "nothing", "grep read"]
        );
        assert!(grouped(&[]).is_empty());
    }
}
