//! A prompt of the user: a slash command is answered here, anything else becomes a turn.

use std::sync::atomic::{AtomicBool, Ordering};

use super::commands::{self, Builtin};
use super::compact::{self, Cause};
use super::cx::{TurnCx, TurnError};
use super::title::Titler;
use super::{context, hooks, instructions, isolated, resume, run_turn, undo};
use crate::ports::{
    Error, Event, Expanded, IsolatedTurn, PromptKind, Record, Settings, Severity, TurnOverrides,
};
use crate::words::{History, Message, MessageId, Prompt, StopReason, iso_8601};

/// How a session gets its title.
pub(crate) struct Naming<'a> {
    pub(crate) has_title: &'a AtomicBool,
    pub(crate) titler: Option<&'a Titler>,
}

/// What a prompt is for.
enum Resolved {
    /// The model gets this, perhaps with other settings.
    Turn(Prompt, TurnOverrides),
    /// The model continues where it was.
    Continue,
    /// A turn that is not part of the conversation.
    Isolated(IsolatedTurn),
    /// A built-in slash command.
    Builtin(Builtin),
}

/// Answers a prompt. Without one, continues a turn that a crash interrupted, for a prompt that was sent again: the model is asked
/// from where it was.
pub(crate) async fn answer(
    cx: &mut TurnCx<'_>,
    prompt: Option<Prompt>,
    message: Option<MessageId>,
    naming: Naming<'_>,
) -> Result<StopReason, TurnError> {
    let message = message.unwrap_or_else(|| cx.fresh_message());
    let resolved = match &prompt {
        Some(prompt) => resolve(cx, prompt).await?,
        None => Resolved::Continue,
    };
    let prompt = prompt.unwrap_or_default();
    let title = prompt.title();
    // The turn is run in one place only: its state is large, and each place needs room on the stack for it.
    let overrides = match resolved {
        Resolved::Builtin(command) => {
            begin(cx, message, &prompt, PromptKind::Command).await?;
            return run_builtin(cx, command).await;
        }
        Resolved::Isolated(isolated) => {
            begin(cx, message, &prompt, PromptKind::Command).await?;
            return isolated::run(cx, &prompt, isolated).await;
        }
        Resolved::Continue => {
            begin(cx, message, &prompt, PromptKind::Continue).await?;
            TurnOverrides::default()
        }
        Resolved::Turn(prompt, overrides) => {
            begin(cx, message, &prompt, PromptKind::Message).await?;
            name_session(cx, &naming, title, &prompt).await?;
            let before = cx.settings();
            let during = before.with(overrides.mode.as_ref(), overrides.model.as_ref());
            instructions::report_mode(cx, &during.unwrap_or(before)).await?;
            cx.conversation.history.push(Message::User(prompt.blocks.into()));
            overrides
        }
    };
    run(cx, overrides).await
}

/// Finds out what a prompt is for.
async fn resolve(cx: &TurnCx<'_>, prompt: &Prompt) -> Result<Resolved, TurnError> {
    let settings = cx.settings();
    let known = cx.ports.toolbox.commands();
    match commands::parse(prompt, &settings, &known) {
        Some(Builtin::Continue) if !cx.conversation.history.is_empty() => {
            return Ok(Resolved::Continue);
        }
        Some(command) => return Ok(Resolved::Builtin(command)),
        None => {}
    }
    let mut overrides = TurnOverrides::default();
    let mut prompt = match commands::for_model(prompt, &settings) {
        Some(prompt) => prompt,
        None => {
            // What needs no waiting is done first: a turn that is cancelled at once has still begun.
            let expanded = tokio::select! {
                biased;
                expanded = cx.ports.toolbox.expand(prompt.clone()) => expanded,
                () = cx.turn.cancel.cancelled() => return Err(TurnError::Cancelled),
            };
            match expanded {
                Expanded::Prompt(expanded) if expanded == *prompt => {
                    if let Some(text) = commands::unknown(prompt, &known) {
                        return Ok(Resolved::Builtin(Builtin::Say(text)));
                    }
                    expanded
                }
                Expanded::Prompt(expanded) => expanded,
                Expanded::With(expanded, wanted) => {
                    overrides = wanted;
                    expanded
                }
                Expanded::Isolated(isolated) => return Ok(Resolved::Isolated(isolated)),
                Expanded::Answer(text) => return Ok(Resolved::Builtin(Builtin::Say(text))),
            }
        }
    };
    check_length(&prompt, &settings).await?;
    Ok(match hooks::before_turn(cx, &mut prompt).await? {
        Some(why) => Resolved::Builtin(Builtin::Say(format!("Not sent to the model: {why}"))),
        None => Resolved::Turn(prompt, overrides),
    })
}

/// Refuses a prompt that is longer than the context window: no compaction could make room for it.
async fn check_length(prompt: &Prompt, settings: &Settings) -> Result<(), Error> {
    let Some(choice) = settings.choice() else { return Ok(()) };
    choice.model.prepare().await;
    let mut alone = History::default();
    alone.push(Message::User(prompt.blocks.clone().into()));
    let (tokens, window) = (alone.tokens(), choice.window());
    if tokens <= window {
        return Ok(());
    }
    Err(Error::BadPrompt(format!(
        "the message has about {tokens} tokens, but the context window of `{}` has {window}. Send less, or choose another model",
        choice.id
    )))
}

/// Journals the prompt and marks the beginning of a turn.
async fn begin(
    cx: &mut TurnCx<'_>,
    message: MessageId,
    prompt: &Prompt,
    kind: PromptKind,
) -> Result<(), TurnError> {
    let record = Record::Prompt { message: &message, prompt, kind };
    cx.turn.pending_prompt = Some(cx.begin(record).await?);
    if kind != PromptKind::Command {
        cx.conversation.history.begin_turn(&message);
    }
    Ok(())
}

/// Names the session after the first line of its first prompt.
async fn name_session(
    cx: &TurnCx<'_>,
    naming: &Naming<'_>,
    title: Option<String>,
    prompt: &Prompt,
) -> Result<(), TurnError> {
    let journal = cx.ports.journal;
    if !journal.is_persistent() || naming.has_title.load(Ordering::Relaxed) {
        return Ok(());
    }
    let Some(title) = title else { return Ok(()) };
    naming.has_title.store(true, Ordering::Relaxed);
    let session = cx.conversation.session;
    let written = journal.set_title(session, &title).await;
    written.map_err(|err| Error::of_journal(session, err))?;
    if let Some(titler) = naming.titler {
        titler.begin(&cx.settings(), prompt);
    }
    let updated_at = Some(iso_8601(cx.ports.clock.now()));
    cx.emit(Event::Info { title: Some(title), updated_at }).await
}

/// Runs a turn of the user, with other settings if there are any, and restores the session's settings.
async fn run(cx: &mut TurnCx<'_>, overrides: TurnOverrides) -> Result<StopReason, TurnError> {
    show_notices(cx).await?;
    let before = cx.settings();
    if let Some(problem) = overrides.model.as_ref().and_then(|id| before.lacks(id)) {
        let more = format!("The command asks for {problem}.");
        cx.notify(Severity::Warning, "Another model answers", Some(more)).await?;
    }
    let during = before.with(overrides.mode.as_ref(), overrides.model.as_ref());
    if let Some(during) = &during {
        change_settings(cx, during).await?;
    }
    cx.ports.policy.grant(overrides.grants);
    let ended = run_turn(cx).await;
    cx.ports.policy.grant(Vec::new());
    // A change that the user made meanwhile stays.
    if during.is_some_and(|during| cx.settings().is_like(&during)) {
        change_settings(cx, &before).await?;
    }
    hooks::after_turn(cx, ended.as_ref().ok().copied()).await?;
    ended
}

/// Changes mode and model, and shows both.
async fn change_settings(cx: &TurnCx<'_>, to: &Settings) -> Result<(), TurnError> {
    cx.conversation.settings.send_modify(|settings| {
        settings.mode = to.mode.clone();
        settings.model = to.model.clone();
    });
    cx.emit(Event::Mode(to.mode.clone())).await?;
    cx.emit_settings().await
}

/// Shows what happened to the tools since the last turn, if the client shows no notices.
async fn show_notices(cx: &TurnCx<'_>) -> Result<(), TurnError> {
    let notices = cx.ports.toolbox.take_notices();
    if notices.is_empty() {
        return Ok(());
    }
    cx.emit(Event::Thought { message: cx.fresh_message(), text: notices.join("\n") }).await
}

/// Runs a built-in slash command.
async fn run_builtin(cx: &mut TurnCx<'_>, command: Builtin) -> Result<StopReason, TurnError> {
    let text = match command {
        Builtin::Say(text) => text,
        Builtin::Continue => "Nothing to continue yet.".to_owned(),
        Builtin::Permissions => {
            let mode = cx.settings().mode().clone();
            let rules = cx.ports.policy.describe(mode.restrictions());
            format!("The mode is `{}`: {}.\n\n{rules}", mode.id, mode.description)
        }
        Builtin::Compact(focus) => {
            let before = cx.conversation.history.tokens();
            if compact::compact(cx, Cause::Asked(&focus)).await? {
                let after = cx.conversation.history.tokens();
                format!(
                    "Compacted the conversation from about {before} to {after} tokens. The full history is still saved."
                )
            } else {
                "Nothing to compact yet.".to_owned()
            }
        }
        Builtin::Context => {
            let settings = cx.settings();
            context::report(cx, &settings).await
        }
        Builtin::Cost => cx.conversation.meter.print(),
        Builtin::Undo => undo::undo(cx).await?,
        Builtin::Redo => undo::redo(cx).await?,
        Builtin::Rewind(number) => undo::rewind(cx, number).await?,
        Builtin::Clear { is_new } => resume::clear(cx, is_new).await?,
        Builtin::Resume(wanted) => {
            resume::resume(cx, wanted.as_deref()).await?;
            return Ok(StopReason::EndTurn);
        }
        Builtin::SetMode(mode) => {
            cx.set_mode(&mode).await?;
            format!("The mode is now `{}`.", mode.id)
        }
        Builtin::SetModel(model) => {
            cx.conversation.settings.send_modify(|settings| settings.model = model.clone());
            cx.emit_settings().await?;
            format!("The model is now `{model}`.")
        }
    };
    cx.say(text).await?;
    Ok(StopReason::EndTurn)
}
