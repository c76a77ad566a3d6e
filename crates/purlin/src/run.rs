//! `purlin run`: one prompt from the shell.
//!
//! An ACP client for any agent, our own by default. It starts the agent, sends the prompt, shows the updates, and exits
//! with a code that says how the turn ended. `run::render` formats updates, `run::ask` asks for permission.

mod ask;
mod output;
pub(crate) mod render;

use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use client::{Caller, Connection, Grace, Host, HostOptions, Permission, PermissionQuestion, Spec};
use engine::commands;
use serde_json::json;
use tokio::sync::mpsc;
use wire::acp::models::SetModelRequest;
use wire::acp::schema;

use ask::Asker;
use output::{Output, ReaderGone};

/// What `purlin run` does.
#[derive(Debug)]
pub struct RunOptions {
    /// The prompt.
    pub prompt: String,
    /// The program of the agent and its arguments.
    pub agent: Vec<String>,
    /// The working folder, absolute.
    pub cwd: PathBuf,
    /// Prints every update as a JSON line.
    pub json: bool,
    /// The model to use, if not the agent's choice.
    pub model: Option<String>,
    /// The mode to work in, if not the agent's choice.
    pub mode: Option<String>,
    /// Approves all permission requests.
    pub allow: bool,
    /// Whether the agent is our own program. It gets no terminals, so that it runs commands in its sandbox.
    pub is_own: bool,
}

/// Runs one prompt and returns the exit code: 0 for the end of the turn, 3 out of tokens, 4 out of requests, 5 refused,
/// 130 cancelled, 1 for an error.
///
/// # Errors
/// Never: errors are shown, and the exit code is 1.
pub async fn run(options: RunOptions) -> anyhow::Result<ExitCode> {
    let mut output = Output::new(options.json);
    let ended = tokio::select! {
        ended = talk(&options, &mut output) => ended,
        // The agent ends with us, even if it does not notice that its input is closed.
        () = terminated() => Ok(Ended::Killed),
    };
    let code = match &ended {
        Ok(Ended::Stopped(reason)) => code_of(*reason),
        Ok(Ended::CommandRefused) => 1,
        Ok(Ended::Killed) => 130,
        // The reader has seen enough; that is not a failure.
        Ok(Ended::ReaderGone) => return Ok(ExitCode::SUCCESS),
        Err(_) => 1,
    };
    let shown = match ended {
        Ok(Ended::Stopped(reason)) => output.end(reason),
        Ok(Ended::CommandRefused) => output.end(schema::StopReason::EndTurn),
        Ok(Ended::Killed | Ended::ReaderGone) => output.end(schema::StopReason::Cancelled),
        Err(err) => output.error(&err),
    };
    Ok(match shown {
        Ok(()) => ExitCode::from(code),
        Err(ReaderGone) => ExitCode::SUCCESS,
    })
}

/// How a run ended.
enum Ended {
    Stopped(schema::StopReason),
    /// The prompt was an unknown slash command or had an invalid argument; the agent has said so.
    CommandRefused,
    /// By a second Ctrl-C, by one before the turn, or by another signal.
    Killed,
    /// Our output is closed.
    ReaderGone,
}

fn code_of(reason: schema::StopReason) -> u8 {
    match reason {
        schema::StopReason::EndTurn => 0,
        schema::StopReason::MaxTokens => 3,
        schema::StopReason::MaxTurnRequests => 4,
        schema::StopReason::Refusal => 5,
        schema::StopReason::Cancelled => 130,
        _ => 1,
    }
}

async fn talk(options: &RunOptions, output: &mut Output) -> anyhow::Result<Ended> {
    // One question is shown at a time. If the channel is full, the agent waits for its answer.
    let (questions, asked) = mpsc::channel(8);
    let permission = if options.allow { Permission::AllowOnce } else { Permission::Ask(questions) };
    let cwd = options.cwd.clone();
    let host = Host::new(HostOptions { files: true, terminals: !options.is_own, cwd, permission });
    let mut connection = Connection::start(&spec_of(options)?, host)?;
    let session = tokio::select! {
        session = open(&connection, options) => session?,
        _ = tokio::signal::ctrl_c() => return Ok(Ended::Killed),
    };

    // We know only of our own agent how it refuses a command.
    let answer = (options.is_own && options.prompt.starts_with('/')).then(String::new);
    let (caller, session) = (connection.caller(), session.session_id);
    let turn = Turn { connection: &mut connection, caller, session, output, answer };
    let ended = turn.run(&options.prompt, asked).await?;
    match ended {
        Ended::Stopped(_) | Ended::CommandRefused => {
            if let Err(err) = connection.end(Grace::default()).await {
                tracing::warn!(%err, "the agent did not exit cleanly");
            }
        }
        // Dropping the connection kills the agent and its processes.
        Ended::Killed | Ended::ReaderGone => drop(connection),
    }
    Ok(ended)
}

async fn open(
    connection: &Connection,
    options: &RunOptions,
) -> anyhow::Result<schema::NewSessionResponse> {
    let info = schema::Implementation::new("purlin run", env!("CARGO_PKG_VERSION"));
    connection.initialize(info).await?;
    let caller = connection.caller();
    let session = caller.new_session(schema::NewSessionRequest::new(&options.cwd)).await?;
    choose(&caller, &session, options).await?;
    Ok(session)
}

/// Waits for SIGTERM or SIGHUP.
#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut hangup)) =
        (signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

fn spec_of(options: &RunOptions) -> anyhow::Result<Spec> {
    let Some((program, args)) = options.agent.split_first() else {
        anyhow::bail!("no agent to start");
    };
    Ok(Spec::new(program, &options.cwd).args(args))
}

/// Sets the requested model and mode, in the way that the agent offers.
async fn choose(
    caller: &Caller,
    session: &schema::NewSessionResponse,
    options: &RunOptions,
) -> anyhow::Result<()> {
    use schema::SessionConfigOptionCategory::{Mode, Model};
    if let Some(model) = &options.model
        && !set_option(caller, session, &Model, model).await?
    {
        let session_id = session.session_id.clone();
        let request = SetModelRequest { session_id, model_id: model.clone(), meta: None };
        caller.call::<serde_json::Value>("session/set_model", &request).await?;
    }
    let Some(mode) = &options.mode else { return Ok(()) };
    if let Some(modes) = &session.modes {
        let session = session.session_id.clone();
        let request = schema::SetSessionModeRequest::new(session, mode.clone());
        let set = caller.call::<schema::SetSessionModeResponse>("session/set_mode", &request).await;
        let ids: Vec<&str> = modes.available_modes.iter().map(|mode| &*mode.id.0).collect();
        // An agent may accept more names for a mode than it lists, so it is asked first.
        if matches!(set, Err(client::Error::Refused { .. })) && !ids.contains(&mode.as_str()) {
            anyhow::bail!("unknown mode `{mode}`; the agent has {}", ids.join(", "));
        }
        set?;
    } else if !set_option(caller, session, &Mode, mode).await? {
        anyhow::bail!("the agent has no modes");
    }
    Ok(())
}

/// Returns false if the agent has no option of this category.
async fn set_option(
    caller: &Caller,
    session: &schema::NewSessionResponse,
    category: &schema::SessionConfigOptionCategory,
    value: &str,
) -> anyhow::Result<bool> {
    let offered = session.config_options.iter().flatten();
    let fits = |option: &&schema::SessionConfigOption| option.category.as_ref() == Some(category);
    let Some(option) = offered.into_iter().find(fits) else { return Ok(false) };
    let value = schema::SessionConfigOptionValue::value_id(value.to_owned());
    let session = session.session_id.clone();
    let request = schema::SetSessionConfigOptionRequest::new(session, option.id.clone(), value);
    caller.call::<serde_json::Value>("session/set_config_option", &request).await?;
    Ok(true)
}

/// One turn, from the prompt to its answer.
struct Turn<'a> {
    connection: &'a mut Connection,
    caller: Caller,
    session: schema::SessionId,
    output: &'a mut Output,
    /// The answer so far, if the prompt may be a command that is refused.
    answer: Option<String>,
}

/// Why the turn woke up.
enum Wake {
    Interrupt,
    Update(Option<client::Update>),
    Question(Box<PermissionQuestion>),
    Answer(Option<String>),
    Withdrawn,
    Reply(Result<schema::PromptResponse, client::Error>),
}

impl Turn<'_> {
    async fn run(
        mut self,
        prompt: &str,
        mut asked: mpsc::Receiver<PermissionQuestion>,
    ) -> anyhow::Result<Ended> {
        let request = schema::PromptRequest::new(self.session.clone(), vec![prompt.into()]);
        let caller = self.caller.clone();
        let mut reply = pin!(caller.prompt(request));
        let mut interrupt = pin!(tokio::signal::ctrl_c());
        let mut asker = Asker::default();
        let mut is_cancelled = false;
        let mut is_listening = true;
        loop {
            let is_free = !asker.is_busy();
            let wake = tokio::select! {
                // Updates before questions and the reply, so that they are shown in order.
                biased;
                _ = &mut interrupt => Wake::Interrupt,
                update = self.connection.next_update(), if is_listening => Wake::Update(update),
                Some(question) = asked.recv(), if is_free => Wake::Question(Box::new(question)),
                event = asker.next(), if !is_free => event,
                reply = &mut reply => Wake::Reply(reply),
            };
            let shown = match wake {
                Wake::Interrupt if is_cancelled => return Ok(Ended::Killed),
                Wake::Interrupt => {
                    is_cancelled = true;
                    interrupt.set(tokio::signal::ctrl_c());
                    // The protocol requires open questions to be answered as cancelled; dropping them does that.
                    asker.withdraw();
                    self.caller.cancel(&self.session).await?;
                    self.output.aside("Cancelling. Press Ctrl-C again to kill the agent.");
                    Ok(())
                }
                Wake::Update(Some(update)) => {
                    let shown = self.show(&update);
                    asker.remind(self.output);
                    shown
                }
                Wake::Update(None) => {
                    is_listening = false;
                    Ok(())
                }
                Wake::Question(question) if is_cancelled => {
                    drop(question);
                    Ok(())
                }
                Wake::Question(question) => {
                    asker.ask(*question, self.output);
                    Ok(())
                }
                Wake::Answer(line) => {
                    asker.answer(line, self.output);
                    Ok(())
                }
                Wake::Withdrawn => {
                    asker.withdraw();
                    self.output.aside("The agent withdrew the question.");
                    Ok(())
                }
                Wake::Reply(reply) => return self.finish(prompt, reply),
            };
            if let Err(ReaderGone) = shown {
                return Ok(Ended::ReaderGone);
            }
        }
    }

    /// Shows what came before the reply and returns how the turn ended.
    fn finish(
        mut self,
        prompt: &str,
        reply: Result<schema::PromptResponse, client::Error>,
    ) -> anyhow::Result<Ended> {
        while let Some(update) = self.connection.ready_update() {
            if let Err(ReaderGone) = self.show(&update) {
                return Ok(Ended::ReaderGone);
            }
        }
        let reason = reply?.stop_reason;
        let is_refused = self.answer.is_some_and(|said| commands::is_refusal(prompt, &said));
        Ok(if is_refused { Ended::CommandRefused } else { Ended::Stopped(reason) })
    }

    fn show(&mut self, update: &client::Update) -> Result<(), ReaderGone> {
        if let Some(answer) = &mut self.answer
            && let Ok(notification) = update.read()
            && let schema::SessionUpdate::AgentMessageChunk(chunk) = notification.update
            && let schema::ContentBlock::Text(text) = chunk.content
        {
            answer.push_str(&text.text);
        }
        self.output.update(update)
    }
}

/// The kinds of model errors; see `serve::error_table`.
const MODEL_FAULTS: [&str; 6] = [
    "auth_required",
    "context_full",
    "model_rate_limited",
    "model_unavailable",
    "answer_incomplete",
    "model_failed",
];

/// Returns the text of an error. For a model error, that is the details alone.
fn words_of(err: &anyhow::Error) -> String {
    if let Some(client::Error::Refused { method: "session/prompt", error }) = err.downcast_ref()
        && let Some(data) = &error.data
        && data["kind"].as_str().is_some_and(|kind| MODEL_FAULTS.contains(&kind))
        && let Some(details) = data["details"].as_str()
    {
        return details.to_owned();
    }
    format!("{err:#}")
}

/// The last line in JSON mode.
fn last_line(ended: Result<schema::StopReason, &anyhow::Error>) -> String {
    let line = match ended {
        Ok(reason) => json!({ "stopReason": reason }),
        Err(err) => match err.downcast_ref::<client::Error>() {
            Some(client::Error::Refused { error, .. }) => json!({ "error": error }),
            _ => json!({ "error": { "message": format!("{err:#}") } }),
        },
    };
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_json_line_has_the_stop_reason_or_the_error() {
        assert_eq!(last_line(Ok(schema::StopReason::MaxTokens)), r#"{"stopReason":"max_tokens"}"#);
        let error = wire::RpcError::new(wire::Code(-32000), "Authentication required");
        let refused = anyhow::Error::from(client::Error::Refused { method: "m", error });
        assert_eq!(
            last_line(Err(&refused)),
            r#"{"error":{"code":-32000,"message":"Authentication required"}}"#
        );
        let other = anyhow::anyhow!("no agent");
        assert_eq!(last_line(Err(&other)), r#"{"error":{"message":"no agent"}}"#);
    }

    #[test]
    fn model_error_is_shown_by_its_details() {
        use engine::ports::ModelError::{
            AuthNeeded, ContextFull, Failed, Incomplete, RateLimited, Unavailable,
        };
        let refused = |err| {
            let error = serve::error_table::error_out(&err, "REF");
            words_of(&client::Error::Refused { method: "session/prompt", error }.into())
        };
        for kind in [AuthNeeded, ContextFull, RateLimited, Unavailable, Incomplete, Failed] {
            assert_eq!(refused(engine::Error::Model(kind("x is away".to_owned()))), "x is away");
        }
        assert!(refused(engine::Error::Broken).starts_with("session/prompt failed: "));
    }

    #[test]
    fn every_stop_reason_has_an_exit_code() {
        use schema::StopReason::{Cancelled, EndTurn, MaxTokens, MaxTurnRequests, Refusal};
        let codes = [EndTurn, MaxTokens, MaxTurnRequests, Refusal, Cancelled].map(code_of);
        assert_eq!(codes, [0, 3, 4, 5, 130]);
    }
}
