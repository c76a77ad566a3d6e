//! Amazon's event stream: binary frames with headers, a payload and two checksums. Pure.
//!
//! A frame: total length and length of the headers (4 bytes each, big-endian), CRC-32 of these eight bytes, the headers, the
//! payload, CRC-32 of everything before it.

use crate::fault::Fault;

/// The longest frame, in bytes.
const MAX_FRAME: usize = 4 * 1024 * 1024;
/// Lengths and their checksum.
const PRELUDE: usize = 12;
const CHECKSUM: usize = 4;

/// Splits a stream of bytes into frames.
#[derive(Debug, Default)]
pub(crate) struct EventStream {
    buffer: Vec<u8>,
}

impl EventStream {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns whether bytes of an unfinished frame are left.
    pub(crate) fn is_inside(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Returns the next event as a JSON object with one member, named after the event: `{"messageStart":{…}}`. An
    /// exception in the stream is a fault.
    pub(crate) fn next_event(&mut self) -> Result<Option<String>, Fault> {
        loop {
            let Some(frame) = self.next_frame()? else { return Ok(None) };
            let header = |name: &str| {
                frame.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
            };
            let payload = String::from_utf8_lossy(&frame.payload);
            match (header(":message-type"), header(":event-type")) {
                (Some("event"), Some(event)) => {
                    let name = serde_json::Value::from(event);
                    let payload = if payload.is_empty() { "{}" } else { &*payload };
                    return Ok(Some(format!("{{{name}:{payload}}}")));
                }
                (Some("exception"), _) => {
                    let kind = header(":exception-type").unwrap_or_default();
                    return Err(Fault::of_exception(kind, &payload));
                }
                (Some("error"), _) => {
                    let kind = header(":error-code").unwrap_or_default();
                    let message = header(":error-message").unwrap_or_default();
                    let body = serde_json::json!({ "message": message }).to_string();
                    return Err(Fault::of_exception(kind, &body));
                }
                // Events without a name say nothing.
                _ => {}
            }
        }
    }

    fn next_frame(&mut self) -> Result<Option<Frame>, Fault> {
        let Some(prelude) = self.buffer.get(..PRELUDE) else { return Ok(None) };
        let (total, headers) = (number(&prelude[..4]), number(&prelude[4..8]));
        if crc32fast::hash(&prelude[..8]) as usize != number(&prelude[8..]) {
            return Err(broken("a checksum is wrong"));
        }
        if total > MAX_FRAME {
            return Err(broken("a frame is too large"));
        }
        if total < PRELUDE + headers + CHECKSUM {
            return Err(broken("a length is wrong"));
        }
        let Some(frame) = self.buffer.get(..total) else { return Ok(None) };
        let (content, checksum) = frame.split_at(total - CHECKSUM);
        if crc32fast::hash(content) as usize != number(checksum) {
            return Err(broken("a checksum is wrong"));
        }
        let frame = Frame {
            headers: read_headers(&content[PRELUDE..PRELUDE + headers])?,
            payload: content[PRELUDE + headers..].to_vec(),
        };
        self.buffer.drain(..total);
        Ok(Some(frame))
    }
}

struct Frame {
    headers: Vec<(String, String)>,
    payload: Vec<u8>,
}

fn broken(what: &str) -> Fault {
    Fault::InvalidAnswer(format!("{what} in its event stream"))
}

/// Reads a big-endian number of up to four bytes.
fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| (number << 8) | usize::from(*byte))
}

/// Reads headers. Only those with text are returned; the others have a known length.
fn read_headers(mut bytes: &[u8]) -> Result<Vec<(String, String)>, Fault> {
    let mut headers = Vec::new();
    let take = |bytes: &mut &[u8], count: usize| {
        let taken = bytes.split_at_checked(count);
        let (front, rest) = taken.ok_or_else(|| broken("a header is cut off"))?;
        *bytes = rest;
        Ok::<Vec<u8>, Fault>(front.to_vec())
    };
    while !bytes.is_empty() {
        let length = number(&take(&mut bytes, 1)?);
        let name = String::from_utf8_lossy(&take(&mut bytes, length)?).into_owned();
        let kind = number(&take(&mut bytes, 1)?);
        let length = match kind {
            0 | 1 => 0,
            2 => 1,
            3 => 2,
            4 => 4,
            5 | 8 => 8,
            6 | 7 => number(&take(&mut bytes, 2)?),
            9 => 16,
            _ => return Err(broken("a header has an unknown type")),
        };
        let value = take(&mut bytes, length)?;
        if kind == 7 {
            headers.push((name, String::from_utf8_lossy(&value).into_owned()));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds a frame from Amazon's description, with text headers.
    fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
        let mut head = Vec::new();
        for (name, value) in headers {
            head.push(name.len() as u8);
            head.extend_from_slice(name.as_bytes());
            head.push(7);
            head.extend_from_slice(&(value.len() as u16).to_be_bytes());
            head.extend_from_slice(value.as_bytes());
        }
        let total = (PRELUDE + head.len() + payload.len() + CHECKSUM) as u32;
        let mut frame = total.to_be_bytes().to_vec();
        frame.extend_from_slice(&(head.len() as u32).to_be_bytes());
        frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
        frame.extend_from_slice(&head);
        frame.extend_from_slice(payload);
        frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
        frame
    }

    fn events(bytes: &[u8], slice: usize) -> Vec<String> {
        let mut stream = EventStream::default();
        let mut events = Vec::new();
        for part in bytes.chunks(slice) {
            stream.feed(part);
            loop {
                match stream.next_event() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(fault) => {
                        events.push(format!("{fault:?}"));
                        return events;
                    }
                }
            }
        }
        events
    }

    const EVENT: [(&str, &str); 2] =
        [(":message-type", "event"), (":event-type", "contentBlockDelta")];

    /// The empty message of Amazon's own test vectors for the encoding.
    #[test]
    fn published_empty_message_is_read() {
        let empty = [0, 0, 0, 0x10, 0, 0, 0, 0, 0x05, 0xc2, 0x48, 0xeb, 0x7d, 0x98, 0xc8, 0xff];
        assert!(events(&empty, 3).is_empty());
        assert_eq!(frame(&[], b""), empty);
    }

    #[test]
    fn frames_are_read_wherever_the_network_splits_them() {
        let mut bytes = frame(&EVENT, br#"{"delta":{"text":"Hi"}}"#);
        bytes.extend(frame(&[(":message-type", "event"), (":event-type", "messageStop")], b""));
        for slice in [1, 7, 1000] {
            assert_eq!(
                events(&bytes, slice),
                [r#"{"contentBlockDelta":{"delta":{"text":"Hi"}}}"#, r#"{"messageStop":{}}"#]
            );
        }
    }

    #[test]
    fn exceptions_in_a_stream_are_classified() {
        let exception = |kind: &str| {
            let headers = [(":message-type", "exception"), (":exception-type", kind)];
            events(&frame(&headers, br#"{"message":"no"}"#), 1000).remove(0)
        };
        assert!(exception("throttlingException").starts_with("RateLimited"));
        assert!(exception("internalServerException").starts_with("ServerError"));
        assert!(exception("modelStreamErrorException").starts_with("ServerError"));
        assert!(exception("validationException").starts_with("Rejected"));
    }

    #[test]
    fn damaged_frame_is_a_fault() {
        let good = frame(&EVENT, b"{}");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            let events = events(&bad, 1000);
            assert!(
                events.iter().all(|event| event.starts_with("InvalidAnswer")),
                "{at}: {events:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            events(&bytes, 11);
            let mut with_frame = frame(&EVENT, &bytes);
            with_frame.extend(&bytes);
            events(&with_frame, 13);
        }

        #[test]
        fn arbitrary_headers_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            drop(read_headers(&bytes));
        }
    }
}
