//! The engine's own tools, which every session has beside those it was given: they work on the turn itself.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::agents::Agent;
use crate::commands::SlashCommand;
use crate::exit_plan::ExitPlan;
use crate::helpers;
use crate::hooks::{Moment, Ruling};
use crate::ports::{AnyTool, Editor, Expanded, Tools};
use crate::scene::Scene;
use crate::task::Task;
use crate::words::Prompt;

/// The tools that a session was given, and ours.
pub(crate) struct WithOwn {
    given: Arc<dyn Tools>,
    own: Vec<Arc<dyn AnyTool>>,
}

impl WithOwn {
    /// Adds our tools to those that a session was given.
    pub(crate) fn new(given: Arc<dyn Tools>) -> WithOwn {
        let task = Task::new(helpers::all(&given.agents()));
        let own: Vec<Arc<dyn AnyTool>> = vec![Arc::new(task), Arc::new(ExitPlan)];
        WithOwn { given, own }
    }
}

impl Tools for WithOwn {
    fn now(&self) -> Arc<[Arc<dyn AnyTool>]> {
        self.given.now().iter().chain(&self.own).cloned().collect()
    }

    fn start(&self, editor: &Arc<dyn Editor>) {
        self.given.start(editor);
    }

    fn rest(&self) {
        self.given.rest();
    }

    fn agents(&self) -> Vec<Arc<Agent>> {
        self.given.agents()
    }

    fn hook<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, Ruling> {
        self.given.hook(moment)
    }

    fn commands(&self) -> Vec<SlashCommand> {
        self.given.commands()
    }

    fn news(&self) -> Vec<String> {
        self.given.news()
    }

    fn scene(&self, prompt: &Prompt) -> Option<Result<Scene, String>> {
        self.given.scene(prompt)
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        self.given.expand(prompt)
    }
}
