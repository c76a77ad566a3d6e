//! Changes a configuration file without touching the rest of it, comments included.

use std::path::PathBuf;

use anyhow::Context;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::Value;

use crate::Directories;
use crate::files::{self, Access};

/// Changes the given file, or the user's, which is created if missing. Returns which file.
///
/// # Errors
/// Says what cannot be read or written; the file is then unchanged.
pub fn change(
    file: Option<PathBuf>,
    directories: &Directories,
    change: impl FnOnce(&CstObject) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let file = match file {
        Some(file) => file,
        None => directories.config_file().context("no home directory")?,
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => "{}\n".to_owned(),
        Err(err) => return Err(err).with_context(|| file.display().to_string()),
    };
    let root = CstRootNode::parse(&text, &ParseOptions::default())
        .with_context(|| file.display().to_string())?;
    let object = root.object_value_or_create();
    change(&object.with_context(|| format!("{} must contain an object", file.display()))?)?;
    files::replace(&file, root.to_string().as_bytes(), Access::Shared)?;
    Ok(file)
}

/// Converts a value for the file.
#[must_use]
pub fn input(value: Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(is) => CstInputValue::Bool(is),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text),
        Value::Array(list) => CstInputValue::Array(list.into_iter().map(input).collect()),
        Value::Object(members) => CstInputValue::Object(
            members.into_iter().map(|(key, value)| (key, input(value))).collect(),
        ),
    }
}
