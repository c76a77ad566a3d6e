//! Whole files on their way to the client. Written here: this crate is built for speed, and what its callers make of
//! generic code is built for size, which is several times slower for a long text.

use std::path::Path;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WriteParams<'a> {
    session_id: &'a str,
    path: &'a Path,
    content: &'a str,
}

/// Writes the parameters of `fs/write_text_file`.
///
/// # Errors
/// Fails for a path that is no text.
pub fn write_params(
    session_id: &str,
    path: &Path,
    content: &str,
) -> serde_json::Result<Box<RawValue>> {
    to_raw_value(&WriteParams { session_id, path, content })
}
