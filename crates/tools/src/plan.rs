//! `plan`: shows the user the steps of the work and their status.

use engine::Event;
use engine::ports::{Intent, Output, ToolCx, ToolError};
use engine::words::visible;
use engine::words::{PlanEntry, PlanStatus, Priority, ToolKind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tool::TypedTool;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(rename = "todos", alias = "entries", alias = "plan", alias = "steps")]
    steps: Vec<Step>,
}

/// A step: its text, or its text with a status.
#[derive(Deserialize)]
#[serde(untagged)]
enum Step {
    Text(String),
    Full {
        #[serde(alias = "step", alias = "description", alias = "title")]
        content: String,
        #[serde(default)]
        status: Option<String>,
        #[serde(default)]
        priority: Option<String>,
    },
}

/// The tool.
pub(crate) struct Plan;

impl TypedTool for Plan {
    const NAME: &'static str = "plan";
    const KIND: ToolKind = ToolKind::Think;
    const DESCRIPTION: &'static str = "
Shows the user your plan, for work with several steps. Send all steps every time, with one of them `in_progress`, and mark each as
`completed` as soon as it is done.";
    const ALIASES: &'static [&'static str] = &["todowrite", "updateplan", "settodos", "todo"];

    type Input = Input;
    type Plan = Vec<PlanEntry>;

    fn fields() -> (Value, &'static [&'static str]) {
        let step = json!({
            "type": "object",
            "properties": {
                "content": { "type": "string", "description": "What to do" },
                "status": { "type": "string", "enum": ["pending", "in_progress", "completed"] },
                "priority": { "type": "string", "enum": ["high", "medium", "low"] },
            },
            "required": ["content", "status"],
        });
        (
            json!({ "todos": { "type": "array", "items": step, "description": "All steps, in order" } }),
            &["todos"],
        )
    }

    async fn plan(
        &self,
        _: &ToolCx<'_>,
        input: Input,
    ) -> Result<(Intent, Vec<PlanEntry>), ToolError> {
        let steps: Vec<PlanEntry> =
            input.steps.into_iter().enumerate().filter_map(|(at, step)| entry(at, step)).collect();
        let done = steps.iter().filter(|step| step.status == PlanStatus::Completed).count();
        let title = match done {
            0 => "Make a plan".to_owned(),
            done => format!("Update the plan ({done} of {} done)", steps.len()),
        };
        Ok((Intent { title, ..Intent::default() }, steps))
    }

    async fn run(&self, cx: &ToolCx<'_>, steps: Vec<PlanEntry>) -> Result<Output, ToolError> {
        let open = steps.iter().filter(|step| step.status != PlanStatus::Completed).count();
        cx.turn.show(Event::Plan(steps)).await?;
        let text = format!("The plan is shown to the user; {open} steps are open");
        Ok(Output { text, content: Some(Vec::new()), raw: None })
    }
}

/// Without a status the first step is in progress. Cancelled steps are omitted.
fn entry(at: usize, step: Step) -> Option<PlanEntry> {
    let (content, status, priority) = match step {
        Step::Text(content) => (content, None, None),
        Step::Full { content, status, priority } => (content, status, priority),
    };
    let status = match status.as_deref() {
        Some("cancelled" | "canceled") => return None,
        Some("completed" | "done") => PlanStatus::Completed,
        Some("in_progress" | "active") => PlanStatus::InProgress,
        None if at == 0 => PlanStatus::InProgress,
        Some(_) | None => PlanStatus::Pending,
    };
    let priority = match priority.as_deref() {
        Some("high") => Priority::High,
        Some("low") => Priority::Low,
        Some(_) | None => Priority::Medium,
    };
    Some(PlanEntry { content: visible(&content), priority, status })
}
