//! A connection to a server: pairs calls with replies, and passes on the server's requests and notifications.
//!
//! The payload types are `rmcp`'s; envelope and pairing are ours, so that a reply is parsed once, straight into its type.
//! `transport` moves the bytes, `handler` answers the server's requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::RequestId;
use wire::rpc::{self, Message};
use wire::{Code, RpcError};

use crate::error::Error;
use crate::handler;
use crate::server::{Server, lock};
use crate::transport::Pipe;

/// How many requests of a server may wait. When it is full, further ones are ignored.
const QUESTIONS: usize = 16;

/// Why a call of ours failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// The server answered with an error.
    Refused(String),
    /// The server's result violates the protocol.
    Misfit,
    /// It could not be sent.
    Unsent(Error),
    /// The connection ended first.
    Closed,
}

type Outcome = Result<Box<RawValue>, Failure>;

/// What a connection has received: pending calls, and requests of the server.
pub(crate) struct Inbox {
    server: Arc<Server>,
    /// `None` once the connection has ended.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<Outcome>>>>,
    /// The server's requests that are not answered yet, and how to cancel them.
    open: Mutex<HashMap<RequestId, CancellationToken>>,
    questions: mpsc::Sender<Question>,
    closed: CancellationToken,
}

/// A request of the server.
pub(crate) struct Question {
    id: RequestId,
    method: String,
    params: Option<Box<RawValue>>,
    cancel: CancellationToken,
}

impl Inbox {
    /// Makes an inbox and the receiver of its requests.
    pub(crate) fn new(server: Arc<Server>) -> (Arc<Inbox>, mpsc::Receiver<Question>) {
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let inbox = Inbox {
            server,
            waiting: Mutex::new(Some(HashMap::new())),
            open: Mutex::default(),
            questions,
            closed: CancellationToken::new(),
        };
        (Arc::new(inbox), asked)
    }

    /// Takes a message; returns false if the bytes are not one. An unexpected reply is ignored.
    pub(crate) fn hear(&self, text: &[u8]) -> bool {
        match rpc::parse(text) {
            Ok(Message::Reply { id, outcome }) => {
                if let Some(number) = id.as_number() {
                    let outcome = outcome.map(ToOwned::to_owned);
                    self.finish(number, outcome.map_err(|error| Failure::Refused(error.message)));
                }
            }
            Ok(Message::Note { method, params }) => self.note(&method, params),
            Ok(Message::Call { id, method, params }) => {
                let cancel = CancellationToken::new();
                let question = Question {
                    id: id.clone(),
                    method: method.into_owned(),
                    params: params.map(ToOwned::to_owned),
                    cancel: cancel.clone(),
                };
                match self.questions.try_send(question) {
                    Ok(()) => drop(lock(&self.open).insert(id, cancel)),
                    Err(_) => {
                        tracing::warn!(
                            server = self.server.name(),
                            "too many requests of the server at once"
                        )
                    }
                }
            }
            Err(malformed) => {
                let number = malformed.id.and_then(|id| id.as_number());
                let Some(number) = number.filter(|_| is_reply(text)) else {
                    return false;
                };
                self.finish(number, Err(Failure::Misfit));
            }
        }
        true
    }

    /// Completes a pending call. Returns false if it is not pending.
    pub(crate) fn finish(&self, number: u64, outcome: Outcome) -> bool {
        let waiting = lock(&self.waiting).as_mut().and_then(|waiting| waiting.remove(&number));
        waiting.is_some_and(|waiting| waiting.send(outcome).is_ok())
    }

    /// Tells whether a call is still pending.
    pub(crate) fn awaits(&self, number: u64) -> bool {
        lock(&self.waiting).as_ref().is_some_and(|waiting| waiting.contains_key(&number))
    }

    /// Ends the connection: pending calls fail, and the supervisor is notified.
    pub(crate) fn close(&self) {
        *lock(&self.waiting) = None;
        self.closed.cancel();
    }

    fn note(&self, method: &str, params: Option<&RawValue>) {
        let text = params.map_or("{}", RawValue::get);
        if method != "notifications/cancelled" {
            return handler::note(&self.server, method, text);
        }
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        let id = serde_json::from_str(text)
            .ok()
            .and_then(|note: Cancelled<'_>| RequestId::from_raw(note.request_id).ok());
        if let Some(cancel) = id.and_then(|id| lock(&self.open).remove(&id)) {
            cancel.cancel();
        }
    }
}

/// Tells whether an invalid message was meant as a reply.
fn is_reply(text: &[u8]) -> bool {
    let members: HashMap<String, IgnoredAny> = serde_json::from_slice(text).unwrap_or_default();
    members.contains_key("jsonrpc") && !members.contains_key("method")
}

/// Our end of a connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) pipe: Arc<dyn Pipe>,
    last: Arc<AtomicU64>,
}

/// A pending call. Dropping it ignores its reply.
pub(crate) struct Asked {
    number: u64,
    inbox: Arc<Inbox>,
    /// Sends the call and waits for its reply.
    pub(crate) answer: BoxFuture<'static, Outcome>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(waiting) = &mut *lock(&self.inbox.waiting) {
            waiting.remove(&self.number);
        }
    }
}

impl Peer {
    pub(crate) fn new(inbox: Arc<Inbox>, pipe: Arc<dyn Pipe>) -> Peer {
        Peer { inbox, pipe, last: Arc::new(AtomicU64::new(0)) }
    }

    /// Returns the number of the next call, which is also its progress token.
    pub(crate) fn fresh_number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes a call. Nothing is sent before its answer is awaited.
    pub(crate) fn ask(&self, number: u64, method: &str, params: &impl Serialize) -> Asked {
        let mut line = Vec::new();
        let printed = rpc::print_call(&mut line, &RequestId::number(number), method, params);
        let (sender, reply) = oneshot::channel();
        if let Some(waiting) = &mut *lock(&self.inbox.waiting) {
            waiting.insert(number, sender);
        }
        let answer = match printed {
            Ok(()) => exchange(self.pipe.send(line, Some(number)), reply).boxed(),
            Err(_) => std::future::ready(Err(Failure::Misfit)).boxed(),
        };
        Asked { number, inbox: Arc::clone(&self.inbox), answer }
    }

    /// Makes a call and reads its result.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, Failure> {
        let mut asked = self.ask(self.fresh_number(), method, params);
        let result = (&mut asked.answer).await?;
        serde_json::from_str(result.get()).map_err(|_| Failure::Misfit)
    }

    /// Sends a notification.
    pub(crate) async fn tell(&self, method: &str, params: &impl Serialize) -> Result<(), Failure> {
        let mut line = Vec::new();
        rpc::print_note(&mut line, method, params).map_err(|_| Failure::Misfit)?;
        self.pipe.send(line, None).await.map_err(Failure::Unsent)
    }

    /// Tells the server that a call was cancelled.
    pub(crate) async fn tell_cancel(&self, number: u64, why: &str) -> Result<(), Failure> {
        let note = json!({ "requestId": number, "reason": why });
        self.tell("notifications/cancelled", &note).await
    }

    /// Waits for the end of the connection.
    pub(crate) async fn closed(&self) {
        self.inbox.closed.cancelled().await;
    }

    /// Answers requests of the server while it is connected.
    pub(crate) async fn answer_questions(self, mut questions: mpsc::Receiver<Question>) {
        let mut answers = JoinSet::new();
        while let Some(question) = questions.recv().await {
            while answers.len() >= QUESTIONS {
                answers.join_next().await;
            }
            answers.spawn(self.clone().answer(question));
        }
    }

    async fn answer(self, question: Question) {
        let Question { id, method, params, cancel } = question;
        let text = params.as_deref().map_or("{}", RawValue::get);
        let answer = handler::answer(&self.inbox.server, &method, text, &cancel).await;
        let is_open = lock(&self.inbox.open).remove(&id).is_some();
        let mut line = Vec::new();
        let printed = match answer {
            Ok(result) => rpc::print_result(&mut line, &id, &result),
            Err(error) => rpc::print_error(&mut line, Some(&id), &error),
        };
        // A cancelled request is not answered.
        if printed.is_ok()
            && is_open
            && let Err(err) = self.pipe.send(line, None).await
        {
            tracing::debug!(
                server = self.inbox.server.name(),
                "an answer could not be sent: {err}"
            );
        }
    }
}

/// Sends a call and waits for its reply, which may arrive before everything is sent.
async fn exchange(
    sent: BoxFuture<'static, Result<(), Error>>,
    mut reply: oneshot::Receiver<Outcome>,
) -> Outcome {
    let first = tokio::select! {
        biased;
        reply = &mut reply => Some(reply),
        sent = sent => match sent {
            Ok(()) => None,
            Err(error) => return Err(Failure::Unsent(error)),
        },
    };
    let reply = match first {
        Some(reply) => reply,
        None => reply.await,
    };
    reply.unwrap_or(Err(Failure::Closed))
}

/// Refuses an unsupported request.
pub(crate) fn not_offered() -> RpcError {
    RpcError::new(Code::METHOD_NOT_FOUND, "Not supported")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Command, ServerConfig};

    fn inbox() -> (Arc<Inbox>, mpsc::Receiver<Question>) {
        let command =
            Command { program: "x".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
        let config = ServerConfig::command("x", command).unwrap();
        Inbox::new(Arc::new(Server::new(config, Vec::new())))
    }

    fn wait_for(inbox: &Inbox, number: u64) -> oneshot::Receiver<Outcome> {
        let (sender, reply) = oneshot::channel();
        lock(&inbox.waiting).as_mut().unwrap().insert(number, sender);
        reply
    }

    // R: M2
    // Fault: M10
    #[test]
    fn invalid_reply_fails_its_call() {
        let (inbox, _questions) = inbox();
        for bad in [r#"{"jsonrpc":"2.0","id":7}"#, r#"{"jsonrpc":"2.0","id":7,"result":1,"id":7}"#]
        {
            let mut reply = wait_for(&inbox, 7);
            assert!(inbox.hear(bad.as_bytes()), "{bad}");
            assert_eq!(reply.try_recv().unwrap().unwrap_err(), Failure::Misfit, "{bad}");
        }
        let mut reply = wait_for(&inbox, 1);
        for no_message in ["npm warn deprecated", r#"{"level":"info","id":1}"#, "[1,2]", "null"] {
            assert!(!inbox.hear(no_message.as_bytes()), "{no_message}");
        }
        assert!(inbox.hear(br#"{"jsonrpc":"2.0","id":987654,"result":{}}"#));
        assert!(reply.try_recv().is_err());
        assert!(inbox.hear(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
        assert_eq!(reply.try_recv().unwrap().unwrap().get(), "{}");
    }

    #[test]
    fn pending_calls_fail_when_the_connection_ends() {
        let (inbox, _questions) = inbox();
        let mut reply = wait_for(&inbox, 1);
        inbox.close();
        assert!(matches!(reply.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(inbox.closed.is_cancelled() && !inbox.awaits(1));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in proptest::collection::vec(0_u8.., 0..200)) {
            let (inbox, _questions) = inbox();
            inbox.hear(&bytes);
        }
    }
}
