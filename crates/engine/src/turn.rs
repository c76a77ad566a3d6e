//! The turn: ask the model, run the tools it calls, until it calls none. The loop is [`run_turn`].
//!
//! `turn::prompt` decides what a prompt of the user is for and starts the turn, `turn::sampling` asks the model,
//! `turn::calls` runs its tool calls. `turn::session` owns the conversation, `turn::hub` the sessions.

pub(crate) mod builtin_tools;
pub(crate) mod calls;
pub(crate) mod child;
pub mod commands;
pub(crate) mod compact;
pub(crate) mod context;
pub(crate) mod context_state;
pub(crate) mod cx;
pub(crate) mod dispatch;
pub(crate) mod emit;
pub(crate) mod exit_plan;
pub(crate) mod guard;
pub(crate) mod helpers;
pub(crate) mod hooks;
mod host;
pub mod hub;
pub(crate) mod instructions;
pub(crate) mod isolated;
pub(crate) mod meter;
mod opening;
pub(crate) mod prompt;
pub mod prompt_commands;
mod resume;
pub(crate) mod sampling;
pub mod session;
pub(crate) mod short_input;
mod slow;
pub(crate) mod steering;
pub(crate) mod task;
pub(crate) mod title;
pub(crate) mod undo;

use crate::ports::{Event, PromptKind, Record};
use crate::words::{Block, Message, Prompt, StopReason};
use cx::{TurnCx, TurnError};
use guard::{Guard, Verdict};

/// Asks the model and runs the tools it calls, until it calls none.
pub(crate) async fn run_turn(cx: &mut TurnCx<'_>) -> Result<StopReason, TurnError> {
    let mut guard = Guard::default();
    let (mut was_asked, mut not_run) = (false, 0);
    for _ in 0..cx.turn.limits.max_requests {
        instructions::report_mode(cx, &cx.settings()).await?;
        let answer = sampling::sample(cx).await?;
        let is_done = answer.calls.is_empty();
        calls::run_all(cx, answer.calls).await?;
        let is_steered = take_steering(cx).await?;
        if is_done && !is_steered {
            if answer.stop != StopReason::EndTurn {
                return Ok(answer.stop);
            }
            let reminder = match answer.not_run {
                // Small models often write a call into a text, where it cannot be trusted.
                Some(why) if not_run < MAX_NOT_RUN => {
                    not_run += 1;
                    why
                }
                // Or they stop after the results of their calls. They are asked once.
                None if answer.is_empty && !was_asked && follows_results(cx) => {
                    was_asked = true;
                    SAY_WHAT_YOU_FOUND.to_owned()
                }
                Some(_) => return give_up(cx).await,
                None if answer.is_empty && not_run > 0 => return give_up(cx).await,
                None => return Ok(answer.stop),
            };
            remind(cx, reminder).await?;
            continue;
        }
        // A new message of the user makes the calls before it irrelevant.
        let verdict = match is_steered {
            true => Verdict::Continue,
            false => guard.step(cx.conversation.history.messages()),
        };
        match verdict {
            Verdict::Continue => {}
            Verdict::Remind(text) => remind(cx, text).await?,
            Verdict::Stop(why) => return stop(cx, &why).await,
        }
    }
    let limit = cx.turn.limits.max_requests;
    stop(cx, &format!("The turn reached its limit of {limit} requests (`max_requests_per_turn`)."))
        .await
}

/// Ends a turn whose model cannot make a valid call: the user must not be left with the text of one.
async fn give_up(cx: &mut TurnCx<'_>) -> Result<StopReason, TurnError> {
    let text = "The model wrote tool calls that cannot be run, so nothing more was done. Try again with other words, or with another model.";
    cx.say(text.to_owned()).await?;
    let (thoughts, calls) = (Vec::new(), Vec::new());
    let text = text.to_owned();
    cx.conversation.history.push(Message::Agent { thoughts, text, calls });
    Ok(StopReason::EndTurn)
}

/// How many times in a turn a model is reminded that a call in a text is not run.
const MAX_NOT_RUN: usize = 2;

/// What a model is asked that says nothing about the results of its calls.
const SAY_WHAT_YOU_FOUND: &str = "Your answer is empty. Say what you found or did, or call the next tool if there is more to do.";

/// Tells whether the conversation ends with the result of a call.
fn follows_results(cx: &TurnCx<'_>) -> bool {
    let last = cx.conversation.history.messages().last();
    last.is_some_and(|message| matches!(**message, Message::ToolResult { .. }))
}

/// Puts the messages that the user sent during the turn into the conversation. Tells whether there were any.
async fn take_steering(cx: &mut TurnCx<'_>) -> Result<bool, TurnError> {
    let mut is_steered = false;
    while let Some((prompt, reply)) = cx.conversation.steering.next() {
        let message = cx.fresh_message();
        let kind = PromptKind::Steering;
        cx.record(Record::Prompt { message: &message, prompt: &prompt, kind }).await?;
        // The client cannot know where in the conversation the message is, so unlike a prompt it is shown.
        let mut block_meta = prompt.block_meta.into_iter();
        for block in &prompt.blocks {
            let (message, block) = (message.clone(), block.clone());
            let meta = block_meta.next().flatten();
            cx.emit(Event::User { message, block, meta }).await?;
        }
        cx.conversation.history.push(Message::User(prompt.blocks.into()));
        reply.send(Ok(()));
        is_steered = true;
    }
    Ok(is_steered)
}

/// Sends the model a message of our own in the middle of a turn.
async fn remind(cx: &mut TurnCx<'_>, text: String) -> Result<(), TurnError> {
    cx.record(Record::Reminder(&text)).await?;
    cx.conversation.history.push(Message::User(Prompt::from(vec![Block::Text(text)])));
    Ok(())
}

/// Ends a turn that went too far, and tells the user why.
async fn stop(cx: &mut TurnCx<'_>, why: &str) -> Result<StopReason, TurnError> {
    // The last message of a child goes back to the turn that started it.
    if cx.turn.parent.is_none() {
        let text = format!("{why} Use `/continue` to resume it, or say what to do instead.");
        cx.say(text.clone()).await?;
        let (thoughts, calls) = (Vec::new(), Vec::new());
        cx.conversation.history.push(Message::Agent { thoughts, text, calls });
    }
    Ok(StopReason::MaxTurnRequests)
}
