//! Content with its hash: what files contain, long records, and large values of tool calls.

use sha2::{Digest, Sha256};

use crate::record::Name;

/// A record longer than this is stored under the hash of its body, and content longer than this in a separate file. In the
/// first version of the tables everything was in the database.
pub const LARGE: usize = 64 * 1024;

/// The SHA-256 of some content.
pub type Hash = [u8; 32];

/// Content with its hash.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// Its hash.
    pub hash: Hash,
    /// The bytes.
    pub body: &'a [u8],
}

impl Content<'_> {
    /// Hashes some content.
    #[must_use]
    pub fn of(body: &[u8]) -> Content<'_> {
        Content { hash: Sha256::digest(body).into(), body }
    }
}

/// Returns a hash in the form that records use: hexadecimal digits.
pub(crate) fn name_of(hash: &Hash) -> Name {
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Name(digits.into())
}

/// Returns the hash that a name stands for; `None` if it is not a hash, as in a damaged record.
pub(crate) fn hash_of(name: &str) -> Option<Hash> {
    let digits = name
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    digits.collect::<Option<Vec<u8>>>()?.try_into().ok()
}
