//! The tool that leaves plan mode: when the plan is made, the user is asked whether to carry it out.
//!
//! Offered in plan mode alone; see `Mode::offers`. The conversation and the plan stay as they are.

use std::sync::{Arc, LazyLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::permission::{Answer, Choice, Question};
use crate::ports::{AnyTool, Inside, Intent, Output, ToolCx, ToolError, ToolSpec};
use crate::turn::TurnError;
use crate::words::visible::visible;
use crate::words::{Block, ToolCall, ToolContent, ToolKind, ToolStatus};

const NAME: &str = "exit_plan";
const TITLE: &str = "Go on in build mode with this plan?";
/// The mode that plans are carried out in.
const BUILD: &str = "build";

const DESCRIPTION: &str = "\
Asks the user whether to carry out the plan now. Call it when the plan is whole and nothing in it is left to decide. If the \
user agrees, the mode becomes `build` at once and you go on with the work; if not, you stay in plan mode.";

/// Offers to carry out the plan.
#[derive(Debug)]
pub(crate) struct ExitPlan;

impl AnyTool for ExitPlan {
    fn spec(&self) -> Arc<ToolSpec> {
        // Asked for with every call of any tool, and always the same.
        static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| {
            let plan = json!({ "type": "string", "description": "The plan, in Markdown" });
            let schema =
                json!({ "type": "object", "properties": { "plan": plan }, "required": ["plan"] });
            let (name, description) = (NAME.to_owned(), DESCRIPTION.to_owned());
            Arc::new(ToolSpec { name, description, schema: schema.into() })
        });
        Arc::clone(&SPEC)
    }

    fn kind(&self) -> ToolKind {
        ToolKind::SwitchMode
    }

    fn intent<'a>(
        &'a self,
        _: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Intent, ToolError>> {
        async move {
            let content = shown(plan(input)?);
            Ok(Intent { title: TITLE.to_owned(), content, ..Intent::default() })
        }
        .boxed()
    }

    fn run<'a>(
        &'a self,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        async move {
            let Some(Inside(turn)) = cx.inside else {
                return Err(ToolError::Model("the mode can be changed in a turn only".to_owned()));
            };
            let call = ToolCall {
                id: cx.id.clone(),
                name: NAME.to_owned(),
                title: TITLE.to_owned(),
                kind: ToolKind::SwitchMode,
                status: ToolStatus::InProgress,
                content: shown(plan(input)?),
                locations: Vec::new(),
                raw_input: input.clone(),
            };
            let choice = |answer, id, name: &str| Choice { answer, id, name: name.to_owned() };
            let choices = vec![
                choice(Answer::AllowOnce, BUILD, "Yes, go on in build mode"),
                choice(Answer::RejectOnce, "plan", "No, stay in plan mode"),
            ];
            let _asking = cx.or_cancelled(turn.asking.lock()).await?;
            let asked = turn.editor.ask_permission(Question { call, choices });
            match cx.or_cancelled(asked).await?? {
                Answer::AllowOnce | Answer::AllowAlways => {}
                Answer::RejectOnce | Answer::RejectAlways | Answer::Cancelled => {
                    return Err(ToolError::Model(STAY.to_owned()));
                }
            }
            let build = turn.settings.borrow().find_mode(BUILD).cloned();
            let Some(build) = build else { return Err(ToolError::Model(STAY.to_owned())) };
            turn.set_mode(&build).await.map_err(|err| match err {
                TurnError::Cancelled => ToolError::Cancelled,
                TurnError::Failed(err) => err.into(),
            })?;
            let text =
                "the user agreed, and the mode is now `build`: carry out the plan".to_owned();
            Ok(Output { text, ..Output::default() })
        }
        .boxed()
    }
}

const STAY: &str = "the user wants to stay in plan mode: ask what should be different, and do not offer this again before the plan has changed";

fn shown(plan: &str) -> Vec<ToolContent> {
    vec![ToolContent::Block(Block::Text(visible(plan)))]
}

fn plan(input: &Value) -> Result<&str, ToolError> {
    let plan = input["plan"].as_str().map(str::trim).filter(|plan| !plan.is_empty());
    plan.ok_or_else(|| ToolError::Model("the input needs a text `plan`".to_owned()))
}
