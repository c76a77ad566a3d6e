//! The tool calls of one answer: which of them run at once, and how what came of them enters the history.
//!
//! One call is `dispatch`'s business.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};

use crate::ports::AnyTool;
use crate::turn::dispatch;
use crate::turn::{TurnCx, TurnError};
use crate::words::pictures;
use crate::words::{Message, ToolRequest};

/// How many calls of one answer run at once.
const AT_ONCE: usize = 8;

/// Runs the calls of one answer: those that only look beside each other, those that may change something one by one.
///
/// Results enter the history in the order of the calls. A cancel ends all that run; what was done before stays known.
pub(crate) fn run_all<'a>(
    cx: &'a mut TurnCx<'_>,
    calls: Vec<ToolRequest>,
) -> BoxFuture<'a, Result<(), TurnError>> {
    run_groups(cx, calls).boxed()
}

async fn run_groups(cx: &mut TurnCx<'_>, calls: Vec<ToolRequest>) -> Result<(), TurnError> {
    let mut pictures = Vec::new();
    for group in groups(calls, &cx.tools.now()) {
        let turn = &*cx;
        // All are announced and allowed before the first runs: what the user sees and is asked has an order.
        let (mut calls, mut ended) = (Vec::new(), Ok(()));
        for call in group {
            match dispatch::begin(turn, call).await {
                Ok(step) => calls.push(dispatch::carry_out(turn, step)),
                Err(err) => {
                    ended = Err(err);
                    break;
                }
            }
        }
        let outcomes: Vec<_> = stream::iter(calls).buffered(AT_ONCE).collect().await;
        for outcome in outcomes {
            match outcome {
                Ok(done) => {
                    let (id, text, failed) = (done.id, done.text, done.failed);
                    cx.history.push(Message::ToolResult { id, text, failed });
                    pictures.extend(done.pictures);
                }
                Err(err) => ended = ended.and(Err(err)),
            }
        }
        ended?;
    }
    if let Some(message) = pictures::message_of(pictures) {
        cx.history.push(message);
    }
    Ok(())
}

/// Cuts calls into groups that run one after the other: neighbours that may run beside each other are one group.
fn groups(calls: Vec<ToolRequest>, tools: &[Arc<dyn AnyTool>]) -> Vec<Vec<ToolRequest>> {
    let runs_beside = |call: &ToolRequest| {
        tools.iter().any(|tool| tool.spec().name == call.name && tool.runs_beside_others())
    };
    let mut groups: Vec<Vec<ToolRequest>> = Vec::new();
    let mut is_open = false;
    for call in calls {
        let is_beside = runs_beside(&call);
        match groups.last_mut() {
            Some(group) if is_open && is_beside => group.push(call),
            _ => groups.push(vec![call]),
        }
        is_open = is_beside;
    }
    groups
}

#[cfg(test)]
mod tests {
    use futures_util::future;
    use serde_json::{Value, json};

    use super::*;
    use crate::ports::{Intent, Output, ToolCx, ToolError, ToolSpec};
    use crate::words::{ToolCallId, ToolKind};

    struct Named(&'static str, ToolKind);

    impl AnyTool for Named {
        fn spec(&self) -> Arc<ToolSpec> {
            let (name, description) = (self.0.to_owned(), String::new());
            Arc::new(ToolSpec { name, description, schema: json!({}).into() })
        }

        fn kind(&self) -> ToolKind {
            self.1
        }

        fn intent<'a>(
            &'a self,
            _: &'a ToolCx<'a>,
            _: &'a Value,
        ) -> BoxFuture<'a, Result<Intent, ToolError>> {
            future::ready(Ok(Intent::default())).boxed()
        }

        fn run<'a>(
            &'a self,
            _: &'a ToolCx<'a>,
            _: &'a Value,
        ) -> BoxFuture<'a, Result<Output, ToolError>> {
            future::ready(Ok(Output::default())).boxed()
        }
    }

    fn grouped(names: &[&str]) -> Vec<String> {
        let tools: [Arc<dyn AnyTool>; 3] = [
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
    fn what_changes_things_runs_alone_and_in_order() {
        assert_eq!(
            grouped(&["read", "grep", "edit", "edit", "read", "nothing", "grep", "read"]),
            ["read grep", "edit", "edit", "read", "nothing", "grep read"]
        );
        assert!(grouped(&[]).is_empty());
    }
}
