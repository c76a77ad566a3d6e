//! Splits bytes, in chunks of any size, into whole lines.
//!
//! A line that exceeds the limit of its method is skipped while it arrives and never held in memory; it is reported as
//! too long. `docs/internals/wire.md` has a table of unusual lines. For the JSON-RPC envelope in a line see `rpc`.

use memchr::memchr;

use crate::peek::Peek;

/// The longest line of each method, in bytes.
///
/// The method is read while the line is still arriving, so the limit applies before the line is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeLimits {
    /// `initialize`.
    pub initialize: usize,
    /// `session/new` and the other calls that carry MCP servers.
    pub new_session: usize,
    /// `session/prompt` without the data of images and audio.
    pub prompt: usize,
    /// The data of images and audio in one `session/prompt`, which has a separate limit.
    pub prompt_data: usize,
    /// `session/update`.
    pub update: usize,
    /// `fs/*`, and every reply: a reply may carry a file.
    pub file: usize,
    /// Any other method.
    pub other: usize,
}

impl Default for SizeLimits {
    fn default() -> SizeLimits {
        const KB: usize = 1024;
        const MB: usize = 1024 * KB;
        SizeLimits {
            initialize: 10 * KB,
            new_session: 50 * KB,
            prompt: MB,
            prompt_data: 10 * MB,
            update: 100 * KB,
            file: 10 * MB,
            other: MB,
        }
    }
}

impl SizeLimits {
    /// Returns the longest line that `method` may have; `None` means a reply.
    #[must_use]
    pub fn of(&self, method: Option<&str>) -> usize {
        match method {
            Some("initialize") => self.initialize,
            Some("session/new" | "session/load" | "session/resume" | "session/fork") => {
                self.new_session
            }
            Some("session/prompt") => self.prompt.saturating_add(self.prompt_data),
            Some("session/update") => self.update,
            Some(method) if method.starts_with("fs/") => self.file,
            Some(_) => self.other,
            None => self.file,
        }
    }

    /// A line up to this length is within every limit, so its method is not needed.
    fn smallest(&self) -> usize {
        [
            self.initialize,
            self.new_session,
            self.of(Some("session/prompt")),
            self.update,
            self.file,
            self.other,
        ]
        .into_iter()
        .min()
        .unwrap_or(0)
    }

    /// The limit of a line whose method is not known yet.
    fn largest(&self) -> usize {
        [
            self.initialize,
            self.new_session,
            self.of(Some("session/prompt")),
            self.update,
            self.file,
            self.other,
        ]
        .into_iter()
        .max()
        .unwrap_or(usize::MAX)
    }
}

/// What the decoder returns.
#[derive(Debug, PartialEq)]
pub enum Line<'a> {
    /// A whole line, without its line end, byte order mark and surrounding blanks. Never empty.
    Whole(&'a [u8]),
    /// A line that was skipped because it exceeded its limit.
    TooLong(TooLong),
}

/// A line that was skipped.
#[derive(Debug, PartialEq)]
pub struct TooLong {
    /// The id and method, if found, even after the long part.
    pub peek: Peek,
    /// The length of the line in bytes.
    pub size: usize,
    /// The limit that it exceeded.
    pub limit: usize,
}

/// Splits a byte stream into lines. Buffers no more than the limit of the current line.
#[derive(Debug)]
pub struct LineDecoder {
    limits: SizeLimits,
    smallest: usize,
    largest: usize,
    buffer: Vec<u8>,
    /// Where the current line starts in `buffer`.
    start: usize,
    /// How far `buffer` has been searched for a line end.
    searched: usize,
    /// How much of the current line `peek` has seen, in bytes from `start`.
    peeked: usize,
    peek: Peek,
    /// Set while a line that is too long is skipped: its length so far and its limit.
    skipping: Option<(usize, usize)>,
}

/// A buffer that grew beyond this for one long line is shrunk again.
const KEEP_CAPACITY: usize = 2 * 1024 * 1024;

impl LineDecoder {
    /// Creates a decoder with these limits.
    #[must_use]
    pub fn new(limits: SizeLimits) -> LineDecoder {
        LineDecoder {
            smallest: limits.smallest(),
            largest: limits.largest(),
            limits,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            peeked: 0,
            peek: Peek::default(),
            skipping: None,
        }
    }

    /// Adds bytes. Call [`LineDecoder::next_line`] until it returns `None` before the next feed.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
            if self.buffer.capacity() > KEEP_CAPACITY && self.buffer.len() < KEEP_CAPACITY / 2 {
                self.buffer.shrink_to(KEEP_CAPACITY);
            }
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next line, or `None` until more bytes are fed.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        loop {
            let end = memchr(b'\n', &self.buffer[self.searched..]).map(|at| self.searched + at);
            if let Some((size, limit)) = self.skipping {
                match end {
                    Some(end) => return Some(Line::TooLong(self.end_skip(end, size, limit))),
                    None => {
                        self.skip_all(size, limit);
                        return None;
                    }
                }
            }
            let Some(end) = end else {
                self.searched = self.buffer.len();
                let limit = self.limit_of_current_line();
                if self.buffer.len() - self.start <= limit {
                    return None;
                }
                self.skip_all(0, limit);
                return None;
            };
            let line = self.start..end;
            self.begin_line(end + 1);
            let text = trim(&self.buffer[line.clone()]);
            if !text.is_empty() {
                // Borrowed a second time, because the borrow checker does not accept returning `text` from the loop.
                return Some(Line::Whole(trim(&self.buffer[line])));
            }
        }
    }

    /// Marks the end of the stream: the remaining bytes are the last line.
    pub fn finish(&mut self) {
        if self.skipping.is_some() || self.start < self.buffer.len() {
            self.feed(b"\n");
        }
    }

    fn begin_line(&mut self, at: usize) {
        self.start = at;
        self.searched = at;
        self.peeked = 0;
        self.peek = Peek::default();
    }

    /// The limit for the current line, as far as its method is known. Short lines are not inspected.
    fn limit_of_current_line(&mut self) -> usize {
        let held = &self.buffer[self.start..];
        if held.len() <= self.smallest {
            return self.smallest;
        }
        self.peek.feed(&held[self.peeked..]);
        self.peeked = held.len();
        match (self.peek.method(), self.peek.is_reply()) {
            (Some(method), _) => self.limits.of(Some(method)),
            (None, true) => self.limits.of(None),
            (None, false) => self.largest,
        }
    }

    fn skip_all(&mut self, size: usize, limit: usize) {
        let held = &self.buffer[self.start..];
        self.peek.feed(&held[self.peeked..]);
        self.skipping = Some((size + held.len(), limit));
        self.start = 0;
        self.searched = 0;
        self.peeked = 0;
        self.buffer.clear();
        self.buffer.shrink_to(KEEP_CAPACITY);
    }

    fn end_skip(&mut self, end: usize, size: usize, limit: usize) -> TooLong {
        self.skipping = None;
        self.peek.feed(&self.buffer[self.start..end]);
        let size = size + end - self.start;
        let peek = std::mem::take(&mut self.peek);
        self.begin_line(end + 1);
        TooLong { peek, size, limit }
    }
}

/// Removes a byte order mark and the blanks that JSON allows around a value, which includes the CR of CR LF.
fn trim(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let Some(first) = line.iter().position(|byte| !is_blank(byte)) else {
        return &[];
    };
    let last = line.iter().rposition(|byte| !is_blank(byte)).unwrap_or(first);
    &line[first..=last]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn small() -> SizeLimits {
        SizeLimits {
            initialize: 64,
            new_session: 80,
            prompt: 100,
            prompt_data: 100,
            update: 90,
            file: 300,
            other: 120,
        }
    }

    /// A whole line, or the id and size of one that was too long.
    type Got = Result<Vec<u8>, (Option<String>, usize)>;

    fn lines(limits: SizeLimits, chunks: &[&[u8]]) -> Vec<Got> {
        let mut decoder = LineDecoder::new(limits);
        let mut out = Vec::new();
        let mut take = |decoder: &mut LineDecoder| {
            while let Some(line) = decoder.next_line() {
                out.push(match line {
                    Line::Whole(line) => Ok(line.to_vec()),
                    Line::TooLong(long) => {
                        Err((long.peek.id().map(|id| id.to_string()), long.size))
                    }
                });
            }
        };
        for chunk in chunks {
            decoder.feed(chunk);
            take(&mut decoder);
        }
        decoder.finish();
        take(&mut decoder);
        out
    }

    // R: W1
    #[test]
    fn bom_cr_and_blank_lines_are_removed() {
        let got = lines(small(), &[b"\xef\xbb\xbf{\"a\":1}\r\n\n  \r\n\t{}\n{\"last\":true}"]);
        assert_eq!(
            got,
            [Ok(b"{\"a\":1}".to_vec()), Ok(b"{}".to_vec()), Ok(b"{\"last\":true}".to_vec())]
        );
    }

    // R: W10
    #[test]
    fn limit_depends_on_the_method_and_the_id_is_found_after_the_params() {
        let pad = "x".repeat(200);
        let long_initialize =
            format!("{{\"method\":\"initialize\",\"params\":{{\"a\":\"{pad}\"}},\"id\":7}}\n");
        let file_reply = format!("{{\"id\":1,\"result\":{{\"content\":\"{pad}\"}}}}\n");
        for size in [1, 7, 64, 1000] {
            let all = [long_initialize.as_bytes(), file_reply.as_bytes(), b"{}\n"].concat();
            let chunks: Vec<&[u8]> = all.chunks(size).collect();
            let got = lines(small(), &chunks);
            assert_eq!(got.len(), 3, "chunks of {size}");
            if size < 64 {
                assert_eq!(got[0], Err((Some("7".into()), long_initialize.len() - 1)));
            }
            assert_eq!(got[1], Ok(file_reply.trim().as_bytes().to_vec()));
            assert_eq!(got[2], Ok(b"{}".to_vec()));
        }
    }

    // R: W22
    #[test]
    fn too_long_line_is_not_buffered() {
        let mut decoder = LineDecoder::new(SizeLimits::default());
        decoder.feed(b"{\"method\":\"session/prompt\",\"params\":\"");
        let chunk = vec![b'a'; 64 * 1024];
        let mut peak = 0;
        for _ in 0..1024 {
            decoder.feed(&chunk);
            assert_eq!(decoder.next_line(), None);
            peak = peak.max(decoder.buffer.capacity());
        }
        assert!(peak <= 23 * 1024 * 1024, "held {peak} bytes");
        assert!(decoder.buffer.capacity() <= KEEP_CAPACITY);
        decoder.feed(b"\",\"id\":\"x\"}\n{}\n");
        let Some(Line::TooLong(long)) = decoder.next_line() else {
            panic!("the long line was not reported")
        };
        assert_eq!(long.peek.id().map(|id| id.to_string()), Some("\"x\"".to_owned()));
        assert_eq!(decoder.next_line(), Some(Line::Whole(b"{}")));
    }

    proptest! {
        /// The result does not depend on the chunks, and the valid line at the end is found.
        #[test]
        fn lines_do_not_depend_on_chunks(bytes in proptest::collection::vec(any::<u8>(), 0..600), cuts in proptest::collection::vec(1usize..40, 1..40)) {
            let mut bytes = bytes;
            bytes.extend_from_slice(b"\n{\"good\":1}\n");
            let limits = SizeLimits { initialize: 1 << 20, new_session: 1 << 20, prompt: 1 << 20, prompt_data: 0, update: 1 << 20, file: 1 << 20, other: 1 << 20 };
            let whole = lines(limits.clone(), &[&bytes]);
            let mut chunks = Vec::new();
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            let cut = lines(limits, &chunks);
            prop_assert_eq!(&whole, &cut);
            prop_assert_eq!(cut.last(), Some(&Ok(b"{\"good\":1}".to_vec())));
        }

        /// With tight limits the valid line at the end is found as well.
        #[test]
        fn skipping_never_loses_the_next_line(bytes in proptest::collection::vec(any::<u8>(), 0..2000), cut in 1usize..300) {
            let mut bytes = bytes;
            bytes.extend_from_slice(b"\n{\"good\":1}\n");
            let chunks: Vec<&[u8]> = bytes.chunks(cut).collect();
            let got = lines(small(), &chunks);
            prop_assert_eq!(got.last(), Some(&Ok(b"{\"good\":1}".to_vec())));
        }
    }
}
