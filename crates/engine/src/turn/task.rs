//! The tool that gives a task to an agent. The turn runs the agent; see [`ToolHost::run_child`](crate::ports::ToolHost).

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serde_json::{Value, json};

use crate::ports::{
    ChildTask, Helper, Intent, Output, Planned, Tool, ToolCx, ToolError, ToolSpec, Wait,
};
use crate::words::{Access, Block, PermissionKey, ToolContent, ToolKind, inert, visible};

const NAME: &str = "task";

const DESCRIPTION: &str = "\
Gives a task to an agent that works on its own, with its own conversation, and returns its last message. Use it for work \
that takes many steps or much reading when you only need the result. Several tasks in one answer run in parallel, so start \
independent tasks together. The agent knows nothing about this conversation: the prompt must contain everything it needs, \
and say what it should report.";

/// Gives tasks to agents.
#[derive(Debug)]
pub(crate) struct Task {
    helpers: Vec<Helper>,
    spec: Arc<ToolSpec>,
}

impl Task {
    /// Makes the tool for these helpers.
    pub(crate) fn new(helpers: Vec<Helper>) -> Task {
        let names: Vec<&str> = names(&helpers);
        let properties = json!({
            "description": { "type": "string", "description": "The task in three to five words" },
            "prompt": { "type": "string", "description": "The whole task, and what to report" },
            "subagent_type": { "type": "string", "enum": names, "description": "Which agent" },
        });
        let required = ["description", "prompt", "subagent_type"];
        let schema =
            json!({ "type": "object", "properties": properties, "required": required }).into();
        let mut description = format!("{DESCRIPTION}\n\nAgents:");
        for Helper { agent, .. } in &helpers {
            description.push_str(&format!("\n- {}: {}", agent.name, agent.description));
        }
        let spec = Arc::new(ToolSpec::new(NAME.to_owned(), description, schema));
        Task { helpers, spec }
    }

    /// Reads the input of a call.
    fn read(&self, input: &Value) -> Result<ChildTask, ToolError> {
        let text = |field: &str| {
            let text = input[field].as_str().map(str::trim).filter(|text| !text.is_empty());
            text.ok_or_else(|| ToolError::Model(format!("`{field}` must be a non-empty string")))
        };
        let name = text("subagent_type")?;
        let Some(helper) = self.helpers.iter().find(|helper| helper.agent.name == name) else {
            let known = names(&self.helpers).join(", ");
            return Err(ToolError::Model(format!(
                "unknown agent `{name}`; the agents are {known}"
            )));
        };
        let (helper, title) = (helper.clone(), text("description")?.to_owned());
        Ok(ChildTask { helper, title, prompt: text("prompt")?.to_owned() })
    }
}

fn names(helpers: &[Helper]) -> Vec<&str> {
    helpers.iter().map(|helper| helper.agent.name.as_str()).collect()
}

impl Tool for Task {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    fn brief_spec(&self) -> Option<Arc<ToolSpec>> {
        None
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Think
    }

    fn is_parallel(&self) -> bool {
        true
    }

    /// A child gives no tasks itself.
    fn is_for_children(&self) -> bool {
        false
    }

    fn plan<'a>(
        self: Arc<Self>,
        _: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<(Intent, Box<dyn Planned>), ToolError>> {
        let planned = self.read(input).map(|task| {
            let name = task.helper.agent.name.as_str();
            let intent = Intent {
                title: format!("{} ({name})", task.title),
                content: vec![ToolContent::Block(Block::Text(inert(&visible(&task.prompt))))],
                locations: Vec::new(),
                access: vec![Access::allow(PermissionKey::Task, name)],
            };
            (intent, Box::new(PlannedTask(task)) as Box<dyn Planned>)
        });
        future::ready(planned).boxed()
    }
}

/// A task that is about to be given.
struct PlannedTask(ChildTask);

impl Planned for PlannedTask {
    fn wait(&self) -> Option<Wait> {
        None
    }

    fn run<'a>(self: Box<Self>, cx: &'a ToolCx<'a>) -> BoxFuture<'a, Result<Output, ToolError>> {
        cx.turn.run_child(cx, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::helpers;

    #[test]
    fn invalid_task_input_is_explained() {
        let task = Task::new(helpers::all(&[]));
        let problem = |input: Value| task.read(&input).err().unwrap().to_string();
        assert_eq!(problem(json!({})), "`subagent_type` must be a non-empty string");
        assert_eq!(
            problem(json!({ "subagent_type": "nobody" })),
            "unknown agent `nobody`; the agents are general, explore"
        );
        let input = json!({ "subagent_type": "explore", "description": "Find it", "prompt": " " });
        assert_eq!(problem(input), "`prompt` must be a non-empty string");
        assert!(task.spec().description.contains("- explore: Looks"));
    }
}
