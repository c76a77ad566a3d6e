//! Printing in the client's dialect and hearing it: v1 goes through as it is, the others are rewritten.
//!
//! For v1 each of these is one comparison more than the function it calls, and not one allocation:
//! `tests/allocations.rs` counts them.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{Dialect, Part};
use crate::code::{Code, RpcError};
use crate::rpc::{self, RequestId};

/// About what a call has around its parameters.
const ENVELOPE: usize = 128;

/// Appends a note. A note that the dialect has no words for is left out.
///
/// # Errors
/// Fails for what JSON cannot say.
pub fn print_note(
    out: &mut Vec<u8>,
    dialect: Dialect,
    method: &'static str,
    params: &impl Serialize,
) -> serde_json::Result<()> {
    if dialect == Dialect::V1 {
        return rpc::print_note(out, method, params);
    }
    match dialect.from_v1(method, Part::Params, serde_json::to_value(params)?) {
        Some(params) => rpc::print_note(out, method, &params),
        None => Ok(()),
    }
}

/// Appends a call of ours.
///
/// # Errors
/// Fails for what JSON cannot say.
pub fn print_call(
    out: &mut Vec<u8>,
    dialect: Dialect,
    id: &RequestId,
    method: &'static str,
    params: &RawValue,
) -> serde_json::Result<()> {
    if dialect == Dialect::V1 {
        // A whole file may be in it: room is made once.
        out.reserve(params.get().len() + ENVELOPE);
        return rpc::print_call(out, id, method, &params);
    }
    match dialect.from_v1(method, Part::Params, serde_json::from_str(params.get())?) {
        Some(params) => rpc::print_call(out, id, method, &params),
        None => rpc::print_call(out, id, method, &params),
    }
}

/// Appends the result of a call.
///
/// # Errors
/// Fails for what JSON cannot say.
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
    match dialect.from_v1(method, Part::Result, serde_json::to_value(result)?) {
        Some(result) => rpc::print_result(out, id, &result),
        None => rpc::print_result(out, id, result),
    }
}

/// Appends the error of a call, its fields named as the client names them.
///
/// # Errors
/// Fails for what JSON cannot say.
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

/// Hands over what the client answered to a call of ours.
pub fn hear(
    dialect: Dialect,
    method: &str,
    outcome: Result<&RawValue, RpcError>,
    take: impl FnOnce(Result<&RawValue, RpcError>),
) {
    let raw = match outcome {
        Ok(raw) if dialect.rewrites_result_of(method) => raw,
        other => return take(other),
    };
    let broken = |_| RpcError::of(Code::INTERNAL_ERROR);
    let heard = serde_json::from_str(raw.get())
        .map_err(broken)
        .and_then(|value| dialect.to_v1(method, Part::Result, value))
        .and_then(|value| to_raw_value(&value).map_err(broken));
    match heard {
        Ok(raw) => take(Ok(&raw)),
        Err(err) => take(Err(err)),
    }
}
