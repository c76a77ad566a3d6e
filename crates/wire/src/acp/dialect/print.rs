//! Prints and reads messages in the client's dialect: v1 passes unchanged, other dialects are rewritten.
//!
//! For v1 each function costs one comparison and no allocation more than the function it calls. `tests/allocations.rs`
//! checks this.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{Dialect, Payload};
use crate::code::{Code, RpcError};
use crate::id::RequestId;
use crate::rpc;

/// Roughly how many bytes a call has besides its parameters.
const ENVELOPE: usize = 128;

/// Appends a note. A note that the dialect cannot express is omitted.
///
/// # Errors
/// Fails if a value cannot be written as JSON.
pub fn print_note(
    out: &mut Vec<u8>,
    dialect: Dialect,
    method: &'static str,
    params: &impl Serialize,
) -> serde_json::Result<()> {
    if dialect == Dialect::V1 {
        return rpc::print_note(out, method, params);
    }
    match dialect.from_v1(method, Payload::Params, serde_json::to_value(params)?) {
        Some(params) => rpc::print_note(out, method, &params),
        None => Ok(()),
    }
}

/// Appends a call to the client.
///
/// # Errors
/// Fails if a value cannot be written as JSON.
pub fn print_call(
    out: &mut Vec<u8>,
    dialect: Dialect,
    id: &RequestId,
    method: &'static str,
    params: &RawValue,
) -> serde_json::Result<()> {
    if dialect == Dialect::V1 {
        // The parameters may contain a whole file, so the buffer grows only once.
        out.reserve(params.get().len() + ENVELOPE);
        return rpc::print_call(out, id, method, &params);
    }
    match dialect.from_v1(method, Payload::Params, serde_json::from_str(params.get())?) {
        Some(params) => rpc::print_call(out, id, method, &params),
        None => rpc::print_call(out, id, method, &params),
    }
}

/// Appends the result of a call.
///
/// # Errors
/// Fails if a value cannot be written as JSON.
pub fn print_result(
    out: &mut Vec<u8>,
    dialect: Dialect,
    id: &RequestId,
    method: &str,
    result: &impl Serialize,
) -> serde_json::Result<()> {
    if dialect == Dialect::V1 {
        return rpc::print_result(out, id, result);
    }
    match dialect.from_v1(method, Payload::Result, serde_json::to_value(result)?) {
        Some(result) => rpc::print_result(out, id, &result),
        None => rpc::print_result(out, id, result),
    }
}

/// Appends the error of a call, with the field names of the client's dialect.
///
/// # Errors
/// Fails if a value cannot be written as JSON.
pub fn print_error(
    out: &mut Vec<u8>,
    dialect: Dialect,
    id: Option<&RequestId>,
    error: &RpcError,
) -> serde_json::Result<()> {
    if dialect == Dialect::V1 {
        return rpc::print_error(out, id, error);
    }
    rpc::print_error(out, id, &dialect.error_out(error.clone()))
}

/// Passes the client's reply to our call to `take`, rewritten to v1.
pub fn read_reply(
    dialect: Dialect,
    method: &str,
    outcome: Result<&RawValue, RpcError>,
    take: impl FnOnce(Result<&RawValue, RpcError>),
) {
    let raw = match outcome {
        Ok(raw) if dialect.rewrites_result_of(method) => raw,
        other => return take(other),
    };
    let internal_error = |_| RpcError::of(Code::INTERNAL_ERROR);
    let rewritten = serde_json::from_str(raw.get())
        .map_err(internal_error)
        .and_then(|value| dialect.to_v1(method, Payload::Result, value))
        .and_then(|value| to_raw_value(&value).map_err(internal_error));
    match rewritten {
        Ok(raw) => take(Ok(&raw)),
        Err(err) => take(Err(err)),
    }
}
