//! The JSON-RPC 2.0 envelope: reads a message from a line, and writes a message as a line.
//!
//! Borrows from the line and leaves `params` and `result` as raw JSON, so that a large message is not copied before it is
//! read into its type. `peer` pairs calls and replies.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::code::{Code, RpcError};
use crate::id::RequestId;

/// One message, borrowed from its line.
#[derive(Debug)]
pub enum Message<'a> {
    /// A request that needs a reply.
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
        /// The call's id.
        id: RequestId,
        /// The result as raw JSON, or the error.
        outcome: Result<&'a RawValue, RpcError>,
    },
    /// Only an id. The reply of a JavaScript client whose result is `undefined`, or a call without its method.
    Bare {
        /// The id.
        id: RequestId,
        /// The error to answer a call with.
        error: RpcError,
    },
}

/// A line that is not a valid message, with the error to answer it with.
#[derive(Debug, PartialEq)]
pub struct Malformed {
    /// The id, if it could be read.
    pub id: Option<RequestId>,
    /// The error to answer with.
    pub error: Box<RpcError>,
    /// Whether it has no `method`, so that it may be a reply. The id may be one of ours then.
    pub may_be_reply: bool,
}

/// The members of the envelope. A null member is distinguished from a missing one.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Reads one line.
///
/// # Errors
/// -32700 for text that is not JSON, -32600 for JSON that is not a message.
pub fn parse(line: &[u8]) -> Result<Message<'_>, Malformed> {
    let not_json = || malformed(None, RpcError::new(Code::PARSE_ERROR, "Parse error"));
    let text = std::str::from_utf8(line).map_err(|_| not_json())?;
    if !text.starts_with('{') {
        // Checked here because serde would also read the struct from an array.
        serde_json::from_str::<&RawValue>(text).map_err(|_| not_json())?;
        let details = if text.starts_with('[') {
            "Batches are not supported"
        } else {
            "A message must be an object"
        };
        return Err(invalid(None, details));
    }
    let envelope: Envelope<'_> = match serde_json::from_str(text) {
        Ok(envelope) => envelope,
        Err(err) if err.is_data() => {
            let (id, may_be_reply) = peeked(text);
            let duplicate = invalid(id, "The message has a duplicate member");
            return Err(Malformed { may_be_reply, ..duplicate });
        }
        Err(_) => return Err(not_json()),
    };
    envelope.into_message()
}

impl<'a> Envelope<'a> {
    fn into_message(self) -> Result<Message<'a>, Malformed> {
        let id = match self.id.map(RequestId::from_raw).transpose() {
            Ok(id) => id,
            Err(details) => return Err(invalid(None, details)),
        };
        let method = match self.method.map(|raw| serde_json::from_str::<Cow<'_, str>>(raw.get())) {
            Some(Ok(method)) => Some(borrow_if_unescaped(self.method, method)),
            Some(Err(_)) => return Err(invalid(id, "'method' must be a string")),
            None => None,
        };
        match self.jsonrpc.map(RawValue::get) {
            Some("\"2.0\"") => {}
            // Shaped like a notification, which is never answered, not even if it is invalid.
            _ if id.is_none() && method.is_some() => {}
            other => {
                let may_be_reply = method.is_none();
                let why = match other {
                    Some(_) => "'jsonrpc' must be \"2.0\"",
                    None => "Missing required field 'jsonrpc'",
                };
                return Err(Malformed { may_be_reply, ..invalid(id, why) });
            }
        }
        match (method, id, self.result, self.error) {
            (Some(_), id @ Some(_), Some(_), _) | (Some(_), id @ Some(_), _, Some(_)) => {
                Err(invalid(id, "A message cannot have both 'method' and 'result' or 'error'"))
            }
            (Some(method), Some(id), None, None) => {
                Ok(Message::Call { id, method, params: self.params })
            }
            (Some(method), None, _, _) => Ok(Message::Note { method, params: self.params }),
            // A reply with both is an error: it must not be taken for a success.
            (None, Some(id), _, Some(error)) => {
                let error = serde_json::from_str(error.get()).unwrap_or_else(|_| {
                    RpcError::new(Code::INTERNAL_ERROR, "The error has no code and message")
                });
                Ok(Message::Reply { id, outcome: Err(error) })
            }
            (None, Some(id), Some(result), None) => Ok(Message::Reply { id, outcome: Ok(result) }),
            (None, Some(id), None, None) => {
                Ok(Message::Bare { id, error: *invalid(None, NO_METHOD).error })
            }
            (None, None, _, _) => Err(invalid(None, NO_METHOD)),
        }
    }
}

/// Borrows the method's name from the line if it has no escapes, which is always the case in practice.
fn borrow_if_unescaped<'a>(raw: Option<&'a RawValue>, method: Cow<'_, str>) -> Cow<'a, str> {
    let plain = raw.map(RawValue::get).and_then(|raw| raw.strip_prefix('"')?.strip_suffix('"'));
    match plain {
        Some(plain) if plain == method => Cow::Borrowed(plain),
        _ => Cow::Owned(method.into_owned()),
    }
}

const NO_METHOD: &str = "Missing required field 'method'";

fn invalid(id: Option<RequestId>, details: &str) -> Malformed {
    malformed(id, RpcError::new(Code::INVALID_REQUEST, "Invalid Request").details(details))
}

fn malformed(id: Option<RequestId>, error: RpcError) -> Malformed {
    Malformed { id, error: Box::new(error), may_be_reply: false }
}

/// Finds the id of an envelope that serde cannot read, and whether it has no method.
fn peeked(text: &str) -> (Option<RequestId>, bool) {
    let mut peek = crate::peek::Peek::default();
    peek.feed(text.as_bytes());
    (peek.id(), peek.method().is_none())
}

/// Appends a call as one line.
///
/// # Errors
/// Fails if `params` cannot be written as JSON; then nothing is appended.
pub fn print_call(
    out: &mut Vec<u8>,
    id: &RequestId,
    method: &str,
    params: &impl Serialize,
) -> serde_json::Result<()> {
    print(out, |out| {
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.extend_from_slice(id.as_str().as_bytes());
        out.extend_from_slice(b",\"method\":");
        serde_json::to_writer(&mut *out, method)?;
        out.extend_from_slice(b",\"params\":");
        serde_json::to_writer(out, params)
    })
}

/// Appends a notification as one line.
///
/// # Errors
/// Fails if `params` cannot be written as JSON; then nothing is appended.
pub fn print_note(
    out: &mut Vec<u8>,
    method: &str,
    params: &impl Serialize,
) -> serde_json::Result<()> {
    print(out, |out| {
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
        serde_json::to_writer(&mut *out, method)?;
        out.extend_from_slice(b",\"params\":");
        serde_json::to_writer(out, params)
    })
}

/// Appends a reply as one line.
///
/// # Errors
/// Fails if `result` cannot be written as JSON; then nothing is appended.
pub fn print_result(
    out: &mut Vec<u8>,
    id: &RequestId,
    result: &impl Serialize,
) -> serde_json::Result<()> {
    print(out, |out| {
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.extend_from_slice(id.as_str().as_bytes());
        out.extend_from_slice(b",\"result\":");
        serde_json::to_writer(out, result)
    })
}

/// Appends an error reply as one line. Without an id it has a null id.
///
/// # Errors
/// Fails if the error's data cannot be written as JSON; then nothing is appended.
pub fn print_error(
    out: &mut Vec<u8>,
    id: Option<&RequestId>,
    error: &RpcError,
) -> serde_json::Result<()> {
    print(out, |out| {
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.extend_from_slice(id.map_or("null", RequestId::as_str).as_bytes());
        out.extend_from_slice(b",\"error\":");
        serde_json::to_writer(out, error)
    })
}

fn print(
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
) -> serde_json::Result<()> {
    let start = out.len();
    match body(out) {
        Ok(()) => {
            out.extend_from_slice(b"}\n");
            Ok(())
        }
        Err(err) => {
            out.truncate(start);
            Err(err)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rejected(line: &str) -> (Option<String>, i32, String) {
        let (id, error) = match parse(line.as_bytes()) {
            Err(Malformed { id, error, .. }) => (id, *error),
            Ok(Message::Bare { id, error }) => (Some(id), error),
            Ok(other) => panic!("{line}: {other:?}"),
        };
        let details =
            error.data.as_ref().and_then(|data| data["details"].as_str().map(str::to_owned));
        (id.map(|id| id.to_string()), error.code.0, details.unwrap_or_default())
    }

    // R: W3
    #[test]
    fn text_that_is_not_json_is_a_parse_error_without_the_text() {
        for line in [
            "nonsense",
            "{",
            "{\"id\":1",
            "{\"id\":1}x",
            "{\"id\":01,\"method\":\"m\"}",
            "\u{0}",
            "{\"a\":\"\u{1}\"}",
        ] {
            let (id, code, details) = rejected(line);
            assert_eq!((id, code, details.as_str()), (None, -32700, ""), "{line}");
        }
        assert_eq!(
            parse(b"{\"id\":\"\xff\"}").expect_err("bad UTF-8").error.code,
            Code::PARSE_ERROR
        );
    }

    // R: W4
    #[test]
    fn json_that_is_not_a_message_is_rejected_with_its_id() {
        let cases = [
            (r#"[{"id":1}]"#, None, "Batches are not supported"),
            ("42", None, "A message must be an object"),
            (r#"{"jsonrpc":"2.0","id":1}"#, Some("1"), "Missing required field 'method'"),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":7}"#,
                Some("\"a\""),
                "'method' must be a string",
            ),
            (r#"{"id":2,"method":"m"}"#, Some("2"), "Missing required field 'jsonrpc'"),
            (r#"{"jsonrpc":2.0,"id":2,"method":"m"}"#, Some("2"), "'jsonrpc' must be \"2.0\""),
            (
                r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#,
                None,
                "'id' must be a number, a string or null",
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"id":4,"method":"m"}"#,
                Some("3"),
                "The message has a duplicate member",
            ),
            (
                r#"{"jsonrpc":"2.0","id":5,"method":"m","result":1}"#,
                Some("5"),
                "A message cannot have both 'method' and 'result' or 'error'",
            ),
        ];
        for (line, id, details) in cases {
            assert_eq!(
                rejected(line),
                (id.map(str::to_owned), -32600, details.to_owned()),
                "{line}"
            );
        }
    }

    // R: W2
    #[test]
    fn every_kind_of_id_is_returned_unchanged() {
        for id in [
            "0",
            "-7",
            "1.5",
            "1e300",
            "123456789012345678901234567890",
            "\"\\u0041\"",
            "\"\"",
            "null",
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            let Ok(Message::Call { id: read, .. }) = parse(line.as_bytes()) else {
                panic!("{line}")
            };
            let mut out = Vec::new();
            print_result(&mut out, &read, &()).unwrap();
            assert_eq!(
                String::from_utf8(out).unwrap(),
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":null}}\n")
            );
        }
    }

    // R: C3
    #[test]
    fn reply_with_result_and_error_is_an_error() {
        let line = br#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":-1,"message":"no"}}"#;
        let Ok(Message::Reply { outcome: Err(error), .. }) = parse(line) else {
            panic!("not an error")
        };
        assert_eq!(error.code, Code(-1));
    }

    #[test]
    fn deep_nesting_in_params_is_not_rejected_here() {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}{}}}"#,
            "[".repeat(50_000),
            "]".repeat(50_000)
        );
        assert!(matches!(parse(line.as_bytes()), Ok(Message::Call { .. })));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(parse(&bytes));
        }

        #[test]
        fn printed_call_is_read_back(id in any::<u64>(), method in "[a-z/_$]{1,20}", text in any::<String>()) {
            let mut out = Vec::new();
            print_call(&mut out, &RequestId::number(id), &method, &serde_json::json!({ "text": text })).unwrap();
            prop_assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
            let Ok(Message::Call { id: read, method: name, params }) = parse(&out[..out.len() - 1]) else { panic!("not a call") };
            prop_assert_eq!(read.as_number(), Some(id));
            prop_assert_eq!(name, method);
            let value: serde_json::Value = serde_json::from_str(params.unwrap().get()).unwrap();
            prop_assert_eq!(value["text"].as_str(), Some(text.as_str()));
        }
    }
}
