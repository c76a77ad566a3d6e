//! The methods of ACP: names and typed parameters, in both directions.
//!
//! The payload types come from `agent-client-protocol-schema` and are re-exported here, so that the version is pinned
//! in one place. `acp::tolerate` accepts the shapes of older clients, `acp::dialect` rewrites whole dialects. Which
//! method may be called when is decided by the server, not here.

pub mod authenticate;
mod block;
mod decode;
pub mod dialect;
pub mod fault;
pub mod file_uri;
pub mod files;
pub mod mcp_servers;
pub mod members;
pub mod models;
pub mod steer;
mod strict;
pub mod tolerate;

use serde::Deserialize;
use serde_json::value::RawValue;

pub use agent_client_protocol_schema::ProtocolVersion;
pub use agent_client_protocol_schema::v1 as schema;
pub use decode::{read, read_answer};

use crate::code::{Code, RpcError};
use crate::id::RequestId;
use authenticate::Authenticate;
use models::SetModelRequest;
use steer::Steer;

/// The methods that a client may call on us.
pub const AGENT_METHODS: [&str; 16] = [
    "initialize",
    "authenticate",
    "logout",
    "session/new",
    "session/load",
    "session/resume",
    "session/fork",
    "session/list",
    "session/prompt",
    "_session/steering",
    "session/set_mode",
    "session/set_model",
    "session/set_config_option",
    "session/set_title",
    "session/close",
    "session/delete",
];

/// The notifications that a client may send us.
pub const AGENT_NOTES: [&str; 2] = ["session/cancel", "$/cancel_request"];

/// The methods that we may call on a client, and the notifications that we send it.
pub const CLIENT_METHODS: [&str; 12] = [
    "session/update",
    "session/request_permission",
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/output",
    "terminal/wait_for_exit",
    "terminal/kill",
    "terminal/release",
    "elicitation/create",
    "elicitation/complete",
    "$/cancel_request",
];

/// A call that an agent receives.
#[derive(Debug)]
pub enum AgentCall {
    /// `initialize`
    Initialize(Box<schema::InitializeRequest>),
    /// `authenticate`
    Authenticate(Authenticate),
    /// `logout`
    Logout,
    /// `session/new`
    NewSession(schema::NewSessionRequest),
    /// `session/load`
    Load(tolerate::Reopen),
    /// `session/resume`
    Resume(tolerate::Reopen),
    /// `session/fork`
    Fork(tolerate::Reopen),
    /// `session/list`
    List(schema::ListSessionsRequest),
    /// `session/prompt`
    Prompt(schema::PromptRequest),
    /// `_session/steering`
    Steer(Steer),
    /// `session/set_mode`
    SetMode(schema::SetSessionModeRequest),
    /// `session/set_model`
    SetModel(SetModelRequest),
    /// `session/set_config_option`
    SetConfigOption(schema::SetSessionConfigOptionRequest),
    /// `session/set_title`
    SetTitle(schema::SetSessionTitleRequest),
    /// `session/close`
    Close(schema::CloseSessionRequest),
    /// `session/delete`
    Delete(schema::DeleteSessionRequest),
}

/// A notification that an agent receives.
#[derive(Debug)]
pub enum AgentNote {
    /// `session/cancel`
    Cancel(schema::CancelNotification),
    /// `$/cancel_request`
    CancelRequest(RequestId),
}

impl AgentCall {
    /// Reads a call's parameters into their type.
    ///
    /// # Errors
    /// -32601 for an unknown method, -32602 with the field for invalid parameters.
    pub fn decode(method: &str, params: Option<&RawValue>) -> Result<AgentCall, RpcError> {
        Ok(match method {
            "initialize" => AgentCall::Initialize(Box::new(tolerate::initialize(params)?)),
            "authenticate" => AgentCall::Authenticate(Authenticate::decode(params)?),
            "logout" => {
                read::<schema::LogoutRequest>(params)?;
                AgentCall::Logout
            }
            "session/new" => AgentCall::NewSession(tolerate::new_session(params)?),
            "session/load" => AgentCall::Load(tolerate::reopen(params)?),
            "session/resume" => AgentCall::Resume(tolerate::reopen(params)?),
            "session/fork" => AgentCall::Fork(tolerate::reopen(params)?),
            "session/list" => AgentCall::List(read(params)?),
            "session/prompt" => AgentCall::Prompt(tolerate::prompt(params)?),
            "_session/steering" => AgentCall::Steer(Steer::decode(params)?),
            "session/set_mode" => match read(params) {
                Ok(request) => AgentCall::SetMode(request),
                // An older TypeScript SDK changes the model with this method, too.
                Err(error) => AgentCall::SetModel(read(params).map_err(|_| error)?),
            },
            "session/set_model" => AgentCall::SetModel(read(params)?),
            "session/set_config_option" => AgentCall::SetConfigOption(read(params)?),
            "session/set_title" => AgentCall::SetTitle(read(params)?),
            "session/close" => AgentCall::Close(read(params)?),
            "session/delete" => AgentCall::Delete(read(params)?),
            _ => return Err(RpcError::of(Code::METHOD_NOT_FOUND)),
        })
    }
}

impl AgentNote {
    /// Reads a notification's parameters into their type; `None` for unknown notifications, which are ignored.
    ///
    /// # Errors
    /// Describes what is wrong with the parameters, for the log: a notification is never answered.
    pub fn decode(method: &str, params: Option<&RawValue>) -> Result<Option<AgentNote>, RpcError> {
        Ok(match method {
            "session/cancel" => Some(AgentNote::Cancel(read(params)?)),
            "$/cancel_request" => Some(AgentNote::CancelRequest(read_request_id(params)?)),
            _ => None,
        })
    }
}

fn read_request_id(params: Option<&RawValue>) -> Result<RequestId, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancel<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    let text = params.map_or("{}", RawValue::get);
    let cancel: Cancel<'_> = serde_json::from_str(text).map_err(|_| {
        RpcError::of(Code::INVALID_PARAMS).details("Missing required field 'requestId'")
    })?;
    RequestId::from_raw(cancel.request_id)
        .map_err(|details| RpcError::of(Code::INVALID_PARAMS).details(details))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(method: &str, params: &str) -> Result<AgentCall, RpcError> {
        let raw: &RawValue = serde_json::from_str(params).unwrap();
        AgentCall::decode(method, Some(raw))
    }

    // R: W6
    #[test]
    fn invalid_field_is_named_without_its_value() {
        let cases = [
            (
                "session/prompt",
                r#"{"prompt":[]}"#,
                "Missing required field 'sessionId'",
                "sessionId",
            ),
            (
                "session/prompt",
                r#"{"sessionId":"sk-secret","prompt":{"a":"sk-secret"}}"#,
                "'prompt' has the wrong type: expected an array, got an object",
                "prompt",
            ),
            (
                "session/prompt",
                r#"{"sessionId":"s","prompt":[{"type":"sk-secret"}]}"#,
                "'prompt[0].type' has an unknown value: expected one of `text`, `image`, `audio`, `resource_link`, `resource`",
                "prompt[0].type",
            ),
            (
                "session/set_mode",
                r#"{"sessionId":7,"modeId":"m"}"#,
                "'sessionId' has the wrong type: expected a string, got a whole number",
                "sessionId",
            ),
            (
                "initialize",
                r#"{"protocolVersion":"sk-secret"}"#,
                "'protocolVersion' has the wrong type: expected a whole number from 0 to 65535, got a string",
                "protocolVersion",
            ),
            (
                "session/new",
                r#"{"cwd":["sk-secret"]}"#,
                "'cwd' has the wrong type: expected a path, got an array",
                "cwd",
            ),
            ("session/prompt", r#"["sk-secret"]"#, "'params' must be an object", "params"),
        ];
        for (method, params, details, path) in cases {
            let error = decode(method, params).unwrap_err();
            let data = error.data.clone().unwrap();
            assert_eq!(error.code, Code::INVALID_PARAMS, "{params}");
            assert_eq!(data["details"], details, "{params}");
            assert_eq!(data["path"], path, "{params}");
            assert!(!serde_json::to_string(&error).unwrap().contains("sk-secret"), "{error:?}");
        }
    }

    // R: W18
    #[test]
    fn null_characters_are_rejected_with_their_path() {
        let error = decode(
            "session/prompt",
            r#"{"sessionId":"s","prompt":[{"type":"text","text":"a\u0000b"}]}"#,
        )
        .unwrap_err();
        assert_eq!(error.data.unwrap()["path"], "prompt[0].text");
        assert!(
            decode(
                "session/prompt",
                r#"{"sessionId":"s","prompt":[{"type":"text","text":"a\\u0000b"}]}"#
            )
            .is_ok()
        );
    }

    // R: W5
    #[test]
    fn unknown_method_is_an_error_and_unknown_notification_is_ignored() {
        assert_eq!(decode("nope", "{}").unwrap_err().code, Code::METHOD_NOT_FOUND);
        assert!(AgentNote::decode("nope", None).unwrap().is_none());
    }

    #[test]
    fn lone_surrogates_and_deep_nesting_are_invalid_params() {
        let lone = decode("session/prompt", r#"{"sessionId":"\ud800","prompt":[]}"#).unwrap_err();
        assert_eq!(lone.code, Code::INVALID_PARAMS);
        let deep = format!(
            r#"{{"sessionId":"s","prompt":[],"_meta":{}{}}}"#,
            "[".repeat(500),
            "]".repeat(500)
        );
        let deep = format!(
            r#"{{"sessionId":"s","prompt":[{{"type":"text","text":"x","_meta":{{"a":{}1{}}}}}],"x":{deep}}}"#,
            "[".repeat(500),
            "]".repeat(500)
        );
        assert_eq!(decode("session/prompt", &deep).unwrap_err().code, Code::INVALID_PARAMS);
    }

    #[test]
    fn every_listed_method_is_decoded() {
        for method in AGENT_METHODS {
            assert!(
                !matches!(decode(method, "{}"), Err(error) if error.code == Code::METHOD_NOT_FOUND),
                "{method}"
            );
        }
        for note in AGENT_NOTES {
            let raw: &RawValue =
                serde_json::from_str(r#"{"sessionId":"s","requestId":1}"#).unwrap();
            assert!(matches!(AgentNote::decode(note, Some(raw)), Ok(Some(_))), "{note}");
        }
    }
}
