//! `models` and `session/set_model`: the model picker that ACP had before config options.
//!
//! Gone from the official schema, still read by clients; we answer with it beside `modes` and `configOptions`.

use serde::{Deserialize, Serialize};

use super::schema::{Meta, SessionId};

/// A model that a session can use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelInfo {
    /// Provider and model, such as `anthropic/claude-sonnet`.
    pub model_id: String,
    /// What people call it.
    pub name: String,
    /// One line more.
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

/// The answer to `session/new` and its like, with the models beside what the schema has.
#[derive(Debug, Serialize)]
pub struct SessionReply<T> {
    /// What the schema has.
    #[serde(flatten)]
    pub session: T,
    /// The models.
    pub models: ModelState,
}
