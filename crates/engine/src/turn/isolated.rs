//! A turn that is not part of the conversation: it has its own directory, model and tools. The session's model never sees it.

use tokio::sync::watch;

use super::context_state::ContextState;
use super::cx::{Conversation, Ports, Turn, TurnCx, TurnError};
use super::run_turn;
use crate::ports::{IsolatedTurn, NoInstructions, Settings};
use crate::words::{History, Message, Prompt, StopReason};

/// Runs the turn. Its events are journalled and shown like any other's.
pub(crate) async fn run(
    cx: &mut TurnCx<'_>,
    prompt: &Prompt,
    isolated: IsolatedTurn,
) -> Result<StopReason, TurnError> {
    let IsolatedTurn { cwd, model, toolbox } = isolated;
    let settings = watch::Sender::new(Settings::new(vec![model].into())?);
    // The user's answers are about a directory that will be gone, so they are not stored.
    let policy = cx.ports.policy.for_directory(cwd.clone());
    let mut history = History::default();
    history.push(Message::User(prompt.blocks.clone().into()));
    let turn = Turn::new(cx.turn.limits, cx.turn.cancel.clone(), cx.turn.spans.clone());
    let mut isolated = TurnCx {
        ports: Ports {
            toolbox: &toolbox,
            policy: &policy,
            instructions: &NoInstructions,
            ..cx.ports
        },
        conversation: Conversation {
            session: cx.conversation.session,
            cwd: &cwd,
            settings: &settings,
            history: &mut history,
            context: &mut ContextState::default(),
            meter: cx.conversation.meter,
            steering: cx.conversation.steering,
            asking: cx.conversation.asking,
        },
        turn: Turn { pending_prompt: cx.turn.pending_prompt.take(), ..turn },
    };
    run_turn(&mut isolated).await
}
