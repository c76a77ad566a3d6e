//! Errors of tools and editors as they are written: those types have text that is part of the program.

use std::path::PathBuf;

use engine::Error;
use engine::ports::{EditorError, ToolError};
use engine::words::{ToolContent, ToolFailure};
use serde::{Deserialize, Serialize};

/// An error of a tool.
#[derive(Serialize, Deserialize)]
pub(crate) enum ToolErrorValue {
    Model(String),
    Failed { failure: Option<ToolFailure>, text: String, content: Option<Vec<ToolContent>> },
    Editor(EditorErrorValue),
    Cancelled,
    Broken,
}

impl From<&ToolError> for ToolErrorValue {
    fn from(err: &ToolError) -> ToolErrorValue {
        match err {
            ToolError::Model(text) => ToolErrorValue::Model(text.clone()),
            ToolError::Failed { failure, text, content } => ToolErrorValue::Failed {
                failure: *failure,
                text: text.clone(),
                content: content.clone(),
            },
            ToolError::Editor(err) => ToolErrorValue::Editor(err.into()),
            ToolError::Cancelled => ToolErrorValue::Cancelled,
            ToolError::Broken(_) => ToolErrorValue::Broken,
        }
    }
}

impl From<ToolErrorValue> for ToolError {
    fn from(value: ToolErrorValue) -> ToolError {
        match value {
            ToolErrorValue::Model(text) => ToolError::Model(text),
            ToolErrorValue::Failed { failure, text, content } => {
                ToolError::Failed { failure, text, content }
            }
            ToolErrorValue::Editor(err) => ToolError::Editor(err.into()),
            ToolErrorValue::Cancelled => ToolError::Cancelled,
            ToolErrorValue::Broken => ToolError::Broken(Error::Broken),
        }
    }
}

/// An error of the editor.
#[derive(Serialize, Deserialize)]
pub(crate) enum EditorErrorValue {
    NotOffered(String),
    FileNotFound(PathBuf),
    FileDenied(PathBuf),
    FileTooLarge(PathBuf),
    Outside(PathBuf),
    TimedOut { call: String, advice: Option<String> },
    Refused(String),
    Gone,
}

impl From<&EditorError> for EditorErrorValue {
    fn from(err: &EditorError) -> EditorErrorValue {
        match err.clone() {
            EditorError::NotOffered(what) => EditorErrorValue::NotOffered(what.to_owned()),
            EditorError::FileNotFound(path) => EditorErrorValue::FileNotFound(path),
            EditorError::FileDenied(path) => EditorErrorValue::FileDenied(path),
            EditorError::FileTooLarge(path) => EditorErrorValue::FileTooLarge(path),
            EditorError::Outside(path) => EditorErrorValue::Outside(path),
            EditorError::TimedOut { call, advice } => {
                EditorErrorValue::TimedOut { call: call.to_owned(), advice }
            }
            EditorError::Refused(why) => EditorErrorValue::Refused(why),
            EditorError::Gone => EditorErrorValue::Gone,
        }
    }
}

impl From<EditorErrorValue> for EditorError {
    fn from(value: EditorErrorValue) -> EditorError {
        match value {
            // A replay is short, so these few words may stay in memory until it ends.
            EditorErrorValue::NotOffered(what) => EditorError::NotOffered(what.leak()),
            EditorErrorValue::TimedOut { call, advice } => {
                EditorError::TimedOut { call: call.leak(), advice }
            }
            EditorErrorValue::FileNotFound(path) => EditorError::FileNotFound(path),
            EditorErrorValue::FileDenied(path) => EditorError::FileDenied(path),
            EditorErrorValue::FileTooLarge(path) => EditorError::FileTooLarge(path),
            EditorErrorValue::Outside(path) => EditorError::Outside(path),
            EditorErrorValue::Refused(why) => EditorError::Refused(why),
            EditorErrorValue::Gone => EditorError::Gone,
        }
    }
}
