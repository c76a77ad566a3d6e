//! The calls of the client, each a task that ends with an event.

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use client::{Caller, Error};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use wire::acp::schema;

use super::{AgentAddress, Talk, with_sources};
use crate::app::{Agent, Command, Continued, Event, Failure, OpenHow, Opened};
use crate::files;

/// Where an answer about permission goes, and what it is.
type PermissionAnswer =
    (oneshot::Sender<schema::RequestPermissionOutcome>, schema::RequestPermissionOutcome);

/// How many pages of the list of sessions are read.
const MAX_PAGES: usize = 10;

impl Talk {
    /// Starts a call of the agent.
    pub(super) fn call(&mut self, command: Command) {
        let Some(caller) = self.caller() else { return };
        let (cwd, agent) = (self.options.cwd.clone(), self.agent.clone());
        match command {
            Command::Open(how) => {
                self.calls.spawn(open(caller, cwd, how));
            }
            Command::List => {
                self.calls.spawn(async move {
                    Event::Sessions(list(&caller, cwd).await.map_err(failure))
                });
            }
            Command::Delete(session) => {
                self.calls.spawn(done("Deleted.", async move {
                    let request = schema::DeleteSessionRequest::new(session);
                    caller.call::<Value>("session/delete", &request).await
                }));
            }
            Command::Rename(session, title) => {
                self.calls.spawn(done("", async move {
                    let request = schema::SetSessionTitleRequest::new(session, title);
                    caller.call::<Value>("session/set_title", &request).await
                }));
            }
            Command::Authenticate(method) => {
                self.calls.spawn(async move {
                    let request = schema::AuthenticateRequest::new(method);
                    match caller.call::<Value>("authenticate", &request).await {
                        Ok(_) => open(caller, cwd, OpenHow::New).await,
                        Err(err) => Event::NotOpened(failure(err)),
                    }
                });
            }
            command => {
                let Some(session) = self.session.clone() else { return };
                let takes_images =
                    agent.is_some_and(|agent| agent.capabilities.prompt_capabilities.image);
                self.session_call(command, caller, session, takes_images);
            }
        }
    }

    fn session_call(
        &mut self,
        command: Command,
        caller: Caller,
        session: schema::SessionId,
        takes_images: bool,
    ) {
        let cwd = self.options.cwd.clone();
        match command {
            Command::Prompt(_) | Command::PromptAgain => {
                if let Command::Prompt(text) = command {
                    self.prompt = Some((text, fresh_key()));
                }
                let Some((text, key)) = self.prompt.clone() else { return };
                let is_remote = matches!(self.options.agent, AgentAddress::Server { .. });
                let meta =
                    is_remote.then(|| [("reqKey".to_owned(), json!(key))].into_iter().collect());
                self.calls.spawn(async move {
                    let blocks = blocks(text, cwd, takes_images).await;
                    let request = schema::PromptRequest::new(session, blocks).meta(meta);
                    let ended = caller.prompt(request).await;
                    Event::TurnEnded(ended.map(|response| response.stop_reason).map_err(failure))
                });
            }
            Command::Steer(text) => {
                self.calls.spawn(steer(caller, session, text, cwd, takes_images, None));
            }
            Command::AnswerWithReason(id, outcome, text) => {
                let answer = self.permissions.remove(&id).map(|answer| (answer, outcome));
                self.calls.spawn(steer(caller, session, text, cwd, takes_images, answer));
            }
            Command::Cancel => {
                self.calls.spawn(async move {
                    let sent = caller.cancel(&session).await;
                    Event::Done(sent.map(|()| String::new()).map_err(failure))
                });
            }
            Command::SetMode(mode) => {
                self.calls.spawn(async move {
                    let request = schema::SetSessionModeRequest::new(session, mode);
                    let set = caller.call::<Value>("session/set_mode", &request).await;
                    Event::Changed(set.map(|_| None).map_err(failure))
                });
            }
            Command::SetOption(option, value) => {
                self.calls.spawn(async move {
                    let request =
                        schema::SetSessionConfigOptionRequest::new(session, option, value);
                    let set = caller
                        .call::<schema::SetSessionConfigOptionResponse>(
                            "session/set_config_option",
                            &request,
                        )
                        .await;
                    Event::Changed(
                        set.map(|response| Some(response.config_options)).map_err(failure),
                    )
                });
            }
            _ => {}
        }
    }
}

/// Adds a message to the turn, and then answers a question of the agent: the model must have the message before it continues.
async fn steer(
    caller: Caller,
    session: schema::SessionId,
    text: String,
    cwd: PathBuf,
    takes_images: bool,
    answer: Option<PermissionAnswer>,
) -> Event {
    let blocks = blocks(text.clone(), cwd, takes_images).await;
    let request =
        json!({ "sessionId": session, "prompt": blocks, "idleBehavior": "promptRequired" });
    let mut call = pin!(caller.call::<Value>("_session/steering", &request));
    // Sends the call. Its result may come only when the turn continues, for which the agent needs the answer.
    let early = tokio::select! {
        biased;
        outcome = &mut call => Some(outcome),
        () = std::future::ready(()) => None,
    };
    if let Some((answer, outcome)) = answer {
        // Fails only if the agent has withdrawn the question.
        answer.send(outcome).ok();
    }
    let outcome = match early {
        Some(outcome) => outcome,
        None => call.await,
    };
    Event::Steered(outcome.map(|result| result["outcome"] == "injected").map_err(failure), text)
}

/// Returns a name for a prompt that no other has.
fn fresh_key() -> String {
    use std::hash::{BuildHasher, Hasher};
    // Each state is seeded by the system's random numbers.
    let random = || std::hash::RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

async fn blocks(text: String, cwd: PathBuf, takes_images: bool) -> Vec<schema::ContentBlock> {
    let plain = schema::ContentBlock::from(text.as_str());
    let read = move || files::blocks_of(&text, &cwd, takes_images);
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| vec![plain])
}

async fn done(text: &'static str, call: impl Future<Output = Result<Value, Error>>) -> Event {
    Event::Done(call.await.map(|_| text.to_owned()).map_err(failure))
}

async fn list(caller: &Caller, cwd: PathBuf) -> Result<Vec<schema::SessionInfo>, Error> {
    let mut sessions = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let request = schema::ListSessionsRequest::new().cwd(cwd.clone()).cursor(cursor);
        let page: schema::ListSessionsResponse = caller.call("session/list", &request).await?;
        sessions.extend(page.sessions);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(sessions)
}

/// Opens the first session of a connection: a new one, or one that continues.
pub(super) async fn open_first(
    caller: Caller,
    agent: Arc<Agent>,
    cwd: PathBuf,
    session: Option<Continued>,
) -> Event {
    let Some(Continued { id, is_shown, last_seq }) = session else {
        return open(caller, cwd, OpenHow::New).await;
    };
    let can_resume = agent.capabilities.session_capabilities.resume.is_some();
    let can_load = agent.capabilities.load_session;
    if can_resume && (is_shown || !can_load) {
        let meta = last_seq.map(|seq| [("lastSeq".to_owned(), json!(seq))].into_iter().collect());
        let request = schema::ResumeSessionRequest::new(id.clone(), cwd.clone()).meta(meta);
        let resumed: Result<schema::ResumeSessionResponse, Error> =
            caller.call("session/resume", &request).await;
        return match resumed {
            Ok(response) => opened(id, response.modes, response.config_options, true),
            Err(err) => Event::NotOpened(failure(err)),
        };
    }
    let how = if can_load { OpenHow::Load(id) } else { OpenHow::New };
    open(caller, cwd, how).await
}

async fn open(caller: Caller, cwd: PathBuf, how: OpenHow) -> Event {
    let outcome = match how {
        OpenHow::New => {
            caller.new_session(schema::NewSessionRequest::new(cwd)).await.map(|response| {
                opened(response.session_id, response.modes, response.config_options, false)
            })
        }
        OpenHow::Load(id) => {
            let request = schema::LoadSessionRequest::new(id.clone(), cwd);
            caller
                .call::<schema::LoadSessionResponse>("session/load", &request)
                .await
                .map(|response| opened(id, response.modes, response.config_options, true))
        }
        OpenHow::Resume(id) => {
            let request = schema::ResumeSessionRequest::new(id.clone(), cwd);
            caller
                .call::<schema::ResumeSessionResponse>("session/resume", &request)
                .await
                .map(|response| opened(id, response.modes, response.config_options, true))
        }
        OpenHow::Fork(id) => {
            let request = schema::ForkSessionRequest::new(id, cwd);
            caller.call::<schema::ForkSessionResponse>("session/fork", &request).await.map(
                |response| {
                    opened(response.session_id, response.modes, response.config_options, true)
                },
            )
        }
    };
    outcome.unwrap_or_else(|err| Event::NotOpened(failure(err)))
}

fn opened(
    id: schema::SessionId,
    modes: Option<schema::SessionModeState>,
    options: Option<Vec<schema::SessionConfigOption>>,
    is_old: bool,
) -> Event {
    Event::Opened(Box::new(Opened { id, modes, options: options.unwrap_or_default(), is_old }))
}

/// Returns why a call failed: the agent's sentence alone if it answered.
fn failure(err: Error) -> Failure {
    match &err {
        Error::Refused { error, .. } => {
            let details = error.data.as_ref().and_then(|data| data.get("details")?.as_str());
            let text = match details {
                Some(details) if !error.message.contains(details) => {
                    format!("{}: {details}", error.message)
                }
                _ => error.message.clone(),
            };
            Failure { text, code: Some(error.code.0) }
        }
        _ => Failure { text: with_sources(&err), code: None },
    }
}
