//! `initialize`: which version is spoken, what we offer, and how to log in.

use serde_json::json;
use wire::acp::schema;
use wire::acp::{ProtocolVersion, schema::Meta};
use wire::{RequestId, RpcError};

use super::authenticate::{LOGIN, TERMINAL_LOGIN};
use crate::bridge;
use crate::connection::Connection;

pub(super) fn run(
    connection: &mut Connection,
    id: &RequestId,
    request: &schema::InitializeRequest,
) -> Result<(), RpcError> {
    let offers = bridge::offers_in(request);
    let offers = connection.translator.offers(offers);
    let client = request.client_info.as_ref().map_or("a client without a name", |info| &*info.name);
    let (request_id, client) = (id.to_string(), printable(client));
    tracing::info!(request = request_id, operation = "connection", client, ?offers, "begun");
    if request.protocol_version != ProtocolVersion::V1 {
        tracing::warn!(asked = ?request.protocol_version, "answered with version 1, the only one");
    }
    connection.offers = Some(offers);
    let (workspaces, cwd) = (&connection.services.workspaces, &connection.services.cwd);
    let find = || match &connection.services.tape {
        Some(tape) => tape.state("github", || !tape.is_played() && workspaces.has_github(cwd)),
        None => workspaces.has_github(cwd),
    };
    connection.translator.find_github(find);
    let name = workspaces.settings().config.agent_name.as_deref().unwrap_or("purlin");
    let response = schema::InitializeResponse::new(ProtocolVersion::V1)
        .meta(steering_offer())
        .agent_capabilities(capabilities(connection.services.journal.is_persistent()))
        .auth_methods(auth_methods(request.client_capabilities.auth.terminal))
        .agent_info(
            schema::Implementation::new(name, env!("CARGO_PKG_VERSION")).title("Purlin".to_owned()),
        );
    connection.answer(id, &response);
    Ok(())
}

/// Returns what we offer. Stored sessions can be listed and opened again only where they are stored.
fn capabilities(are_sessions_stored: bool) -> schema::AgentCapabilities {
    let mut session = schema::SessionCapabilities::new()
        .close(schema::SessionCloseCapabilities::new())
        .additional_directories(schema::SessionAdditionalDirectoriesCapabilities::new());
    if are_sessions_stored {
        session = session
            .list(schema::SessionListCapabilities::new())
            .resume(schema::SessionResumeCapabilities::new())
            .fork(schema::SessionForkCapabilities::new())
            .delete(schema::SessionDeleteCapabilities::new())
            .title(schema::SessionTitleCapabilities::new());
    }
    schema::AgentCapabilities::new()
        .load_session(are_sessions_stored)
        .prompt_capabilities(schema::PromptCapabilities::new().image(true).embedded_context(true))
        .mcp_capabilities(schema::McpCapabilities::new().http(true).sse(true))
        .session_capabilities(session)
        .auth(schema::AgentAuthCapabilities::new().logout(schema::LogoutCapabilities::new()))
        .meta(steering_offer())
}

fn auth_methods(has_terminal: bool) -> Vec<schema::AuthMethod> {
    let login = schema::AuthMethodAgent::new(LOGIN, "Use existing credentials").description(
        "API keys from the environment or `purlin auth login`, and local models".to_owned(),
    );
    let mut methods = vec![schema::AuthMethod::Agent(login)];
    if has_terminal {
        let login = schema::AuthMethodTerminal::new(TERMINAL_LOGIN, "Enter an API key")
            .description("Enter a provider and its key in a terminal".to_owned())
            .args(vec!["--login".to_owned()]);
        methods.push(schema::AuthMethod::Terminal(login));
    }
    methods
}

/// Says that running turns can be steered with `_session/steering`.
fn steering_offer() -> Meta {
    let mut meta = Meta::new();
    meta.insert("steering".to_owned(), json!({ "supported": true }));
    meta
}

/// Returns a name for the log, without anything that could control a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(80).collect()
}
