//! Typed reading of parameters and results.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::fault;
use crate::code::{Code, RpcError};

/// Reads typed parameters. Only a failure pays for a second pass that finds the invalid field.
///
/// # Errors
/// -32602 that names the field, without repeating any value.
pub fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RpcError> {
    let text = params.map_or("{}", RawValue::get);
    let text = if text == "null" { "{}" } else { text };
    if !text.starts_with('{') {
        return Err(fault::not_an_object());
    }
    if memchr::memmem::find(text.as_bytes(), b"\\u0000").is_some() {
        fault::reject_null_characters(text)?;
    }
    serde_json::from_str(text).map_err(|_| fault::explain::<T>(text))
}

/// Reads the result of a call. Unlike parameters it may contain null characters, because files can.
///
/// # Errors
/// -32602 if the result does not match the schema.
pub fn read_answer<T: DeserializeOwned>(answer: &RawValue) -> Result<T, RpcError> {
    let text = if answer.get() == "null" { "{}" } else { answer.get() };
    let mismatch = "The answer does not match the protocol";
    serde_json::from_str(text).map_err(|_| RpcError::new(Code::INVALID_PARAMS, mismatch))
}
