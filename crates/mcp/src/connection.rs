//! A connection to a server: matches calls with replies, and dispatches the server's requests and notifications.
//!
//! The payload types are `rmcp`'s. Envelopes and matching are our own, so that a reply is parsed once, directly into its
//! final type. `transport` moves the bytes; `handler` handles the server's requests and notifications.

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

use crate::clean::whole_characters;
use crate::error::Error;
use crate::handler;
use crate::server::{Server, lock};
use crate::transport::Pipe;

/// The most requests of a server that may be open at once. If the queue is full, further ones are ignored.
const MAX_REQUESTS: usize = 16;

/// Why a call to the server failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// The server answered with an error.
    Refused(String),
    /// The server's result does not match the protocol.
    Invalid,
    /// The call could not be sent.
    NotSent(Error),
    /// The connection closed before the reply.
    Closed,
}

type Outcome = Result<Box<RawValue>, Failure>;

/// The receiving side of a connection: the pending calls, and the server's own requests.
pub(crate) struct Inbox {
    server: Arc<Server>,
    /// The pending calls by number. `None` once the connection has closed.
    pending: Mutex<Option<HashMap<u64, oneshot::Sender<Outcome>>>>,
    /// The server's requests that are not answered yet, with the tokens that cancel them.
    open_requests: Mutex<HashMap<RequestId, CancellationToken>>,
    requests: mpsc::Sender<ServerRequest>,
    closed: CancellationToken,
}

/// A request from the server.
pub(crate) struct ServerRequest {
    id: RequestId,
    method: String,
    params: Option<Box<RawValue>>,
    cancel: CancellationToken,
}

impl Inbox {
    /// Creates an inbox, and the receiver of the server's requests.
    pub(crate) fn new(server: Arc<Server>) -> (Arc<Inbox>, mpsc::Receiver<ServerRequest>) {
        let (requests, received) = mpsc::channel(MAX_REQUESTS);
        let inbox = Inbox {
            server,
            pending: Mutex::new(Some(HashMap::new())),
            open_requests: Mutex::default(),
            requests,
            closed: CancellationToken::new(),
        };
        (Arc::new(inbox), received)
    }

    /// Handles a message. Returns false if the bytes are not one. A reply without a pending call is ignored.
    pub(crate) fn receive(&self, text: &[u8]) -> bool {
        match rpc::parse(text) {
            Ok(Message::Reply { id, outcome }) => {
                if let Some(number) = id.as_number() {
                    let outcome = outcome.map(ToOwned::to_owned);
                    self.finish(number, outcome.map_err(|error| Failure::Refused(error.message)));
                }
            }
            Ok(Message::Bare { id, .. }) => {
                let number = id.as_number();
                return number
                    .is_some_and(|number| self.finish(number, Ok(RawValue::NULL.to_owned())));
            }
            Ok(Message::Note { method, params }) => self.notified(&method, params),
            Ok(Message::Call { id, method, params }) => {
                let cancel = CancellationToken::new();
                let request = ServerRequest {
                    id: id.clone(),
                    method: method.into_owned(),
                    params: params.map(ToOwned::to_owned),
                    cancel: cancel.clone(),
                };
                match self.requests.try_send(request) {
                    Ok(()) => drop(lock(&self.open_requests).insert(id, cancel)),
                    Err(_) => {
                        tracing::warn!(server = self.server.name(), "too many open requests")
                    }
                }
            }
            Err(malformed) => {
                let number = malformed.id.and_then(|id| id.as_number());
                let Some(number) = number.filter(|_| is_reply(text)) else {
                    return false;
                };
                self.finish(number, Err(Failure::Invalid));
            }
        }
        true
    }

    /// Completes a pending call. Returns false if it is not pending.
    pub(crate) fn finish(&self, number: u64, outcome: Outcome) -> bool {
        let sender = lock(&self.pending).as_mut().and_then(|pending| pending.remove(&number));
        sender.is_some_and(|sender| sender.send(outcome).is_ok())
    }

    /// Returns whether a call is still pending.
    pub(crate) fn is_pending(&self, number: u64) -> bool {
        lock(&self.pending).as_ref().is_some_and(|pending| pending.contains_key(&number))
    }

    /// Closes the connection: fails all pending calls and wakes the supervisor.
    pub(crate) fn close(&self) {
        *lock(&self.pending) = None;
        self.closed.cancel();
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        let text = params.map_or("{}", RawValue::get);
        if method != "notifications/cancelled" {
            return handler::handle_notification(&self.server, method, text);
        }
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        let id = serde_json::from_str(text)
            .ok()
            .and_then(|params: Cancelled<'_>| RequestId::from_raw(params.request_id).ok());
        if let Some(cancel) = id.and_then(|id| lock(&self.open_requests).remove(&id)) {
            cancel.cancel();
        }
    }
}

/// Returns whether an invalid message was meant as a reply.
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

/// A call whose reply has not been received. If it is dropped, its reply is ignored.
pub(crate) struct PendingCall {
    number: u64,
    inbox: Arc<Inbox>,
    /// Sends the call and waits for its reply.
    pub(crate) reply: BoxFuture<'static, Outcome>,
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if let Some(pending) = &mut *lock(&self.inbox.pending) {
            pending.remove(&self.number);
        }
    }
}

impl Peer {
    pub(crate) fn new(inbox: Arc<Inbox>, pipe: Arc<dyn Pipe>) -> Peer {
        Peer { inbox, pipe, last: Arc::new(AtomicU64::new(0)) }
    }

    /// Returns the number of the next call. It is also its progress token.
    pub(crate) fn next_number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Prepares a call. It is sent when its reply is awaited.
    pub(crate) fn prepare_call(
        &self,
        number: u64,
        method: &str,
        params: &impl Serialize,
    ) -> PendingCall {
        let mut line = Vec::new();
        let printed = rpc::print_call(&mut line, &RequestId::number(number), method, params);
        let (sender, reply) = oneshot::channel();
        if let Some(pending) = &mut *lock(&self.inbox.pending) {
            pending.insert(number, sender);
        }
        let reply = match printed {
            Ok(()) => exchange(self.pipe.send(line, Some(number)), reply).boxed(),
            Err(_) => std::future::ready(Err(Failure::Invalid)).boxed(),
        };
        PendingCall { number, inbox: Arc::clone(&self.inbox), reply }
    }

    /// Makes a call and parses its result.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, Failure> {
        let mut call = self.prepare_call(self.next_number(), method, params);
        let result = (&mut call.reply).await?;
        serde_json::from_str(&whole_characters(result.get())).map_err(|_| Failure::Invalid)
    }

    /// Sends a notification.
    pub(crate) async fn notify(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<(), Failure> {
        let mut line = Vec::new();
        rpc::print_note(&mut line, method, params).map_err(|_| Failure::Invalid)?;
        self.pipe.send(line, None).await.map_err(Failure::NotSent)
    }

    /// Notifies the server that a call was cancelled.
    pub(crate) async fn send_cancelled(&self, number: u64, reason: &str) -> Result<(), Failure> {
        let params = json!({ "requestId": number, "reason": reason });
        self.notify("notifications/cancelled", &params).await
    }

    /// Waits until the connection is closed.
    pub(crate) async fn closed(&self) {
        self.inbox.closed.cancelled().await;
    }

    /// Answers the server's requests until the connection is closed.
    pub(crate) async fn serve_requests(self, mut requests: mpsc::Receiver<ServerRequest>) {
        let mut running = JoinSet::new();
        while let Some(request) = requests.recv().await {
            while running.len() >= MAX_REQUESTS {
                running.join_next().await;
            }
            running.spawn(self.clone().answer(request));
        }
    }

    async fn answer(self, request: ServerRequest) {
        let ServerRequest { id, method, params, cancel } = request;
        let text = params.as_deref().map_or("{}", RawValue::get);
        let answer = handler::handle_request(&self.inbox.server, &method, text, &cancel).await;
        let is_open = lock(&self.inbox.open_requests).remove(&id).is_some();
        let mut line = Vec::new();
        let printed = match answer {
            Ok(result) => rpc::print_result(&mut line, &id, &result),
            Err(error) => rpc::print_error(&mut line, Some(&id), &error),
        };
        // A cancelled request gets no answer.
        if printed.is_ok()
            && is_open
            && let Err(err) = self.pipe.send(line, None).await
        {
            tracing::debug!(server = self.inbox.server.name(), "could not send an answer: {err}");
        }
    }
}

/// Sends a call and waits for its reply, which may arrive before sending is complete.
async fn exchange(
    sent: BoxFuture<'static, Result<(), Error>>,
    mut reply: oneshot::Receiver<Outcome>,
) -> Outcome {
    let first = tokio::select! {
        biased;
        reply = &mut reply => Some(reply),
        sent = sent => match sent {
            Ok(()) => None,
            Err(error) => return Err(Failure::NotSent(error)),
        },
    };
    let reply = match first {
        Some(reply) => reply,
        None => reply.await,
    };
    reply.unwrap_or(Err(Failure::Closed))
}

/// Returns the error for a method that this client does not support.
pub(crate) fn method_not_supported() -> RpcError {
    RpcError::new(Code::METHOD_NOT_FOUND, "Method not supported")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Command, ServerConfig};

    fn inbox() -> (Arc<Inbox>, mpsc::Receiver<ServerRequest>) {
        let command =
            Command { program: "x".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
        let config = ServerConfig::command("x", command).unwrap();
        Inbox::new(Arc::new(Server::new(config, Vec::new(), None)))
    }

    fn wait_for(inbox: &Inbox, number: u64) -> oneshot::Receiver<Outcome> {
        let (sender, reply) = oneshot::channel();
        lock(&inbox.pending).as_mut().unwrap().insert(number, sender);
        reply
    }

    // R: M2
    // Fault: M10
    #[test]
    fn invalid_reply_fails_only_its_call() {
        let (inbox, _requests) = inbox();
        let mut reply = wait_for(&inbox, 7);
        assert!(inbox.receive(br#"{"jsonrpc":"2.0","id":7,"result":1,"id":7}"#));
        assert_eq!(reply.try_recv().unwrap().unwrap_err(), Failure::Invalid);
        // Neither result nor error: an empty result, which JavaScript leaves out.
        let mut reply = wait_for(&inbox, 8);
        assert!(inbox.receive(br#"{"jsonrpc":"2.0","id":8}"#));
        assert_eq!(reply.try_recv().unwrap().unwrap().get(), "null");
        let mut reply = wait_for(&inbox, 1);
        for garbage in ["npm warn deprecated", r#"{"level":"info","id":1}"#, "[1,2]", "null"] {
            assert!(!inbox.receive(garbage.as_bytes()), "{garbage}");
        }
        assert!(inbox.receive(br#"{"jsonrpc":"2.0","id":987654,"result":{}}"#));
        assert!(reply.try_recv().is_err());
        assert!(inbox.receive(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
        assert_eq!(reply.try_recv().unwrap().unwrap().get(), "{}");
    }

    #[test]
    fn closing_fails_pending_calls() {
        let (inbox, _requests) = inbox();
        let mut reply = wait_for(&inbox, 1);
        inbox.close();
        assert!(matches!(reply.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(inbox.closed.is_cancelled() && !inbox.is_pending(1));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in proptest::collection::vec(0_u8.., 0..200)) {
            let (inbox, _requests) = inbox();
            inbox.receive(&bytes);
        }
    }
}
