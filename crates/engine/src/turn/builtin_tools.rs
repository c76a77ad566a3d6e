//! The extension that every session has: the tools that act on the turn itself, and the built-in slash commands.

use std::sync::{Arc, Mutex, PoisonError};

use super::commands::COMMANDS;
use super::exit_plan::ExitPlan;
use super::helpers;
use super::task::Task;
use crate::ports::{Extension, Tool, Toolbox};
use crate::words::SlashCommand;

/// The built-in tools of a session.
struct BuiltinTools {
    tools: Arc<[Arc<dyn Tool>]>,
    /// What the user has not seen yet.
    notices: Mutex<Vec<String>>,
}

/// Adds the built-in tools to a session's toolbox. `notices` is shown when the first turn begins.
pub(crate) fn with_builtin_tools(toolbox: Toolbox, notices: Vec<String>) -> Arc<Toolbox> {
    let task = Task::new(helpers::all(&toolbox.agents()));
    let tools: Arc<[Arc<dyn Tool>]> = Arc::new([Arc::new(task), Arc::new(ExitPlan)]);
    Arc::new(toolbox.with_first(Arc::new(BuiltinTools { tools, notices: Mutex::new(notices) })))
}

impl Extension for BuiltinTools {
    fn tools(&self, _: &[Arc<dyn Tool>]) -> Arc<[Arc<dyn Tool>]> {
        Arc::clone(&self.tools)
    }

    fn commands(&self) -> Vec<SlashCommand> {
        COMMANDS.to_vec()
    }

    fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
