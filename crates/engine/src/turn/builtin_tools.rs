//! The engine's own tools, which every session has beside those it was given: they work on the turn itself.

use std::sync::{Arc, Mutex, PoisonError};

use crate::ports::{AnyTool, Tools};
use crate::turn::exit_plan::ExitPlan;
use crate::turn::helpers;
use crate::turn::task::Task;

/// The tools that a session was given, and ours.
pub(crate) struct WithOwn {
    given: Arc<dyn Tools>,
    own: Vec<Arc<dyn AnyTool>>,
    /// What the user is to be told when a turn begins.
    untold: Mutex<Vec<String>>,
}

impl WithOwn {
    /// Adds our tools to those that a session was given.
    pub(crate) fn new(given: Arc<dyn Tools>, untold: Vec<String>) -> WithOwn {
        let task = Task::new(helpers::all(&given.agents()));
        let own: Vec<Arc<dyn AnyTool>> = vec![Arc::new(task), Arc::new(ExitPlan)];
        WithOwn { given, own, untold: Mutex::new(untold) }
    }
}

impl Tools for WithOwn {
    fn now(&self) -> Arc<[Arc<dyn AnyTool>]> {
        self.given.now().iter().chain(&self.own).cloned().collect()
    }

    fn inner(&self) -> Option<&dyn Tools> {
        Some(&*self.given)
    }

    fn news(&self) -> Vec<String> {
        let mut news =
            std::mem::take(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner));
        news.extend(self.given.news());
        news
    }
}
