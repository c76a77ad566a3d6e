//! What a session remembers beside its conversation, to build requests from.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ports::{Instructions, ToolSpec};
use crate::words::{Message, ModeId};

/// What is needed to build a request, beside the conversation.
#[derive(Debug, Default)]
pub(crate) struct ContextState {
    /// The instructions and the day they were read. Both stay the same while they are in use, so that the provider's
    /// cache stays valid.
    pub(crate) instructions: Option<(Arc<Instructions>, String)>,
    /// The mode that the first message describes. Later changes of the mode are messages of their own.
    pub(crate) first_mode: Option<ModeId>,
    /// The names of the tools, in the order in which they were first offered: a tool that joins late comes last.
    pub(crate) order: ToolOrder,
    /// The first message of the conversation, and the same with what precedes it.
    pub(crate) opened: Option<(Arc<Message>, Arc<str>, Arc<Message>)>,
    /// Instruction files that the model got with a result.
    pub(crate) sent: SentFiles,
    /// How many messages the provider counted last, with the system prompt and the tools, and how many tokens that was.
    pub(crate) measured: Option<(usize, u64)>,
}

impl ContextState {
    /// Makes the state of a child, which has the same instructions.
    pub(crate) fn for_child(&self) -> ContextState {
        ContextState { instructions: self.instructions.clone(), ..ContextState::default() }
    }

    /// Forgets everything, so that it is read and measured again.
    pub(crate) fn refresh(&mut self) {
        *self = ContextState::default();
    }

    /// Notes how many tokens the provider counted.
    pub(crate) fn measure(&mut self, messages: usize, tokens: u64) {
        self.measured = Some((messages, tokens));
    }
}

/// The names of tools in the order in which they were first offered. Never locked across an await.
#[derive(Debug, Default)]
pub(crate) struct ToolOrder(Mutex<Vec<String>>);

impl ToolOrder {
    /// Sorts tools: those that were offered before come first, in their order.
    pub(crate) fn sort(&self, tools: &mut [Arc<ToolSpec>]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for tool in tools.iter() {
            if !known.contains(&tool.name) {
                known.push(tool.name.clone());
            }
        }
        tools.sort_by_key(|tool| known.iter().position(|name| *name == tool.name));
    }
}

/// The origins of instruction files that the model got with a result. Never locked across an await.
#[derive(Debug, Default)]
pub(crate) struct SentFiles(Mutex<BTreeSet<String>>);

impl SentFiles {
    /// Notes a file. Tells whether it is new.
    pub(crate) fn add(&self, origin: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(origin.to_owned())
    }
}
