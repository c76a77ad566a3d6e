//! How messages get to a server and back: pipes of a program, streamable HTTP (in `rmcp`), HTTP with server-sent events.

pub(crate) mod sse;
pub(crate) mod stdio;

use std::collections::HashSet;

use rmcp::ErrorData;
use rmcp::model::{ErrorCode, JsonRpcMessage, NumberOrString};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::Value;

type Received = RxJsonRpcMessage<RoleClient>;

/// How long one message of a server may be.
pub(crate) const MAX_MESSAGE: usize = 10 * 1024 * 1024;

/// The calls of ours that wait for a reply. A server may answer what was never asked, or twice.
#[derive(Debug, Default)]
struct OpenCalls(HashSet<NumberOrString>);

impl OpenCalls {
    fn note_sent(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        if let JsonRpcMessage::Request(request) = message {
            self.0.insert(request.id.clone());
        }
    }

    /// Tells whether somebody waits for what came; replies that nobody waits for are passed over.
    fn is_wanted(&mut self, message: &Received) -> bool {
        match message {
            JsonRpcMessage::Response(reply) => self.0.remove(&reply.id),
            JsonRpcMessage::Error(reply) => reply.id.as_ref().is_some_and(|id| self.0.remove(id)),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => true,
        }
    }
}

/// Reads a message. A reply that does not fit becomes an error for whoever waits for it; the rest is `None`.
fn read(text: &[u8]) -> Option<Received> {
    if let Ok(message) = serde_json::from_slice(text) {
        return Some(message);
    }
    let value: Value = serde_json::from_slice(text).ok()?;
    if value.get("method").is_some() || value.get("jsonrpc").is_none() {
        return None;
    }
    let id = match value.get("id")? {
        Value::Number(number) => NumberOrString::Number(number.as_i64()?),
        Value::String(text) => NumberOrString::String(text.as_str().into()),
        _ => return None,
    };
    Some(broken_reply(id, "its answer does not fit the protocol"))
}

fn broken_reply(id: NumberOrString, why: &str) -> Received {
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why.to_owned(), None);
    JsonRpcMessage::error(error, Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_does_not_fit_is_an_error_for_its_call() {
        let id = |text: &str| match read(text.as_bytes()) {
            Some(JsonRpcMessage::Error(error)) => error.id,
            other => panic!("{other:?}"),
        };
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":7}"#), Some(NumberOrString::Number(7)));
        assert_eq!(
            id(r#"{"jsonrpc":"2.0","id":"a","error":1}"#),
            Some(NumberOrString::String("a".into()))
        );
        assert!(read(b"npm warn deprecated").is_none());
        assert!(read(br#"{"level":"info","id":1}"#).is_none());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(0_u8.., 0..200)) {
            read(&bytes);
        }
    }
}
