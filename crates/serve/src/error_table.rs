//! The table of error codes: no other module assigns or reads one.

use std::path::Path;
use std::time::Duration;

use engine::Error;
use engine::ports::{EditorError, ModelError};
use engine::words::ToolFailure;
use serde_json::json;
use wire::acp::fault;
use wire::{Code, RpcError};

/// Returns the code, the kind and the details of an error of the engine.
///
/// `reference` finds an internal error in the log, whose details are not shown.
#[must_use]
pub fn error_out(err: &Error, reference: &str) -> RpcError {
    let (code, kind) = match err {
        Error::BadFolder { number, why } => return bad_folder(*number, why),
        Error::NoSuchSession(_) => (Code::SESSION_NOT_FOUND, "session_not_found"),
        Error::Busy(_) => (Code::SESSION_LOCKED, "turn_running"),
        Error::NoTurn(_) => (Code::INVALID_REQUEST, "no_running_turn"),
        Error::TooMuchSteering(_) => (Code::SESSION_LOCKED, "too_much_steering"),
        Error::OpenElsewhere { .. } => (Code::SESSION_LOCKED, "open_elsewhere"),
        Error::Expired { .. } => (Code::SESSION_EXPIRED, "session_expired"),
        Error::HistoryFull(_) => (Code::INVALID_REQUEST, "history_full"),
        Error::ReadOnly(_) => (Code::INVALID_REQUEST, "read_only"),
        Error::BadCursor => (Code::INVALID_PARAMS, "bad_cursor"),
        Error::TooManySessions(_) => (Code::RATE_LIMITED, "too_many_sessions"),
        Error::Crowded => (Code::SESSION_LOCKED, "too_many_requests"),
        Error::NoSuchMode(_) => (Code::INVALID_PARAMS, "no_such_mode"),
        Error::NoSuchModel(_) => (Code::INVALID_PARAMS, "no_such_model"),
        Error::BadPrompt(_) => (Code::INVALID_PARAMS, "bad_prompt"),
        Error::AuthNeeded => (Code::AUTH_REQUIRED, "auth_required"),
        Error::NoProgress(_) => (Code::TIMEOUT, "no_progress"),
        Error::ClientStalled(_) => (Code::TIMEOUT, "client_not_reading"),
        Error::Model(ModelError::AuthNeeded(_)) => (Code::AUTH_REQUIRED, "auth_required"),
        Error::Model(ModelError::ContextFull(_)) => (Code::INTERNAL_ERROR, "context_full"),
        Error::Model(ModelError::RateLimited(_)) => (Code::INTERNAL_ERROR, "model_rate_limited"),
        Error::Model(ModelError::Unavailable(_)) => (Code::INTERNAL_ERROR, "model_unavailable"),
        Error::Model(ModelError::Incomplete(_)) => (Code::INTERNAL_ERROR, "answer_incomplete"),
        Error::Model(ModelError::Failed(_)) => (Code::INTERNAL_ERROR, "model_failed"),
        Error::Journal(_) => (Code::INTERNAL_ERROR, "not_stored"),
        Error::Broken => (Code::INTERNAL_ERROR, "internal"),
    };
    let error = RpcError::of(code).with("kind", json!(kind));
    match err {
        // Ids and names of the client are not repeated: they may contain anything.
        Error::NoSuchSession(_) => error.details("Unknown session; open one with session/new"),
        Error::NoSuchMode(_) => error.details("Unknown mode; session/new lists the modes"),
        Error::NoSuchModel(_) => error.details("Unknown model; session/new lists the models"),
        Error::Busy(_) => {
            error.details("A turn is already running in this session; wait for it or cancel it")
        }
        Error::NoTurn(_) => error
            .details("No turn is running in this session; send the message with session/prompt"),
        Error::OpenElsewhere { place, .. } => {
            error.details(format!("The session is open in {place}; close it there first"))
        }
        Error::Expired { days, .. } => {
            error.details(format!("The session has expired: it was not used for {days} days"))
        }
        Error::AuthNeeded => error.details("Log in first; initialize lists the login methods"),
        Error::Journal(_) | Error::Broken => error
            .details("Internal failure; the log has the details under this reference")
            .with("reference", json!(reference)),
        Error::BadFolder { .. }
        | Error::TooManySessions(_)
        | Error::Crowded
        | Error::TooMuchSteering(_)
        | Error::HistoryFull(_)
        | Error::ReadOnly(_)
        | Error::BadCursor
        | Error::BadPrompt(_)
        | Error::NoProgress(_)
        | Error::ClientStalled(_)
        | Error::Model(_) => error.details(err.to_string()),
    }
}

/// A directory of a new session that cannot be used.
fn bad_folder(number: usize, why: &str) -> RpcError {
    let field = match number.checked_sub(1) {
        None => "cwd".to_owned(),
        Some(index) => format!("additionalDirectories[{index}]"),
    };
    fault::at(&field, format!("'{field}' must be an existing folder: {why}"))
}

/// Returns the code of a failed tool call.
#[must_use]
pub fn tool_failure_code(failure: ToolFailure) -> Code {
    match failure {
        ToolFailure::ToolNotFound => Code::TOOL_NOT_FOUND,
        ToolFailure::ToolDisabled => Code::TOOL_DISABLED,
        ToolFailure::TimedOut => Code::TOOL_TIMEOUT,
        ToolFailure::FileNotFound => Code::FILE_NOT_FOUND,
        ToolFailure::FileDenied => Code::FILE_DENIED,
        ToolFailure::FileTooLarge => Code::FILE_TOO_LARGE,
        ToolFailure::McpFailed => Code::MCP_ERROR,
        ToolFailure::McpUnavailable => Code::MCP_UNAVAILABLE,
    }
}

/// A call before `initialize`.
pub(crate) fn not_initialized() -> RpcError {
    RpcError::of(Code::INVALID_REQUEST).details("The first request must be initialize")
}

/// A prompt over the rate.
pub(crate) fn too_many_prompts(limit: u64, wait: Duration) -> RpcError {
    RpcError::of(Code::RATE_LIMITED)
        .with("kind", json!("too_many_prompts"))
        .details(format!("At most {limit} prompts per minute and session"))
        .with("limit", json!(limit))
        .with("retryAfterMs", json!(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
}

/// A prompt over the size limit.
pub(crate) fn message_too_large(what: &str, limit: u64) -> RpcError {
    RpcError::new(Code::INVALID_REQUEST, "Message too large")
        .details(format!("The {what} of a prompt may have at most {limit} bytes"))
        .with("kind", json!("message_too_large"))
        .with("limit", json!(limit))
}

/// Reads an error that the client answered with.
pub(crate) fn editor_error(err: &RpcError, path: Option<&Path>) -> EditorError {
    match (err.code, path) {
        (Code::FILE_NOT_FOUND | Code::RESOURCE_NOT_FOUND, Some(path)) => {
            EditorError::FileNotFound(path.to_owned())
        }
        (Code::METHOD_NOT_FOUND, _) => {
            EditorError::NotOffered("this method, although it announced it")
        }
        _ => EditorError::Refused(err.message.chars().take(500).collect()),
    }
}

#[cfg(test)]
mod tests {
    use engine::words::{ModeId, ModelId, SessionId};
    use expect_test::expect;

    use super::*;

    // R: W7, W8
    #[test]
    fn every_engine_error_has_its_code_and_details() {
        let all = [
            Error::NoSuchSession(SessionId::new("sk-secret")),
            Error::Busy(SessionId::new("sk-secret")),
            Error::NoTurn(SessionId::new("sk-secret")),
            Error::TooMuchSteering(8),
            Error::OpenElsewhere {
                session: SessionId::new("sk-secret"),
                place: "process 4711 on host".to_owned(),
            },
            Error::Expired { session: SessionId::new("sk-secret"), days: 30 },
            Error::HistoryFull(104_857_600),
            Error::ReadOnly("the sessions were written by a newer version".to_owned()),
            Error::BadCursor,
            Error::TooManySessions(1000),
            Error::Crowded,
            Error::NoSuchMode(ModeId::new("sk-secret")),
            Error::NoSuchModel(ModelId::new("sk-secret")),
            Error::BadPrompt("the prompt is empty".to_owned()),
            Error::AuthNeeded,
            Error::NoProgress(Duration::from_secs(300)),
            Error::ClientStalled(Duration::from_secs(300)),
            Error::Model(ModelError::AuthNeeded("the key was refused".to_owned())),
            Error::Model(ModelError::ContextFull("the conversation is too long".to_owned())),
            Error::Model(ModelError::RateLimited("too many requests".to_owned())),
            Error::Model(ModelError::Unavailable("the provider is overloaded".to_owned())),
            Error::Model(ModelError::Incomplete("the answer broke off".to_owned())),
            Error::Model(ModelError::Failed("the answer made no sense".to_owned())),
            Error::Journal("/home/me/secret/path is full".to_owned()),
            Error::Broken,
        ];
        let table: String = all
            .iter()
            .map(|err| {
                let error = error_out(err, "REF");
                let data = error.data.unwrap();
                format!(
                    "{} {} · {} · {}\n",
                    error.code.0,
                    error.message,
                    data["kind"].as_str().unwrap(),
                    data["details"].as_str().unwrap()
                )
            })
            .collect();
        assert!(!table.contains("secret"), "{table}");
        expect![[r#"
            -31900 Session not found · session_not_found · Unknown session; open one with session/new
            -31902 Session locked · turn_running · A turn is already running in this session; wait for it or cancel it
            -32600 Invalid Request · no_running_turn · No turn is running in this session; send the message with session/prompt
            -31902 Session locked · too_much_steering · 8 messages already wait for the running turn; it takes them after its next answer
            -31902 Session locked · open_elsewhere · The session is open in process 4711 on host; close it there first
            -31901 Session expired · session_expired · The session has expired: it was not used for 30 days
            -32600 Invalid Request · history_full · the session has reached its limit of 104857600 bytes; it can be loaded, but not continued
            -32600 Invalid Request · read_only · the sessions were written by a newer version
            -32602 Invalid params · bad_cursor · invalid cursor: use one that session/list returned
            -32003 Too many requests · too_many_sessions · 1000 sessions are open; close one first
            -31902 Session locked · too_many_requests · too many open requests; wait for some of them
            -32602 Invalid params · no_such_mode · Unknown mode; session/new lists the modes
            -32602 Invalid params · no_such_model · Unknown model; session/new lists the models
            -32602 Invalid params · bad_prompt · the prompt is empty
            -32000 Authentication required · auth_required · Log in first; initialize lists the login methods
            -32001 Timeout · no_progress · the model sent nothing for 300 s
            -32001 Timeout · client_not_reading · the client read nothing for 300 s
            -32000 Authentication required · auth_required · the key was refused
            -32603 Internal error · context_full · the conversation is too long
            -32603 Internal error · model_rate_limited · too many requests
            -32603 Internal error · model_unavailable · the provider is overloaded
            -32603 Internal error · answer_incomplete · the answer broke off
            -32603 Internal error · model_failed · the answer made no sense
            -32603 Internal error · not_stored · Internal failure; the log has the details under this reference
            -32603 Internal error · internal · Internal failure; the log has the details under this reference
        "#]].assert_eq(&table);
    }
}
