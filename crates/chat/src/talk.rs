//! Talks to the agent: carries out the commands of `app` and turns what the agent does into events.
//!
//! Every call is a task in a `JoinSet`, so nothing here waits for the agent alone. Dropping [`Talk`] kills the agent.

mod calls;
mod start;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::{Caller, Connection, FormQuestion, Grace, PermissionQuestion, TerminalOutput};
use process::TerminalSize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use wire::acp::schema;

use crate::app::{Agent, Command, Event};
use crate::files;

pub use start::{AgentAddress, Token};
use start::{Refusal, Started, end_text, start};

/// An agent that has not answered `initialize` by then is reported.
const SLOW: Duration = Duration::from_secs(5);

/// How to reach the agent.
#[derive(Debug, Clone)]
pub struct TalkOptions {
    /// Where it is.
    pub agent: AgentAddress,
    /// The project.
    pub cwd: PathBuf,
    /// Whether the agent gets files and terminals from us. One that has its own sandbox does not need them.
    pub offers_files: bool,
    /// The size of the terminals that commands of the agent run in.
    pub terminal: TerminalSize,
    /// The name and version of this client.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
}

/// The connection to the agent, if there is one, and everything that is under way.
#[derive(Debug)]
pub struct Talk {
    options: TalkOptions,
    connection: Option<Connection>,
    connecting: JoinSet<Result<Started, Refusal>>,
    calls: JoinSet<Event>,
    /// Questions that the user has not answered: they end with their id if the agent no longer wants the answer.
    questions: JoinSet<Option<u64>>,
    permissions: HashMap<u64, oneshot::Sender<schema::RequestPermissionOutcome>>,
    forms: HashMap<u64, oneshot::Sender<schema::CreateElicitationResponse>>,
    last_question: u64,
    asked: mpsc::Receiver<PermissionQuestion>,
    elicited: mpsc::Receiver<FormQuestion>,
    written: mpsc::Receiver<TerminalOutput>,
    agent: Option<Arc<Agent>>,
    session: Option<schema::SessionId>,
    /// The last prompt to an agent on a server, and its key: sent again after a lost connection, it joins its turn.
    prompt: Option<(String, String)>,
    /// Reports an agent that does not answer.
    slow: Option<AbortHandle>,
}

impl Talk {
    /// Makes a talk without a connection.
    #[must_use]
    pub fn new(options: TalkOptions) -> Talk {
        // Never used: replaced by the channels of the first connection.
        let ((_, asked), (_, elicited), (_, written)) =
            (mpsc::channel(1), mpsc::channel(1), mpsc::channel(1));
        Talk {
            options,
            connection: None,
            connecting: JoinSet::new(),
            calls: JoinSet::new(),
            questions: JoinSet::new(),
            permissions: HashMap::new(),
            forms: HashMap::new(),
            last_question: 0,
            asked,
            elicited,
            written,
            agent: None,
            session: None,
            prompt: None,
            slow: None,
        }
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> Event {
        loop {
            let is_connected = self.connection.is_some();
            let update = async {
                match &mut self.connection {
                    Some(connection) => connection.next_update().await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                // Updates before questions and replies, so that they are shown in order.
                biased;
                update = update => match update {
                    Some(update) => match update.read() {
                        Ok(notification) if self.is_own_prompt(&notification) => None,
                        Ok(notification) => Some(Event::Update(Box::new(notification))),
                        Err(err) => {
                            tracing::debug!(%err, "an update is not shown");
                            None
                        }
                    },
                    None => {
                        self.end_of_agent();
                        None
                    }
                },
                Some(started) = self.connecting.join_next() => Some(self.started(started)),
                Some(question) = self.asked.recv(), if is_connected => Some(self.permission(question)),
                Some(question) = self.elicited.recv(), if is_connected => Some(self.form(question)),
                Some(output) = self.written.recv(), if is_connected => {
                    Some(Event::Written(output.terminal, output.text))
                }
                Some(ended) = self.questions.join_next() => match ended {
                    Ok(Some(id)) => {
                        self.permissions.remove(&id);
                        self.forms.remove(&id);
                        Some(Event::Withdrawn(id))
                    }
                    _ => None,
                },
                Some(done) = self.calls.join_next() => match done {
                    Ok(Event::Opened(opened)) => {
                        self.session = Some(opened.id.clone());
                        Some(Event::Opened(opened))
                    }
                    Ok(event) => Some(event),
                    Err(_aborted) => None,
                },
                // Nothing can happen until a command comes.
                else => std::future::pending().await,
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Carries out a command. Those that concern the terminal are none of its business.
    pub fn run(&mut self, command: Command) {
        match command {
            Command::Connect { after, session } => {
                self.disconnect();
                self.connecting.spawn(start(self.options.clone(), after, session));
                let slow = self.calls.spawn(async move {
                    tokio::time::sleep(after + SLOW).await;
                    Event::Slow
                });
                self.slow = Some(slow);
            }
            Command::Kill => self.kill(),
            Command::Answer(id, outcome) => {
                if let Some(answer) = self.permissions.remove(&id) {
                    // Fails only if the agent has withdrawn the question.
                    answer.send(outcome).ok();
                }
            }
            Command::AnswerForm(id, response) => {
                if let Some(answer) = self.forms.remove(&id) {
                    answer.send(response).ok();
                }
            }
            Command::FindFiles => {
                let cwd = self.options.cwd.clone();
                self.calls.spawn(async move {
                    let found = tokio::task::spawn_blocking(move || files::find(&cwd)).await;
                    Event::Files(found.unwrap_or_default())
                });
            }
            command => self.call(command),
        }
    }

    /// Ends the agent in order, so that it can store what it has.
    pub async fn end(mut self) {
        if let Some(connection) = self.connection.take()
            && let Err(err) = connection.end(Grace::default()).await
        {
            tracing::warn!(%err, "the agent did not exit cleanly");
        }
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.calls = JoinSet::new();
        self.questions = JoinSet::new();
        self.permissions.clear();
        self.forms.clear();
        self.connecting = JoinSet::new();
    }

    fn kill(&mut self) {
        self.disconnect();
        let reason = "The agent did not react and was ended.".to_owned();
        self.calls.spawn(async move { Event::Lost { reason, can_retry: true } });
    }

    /// The agent has closed its output. A task waits for its end: `next` may be dropped at any time.
    fn end_of_agent(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        self.disconnect();
        self.calls.spawn(async move {
            let words = connection.last_words().await;
            Event::Lost { reason: end_text(&words), can_retry: true }
        });
    }

    fn started(
        &mut self,
        started: Result<Result<Started, Refusal>, tokio::task::JoinError>,
    ) -> Event {
        if let Some(slow) = self.slow.take() {
            slow.abort();
        }
        let started = match started {
            Ok(Ok(started)) => started,
            Ok(Err(Refusal { reason, can_retry })) => return Event::Lost { reason, can_retry },
            Err(err) => {
                return Event::Lost {
                    reason: format!("Cannot start the agent: {err}"),
                    can_retry: true,
                };
            }
        };
        self.asked = started.asked;
        self.elicited = started.elicited;
        self.written = started.written;
        let caller = started.connection.caller();
        self.connection = Some(started.connection);
        let agent = Arc::new(started.agent);
        self.agent = Some(Arc::clone(&agent));
        let (cwd, session) = (self.options.cwd.clone(), started.session);
        self.calls.spawn(calls::open_first(caller, Arc::clone(&agent), cwd, session));
        Event::Connected(Box::new((*agent).clone()))
    }

    fn permission(&mut self, question: PermissionQuestion) -> Event {
        let PermissionQuestion { request, mut answer } = question;
        let id = self.next_question();
        let (chosen, wanted) = oneshot::channel();
        self.permissions.insert(id, chosen);
        self.questions.spawn(async move {
            tokio::select! {
                outcome = wanted => {
                    // An answer that is dropped is "cancelled" for the agent.
                    if let Ok(outcome) = outcome {
                        answer.send(outcome).ok();
                    }
                    None
                }
                () = answer.closed() => Some(id),
            }
        });
        Event::Asked(id, Box::new(request))
    }

    fn form(&mut self, question: FormQuestion) -> Event {
        let FormQuestion { request, mut answer } = question;
        let id = self.next_question();
        let (chosen, wanted) = oneshot::channel();
        self.forms.insert(id, chosen);
        self.questions.spawn(async move {
            tokio::select! {
                response = wanted => {
                    if let Ok(response) = response {
                        answer.send(response).ok();
                    }
                    None
                }
                () = answer.closed() => Some(id),
            }
        });
        Event::Elicited(id, Box::new(request))
    }

    /// Returns whether an update repeats the prompt that the user sees already.
    fn is_own_prompt(&self, notification: &schema::SessionNotification) -> bool {
        let schema::SessionUpdate::UserMessageChunk(chunk) = &notification.update else {
            return false;
        };
        let id = chunk.message_id.as_ref();
        self.prompt.as_ref().is_some_and(|(_, key)| id.is_some_and(|id| *id.0 == **key))
    }

    fn next_question(&mut self) -> u64 {
        self.last_question += 1;
        self.last_question
    }

    fn caller(&self) -> Option<Caller> {
        self.connection.as_ref().map(Connection::caller)
    }
}

/// Returns an error with its causes, as one sentence.
fn with_sources(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut source = err.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
