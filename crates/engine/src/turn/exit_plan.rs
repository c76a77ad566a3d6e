//! The tool that leaves plan mode: when the plan is complete, the user is asked whether to carry it out.
//!
//! Offered in plan mode only; see `Mode::offers`. The conversation and the plan stay as they are.

use std::sync::{Arc, LazyLock};

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serde_json::{Value, json};

use crate::ports::{Intent, Output, Planned, Tool, ToolCx, ToolError, ToolSpec, Wait};
use crate::words::{
    Answer, Block, Choice, Question, ToolCall, ToolContent, ToolKind, ToolStatus, visible,
};

const NAME: &str = "exit_plan";
const TITLE: &str = "Continue in build mode with this plan?";
/// The mode that plans are carried out in.
const BUILD: &str = "build";

const DESCRIPTION: &str = "\
In plan mode only: asks the user whether to carry out the plan now. Call it when the plan is complete and nothing in it is left to decide. If \
the user agrees, the mode changes to `build` at once and you continue with the work; otherwise you stay in plan mode.";

/// Offers to carry out the plan.
#[derive(Debug)]
pub(crate) struct ExitPlan;

impl Tool for ExitPlan {
    fn spec(&self) -> Arc<ToolSpec> {
        // Needed for every call of any tool, and always the same.
        static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| {
            let plan = json!({ "type": "string", "description": "The plan, in Markdown" });
            let schema =
                json!({ "type": "object", "properties": { "plan": plan }, "required": ["plan"] });
            let (name, description) = (NAME.to_owned(), DESCRIPTION.to_owned());
            Arc::new(ToolSpec::new(name, description, schema.into()))
        });
        Arc::clone(&SPEC)
    }

    fn brief_spec(&self) -> Option<Arc<ToolSpec>> {
        None
    }

    fn kind(&self) -> ToolKind {
        ToolKind::SwitchMode
    }

    fn plan<'a>(
        self: Arc<Self>,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<(Intent, Box<dyn Planned>), ToolError>> {
        let plan = input["plan"].as_str().map(str::trim).filter(|plan| !plan.is_empty());
        let Some(plan) = plan else {
            let why = "`plan` must be a non-empty string".to_owned();
            return future::ready(Err(ToolError::Model(why))).boxed();
        };
        let content = vec![ToolContent::Block(Block::Text(visible(plan)))];
        let call = ToolCall {
            id: cx.id.clone(),
            name: NAME.to_owned(),
            title: TITLE.to_owned(),
            kind: ToolKind::SwitchMode,
            status: ToolStatus::InProgress,
            content: content.clone(),
            locations: Vec::new(),
            raw_input: input.clone(),
        };
        let intent = Intent { title: TITLE.to_owned(), content, ..Intent::default() };
        future::ready(Ok((intent, Box::new(Offer(call)) as Box<dyn Planned>))).boxed()
    }
}

/// The question whether to carry out the plan.
struct Offer(ToolCall);

impl Planned for Offer {
    fn wait(&self) -> Option<Wait> {
        None
    }

    fn run<'a>(self: Box<Self>, cx: &'a ToolCx<'a>) -> BoxFuture<'a, Result<Output, ToolError>> {
        async move {
            let choice = |answer, id: &'static str, name: &str| Choice {
                answer,
                id: id.into(),
                name: name.to_owned(),
            };
            let choices = vec![
                choice(Answer::AllowOnce, BUILD, "Yes, continue in build mode"),
                choice(Answer::RejectOnce, "plan", "No, stay in plan mode"),
            ];
            let agreed = match cx.turn.confirm(Question { call: self.0, choices }).await? {
                Answer::AllowOnce
                | Answer::AllowSession
                | Answer::AllowAlways
                | Answer::AllowReading => cx.turn.set_mode(BUILD).await?,
                Answer::RejectOnce | Answer::RejectAlways | Answer::Cancelled => false,
            };
            if !agreed {
                return Err(ToolError::Model(STAY.to_owned()));
            }
            let text = "The user agreed. The mode is now `build`: carry out the plan.".to_owned();
            Ok(Output { text, ..Output::default() })
        }
        .boxed()
    }
}

const STAY: &str = "The user wants to stay in plan mode. Ask what should be different, and do not offer this again before the plan has changed.";
