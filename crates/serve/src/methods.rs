//! The methods of the protocol, one file each: what a call does and how it is answered.
//!
//! A method decides at once, or hands the work to a session or the hub; then its `finish` answers when the work is done.
//! Nothing here waits. Methods speak v1; see `dialect` for the rest.

mod attach;
mod authenticate;
mod cancel;
mod cancel_request;
mod close_session;
mod delete_session;
mod fork_session;
mod initialize;
mod list_sessions;
mod load_session;
mod logout;
mod new_session;
mod open;
mod prompt;
mod resume_session;
mod set_config_option;
mod set_mode;
mod set_model;
mod set_title;
mod settings_change;
mod steering;

use wire::acp::{AgentCall, AgentNote};
use wire::{RequestId, RpcError};

use crate::connection::{Asked, Connection};

/// Runs the method of a call.
pub(crate) fn on_call(
    connection: &mut Connection,
    id: &RequestId,
    method: String,
    call: AgentCall,
) {
    let asked = Asked { method, session: session_of(&call), since: connection.now };
    connection.asked.insert(id.clone(), asked);
    match run(connection, id, call) {
        Ok(()) => {
            if let Some((session, line)) = connection.translator.accepted(id) {
                connection.outbox.push_line(&session, line, 0);
            }
        }
        Err(error) => connection.refuse(id, &error),
    }
}

/// Returns the session that a call is about.
fn session_of(call: &AgentCall) -> Option<String> {
    let session = match call {
        AgentCall::Prompt(request) => &request.session_id,
        AgentCall::Load(request) => &request.session_id,
        AgentCall::Resume(request) => &request.session_id,
        AgentCall::Fork(request) => &request.session_id,
        AgentCall::SetMode(request) => &request.session_id,
        AgentCall::SetConfigOption(request) => &request.session_id,
        AgentCall::Steer(request) => &request.prompt.session_id,
        AgentCall::SetModel(request) => &request.session_id,
        AgentCall::SetTitle(request) => &request.session_id,
        AgentCall::Close(request) => &request.session_id,
        AgentCall::Delete(request) => &request.session_id,
        AgentCall::Initialize(_)
        | AgentCall::Authenticate(_)
        | AgentCall::Logout
        | AgentCall::NewSession(_)
        | AgentCall::List(_) => return None,
    };
    Some(session.to_string())
}

fn run(connection: &mut Connection, id: &RequestId, call: AgentCall) -> Result<(), RpcError> {
    match call {
        AgentCall::Initialize(request) => initialize::run(connection, id, &request),
        AgentCall::Authenticate(request) => authenticate::run(connection, id, &request),
        AgentCall::Logout => logout::run(connection, id),
        AgentCall::NewSession(request) => new_session::run(connection, id, request),
        AgentCall::Load(request) => load_session::run(connection, id, request),
        AgentCall::Resume(request) => resume_session::run(connection, id, request),
        AgentCall::Fork(request) => fork_session::run(connection, id, request),
        AgentCall::List(request) => list_sessions::run(connection, id, request),
        AgentCall::Prompt(request) => prompt::run(connection, id, request),
        AgentCall::Steer(request) => steering::run(connection, id, request),
        AgentCall::SetMode(request) => set_mode::run(connection, id, request),
        AgentCall::SetModel(request) => set_model::run(connection, id, request),
        AgentCall::SetConfigOption(request) => set_config_option::run(connection, id, &request),
        AgentCall::SetTitle(request) => set_title::run(connection, id, &request),
        AgentCall::Close(request) => close_session::run(connection, id, &request),
        AgentCall::Delete(request) => delete_session::run(connection, id, &request),
    }
}

/// Runs the method of a notification.
pub(crate) fn on_note(connection: &mut Connection, note: AgentNote) {
    match note {
        AgentNote::Cancel(request) => cancel::run(connection, &request),
        AgentNote::CancelRequest(call) => cancel_request::run(connection, &call),
    }
}
