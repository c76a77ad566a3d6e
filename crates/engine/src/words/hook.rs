//! When hooks run, and what they can say. `turn::hooks` asks them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::usage::StopReason;

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment<'a> {
    /// A prompt is about to go to the model.
    BeforeTurn {
        /// Its text.
        prompt: &'a str,
    },
    /// A tool is about to be used; the user was not asked for permission yet.
    BeforeTool {
        /// Which.
        tool: &'a str,
        /// The input that the model gave.
        input: &'a Value,
    },
    /// A tool has finished or failed.
    AfterTool {
        /// Which.
        tool: &'a str,
        /// The input that the model gave.
        input: &'a Value,
        /// The result, as the model will see it.
        output: &'a str,
        /// Whether it failed.
        failed: bool,
    },
    /// The turn has ended; `None` if it was cancelled or failed.
    AfterTurn(Option<StopReason>),
}

/// What hooks decided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookOutcome {
    /// Why it must not happen. Ignored for what has happened already.
    pub objection: Option<String>,
    /// Why the user must be asked first, whatever rules allow. Only before a tool is used.
    pub ask: Option<String>,
    /// More information for the model.
    pub context: Vec<String>,
    /// What is wrong with the hooks themselves, for the user.
    pub problems: Vec<String>,
}

impl HookOutcome {
    /// Adds another outcome. The first objection wins.
    pub fn merge(&mut self, other: HookOutcome) {
        if self.objection.is_none() {
            self.objection = other.objection;
        }
        self.ask = self.ask.take().or(other.ask);
        self.context.extend(other.context);
        self.problems.extend(other.problems);
    }
}
