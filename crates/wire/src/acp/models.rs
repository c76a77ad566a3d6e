//! `models` and `session/set_model`: the model picker that ACP had before config options.
//!
//! It is no longer in the official schema, but clients still use it, so we send it in addition to `configOptions`.

use serde::{Deserialize, Serialize};

use agent_client_protocol_schema::v1::{Meta, SessionId};

/// A model that a session can use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelInfo {
    /// Provider and model, such as `anthropic/claude-sonnet`.
    pub model_id: String,
    /// Its display name.
    pub name: String,
    /// A one-line description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The models of a session and the one in use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelState {
    /// The one in use.
    pub current_model_id: String,
    /// All of them.
    pub available_models: Vec<ModelInfo>,
}

/// The parameters of `session/set_model`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetModelRequest {
    /// The session.
    pub session_id: SessionId,
    /// The model to use from now on.
    pub model_id: String,
    /// Extension data.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// The answer to `session/new`, `session/load`, `session/resume` or `session/fork`, with the models added.
#[derive(Debug, Serialize)]
pub struct SessionReply<T> {
    /// The answer as the schema defines it.
    #[serde(flatten)]
    pub session: T,
    /// The models.
    pub models: ModelState,
}
