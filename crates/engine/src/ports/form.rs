//! Forms: questions to the user through the client.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::words::ToolCallId;

/// A question to the user: one answer in text, several fields, or something to do on a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Form {
    /// The question.
    pub message: String,
    /// The tool call it belongs to.
    pub call: Option<ToolCallId>,
    /// The page to open instead of asking for text.
    pub page: Option<Page>,
    /// The fields to ask for instead of one text: a JSON schema of an object with plain properties.
    pub fields: Option<Value>,
}

/// A page that the client opens for the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// What [`Editor::page_done`](crate::ports::Editor::page_done) identifies it by.
    pub id: String,
    /// Its address.
    pub url: String,
}

/// The answer to a form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FormAnswer {
    /// Answered; for a page, agreed to open it.
    Text(String),
    /// Filled in the fields that were asked for.
    Fields(serde_json::Map<String, Value>),
    /// Declined to answer.
    Declined,
    /// Closed it.
    Cancelled,
}
