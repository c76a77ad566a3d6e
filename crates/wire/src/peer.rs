//! The peer: one end of a JSON-RPC connection.
//!
//! Pairs calls with replies and rejects malformed lines. Does no IO and reads no clock; the caller moves the bytes. For
//! the methods themselves see `acp`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::json;
use serde_json::value::RawValue;

use crate::code::{Code, RpcError};
use crate::id::RequestId;
use crate::line::{Line, LineDecoder, SizeLimits, TooLong};
use crate::rpc::{self, Malformed, Message};

/// One end of a JSON-RPC 2.0 connection over newline-delimited JSON.
#[derive(Debug)]
pub struct Peer {
    lines: LineDecoder,
    limits: SizeLimits,
    /// Calls by the other side that have no reply yet.
    open: HashSet<RequestId>,
    /// Our own calls that have no reply yet, with their method.
    sent: HashMap<u64, &'static str>,
    last_sent: u64,
}

/// An incoming message. Borrows from the line: read the parameters into their type before the next poll.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// A request that needs a reply. Call [`Peer::close`] with its id when it is answered.
    Call {
        /// The id to put into the reply.
        id: RequestId,
        /// The method's name.
        method: Cow<'a, str>,
        /// The parameters as raw JSON.
        params: Option<&'a RawValue>,
    },
    /// A notification: needs no reply.
    Note {
        /// The method's name.
        method: Cow<'a, str>,
        /// The parameters as raw JSON.
        params: Option<&'a RawValue>,
    },
    /// The reply to one of our calls.
    Reply {
        /// The number that [`Peer::call`] returned.
        number: u64,
        /// The method that was called.
        method: &'static str,
        /// The result as raw JSON, or the error.
        outcome: Result<&'a RawValue, RpcError>,
    },
    /// An invalid message that must be answered with this error. Without an id the answer has a null id.
    Refused {
        /// The id, if it could be read.
        id: Option<RequestId>,
        /// The error to answer with.
        error: RpcError,
    },
    /// A message that must not be answered, with a description for the log: a reply to an unknown call, or a notification
    /// that is too long.
    Ignored(&'static str),
}

/// Notifications that some clients send with `"id": null`.
const NOTES: [&str; 2] = ["session/cancel", "$/cancel_request"];

impl Peer {
    /// Creates a peer that accepts lines up to `limits`.
    #[must_use]
    pub fn new(limits: SizeLimits) -> Peer {
        Peer {
            lines: LineDecoder::new(limits.clone()),
            limits,
            open: HashSet::new(),
            sent: HashMap::new(),
            last_sent: 0,
        }
    }

    /// Adds bytes. Call [`Peer::poll_event`] until it returns `None` before the next feed.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.lines.feed(bytes);
    }

    /// Marks the end of the stream: the remaining bytes are the last line.
    pub fn finish(&mut self) {
        self.lines.finish();
    }

    /// Returns the next incoming message.
    pub fn poll_event(&mut self) -> Option<Incoming<'_>> {
        let line = match self.lines.next_line()? {
            Line::Whole(line) => line,
            Line::TooLong(long) => return Some(too_long(long, &mut self.sent, self.last_sent)),
        };
        Some(match rpc::parse(line) {
            Err(Malformed { id: Some(id), error, may_be_reply: true })
                if is_ours(self.last_sent, &id) =>
            {
                close_ours(&mut self.sent, &id, Err(*error))
            }
            Err(Malformed { id, error, .. }) => Incoming::Refused { id, error: *error },
            Ok(Message::Bare { id, .. }) if is_ours(self.last_sent, &id) => {
                close_ours(&mut self.sent, &id, Ok(RawValue::NULL))
            }
            Ok(Message::Bare { id, error }) => Incoming::Refused { id: Some(id), error },
            Ok(Message::Note { method, params }) => Incoming::Note { method, params },
            Ok(Message::Call { id, method, params })
                if id.is_null() && NOTES.contains(&&*method) =>
            {
                Incoming::Note { method, params }
            }
            Ok(Message::Call { id, method, .. }) if line.len() > self.limits.of(Some(&method)) => {
                let limit = self.limits.of(Some(&method));
                Incoming::Refused {
                    id: Some(id),
                    error: too_long_error(Some(&method), line.len(), limit),
                }
            }
            Ok(Message::Call { id, method, params }) => {
                if self.open.insert(id.clone()) {
                    Incoming::Call { id, method, params }
                } else {
                    let details = "A request with this id is still open";
                    Incoming::Refused {
                        id: Some(id),
                        error: RpcError::of(Code::INVALID_REQUEST).details(details),
                    }
                }
            }
            Ok(Message::Reply { id, outcome }) => close_ours(&mut self.sent, &id, outcome),
        })
    }

    /// Registers a call that we send, and returns its id.
    pub fn call(&mut self, method: &'static str) -> u64 {
        self.last_sent += 1;
        self.sent.insert(self.last_sent, method);
        self.last_sent
    }

    /// Registers a call that we send with an id chosen by the caller, who must never use it again.
    pub fn call_as(&mut self, number: u64, method: &'static str) {
        self.last_sent = self.last_sent.max(number);
        self.sent.insert(number, method);
    }

    /// Stops waiting for the reply to one of our calls. A late reply is ignored.
    pub fn forget(&mut self, number: u64) -> bool {
        self.sent.remove(&number).is_some()
    }

    /// Marks a call as answered. Returns false if it already was; then nothing may be sent.
    pub fn close(&mut self, id: &RequestId) -> bool {
        self.open.remove(id)
    }

    /// Returns how many calls by the other side have no reply yet.
    #[must_use]
    pub fn open_calls(&self) -> usize {
        self.open.len()
    }
}

/// Tells whether an id is that of a call of ours, open or not. A message without a method that has it is never answered:
/// the other side would take the answer for the one to a call of its own.
fn is_ours(last_sent: u64, id: &RequestId) -> bool {
    id.as_number().is_some_and(|number| (1..=last_sent).contains(&number))
}

/// Takes the reply to a call of ours.
fn close_ours<'a>(
    sent: &mut HashMap<u64, &'static str>,
    id: &RequestId,
    outcome: Result<&'a RawValue, RpcError>,
) -> Incoming<'a> {
    match id.as_number().and_then(|id| Some((id, sent.remove(&id)?))) {
        Some((number, method)) => Incoming::Reply { number, method, outcome },
        None => Incoming::Ignored("reply to an unknown call"),
    }
}

fn too_long(
    long: TooLong,
    sent: &mut HashMap<u64, &'static str>,
    last_sent: u64,
) -> Incoming<'static> {
    let method = long.peek.method();
    let id = long.peek.id();
    let may_be_reply = long.peek.is_reply() || id.as_ref().is_some_and(|id| is_ours(last_sent, id));
    if may_be_reply && method.is_none() {
        let call = id.and_then(|id| id.as_number()).and_then(|id| Some((id, sent.remove(&id)?)));
        let Some((number, method)) = call else {
            return Incoming::Ignored("reply to an unknown call, too long");
        };
        let error = RpcError::of(Code::FILE_TOO_LARGE).with("limit", json!(long.limit));
        return Incoming::Reply { number, method, outcome: Err(error) };
    }
    if id.is_none() && method.is_some() {
        return Incoming::Ignored("notification too long");
    }
    if !long.peek.is_object() {
        let error = RpcError::of(Code::PARSE_ERROR).with("limit", json!(long.limit));
        return Incoming::Refused { id: None, error };
    }
    let error = too_long_error(method, long.size, long.limit);
    Incoming::Refused { id, error }
}

fn too_long_error(method: Option<&str>, size: usize, limit: usize) -> RpcError {
    let what = method.filter(|method| is_known(method)).unwrap_or("The message");
    RpcError::new(Code::INVALID_REQUEST, "Message too large")
        .details(format!("{what} has {size} bytes; the limit is {limit}"))
        .with("kind", json!("message_too_large"))
        .with("limit", json!(limit))
}

/// Only known method names are repeated in an error, never text from the other side.
fn is_known(method: &str) -> bool {
    crate::acp::AGENT_METHODS.contains(&method) || crate::acp::CLIENT_METHODS.contains(&method)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bytes: &[u8]) -> Vec<String> {
        let mut peer = Peer::new(SizeLimits::default());
        peer.feed(bytes);
        peer.finish();
        let mut out = Vec::new();
        while let Some(event) = peer.poll_event() {
            out.push(match event {
                Incoming::Call { id, method, .. } => format!("call {id} {method}"),
                Incoming::Note { method, .. } => format!("note {method}"),
                Incoming::Reply { number, method, .. } => format!("reply {number} {method}"),
                Incoming::Refused { id, error } => {
                    format!(
                        "refused {} {}",
                        id.map_or("null".to_owned(), |id| id.to_string()),
                        error.code.0
                    )
                }
                Incoming::Ignored(what) => format!("ignored {what}"),
            });
        }
        out
    }

    /// A reply whose result is JavaScript's `undefined` has neither `result` nor `error`.
    // R: W6
    #[test]
    fn message_without_a_method_never_gets_an_answer_to_an_id_of_ours() {
        let mut peer = Peer::new(SizeLimits::default());
        let (first, second) = (peer.call("fs/write_text_file"), peer.call("terminal/kill"));
        assert_eq!((first, second), (1, 2));
        peer.feed(b"{\"jsonrpc\":\"2.0\",\"id\":1}\n{\"jsonrpc\":\"2.0\",\"id\":1}\n");
        peer.feed(b"{\"id\":2,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":3}\n");
        let Some(Incoming::Reply { number: 1, outcome: Ok(result), .. }) = peer.poll_event() else {
            panic!("not a reply");
        };
        assert_eq!(result.get(), "null");
        assert!(matches!(peer.poll_event(), Some(Incoming::Ignored(_))));
        let reply = peer.poll_event();
        assert!(matches!(reply, Some(Incoming::Reply { number: 2, outcome: Err(_), .. })));
        // The other side sent this id: a call without its method.
        assert!(matches!(peer.poll_event(), Some(Incoming::Refused { id: Some(_), .. })));
        assert!(peer.poll_event().is_none());
    }

    #[test]
    fn duplicate_open_id_is_rejected() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
        assert_eq!(
            events(format!("{call}\n{call}\n").as_bytes()),
            ["call 1 m", "refused 1 -32600"]
        );
    }

    // R: W2
    #[test]
    fn null_id_is_an_id_except_on_notifications() {
        let got = events(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}\n{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"session/cancel\"}");
        assert_eq!(got, ["call null m", "note session/cancel"]);
    }

    // R: W10
    #[test]
    fn line_over_the_limit_of_its_method_is_rejected() {
        let pad = "x".repeat(20_000);
        let got = events(format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":\"{pad}\"}}\n{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/prompt\",\"params\":\"{pad}\"}}\n").as_bytes());
        assert_eq!(got, ["refused 1 -32600", "call 2 session/prompt"]);
    }

    // R: C3
    #[test]
    fn replies_are_paired_with_our_calls_once() {
        let mut peer = Peer::new(SizeLimits::default());
        let number = peer.call("fs/read_text_file");
        peer.feed(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}\n");
        assert!(
            matches!(peer.poll_event(), Some(Incoming::Reply { number: n, method: "fs/read_text_file", outcome: Ok(_) }) if n == number)
        );
        assert!(matches!(peer.poll_event(), Some(Incoming::Ignored(_))));
        assert!(matches!(peer.poll_event(), Some(Incoming::Ignored(_))));
        assert!(peer.poll_event().is_none());
    }

    #[test]
    fn incomplete_last_line_is_a_line() {
        assert_eq!(events(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}"), ["call 1 m"]);
        assert_eq!(events(b"{\"jsonrpc\":\"2.0\",\"id\":1,"), ["refused null -32700"]);
    }
}
