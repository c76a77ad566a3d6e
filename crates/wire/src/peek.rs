//! Finds the id and the method in a JSON line that is still arriving.
//!
//! This is not a parser: it accepts text that is not JSON. It has to be right for valid lines and harmless for others.
//! `line` uses it for long lines; `rpc` does the real parsing.

use memchr::memchr2;
use serde_json::value::RawValue;

use crate::id::{MAX_ID_BYTES, RequestId};

const MAX_METHOD_BYTES: usize = 128;
const MAX_KEY_BYTES: usize = 16;

/// What is known about a line so far.
#[derive(Debug, Default, PartialEq)]
pub struct Peek {
    at: At,
    /// Inside a string: the previous byte was a backslash.
    escaped: bool,
    /// How many containers are open, the outermost object included.
    depth: usize,
    key: Vec<u8>,
    /// The field whose value is being read.
    field: Field,
    id: Vec<u8>,
    method: Vec<u8>,
    method_is_whole: bool,
    has_outcome: bool,
}

/// The position of the next byte in the line.
#[derive(Debug, Default, PartialEq, Clone, Copy)]
enum At {
    /// Before the outermost object.
    #[default]
    Start,
    /// In the outermost object, outside every value: before a key, a colon, a value or a comma.
    Between,
    /// Inside a key of the outermost object.
    Key,
    /// After a key, before its value.
    Colon,
    /// Inside a string value of the outermost object.
    Text,
    /// Inside a number or a word of the outermost object.
    Word,
    /// Inside a container below the outermost object.
    Inside,
    /// Inside a string in such a container.
    InsideText,
    /// After the outermost object, or the line does not start with one.
    End,
}

#[derive(Debug, Default, PartialEq, Clone, Copy)]
enum Field {
    Id,
    Method,
    #[default]
    Other,
}

impl Peek {
    /// Reads the next bytes of the line.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            match self.at {
                At::End => return,
                At::InsideText | At::Text | At::Key => rest = self.text(rest),
                At::Inside => rest = self.inside(rest),
                At::Start | At::Between | At::Colon | At::Word => {
                    self.byte(byte);
                    rest = &rest[1..];
                }
            }
        }
    }

    /// Returns the method, once it is complete.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        if !self.method_is_whole {
            return None;
        }
        std::str::from_utf8(&self.method).ok()
    }

    /// Returns the id, if a valid one was found.
    #[must_use]
    pub fn id(&self) -> Option<RequestId> {
        let raw: &RawValue = serde_json::from_slice(&self.id).ok()?;
        RequestId::from_raw(raw).ok()
    }

    /// Returns whether a `result` or an `error` was found, which makes the line a reply.
    #[must_use]
    pub fn is_reply(&self) -> bool {
        self.has_outcome
    }

    /// Returns whether the line starts like an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.depth > 0 || !self.key.is_empty()
    }

    fn byte(&mut self, byte: u8) {
        match (self.at, byte) {
            (_, b' ' | b'\t' | b'\r') if self.at != At::Word => {}
            (At::Start, b'{') => {
                self.depth = 1;
                self.at = At::Between;
            }
            // A byte order mark may precede the object.
            (At::Start, 0xef | 0xbb | 0xbf) => {}
            (At::Start, _) => self.at = At::End,
            (At::Between, b'"') => {
                self.key.clear();
                self.at = At::Key;
            }
            (At::Between, b'}') => self.at = At::End,
            (At::Colon, b':') | (At::Between, _) => {}
            (At::Colon, b'"') => {
                self.append_to_id(b'"');
                self.at = At::Text;
            }
            (At::Colon, b'{' | b'[') => {
                self.depth += 1;
                self.at = At::Inside;
            }
            (At::Colon, byte) => {
                self.append_to_id(byte);
                self.at = At::Word;
            }
            (At::Word, b',') => self.at = At::Between,
            (At::Word, b'}') => self.at = At::End,
            (At::Word, byte) => self.append_to_id(byte),
            (At::Key | At::Text | At::Inside | At::InsideText | At::End, _) => {}
        }
    }

    /// Reads inside a string and returns the remaining bytes.
    fn text<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.escaped {
            self.escaped = false;
            self.append_text(&bytes[..1]);
            return &bytes[1..];
        }
        let Some(end) = memchr2(b'"', b'\\', bytes) else {
            self.append_text(bytes);
            return &[];
        };
        if bytes[end] == b'\\' {
            self.escaped = true;
            self.append_text(&bytes[..=end]);
        } else {
            self.append_text(&bytes[..end]);
            self.end_text();
        }
        &bytes[end + 1..]
    }

    fn append_text(&mut self, bytes: &[u8]) {
        match self.at {
            At::Key if self.key.len() + bytes.len() <= MAX_KEY_BYTES => {
                self.key.extend_from_slice(bytes)
            }
            // Longer than every key of interest; `?` matches none of them.
            At::Key => self.key = b"?".to_vec(),
            At::Text => match self.field {
                Field::Id if self.id.len() <= MAX_ID_BYTES => {
                    self.id.extend_from_slice(&bytes[..bytes.len().min(MAX_ID_BYTES + 1)]);
                }
                Field::Method if self.method.len() <= MAX_METHOD_BYTES => {
                    self.method.extend_from_slice(&bytes[..bytes.len().min(MAX_METHOD_BYTES + 1)]);
                }
                Field::Id | Field::Method | Field::Other => {}
            },
            At::Start
            | At::Between
            | At::Colon
            | At::Word
            | At::Inside
            | At::InsideText
            | At::End => {}
        }
    }

    fn end_text(&mut self) {
        match self.at {
            At::Key => {
                self.field = match self.key.as_slice() {
                    b"id" if self.id.is_empty() => Field::Id,
                    b"method" if self.method.is_empty() => Field::Method,
                    b"result" | b"error" => {
                        self.has_outcome = true;
                        Field::Other
                    }
                    _ => Field::Other,
                };
                self.at = At::Colon;
            }
            At::Text => {
                match self.field {
                    Field::Id => self.id.push(b'"'),
                    Field::Method => self.method_is_whole = self.method.len() <= MAX_METHOD_BYTES,
                    Field::Other => {}
                }
                self.at = At::Between;
            }
            At::InsideText => self.at = At::Inside,
            At::Start | At::Between | At::Colon | At::Word | At::Inside | At::End => {}
        }
    }

    /// Reads inside a container and returns the remaining bytes.
    fn inside<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.at = At::InsideText;
                    return &bytes[index + 1..];
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 1 {
                        self.at = At::Between;
                        return &bytes[index + 1..];
                    }
                }
                _ => {}
            }
        }
        &[]
    }

    /// Appends a byte to the id: the opening quote of a string, or a byte of a number or word.
    fn append_to_id(&mut self, byte: u8) {
        if self.field == Field::Id && self.id.len() <= MAX_ID_BYTES {
            self.id.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peek(text: &str, chunk: usize) -> (Option<String>, Option<String>) {
        let mut peek = Peek::default();
        for part in text.as_bytes().chunks(chunk) {
            peek.feed(part);
        }
        (peek.id().map(|id| id.to_string()), peek.method().map(str::to_owned))
    }

    #[test]
    fn finds_id_and_method_in_any_order_and_chunking() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":1,"method":"a/b","params":{}}"#, Some("1"), Some("a/b")),
            (
                r#"{"params":{"id":9,"method":"no","x":["}",{"y":"\"]"}]},"method":"m","id":"z\"q"}"#,
                Some(r#""z\"q""#),
                Some("m"),
            ),
            (r#"{ "id" : -1.5e3 , "method" : "m" }"#, Some("-1.5e3"), Some("m")),
            (r#"{"id":null,"result":{}}"#, Some("null"), None),
            (r#"{"id":[1],"method":5}"#, None, None),
            (r#"[{"id":1,"method":"m"}]"#, None, None),
            ("garbage", None, None),
        ];
        for (text, id, method) in cases {
            for chunk in [1, 2, 3, 1000] {
                assert_eq!(
                    peek(text, chunk),
                    (id.map(str::to_owned), method.map(str::to_owned)),
                    "{text}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), chunk in 1usize..40) {
            let mut peek = Peek::default();
            for part in bytes.chunks(chunk) {
                peek.feed(part);
            }
            prop_assert!(peek.id.len() <= 2 * MAX_ID_BYTES + 2);
        }
    }
}
