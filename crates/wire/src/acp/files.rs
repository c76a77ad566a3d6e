//! The parameters of `fs/write_text_file`, which contain a whole file.
//!
//! They are serialised in this crate because it is optimised for speed. Generic code that is instantiated in a caller is
//! optimised for size, which is several times slower for long strings.

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
/// Fails if the path is not valid UTF-8.
pub fn write_params(
    session_id: &str,
    path: &Path,
    content: &str,
) -> serde_json::Result<Box<RawValue>> {
    to_raw_value(&WriteParams { session_id, path, content })
}
