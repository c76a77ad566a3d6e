//! The tool that gives a task to an agent. The agent itself is run by `child`.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::permission::Access;
use crate::ports::{AnyTool, Intent, Output, ToolCx, ToolError, ToolSpec};
use crate::turn::child;
use crate::turn::helpers::Helper;
use crate::words::{Block, ToolContent, ToolKind};

/// What models call the tool.
pub(crate) const NAME: &str = "task";

const DESCRIPTION: &str = "\
Gives a task to an agent that works on its own, with a conversation of its own, and returns what it says at the end. Use it \
for work that takes many steps or much reading of which you need the result alone. Several tasks in one answer run at \
once, so give those that do not depend on each other together. The agent knows nothing of this conversation: its prompt \
must say all that it needs, and what it is to report.";

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
        let spec = Arc::new(ToolSpec { name: NAME.to_owned(), description, schema });
        Task { helpers, spec }
    }

    /// Reads a call's input: whose task it is, what it is called, and what it says.
    fn read<'a>(&'a self, input: &'a Value) -> Result<Order<'a>, ToolError> {
        let text = |field: &str| {
            let text = input[field].as_str().map(str::trim).filter(|text| !text.is_empty());
            text.ok_or_else(|| ToolError::Model(format!("the input needs a text `{field}`")))
        };
        let name = text("subagent_type")?;
        let Some(helper) = self.helpers.iter().find(|helper| helper.agent.name == name) else {
            let known = names(&self.helpers).join(", ");
            return Err(ToolError::Model(format!("there is no agent `{name}`; there are {known}")));
        };
        Ok(Order { helper, title: text("description")?, prompt: text("prompt")? })
    }
}

fn names(helpers: &[Helper]) -> Vec<&str> {
    helpers.iter().map(|helper| helper.agent.name.as_str()).collect()
}

/// A task that is to be given.
pub(crate) struct Order<'a> {
    pub(crate) helper: &'a Helper,
    /// What people call it.
    pub(crate) title: &'a str,
    /// What the agent is told.
    pub(crate) prompt: &'a str,
}

impl AnyTool for Task {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Think
    }

    fn runs_beside_others(&self) -> bool {
        true
    }

    fn intent<'a>(
        &'a self,
        _: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Intent, ToolError>> {
        async move {
            let order = self.read(input)?;
            let title = format!("{} ({})", order.title, order.helper.agent.name);
            let content = vec![ToolContent::Block(Block::Text(order.prompt.to_owned()))];
            let access = vec![Access::allow(NAME, order.helper.agent.name.as_str())];
            Ok(Intent { title, content, locations: Vec::new(), access })
        }
        .boxed()
    }

    fn run<'a>(
        &'a self,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        async move {
            let order = self.read(input)?;
            let Some(inside) = &cx.inside else {
                return Err(ToolError::Model("tasks can be given in a turn only".to_owned()));
            };
            child::run(inside.0, cx.id, order).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::helpers;

    #[test]
    fn what_is_wrong_with_a_task_is_said() {
        let task = Task::new(helpers::all(&[]));
        let problem = |input: Value| task.read(&input).err().unwrap().to_string();
        assert_eq!(problem(json!({})), "the input needs a text `subagent_type`");
        assert_eq!(
            problem(json!({ "subagent_type": "nobody" })),
            "there is no agent `nobody`; there are general, explore"
        );
        let input = json!({ "subagent_type": "explore", "description": "Find it", "prompt": " " });
        assert_eq!(problem(input), "the input needs a text `prompt`");
        assert!(task.spec().description.contains("- explore: Looks"));
    }
}
