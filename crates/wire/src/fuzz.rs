//! Fuzz targets: lines, the JSON-RPC envelope, dialects, server-sent events.

use crate::acp::AgentNote;
use crate::acp::dialect::{Dialect, Payload};
use crate::line::{Line, LineDecoder, SizeLimits};
use crate::rpc;
use crate::sse::SseDecoder;

const JSON: [&str; 16] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\u0000",
    "\\ud83d",
    "null",
    "1e999",
    "\n",
    "\r\n",
    "\"id\":",
    "\"method\":",
    "\"params\":",
];

/// Larger than any input: the peer, not the decoder, checks the length of a line that arrives in one chunk.
fn roomy() -> SizeLimits {
    const MANY: usize = 1 << 20;
    SizeLimits {
        initialize: MANY,
        new_session: MANY,
        prompt: MANY,
        prompt_data: MANY,
        update: MANY,
        file: MANY,
        other: MANY,
    }
}

fn lines(chunks: &[&[u8]]) -> Vec<String> {
    let mut decoder = LineDecoder::new(roomy());
    let mut lines = Vec::new();
    for chunk in chunks {
        decoder.feed(chunk);
        while let Some(line) = decoder.next_line() {
            lines.push(match line {
                Line::Whole(bytes) => format!("{bytes:?}"),
                Line::TooLong(long) => format!("{} of {}", long.size, long.limit),
            });
        }
    }
    lines
}

#[test]
fn fuzz_line() {
    fuzzing::run("line", &JSON, |input| {
        let all = [input, b"\n{\"good\":1}\n"].concat();
        let whole = lines(&[&all]);
        let bytes: Vec<&[u8]> = all.chunks(1).collect();
        assert_eq!(whole, lines(&bytes));
        assert_eq!(whole.last(), Some(&format!("{:?}", b"{\"good\":1}")));
    });
}

#[test]
fn fuzz_envelope() {
    fuzzing::run("envelope", &JSON, |input| {
        // An error never repeats what was sent.
        if let Err(malformed) = rpc::parse(input) {
            assert!(malformed.error.message.len() < 200);
        }
    });
}

#[test]
fn fuzz_dialect() {
    fuzzing::run("dialect", &JSON, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let (method, params) = text.split_once('\n').unwrap_or(("initialize", text));
        let raw = serde_json::value::RawValue::from_string(params.to_owned()).ok();
        for dialect in [Dialect::V1, Dialect::MessageReference, Dialect::Container] {
            drop(dialect.decode_call(method, raw.as_deref()));
            let Ok(value) = serde_json::from_str::<serde_json::Value>(params) else { continue };
            for part in [Payload::Params, Payload::Result] {
                drop(dialect.from_v1(method, part, value.clone()));
                drop(dialect.to_v1(method, part, value.clone()));
            }
        }
        drop(AgentNote::decode(method, raw.as_deref()));
        assert!(!Dialect::recognise(raw.as_deref()).name().is_empty());
    });
}

fn events(chunks: &[&[u8]]) -> Vec<String> {
    let mut decoder = SseDecoder::new(300);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.feed(chunk);
        while let Some(event) = decoder.next_event() {
            events.push(format!("{event:?}"));
        }
    }
    decoder.finish();
    while let Some(event) = decoder.next_event() {
        events.push(format!("{event:?}"));
    }
    events
}

#[test]
fn fuzz_sse() {
    let words = ["data: ", "event: ", "id: ", "retry: ", "\n\n", "\r", "\r\n", ":", "\u{feff}"];
    fuzzing::run("sse", &words, |input| {
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        assert_eq!(events(&[input]), events(&bytes));
    });
}
