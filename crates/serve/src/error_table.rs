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
        Error::BadDirectory { number, why } => return bad_directory(*number, why),
        Error::NoSuchSession(_) => (Code::SESSION_NOT_FOUND, "session_not_found"),
        Error::Busy(_) => (Code::SESSION_LOCKED, "turn_running"),
        Error::NoTurn(_) => (Code::INVALID_REQUEST, "no_running_turn"),
        Error::TooMuchSteering(_) => (Code::SESSION_LOCKED, "too_much_steering"),
        Error::OpenElsewhere { .. } => (Code::SESSION_LOCKED, "open_elsewhere"),
        Error::TakenOver(_) => (Code::SESSION_LOCKED, "taken_over"),
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
        Error::Model(ModelError::ContextFull(_)) => (Code::MODEL_FAILED, "context_full"),
        Error::Model(ModelError::RateLimited(_)) => (Code::RATE_LIMITED, "model_rate_limited"),
        Error::Model(ModelError::Unavailable(_)) => (Code::MODEL_FAILED, "model_unavailable"),
        Error::Model(ModelError::Incomplete(_)) => (Code::MODEL_FAILED, "answer_incomplete"),
        Error::Model(ModelError::Failed(_)) => (Code::MODEL_FAILED, "model_failed"),
        Error::Journal(_) => (Code::INTERNAL_ERROR, "not_stored"),
        Error::StoreUnreachable(_) => (Code::INTERNAL_ERROR, "store_unreachable"),
        Error::Broken => (Code::INTERNAL_ERROR, "internal"),
    };
    let error = RpcError::sentence(code, sentence(err)).with("kind", json!(kind));
    match err {
        Error::Journal(_) | Error::Broken => error.with("reference", json!(reference)),
        _ => error,
    }
}

/// Says what happened and what to do, for the user: most editors show nothing else of an error.
fn sentence(err: &Error) -> String {
    match err {
        // Ids and names of the client are not repeated: they may contain anything.
        Error::NoSuchSession(_) => "Session not found. Open one with session/new".to_owned(),
        Error::NoSuchMode(_) => "Unknown mode; session/new lists the modes".to_owned(),
        Error::NoSuchModel(_) => "Unknown model; session/new lists the models".to_owned(),
        Error::Busy(_) => {
            "A turn is already running in this session; wait for it or cancel it".to_owned()
        }
        Error::NoTurn(_) => {
            "No turn is running in this session; send the message with session/prompt".to_owned()
        }
        Error::OpenElsewhere { place, .. } => {
            format!("The session is open in {place}; close it there first")
        }
        Error::TakenOver(_) => {
            "The session was continued in another window; load it again to continue here".to_owned()
        }
        Error::Expired { days, .. } => {
            format!("The session has expired: it was not used for {days} days. Start a new one")
        }
        Error::AuthNeeded => "Log in first; initialize lists the login methods".to_owned(),
        Error::Journal(_) => {
            "The session could not be saved; check the free disk space and the log".to_owned()
        }
        Error::StoreUnreachable(why) => format!(
            "The store of sessions cannot be reached ({why}); check `store` in the configuration, then try again"
        ),
        Error::Broken => {
            "Purlin failed at this request; try it again. The log has the details".to_owned()
        }
        Error::NoProgress(time) => format!(
            "The model sent nothing for {} s; send the message again or choose another model",
            time.as_secs()
        ),
        Error::ClientStalled(time) => format!(
            "The turn was stopped because the client read nothing for {} s; what it did is saved",
            time.as_secs()
        ),
        Error::BadDirectory { .. }
        | Error::TooManySessions(_)
        | Error::Crowded
        | Error::TooMuchSteering(_)
        | Error::HistoryFull(_)
        | Error::ReadOnly(_)
        | Error::BadCursor
        | Error::BadPrompt(_) => capitalised(&err.to_string()),
        // It begins with the name of the provider.
        Error::Model(_) => err.to_string(),
    }
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}

/// A directory of a new session that cannot be used.
fn bad_directory(number: usize, why: &str) -> RpcError {
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
    let seconds = wait.as_secs().max(1);
    let words = format!("At most {limit} prompts per minute and session; try again in {seconds} s");
    RpcError::sentence(Code::RATE_LIMITED, words)
        .with("kind", json!("too_many_prompts"))
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

/// A message of ours that exceeds its limit, so that it is not sent.
pub(crate) fn line_too_large(what: &str, size: usize, limit: usize) -> RpcError {
    RpcError::sentence(
        Code::FILE_TOO_LARGE,
        format!("{what} would have {size} bytes; the limit is {limit}"),
    )
    .with("kind", json!(LINE_TOO_LARGE))
    .with("limit", json!(limit))
}

const LINE_TOO_LARGE: &str = "line_too_large";

/// Tells whether a call was not sent because it was too large. Returns the limit.
pub(crate) fn exceeded_limit(err: &RpcError) -> Option<usize> {
    let data = err.data.as_ref().filter(|data| data["kind"] == LINE_TOO_LARGE)?;
    usize::try_from(data["limit"].as_u64()?).ok()
}

/// Reads an error that the client answered with. What it says about a file keeps its meaning.
pub(crate) fn editor_error(err: &RpcError, path: Option<&Path>) -> EditorError {
    let path = path.map(Path::to_owned);
    match (err.code, path) {
        (Code::FILE_NOT_FOUND | Code::RESOURCE_NOT_FOUND, Some(path)) => {
            EditorError::FileNotFound(path)
        }
        (Code::FILE_DENIED, Some(path)) => EditorError::FileDenied(path),
        (Code::FILE_TOO_LARGE, Some(path)) => EditorError::FileTooLarge(path),
        (Code::METHOD_NOT_FOUND, _) => EditorError::NotOffered("this method"),
        _ => EditorError::Refused(words_of(err)),
    }
}

/// The most characters of a client's error that are repeated.
const MAX_WORDS: usize = 500;

/// Returns what the client said. The name of a code says nothing, so what is in `data` is added.
fn words_of(err: &RpcError) -> String {
    let data = err.data.as_ref();
    let details = data.and_then(|data| data["details"].as_str().or(data.as_str()));
    let words = match details {
        Some(details) if !err.message.contains(details) => format!("{}: {details}", err.message),
        _ => err.message.clone(),
    };
    words.chars().take(MAX_WORDS).collect()
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
            Error::TakenOver(SessionId::new("sk-secret")),
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
            Error::StoreUnreachable("PostgreSQL: Connection refused".to_owned()),
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
            -31900 Session not found. Open one with session/new · session_not_found · Session not found. Open one with session/new
            -31902 A turn is already running in this session; wait for it or cancel it · turn_running · A turn is already running in this session; wait for it or cancel it
            -32600 No turn is running in this session; send the message with session/prompt · no_running_turn · No turn is running in this session; send the message with session/prompt
            -31902 8 messages already wait for the running turn; it takes them after its next answer · too_much_steering · 8 messages already wait for the running turn; it takes them after its next answer
            -31902 The session is open in process 4711 on host; close it there first · open_elsewhere · The session is open in process 4711 on host; close it there first
            -31902 The session was continued in another window; load it again to continue here · taken_over · The session was continued in another window; load it again to continue here
            -31901 The session has expired: it was not used for 30 days. Start a new one · session_expired · The session has expired: it was not used for 30 days. Start a new one
            -32600 The session has reached its limit of 104857600 bytes; it can be loaded, but not continued; start a new session · history_full · The session has reached its limit of 104857600 bytes; it can be loaded, but not continued; start a new session
            -32600 The sessions were written by a newer version · read_only · The sessions were written by a newer version
            -32602 Invalid cursor: use one that session/list returned · bad_cursor · Invalid cursor: use one that session/list returned
            -32003 1000 sessions are open; close one first · too_many_sessions · 1000 sessions are open; close one first
            -31902 Too many open requests; wait for some of them · too_many_requests · Too many open requests; wait for some of them
            -32602 Unknown mode; session/new lists the modes · no_such_mode · Unknown mode; session/new lists the modes
            -32602 Unknown model; session/new lists the models · no_such_model · Unknown model; session/new lists the models
            -32602 The prompt is empty · bad_prompt · The prompt is empty
            -32000 Log in first; initialize lists the login methods · auth_required · Log in first; initialize lists the login methods
            -32001 The model sent nothing for 300 s; send the message again or choose another model · no_progress · The model sent nothing for 300 s; send the message again or choose another model
            -32001 The turn was stopped because the client read nothing for 300 s; what it did is saved · client_not_reading · The turn was stopped because the client read nothing for 300 s; what it did is saved
            -32000 the key was refused · auth_required · the key was refused
            -32004 the conversation is too long · context_full · the conversation is too long
            -32003 too many requests · model_rate_limited · too many requests
            -32004 the provider is overloaded · model_unavailable · the provider is overloaded
            -32004 the answer broke off · answer_incomplete · the answer broke off
            -32004 the answer made no sense · model_failed · the answer made no sense
            -32603 The session could not be saved; check the free disk space and the log · not_stored · The session could not be saved; check the free disk space and the log
            -32603 The store of sessions cannot be reached (PostgreSQL: Connection refused); check `store` in the configuration, then try again · store_unreachable · The store of sessions cannot be reached (PostgreSQL: Connection refused); check `store` in the configuration, then try again
            -32603 Purlin failed at this request; try it again. The log has the details · internal · Purlin failed at this request; try it again. The log has the details
        "#]].assert_eq(&table);
    }
}
