//! Tool calls for the client, printed without copying their content, which may be long.
//!
//! The schema's types own their strings, and omit default values that some clients need.

use std::path::Path;

use engine::words::{
    Block, Live, ToolCall, ToolCallId, ToolContent, ToolKind, ToolStatus, ToolUpdate,
};
use serde::Serialize;
use serde_json::Value;
use wire::acp::schema;

use super::{block_out, live};

/// A tool call: new, updated, or in a permission request. `None` is omitted.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_update: Option<&'static str>,
    tool_call_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<schema::ToolKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<schema::ToolCallStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Vec<ContentOut<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locations: Option<Vec<LocationOut<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_input: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_output: Option<&'a Value>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<schema::Meta>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum ContentOut<'a> {
    Content {
        content: BlockOut<'a>,
    },
    Diff {
        path: &'a Path,
        #[serde(skip_serializing_if = "Option::is_none")]
        old_text: Option<&'a str>,
        new_text: &'a str,
    },
    Terminal {
        terminal_id: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum BlockOut<'a> {
    Text { r#type: &'static str, text: &'a str },
    Other(Box<schema::ContentBlock>),
}

#[derive(Serialize)]
struct LocationOut<'a> {
    path: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'a> CallOut<'a> {
    /// Prints a new call.
    pub(super) fn first(call: &'a ToolCall) -> CallOut<'a> {
        let meta = call.content.iter().find_map(|content| live::begin(&call.id, content));
        let whole = CallOut::asked(call);
        CallOut {
            session_update: Some("tool_call"),
            content: whole.content.filter(|content| !content.is_empty()),
            locations: whole.locations.filter(|locations| !locations.is_empty()),
            raw_input: whole.raw_input.filter(|input| !input.is_null()),
            meta,
            ..whole
        }
    }

    /// Prints an update of a call.
    pub(super) fn update(id: &'a ToolCallId, update: &'a ToolUpdate) -> CallOut<'a> {
        let progress = match &update.live {
            Some(Live::Progress(text)) => {
                Some(vec![ContentOut::Content { content: BlockOut::Text { r#type: "text", text } }])
            }
            Some(Live::Output(_) | Live::Ended(_)) | None => None,
        };
        CallOut {
            session_update: Some("tool_call_update"),
            tool_call_id: id.as_str(),
            status: update.status.map(status_out),
            content: update.content.as_ref().map(|content| contents_out(id, content)).or(progress),
            raw_output: update.raw_output.as_ref(),
            meta: update.live.as_ref().and_then(|live| live::update(id, live)),
            ..CallOut::default()
        }
    }

    /// Prints a call for a permission request.
    pub(super) fn asked(call: &'a ToolCall) -> CallOut<'a> {
        let locations = call.locations.iter();
        CallOut {
            tool_call_id: call.id.as_str(),
            title: Some(&call.title),
            name: Some(&call.name),
            kind: Some(kind_out(call.kind)),
            status: Some(status_out(call.status)),
            content: Some(contents_out(&call.id, &call.content)),
            locations: Some(
                locations
                    .map(|location| LocationOut { path: &location.path, line: location.line })
                    .collect(),
            ),
            raw_input: Some(&call.raw_input),
            ..CallOut::default()
        }
    }
}

fn contents_out<'a>(id: &'a ToolCallId, contents: &'a [ToolContent]) -> Vec<ContentOut<'a>> {
    let content_out = |content: &'a ToolContent| match content {
        ToolContent::Block(Block::Text(text)) => {
            ContentOut::Content { content: BlockOut::Text { r#type: "text", text } }
        }
        ToolContent::Block(block) => {
            ContentOut::Content { content: BlockOut::Other(Box::new(block_out(block.clone()))) }
        }
        ToolContent::Diff { path, old, new } => {
            ContentOut::Diff { path, old_text: old.as_deref(), new_text: new }
        }
        ToolContent::Terminal(terminal) => ContentOut::Terminal { terminal_id: terminal.as_str() },
        ToolContent::Live { .. } => ContentOut::Terminal { terminal_id: id.as_str() },
    };
    contents.iter().map(content_out).collect()
}

fn kind_out(kind: ToolKind) -> schema::ToolKind {
    match kind {
        ToolKind::Read => schema::ToolKind::Read,
        ToolKind::Edit => schema::ToolKind::Edit,
        ToolKind::Delete => schema::ToolKind::Delete,
        ToolKind::Move => schema::ToolKind::Move,
        ToolKind::Search => schema::ToolKind::Search,
        ToolKind::Execute => schema::ToolKind::Execute,
        ToolKind::Think => schema::ToolKind::Think,
        ToolKind::Fetch => schema::ToolKind::Fetch,
        ToolKind::SwitchMode => schema::ToolKind::SwitchMode,
        ToolKind::Other => schema::ToolKind::Other,
    }
}

fn status_out(status: ToolStatus) -> schema::ToolCallStatus {
    match status {
        ToolStatus::Pending => schema::ToolCallStatus::Pending,
        ToolStatus::InProgress => schema::ToolCallStatus::InProgress,
        ToolStatus::Completed => schema::ToolCallStatus::Completed,
        ToolStatus::Failed => schema::ToolCallStatus::Failed,
    }
}
