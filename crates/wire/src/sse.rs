//! Server-sent events: splits bytes, in chunks of any size, into whole events.
//!
//! Does no IO and knows no provider. An event over the limit is skipped and reported, never held in memory.

use std::time::Duration;

use memchr::memchr2;

/// The default limit of an event, in bytes of data.
pub const MAX_EVENT: usize = 4 * 1024 * 1024;

/// The longest id that is accepted. It is sent back in a header.
const MAX_ID: usize = 1024;

/// How many bytes a line may have in addition to the data.
const FIELD: usize = 64;

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Its name; empty if the stream gives none.
    pub name: &'a str,
    /// Its data, with the lines joined by line feeds.
    pub data: &'a str,
}

/// An event exceeded the limit and was skipped. The stream continues after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event exceeds the limit of {limit} bytes")]
pub struct TooLong {
    /// The limit in bytes.
    pub limit: usize,
}

/// Splits a byte stream into events. Buffers at most one of them.
#[derive(Debug)]
pub struct SseDecoder {
    limit: usize,
    buffer: Vec<u8>,
    /// Where the current line starts in `buffer`.
    start: usize,
    /// How far `buffer` has been searched for a line end.
    searched: usize,
    /// Set after a carriage return: a following line feed belongs to it.
    after_return: bool,
    /// Set until the first line has been read: it may begin with a byte order mark.
    is_first_line: bool,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The id of the current event. It becomes `last_id` when the event is complete.
    new_id: Option<Vec<u8>>,
    last_id: Option<Vec<u8>>,
    retry: Option<Duration>,
    /// Set while an event that is too long is skipped.
    skipping: bool,
    /// Set while the rest of a line that is too long is skipped.
    skipping_line: bool,
    /// Set when the current event has been returned: its buffers can be cleared.
    is_returned: bool,
}

impl Default for SseDecoder {
    fn default() -> SseDecoder {
        SseDecoder::new(MAX_EVENT)
    }
}

impl SseDecoder {
    /// Creates a decoder for events of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> SseDecoder {
        SseDecoder {
            limit,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            after_return: false,
            is_first_line: true,
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
            new_id: None,
            last_id: None,
            retry: None,
            skipping: false,
            skipping_line: false,
            is_returned: false,
        }
    }

    /// Returns the id of the last complete event that had one.
    #[must_use]
    pub fn last_id(&self) -> Option<&[u8]> {
        self.last_id.as_deref()
    }

    /// Returns how long the server wants us to wait before we reconnect.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Adds bytes. Call [`SseDecoder::next_event`] until it returns `None` before the next feed.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next event, or `None` until more bytes are fed.
    ///
    /// # Errors
    /// [`TooLong`] in place of an event over the limit.
    pub fn next_event(&mut self) -> Option<Result<SseEvent<'_>, TooLong>> {
        if std::mem::take(&mut self.is_returned) {
            self.name.clear();
            self.data.clear();
            self.has_data = false;
            self.skipping = false;
        }
        loop {
            if self.after_return && self.start < self.buffer.len() {
                self.after_return = false;
                if self.buffer[self.start] == b'\n' {
                    self.start += 1;
                    self.searched = self.searched.max(self.start);
                }
            }
            let found = memchr2(b'\n', b'\r', &self.buffer[self.searched..]);
            let Some(end) = found.map(|at| self.searched + at) else {
                self.searched = self.buffer.len();
                self.drop_long_line();
                return None;
            };
            let line = self.start..end;
            self.after_return = self.buffer[end] == b'\r';
            self.start = end + 1;
            self.searched = self.start;
            if std::mem::take(&mut self.skipping_line) {
                continue;
            }
            if line.is_empty() {
                if let Some(id) = self.new_id.take() {
                    self.last_id = Some(id);
                }
                if self.has_data || self.skipping {
                    return Some(self.return_event());
                }
                self.name.clear();
            } else {
                self.take_line(line);
            }
        }
    }

    /// Returns whether an event that is too long is being skipped, so that a reader can give up early.
    #[must_use]
    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Marks the end of the stream: an event with complete lines is returned, an incomplete line is dropped.
    pub fn finish(&mut self) {
        self.buffer.clear();
        self.start = 0;
        self.searched = 0;
        self.after_return = false;
        self.skipping_line = false;
        self.buffer.push(b'\n');
    }

    fn return_event(&mut self) -> Result<SseEvent<'_>, TooLong> {
        self.is_returned = true;
        if self.skipping {
            return Err(TooLong { limit: self.limit });
        }
        replace_invalid_utf8(&mut self.name);
        replace_invalid_utf8(&mut self.data);
        let name = std::str::from_utf8(&self.name).unwrap_or_default();
        let data = std::str::from_utf8(&self.data).unwrap_or_default();
        Ok(SseEvent { name, data })
    }

    fn take_line(&mut self, line: std::ops::Range<usize>) {
        if line.len() > self.limit.saturating_add(FIELD) {
            self.skipping = true;
            self.data = Vec::new();
            return;
        }
        let mut line = &self.buffer[line];
        if std::mem::take(&mut self.is_first_line) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" if self.data.len() + value.len() > self.limit => {
                self.skipping = true;
                self.data = Vec::new();
            }
            b"data" if !self.skipping => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" if value.len() <= self.limit => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            b"id" if value.len() <= MAX_ID && !value.contains(&0) => {
                self.new_id = Some(value.to_vec());
            }
            b"retry" if value.len() <= 9 && value.iter().all(u8::is_ascii_digit) => {
                let digits = std::str::from_utf8(value).unwrap_or_default();
                self.retry = digits.parse().ok().map(Duration::from_millis);
            }
            // Comments begin with a colon.
            _ => {}
        }
    }

    /// Drops the current line if it is already too long to be part of an event.
    fn drop_long_line(&mut self) {
        let held = self.buffer.len() - self.start;
        if !self.skipping_line && held <= self.limit.saturating_add(FIELD) {
            return;
        }
        if !self.skipping_line {
            self.skipping_line = true;
            self.skipping = true;
            self.data = Vec::new();
        }
        self.buffer = Vec::new();
        self.start = 0;
        self.searched = 0;
    }
}

/// Replaces bytes that are not UTF-8 by replacement characters, as the standard requires.
fn replace_invalid_utf8(bytes: &mut Vec<u8>) {
    if std::str::from_utf8(bytes).is_err() {
        *bytes = String::from_utf8_lossy(bytes).into_owned().into_bytes();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Got = Result<(String, String), TooLong>;

    fn events(limit: usize, chunks: &[&[u8]]) -> Vec<Got> {
        let mut decoder = SseDecoder::new(limit);
        let mut got = Vec::new();
        let mut take = |decoder: &mut SseDecoder| {
            while let Some(event) = decoder.next_event() {
                got.push(event.map(|event| (event.name.to_owned(), event.data.to_owned())));
            }
        };
        for chunk in chunks {
            decoder.feed(chunk);
            take(&mut decoder);
        }
        decoder.finish();
        take(&mut decoder);
        got
    }

    fn named(name: &str, data: &str) -> Got {
        Ok((name.to_owned(), data.to_owned()))
    }

    #[test]
    fn names_data_comments_and_blank_lines() {
        let stream = b"\xef\xbb\xbf: hello\nevent: a\ndata: 1\n\n\n:\ndata:2\ndata\ndata: 3\nid: 7\nretry: 5\n\nevent: lost\n\ndata: x\n\n";
        assert_eq!(
            events(MAX_EVENT, &[stream]),
            [named("a", "1"), named("", "2\n\n3"), named("", "x")]
        );
    }

    #[test]
    fn id_is_stored_when_its_event_is_complete() {
        let mut decoder = SseDecoder::default();
        let mut after = |bytes: &[u8]| {
            decoder.feed(bytes);
            while decoder.next_event().is_some() {}
            decoder.last_id().map(|id| String::from_utf8_lossy(id).into_owned())
        };
        assert_eq!(after(b"data: 1\n\n"), None);
        assert_eq!(after(b"id: a\nretry: 20\ndata: 2\n"), None);
        assert_eq!(after(b"\ndata: 3\n\nid: b"), Some("a".to_owned()));
        assert_eq!(after(b"\n\nid: c\ndata: 4"), Some("b".to_owned()));
        let long = format!("\n\nid: {}\ndata: 5\nretry: soon\n\n", "x".repeat(2000));
        assert_eq!(after(long.as_bytes()), Some("c".to_owned()));
        assert_eq!(decoder.retry(), Some(Duration::from_millis(20)));
    }

    #[test]
    fn every_line_end_works() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = format!("event: e{end}data: a{end}data: b{end}{end}data: c{end}{end}");
            for size in 1..=stream.len() {
                let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
                let got = events(MAX_EVENT, &chunks);
                assert_eq!(
                    got,
                    [named("e", "a\nb"), named("", "c")],
                    "{end:?} in chunks of {size}"
                );
            }
        }
    }

    #[test]
    fn character_may_be_split_between_chunks() {
        let stream = "data: größe 🦀\n\n".as_bytes();
        for cut in 0..stream.len() {
            let (front, back) = stream.split_at(cut);
            assert_eq!(events(MAX_EVENT, &[front, back]), [named("", "größe 🦀")]);
        }
    }

    #[test]
    fn incomplete_line_is_dropped_and_complete_event_is_returned() {
        assert_eq!(
            events(MAX_EVENT, &[b"data: {\"a\":1}\n\ndata: {\"b\""]),
            [named("", "{\"a\":1}")]
        );
        assert_eq!(events(MAX_EVENT, &[b"data: [DONE]\n"]), [named("", "[DONE]")]);
    }

    #[test]
    fn too_long_event_is_reported_and_not_buffered() {
        let mut decoder = SseDecoder::new(1000);
        decoder.feed(b"data: ");
        for round in 0..1000 {
            decoder.feed(&[b'x'; 500]);
            assert_eq!(decoder.next_event(), None);
            assert!(decoder.buffer.capacity() < 4000);
            assert_eq!(decoder.is_skipping(), round > 1);
        }
        decoder.feed(b"\ndata: more\n\ndata: good\n\n");
        assert_eq!(decoder.next_event(), Some(Err(TooLong { limit: 1000 })));
        assert_eq!(decoder.next_event(), Some(Ok(SseEvent { name: "", data: "good" })));

        let many_lines = "data: 0123456789\n".repeat(200) + "\ndata: good\n\n";
        assert_eq!(
            events(1000, &[many_lines.as_bytes()]),
            [Err(TooLong { limit: 1000 }), named("", "good")]
        );
    }

    proptest! {
        /// The result does not depend on the chunks, and the valid event at the end is found.
        #[test]
        fn events_do_not_depend_on_chunks(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just(b"data: ".to_vec()), Just(b"\n".to_vec()), Just(b"\r".to_vec()),
                    Just(b"\n\n".to_vec()), Just(b"event: x".to_vec()), Just(b":".to_vec()),
                    proptest::collection::vec(any::<u8>(), 0..20),
                ],
                0..60,
            ),
            cut in 1usize..50,
        ) {
            let mut bytes = parts.concat();
            bytes.extend_from_slice(b"\n\ndata: good\n\n");
            let whole = events(100, &[&bytes]);
            let chunks: Vec<&[u8]> = bytes.chunks(cut).collect();
            prop_assert_eq!(&whole, &events(100, &chunks));
            prop_assert_eq!(whole.last(), Some(&named("", "good")));
        }
    }
}
