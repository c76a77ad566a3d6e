//! What became of the last prompts, so that a prompt that is sent again is not answered twice.

use std::collections::VecDeque;

use engine::ports::PromptEnd;
use engine::words::MessageId;

use crate::record::{Name, PromptKind, StopReason, stop_out};

/// How many prompts are remembered: a client sends only its last one again.
const REMEMBERED: usize = 32;

/// The last prompts, the oldest first. One without an end has a turn that is open.
#[derive(Debug, Default)]
pub(super) struct PromptLog {
    prompts: VecDeque<(MessageId, PromptEnd)>,
}

impl PromptLog {
    /// A prompt begins a turn. One that a crash interrupted begins again under the same id.
    pub(super) fn begin(&mut self, message: &Name, kind: PromptKind) {
        let end = match kind {
            PromptKind::Steering => return,
            PromptKind::Command => PromptEnd::CommandInterrupted,
            PromptKind::Message | PromptKind::Continue => PromptEnd::Interrupted,
        };
        self.prompts.retain(|(known, _)| known.as_str() != &*message.0);
        if self.prompts.len() == REMEMBERED {
            self.prompts.pop_front();
        }
        self.prompts.push_back((MessageId::new(message.0.clone()), end));
    }

    /// The turn of the last prompt ended.
    pub(super) fn end(&mut self, stop: Option<StopReason>) {
        if let Some((_, end)) = self.prompts.back_mut() {
            *end = PromptEnd::Ended(stop.map(stop_out));
        }
    }

    pub(super) fn finish(self) -> Vec<(MessageId, PromptEnd)> {
        self.prompts.into()
    }
}
