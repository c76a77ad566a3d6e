//! The id of a JSON-RPC call.

use std::fmt;

use serde_json::value::RawValue;

/// The longest accepted id. The ids of all open calls are held in memory.
pub const MAX_ID_BYTES: usize = 1024;

/// The id of a call, as the other side wrote it: a number, a string or null.
///
/// Stores the raw JSON, so that `1.5`, thirty digits or `"\u0041"` are returned unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// Reads an id. Booleans, arrays and objects are not valid ids.
    ///
    /// # Errors
    /// Describes what is wrong, without repeating the value.
    pub fn from_raw(raw: &RawValue) -> Result<RequestId, &'static str> {
        let text = raw.get();
        match text.as_bytes().first() {
            _ if text.len() > MAX_ID_BYTES => Err("'id' is too long"),
            Some(b'"' | b'-' | b'0'..=b'9' | b'n') => Ok(RequestId(text.into())),
            _ => Err("'id' must be a number, a string or null"),
        }
    }

    /// Creates the id of one of our own calls.
    #[must_use]
    pub fn number(number: u64) -> RequestId {
        RequestId(number.to_string().into())
    }

    /// Returns the number of an id that [`RequestId::number`] created.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// Returns the id as JSON text, exactly as the other side wrote it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the id is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        &*self.0 == "null"
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
