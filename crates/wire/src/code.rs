//! Error codes: every number that goes over the wire, with its name and meaning, and the error that carries it.
//!
//! Which of our own failures gets which code is decided in `purlin::error_table`, nowhere else.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Code(pub i32);

/// Makes the constants and the printable table from one list.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $message:literal, $acp:expr;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Code = Code($number);)*

            /// Every code we know: its number, its message, and the code that ACP itself would use, where that differs.
            pub const ALL: &'static [(Code, &'static str, Option<i32>)] = &[$((Code($number), $message, $acp),)*];
        }
    };
}

codes! {
    /// The line is not JSON.
    PARSE_ERROR = -32700, "Parse error", None;
    /// The JSON is not a message, or the message is out of order.
    INVALID_REQUEST = -32600, "Invalid Request", None;
    /// No such method.
    METHOD_NOT_FOUND = -32601, "Method not found", None;
    /// The parameters have the wrong shape.
    INVALID_PARAMS = -32602, "Invalid params", None;
    /// A failure of ours; the log has the details.
    INTERNAL_ERROR = -32603, "Internal error", None;
    /// A credential is needed and missing. Editors open their log-in on it, so nothing else may use it.
    AUTH_REQUIRED = -32000, "Authentication required", None;
    /// Something took too long.
    TIMEOUT = -32001, "Timeout", None;
    /// A file or another resource does not exist.
    RESOURCE_NOT_FOUND = -32002, "Resource not found", None;
    /// Too many of these in too short a time.
    RATE_LIMITED = -32003, "Too many requests", None;
    /// The call was cancelled by its sender.
    REQUEST_CANCELLED = -32800, "Request cancelled", None;
    /// No such session.
    SESSION_NOT_FOUND = -31900, "Session not found", Some(-32002);
    /// The session was too old and is gone.
    SESSION_EXPIRED = -31901, "Session expired", Some(-32002);
    /// The session is at work on something else.
    SESSION_LOCKED = -31902, "Session locked", Some(-32600);
    /// No such tool.
    TOOL_NOT_FOUND = -31800, "Tool not found", Some(-32602);
    /// The tool exists and may not be used.
    TOOL_DISABLED = -31801, "Tool disabled", Some(-32600);
    /// The tool ran out of time.
    TOOL_TIMEOUT = -31802, "Tool timeout", Some(-32603);
    /// No such file.
    FILE_NOT_FOUND = -31700, "File not found", Some(-32002);
    /// The file may not be touched.
    FILE_DENIED = -31701, "Permission denied", Some(-32602);
    /// The file is too large.
    FILE_TOO_LARGE = -31702, "File too large", Some(-32602);
    /// An MCP server failed.
    MCP_ERROR = -31600, "MCP server error", Some(-32603);
    /// An MCP server does not answer.
    MCP_UNAVAILABLE = -31601, "MCP server unavailable", Some(-32603);
}

impl Code {
    /// Returns the message that goes with the code.
    #[must_use]
    pub fn message(self) -> &'static str {
        Code::ALL
            .iter()
            .find(|(code, _, _)| *code == self)
            .map_or("Error", |(_, message, _)| message)
    }

    /// Returns the code that ACP's own schema would use, for codes that it does not have.
    #[must_use]
    pub fn acp(self) -> Option<i32> {
        Code::ALL.iter().find(|(code, _, _)| *code == self).and_then(|(_, _, acp)| *acp)
    }
}

/// The error member of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    /// The number.
    pub code: Code,
    /// One line for people.
    pub message: String,
    /// More, for programs: `kind`, `details`, `path`, `limit` and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// Makes an error; a code that ACP does not have names ACP's nearest in `data.acpCode`.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> RpcError {
        let error = RpcError { code, message: message.into(), data: None };
        match code.acp() {
            Some(acp) => error.with("acpCode", json!(acp)),
            None => error,
        }
    }

    /// Makes the plain error of a code.
    #[must_use]
    pub fn of(code: Code) -> RpcError {
        RpcError::new(code, code.message())
    }

    /// Adds `data.details`: a sentence that says what is wrong.
    #[must_use]
    pub fn details(self, details: impl Into<String>) -> RpcError {
        self.with("details", Value::String(details.into()))
    }

    /// Adds one member to `data`.
    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> RpcError {
        let mut data = match self.data.take() {
            Some(Value::Object(data)) => data,
            Some(other) => serde_json::Map::from_iter([("value".to_owned(), other)]),
            None => serde_json::Map::new(),
        };
        data.insert(key.to_owned(), value);
        self.data = Some(Value::Object(data));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: W8
    #[test]
    fn the_whole_table_of_the_specification_is_there() {
        let specified = [
            -32700, -32600, -32601, -32602, -32603, -32000, -32001, -31900, -31901, -31902, -31800,
            -31801, -31802, -31700, -31701, -31702, -31600, -31601, -32002, -32800,
        ];
        for number in specified {
            assert!(
                Code::ALL.iter().any(|(code, message, _)| code.0 == number && !message.is_empty()),
                "{number}"
            );
        }
        let mut numbers: Vec<i32> = Code::ALL.iter().map(|(code, _, _)| code.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), Code::ALL.len());
    }

    #[test]
    fn codes_that_acp_lacks_name_its_nearest() {
        let error = RpcError::of(Code::SESSION_NOT_FOUND).details("no such session");
        assert_eq!(
            serde_json::to_value(&error).unwrap(),
            json!({ "code": -31900, "message": "Session not found", "data": { "acpCode": -32002, "details": "no such session" } })
        );
    }
}
