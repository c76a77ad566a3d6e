//! What a session remembers beside its conversation, to build requests from.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ports::Instructions;

/// What is needed to build a request, beside the conversation.
#[derive(Debug, Default)]
pub(crate) struct ContextState {
    /// The instructions and the day they were read. Both stay the same while they are in use, so that the provider's
    /// cache stays valid.
    pub(crate) instructions: Option<(Arc<Instructions>, String)>,
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

/// The origins of instruction files that the model got with a result. Never locked across an await.
#[derive(Debug, Default)]
pub(crate) struct SentFiles(Mutex<BTreeSet<String>>);

impl SentFiles {
    /// Notes a file. Tells whether it is new.
    pub(crate) fn add(&self, origin: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(origin.to_owned())
    }
}
