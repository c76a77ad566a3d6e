//! `purlin run`: one prompt from the shell.
//!
//! An ACP client for any agent, our own by default. It starts the agent, sends the prompt, shows the updates, and exits
//! with a code that says how the turn ended. `run::args` are its arguments, `run::session` opens the session, `run::turn` is the
//! turn, `run::render` formats updates, `run::ask` asks for permission.

pub(crate) mod args;
mod ask;
mod input;
mod live;
mod output;
mod render;
mod report;
pub(crate) mod rules;
mod session;
mod spinner;
mod turn;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use client::{Connection, Grace, Host, HostOptions, Permission, Spec};
use serde_json::Value;
use tokio::sync::mpsc;
use wire::acp::schema;

use args::{Color, OutputFormat};
use input::Input;
use output::Output;
use render::Renderer;
use report::{Ended, Report};
use rules::Rules;
use session::Start;
use turn::Turn;

use crate::guide;

/// What `purlin run` does.
#[derive(Debug)]
pub(crate) struct RunOptions {
    /// What is sent.
    input: Input,
    /// The program of the agent and its arguments.
    agent: Vec<String>,
    /// Environment variables for the agent.
    variables: Vec<(&'static str, String)>,
    /// The working directory, absolute.
    cwd: PathBuf,
    /// Which session is used.
    start: Start,
    /// What is printed.
    format: OutputFormat,
    /// When colours are used.
    color: Color,
    /// The model to use, if not the agent's choice.
    model: Option<String>,
    /// The mode to work in, if not the agent's choice.
    mode: Option<String>,
    /// What is allowed and rejected without a question.
    rules: Rules,
    /// What the session may cost, in US dollars.
    max_cost: Option<f64>,
    /// Whether the agent is our own program. It gets no files and terminals, so that it works in its sandbox.
    is_own: bool,
}

/// Runs one prompt and returns the exit code; `run::report` has the codes.
///
/// # Errors
/// Never: errors are shown, and the exit code is 1.
pub(crate) async fn run(options: RunOptions) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let mut output = Output::new(options.format, options.color);
    let mut report = Report::default();
    let ended = tokio::select! {
        ended = talk(&options, &mut output, &mut report) => ended,
        // The agent ends with us, even if it does not notice that its input is closed.
        () = terminated() => Ok(Ended::Interrupted),
    };
    let code = report.code(&ended);
    if !matches!(ended, Ok(Ended::ReaderGone)) {
        // A closed output changes nothing any more.
        output.end().ok();
        say_how_it_ended(&ended, &mut output);
        if let Some(line) = report.usage_line() {
            output.footnote(&format!("{line}, {} s", began.elapsed().as_secs()));
        }
        output.object(&report.object(&ended)).ok();
    }
    Ok(ExitCode::from(code))
}

fn say_how_it_ended(ended: &anyhow::Result<Ended>, output: &mut Output) {
    use schema::StopReason::{Cancelled, EndTurn, MaxTokens, MaxTurnRequests, Refusal};
    match ended {
        Ok(
            Ended::Stopped(EndTurn) | Ended::CommandRefused | Ended::Limit(_) | Ended::ReaderGone,
        ) => {}
        Ok(Ended::Stopped(MaxTokens)) => output.aside("Stopped: token limit reached."),
        Ok(Ended::Stopped(MaxTurnRequests)) => {
            output.aside("Stopped: request limit of a turn reached.");
        }
        Ok(Ended::Stopped(Refusal)) => output.aside("The agent refused."),
        Ok(Ended::Stopped(Cancelled) | Ended::Interrupted) => output.aside("Cancelled."),
        Ok(Ended::Stopped(_)) => output.aside("The turn ended."),
        Err(err) => output.message(&format!("purlin: {}", words_of(err))),
    }
}

async fn talk(
    options: &RunOptions,
    output: &mut Output,
    report: &mut Report,
) -> anyhow::Result<Ended> {
    // One question is shown at a time. If the channel is full, the agent waits for its answer.
    let (questions, asked) = mpsc::channel(8);
    let cwd = options.cwd.clone();
    let host = Host::new(HostOptions {
        files: !options.is_own,
        terminals: !options.is_own,
        cwd: cwd.clone(),
        permission: Permission::Ask(questions),
    });
    let host = host.with_roots(vec![cwd]).with_asked_writes().with_live_output();
    let mut connection = Connection::start(&spec_of(options)?, host)?;
    let opened = tokio::select! {
        opened = session::open(&mut connection, options) => opened?,
        _ = tokio::signal::ctrl_c() => return Ok(Ended::Interrupted),
    };
    report.set_session(opened.id.clone());
    if opened.model.as_deref() == Some(guide::ID) && is_for_a_model(options) {
        // Nothing was said in it.
        let request = schema::DeleteSessionRequest::new(opened.id);
        connection.caller().call::<Value>("session/delete", &request).await.ok();
        anyhow::bail!(guide::no_model());
    }
    let blocks = options.input.blocks(&opened.offers)?;
    let caller = connection.caller();
    let shows_thoughts = std::io::stderr().is_terminal();
    let has_spinner = output.has_spinner();
    let turn = Turn {
        connection: &mut connection,
        caller,
        session: opened.id,
        output,
        report,
        renderer: Renderer::new(shows_thoughts, has_spinner),
        rules: &options.rules,
        cwd: &options.cwd,
        max_cost: options.max_cost,
        is_own: options.is_own,
        needs_gap: false,
        stopped: None,
    };
    let ended = turn.run(blocks, &options.input.text, asked).await?;
    match ended {
        Ended::Stopped(_) | Ended::CommandRefused | Ended::Limit(_) => {
            if let Err(err) = connection.end(Grace::default()).await {
                tracing::warn!(%err, "the agent did not exit cleanly");
            }
        }
        // Dropping the connection kills the agent and its processes.
        Ended::Interrupted | Ended::ReaderGone => drop(connection),
    }
    Ok(ended)
}

/// Tells whether only a model can answer the prompt, and none was asked for.
fn is_for_a_model(options: &RunOptions) -> bool {
    let prompt = &options.input.text;
    options.is_own
        && options.model.is_none()
        && !prompt.starts_with('/')
        && !guide::asks_about_project(prompt)
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
    let spec = Spec::new(program, &options.cwd).args(args);
    Ok(options.variables.iter().fold(spec, |spec, (name, value)| spec.env(name, value)))
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
