//! Error codes: every number that is sent, with its name and meaning, and the error object.
//!
//! Which of our own failures gets which code is decided in `error_table`, nowhere else.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Code(pub i32);

/// Generates the constants and the table from one list.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $message:literal, $acp:expr;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Code = Code($number);)*

            /// All codes: number, message, and the code that ACP itself would use, if different.
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
    /// A failure on our side; the log has the details.
    INTERNAL_ERROR = -32603, "Internal error", None;
    /// A credential is missing. Editors open their login dialog on this code, so nothing else may use it.
    AUTH_REQUIRED = -32000, "Authentication required", None;
    /// An operation took too long.
    TIMEOUT = -32001, "Timeout", None;
    /// A file or another resource does not exist.
    RESOURCE_NOT_FOUND = -32002, "Resource not found", None;
    /// Too many requests in a short time.
    RATE_LIMITED = -32003, "Too many requests", None;
    /// The model or its provider failed.
    MODEL_FAILED = -32004, "Model failed", Some(-32603);
    /// The caller cancelled the call.
    REQUEST_CANCELLED = -32800, "Request cancelled", None;
    /// No such session.
    SESSION_NOT_FOUND = -31900, "Session not found", Some(-32002);
    /// The session expired and was removed.
    SESSION_EXPIRED = -31901, "Session expired", Some(-32002);
    /// The session is busy with another operation.
    SESSION_LOCKED = -31902, "Session locked", Some(-32600);
    /// No such tool.
    TOOL_NOT_FOUND = -31800, "Tool not found", Some(-32602);
    /// The tool exists but may not be used.
    TOOL_DISABLED = -31801, "Tool disabled", Some(-32600);
    /// The tool took too long.
    TOOL_TIMEOUT = -31802, "Tool timeout", Some(-32603);
    /// No such file.
    FILE_NOT_FOUND = -31700, "File not found", Some(-32002);
    /// The file may not be accessed.
    FILE_DENIED = -31701, "Permission denied", Some(-32602);
    /// The file is too large.
    FILE_TOO_LARGE = -31702, "File too large", Some(-32602);
    /// An MCP server failed.
    MCP_ERROR = -31600, "MCP server error", Some(-32603);
    /// An MCP server does not respond.
    MCP_UNAVAILABLE = -31601, "MCP server unavailable", Some(-32603);
}

impl Code {
    /// Returns the code's message.
    #[must_use]
    pub fn message(self) -> &'static str {
        Code::ALL
            .iter()
            .find(|(code, _, _)| *code == self)
            .map_or("Error", |(_, message, _)| message)
    }

    /// Returns the nearest ACP code, for codes that ACP does not define.
    #[must_use]
    pub fn acp(self) -> Option<i32> {
        Code::ALL.iter().find(|(code, _, _)| *code == self).and_then(|(_, _, acp)| *acp)
    }
}

/// The `error` member of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    /// The number.
    pub code: Code,
    /// One sentence for people.
    pub message: String,
    /// Details for programs: `kind`, `details`, `path`, `limit` and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// Creates an error. For a code that ACP does not define, `data.acpCode` has the nearest ACP code.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> RpcError {
        let error = RpcError { code, message: message.into(), data: None };
        match code.acp() {
            Some(acp) => error.with("acpCode", json!(acp)),
            None => error,
        }
    }

    /// Creates the error with the code's own message.
    #[must_use]
    pub fn of(code: Code) -> RpcError {
        RpcError::new(code, code.message())
    }

    /// Says in one sentence what happened and what to do: in `message`, which is all that most editors show, and in
    /// `data.details`. JSON-RPC's own errors keep their name in front, for the client's developers.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> RpcError {
        const OF_JSON_RPC: [Code; 4] = [
            Code::PARSE_ERROR,
            Code::INVALID_REQUEST,
            Code::METHOD_NOT_FOUND,
            Code::INVALID_PARAMS,
        ];
        let details = details.into();
        self.message = match OF_JSON_RPC.contains(&self.code) {
            true => format!("{}: {details}", self.message),
            false => details.clone(),
        };
        self.with("details", Value::String(details))
    }

    /// Makes an error that is only a sentence for the user, in `message` and in `data.details`.
    #[must_use]
    pub fn sentence(code: Code, sentence: impl Into<String>) -> RpcError {
        let sentence = sentence.into();
        RpcError::new(code, sentence.clone()).with("details", Value::String(sentence))
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
    fn every_code_of_the_specification_is_defined() {
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
    fn codes_outside_acp_name_the_nearest_acp_code() {
        let error = RpcError::of(Code::SESSION_NOT_FOUND).details("no such session");
        assert_eq!(
            serde_json::to_value(&error).unwrap(),
            json!({ "code": -31900, "message": "no such session", "data": { "acpCode": -32002, "details": "no such session" } })
        );
    }
}
