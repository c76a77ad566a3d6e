//! Fuzz target: the streams of all model formats.

use std::collections::VecDeque;

use crate::format::tests::{ALL, request};

#[test]
fn fuzz_formats() {
    let words = [
        "{",
        "}",
        "\"",
        "null",
        "[]",
        "\"index\":",
        "4294967296",
        "-1",
        "\"delta\":",
        "\"type\":",
        "\"tool_calls\":",
        "\"arguments\":\"{\"",
        "\"finish_reason\":\"stop\"",
        "[DONE]",
        "\n",
        "\\ud83d",
    ];
    let request = request();
    fuzzing::run("formats", &words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        for format in ALL {
            let mut decoder = format.decoder(&request);
            let mut events = VecDeque::new();
            let has_failed = text.lines().any(|line| decoder.decode(line, &mut events).is_err());
            if !has_failed {
                drop(decoder.finish(&mut events));
            }
        }
    });
}
