//! Generates lines: good messages that are cut, changed and filled in every way, always the same ones for a seed.

use serde_json::{Value, json};

use super::CANARY;
use super::naughty::{ESCAPES, TEXTS};

/// The sessions that the good messages use.
pub(super) struct Sessions {
    /// For prompts and changes.
    pub(super) working: String,
    /// To be closed.
    pub(super) closing: String,
}

/// Pseudo-random numbers that are the same in every run.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn roll(&mut self, sides: usize) -> usize {
        // SplitMix64, by Sebastiano Vigna, in the public domain.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((number ^ (number >> 31)) % sides as u64) as usize
    }
}

/// Good messages of every method, in every form, with a canary in each.
fn good(sessions: &Sessions) -> Vec<Value> {
    let session = &sessions.working;
    let text = json!({ "type": "text", "text": CANARY, "annotations": { "audience": ["user"], "priority": 1.5 } });
    let image = json!({ "type": "image", "data": "aGk=", "mimeType": "image/png", "uri": CANARY });
    let audio = json!({ "type": "audio", "data": "aGk=", "mimeType": CANARY });
    let link =
        json!({ "type": "resource_link", "uri": CANARY, "name": "n", "size": 5, "title": "t" });
    let embedded =
        json!({ "type": "resource", "resource": { "uri": CANARY, "text": "t", "mimeType": "m" } });
    let blob = json!({ "type": "resource", "resource": { "uri": CANARY, "blob": "aGk=" } });
    let stdio = json!({ "name": CANARY, "command": "/bin/x", "args": ["a"], "env": [{ "name": "K", "value": CANARY }] });
    let http = json!({ "type": "http", "name": CANARY, "url": "http://h/", "headers": [{ "name": "K", "value": CANARY }] });
    let older =
        json!({ "name": CANARY, "type": "local", "command": ["x", "y"], "env": { "K": CANARY } });
    let client = json!({ "fs": { "readTextFile": true, "writeTextFile": false }, "terminal": true, "_meta": { "a": CANARY } });
    let about = json!({ "name": CANARY, "title": "T", "version": "1" });
    let prompt =
        |blocks: Value| json!({ "sessionId": session, "prompt": blocks, "_meta": { "k": CANARY } });
    [
        (
            "initialize",
            json!({ "protocolVersion": 1, "clientCapabilities": client, "clientInfo": about }),
        ),
        ("initialize", json!({ "protocolVersion": 1, "_meta": { "x": [CANARY] } })),
        ("authenticate", json!({ "methodId": "local", "_meta": { "x": CANARY } })),
        ("authenticate", json!({ "methodId": CANARY })),
        ("logout", json!({ "_meta": { "x": CANARY } })),
        (
            "session/new",
            json!({ "cwd": "/tmp", "mcpServers": [stdio, http], "_meta": { "x": CANARY } }),
        ),
        (
            "session/new",
            json!({ "cwd": "/tmp", "mcpServers": [older], "additionalDirectories": ["/usr"] }),
        ),
        ("session/new", json!({ "cwd": CANARY, "mcpServers": [] })),
        ("session/prompt", prompt(json!([text]))),
        ("session/prompt", prompt(json!([image, link]))),
        ("session/prompt", prompt(json!([embedded, blob, audio]))),
        ("session/prompt", json!({ "sessionId": CANARY, "prompt": [text] })),
        (
            "session/set_mode",
            json!({ "sessionId": session, "modeId": "plan", "_meta": { "x": CANARY } }),
        ),
        ("session/set_mode", json!({ "sessionId": session, "modeId": CANARY })),
        ("session/set_model", json!({ "sessionId": session, "modelId": CANARY })),
        (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": "mode", "value": "build" }),
        ),
        (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": CANARY, "value": CANARY }),
        ),
        ("session/close", json!({ "sessionId": sessions.closing, "_meta": { "x": CANARY } })),
        ("session/cancel", json!({ "sessionId": session, "_meta": { "x": CANARY } })),
        ("$/cancel_request", json!({ "requestId": CANARY })),
        ("session/load", json!({ "sessionId": CANARY, "cwd": "/tmp", "mcpServers": [] })),
        ("_extension/method", json!({ "any": [CANARY] })),
    ]
    .into_iter()
    .map(|(method, params)| json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    .collect()
}

fn is_note(message: &Value) -> bool {
    ["session/cancel", "$/cancel_request"].iter().any(|note| message["method"] == *note)
}

/// Generates all lines.
pub(super) fn all(sessions: &Sessions, dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut maker = Maker { lines: Vec::new(), last: 0 };
    let good = good(sessions);
    for message in &good {
        maker.cut(message);
        maker.bend(message, dice);
        maker.replace(message);
        maker.repeat(message);
    }
    for message in &good {
        maker.fill(message);
    }
    maker.envelopes(sessions);
    maker.storms(sessions);
    maker.lines
}

struct Maker {
    lines: Vec<Vec<u8>>,
    last: u64,
}

impl Maker {
    fn push(&mut self, line: impl Into<Vec<u8>>) {
        let line = line.into();
        assert!(!line.contains(&b'\n'));
        self.lines.push(line);
    }

    /// Prints the message with a new id: a number or a string.
    fn print(&mut self, message: &Value) -> String {
        self.last += 1;
        let mut message = message.clone();
        if !is_note(&message) && message.get("id").is_none() {
            let id = if self.last.is_multiple_of(3) {
                json!(format!("id {}", self.last))
            } else {
                json!(self.last)
            };
            message["id"] = id;
        }
        message.to_string()
    }

    /// Cuts the message at every byte: only the front, and only the back.
    fn cut(&mut self, message: &Value) {
        for at in 0..self.print(message).len() {
            let line = self.print(message).into_bytes();
            let at = at.min(line.len());
            self.push(&line[..at]);
            if at.is_multiple_of(4) {
                self.push(&line[at..]);
            }
        }
    }

    /// Changes every byte: another byte, one more, one less.
    fn bend(&mut self, message: &Value, dice: &mut Dice) {
        const LIKELY: &[u8] = b"\"\\{}[]:,0n \t\x00\x80\xff";
        for at in 0..self.print(message).len() {
            for way in 0..3 {
                let mut line = self.print(message).into_bytes();
                let at = at.min(line.len() - 1);
                let byte = match dice.roll(2) {
                    0 => LIKELY[dice.roll(LIKELY.len())],
                    _ => dice.roll(256) as u8,
                };
                let byte = if byte == b'\n' { b'\r' } else { byte };
                match way {
                    0 => line[at] = byte,
                    1 => line.insert(at, byte),
                    _ => drop(line.remove(at)),
                }
                self.push(line);
            }
        }
    }

    /// Replaces every value of the message by values of other types, and removes it.
    fn replace(&mut self, message: &Value) {
        let others = [
            json!(null),
            json!(true),
            json!(0),
            json!(-1),
            json!(1.5),
            json!(u64::MAX),
            json!(1e308),
            json!(""),
            json!(CANARY),
            json!([]),
            json!([CANARY]),
            json!({}),
            json!({ "a": CANARY }),
            json!([[[]]]),
        ];
        for place in places(message) {
            for other in &others {
                let mut bent = message.clone();
                *bent.pointer_mut(&place).unwrap() = other.clone();
                let line = self.print(&bent);
                self.push(line);
            }
            let mut bent = message.clone();
            let (parent, name) = place.rsplit_once('/').unwrap();
            match bent.pointer_mut(parent) {
                Some(Value::Object(members)) => drop(members.remove(&unescape(name))),
                Some(Value::Array(items)) => drop(items.remove(name.parse().unwrap())),
                _ => {}
            }
            let line = self.print(&bent);
            self.push(line);
        }
    }

    /// Repeats every member of the message and of its params.
    fn repeat(&mut self, message: &Value) {
        for inside in ["", "/params"] {
            let names: Vec<String> =
                message.pointer(inside).unwrap().as_object().unwrap().keys().cloned().collect();
            for name in names {
                let value = &message.pointer(inside).unwrap()[&name];
                let member = format!("{}:{value},", json!(name));
                let line = self.print(message);
                let open =
                    if inside.is_empty() { 0 } else { line.find("\"params\":{").unwrap() + 9 };
                self.push(format!("{}{member}{}", &line[..=open], &line[open + 1..]));
            }
        }
    }

    /// Replaces every string of the message by each naughty string and each naughty escape.
    fn fill(&mut self, message: &Value) {
        for place in places(message) {
            if !message.pointer(&place).unwrap().is_string() {
                continue;
            }
            let mut with = |text: &str| {
                let mut bent = message.clone();
                *bent.pointer_mut(&place).unwrap() = json!(text);
                self.print(&bent)
            };
            let mut lines: Vec<String> = TEXTS.iter().map(|text| with(text)).collect();
            lines.push(with(&"long ".repeat(1_000)));
            lines.extend(ESCAPES.iter().map(|escape| with("GAP").replace("GAP", escape)));
            lines.into_iter().for_each(|line| self.push(line.replace('\n', " ")));
        }
    }

    /// Lines written by hand that the other generators do not produce.
    fn envelopes(&mut self, sessions: &Sessions) {
        let nested =
            |open: &str, close: &str, depth: usize| open.repeat(depth) + &close.repeat(depth);
        for line in [
            "",
            " ",
            "\t \r",
            "\u{feff}",
            "\u{feff}\r",
            "0",
            "-1",
            "1.5",
            "true",
            "false",
            "null",
            "\"text\"",
            "[]",
            "[1]",
            "[null]",
            "{}",
            "{}{}",
            "[[]",
            "nul",
            "tru",
            "'a'",
            "NaN",
            "Infinity",
            "//",
            "/* */ {}",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "\u{feff}\u{feff}{}",
            "+1",
            ".5",
            "1.",
            "01",
        ] {
            self.push(line);
        }
        for bytes in [
            &b"\x00"[..],
            b"\x00\x00\x00",
            b"\xff\xfe{\x00}\x00",
            b"\xef\xbb\xbf",
            b"\xef\xbb",
            b"\xc0\x80",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\x80",
        ] {
            self.push(bytes);
            self.push(
                [
                    &b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":\""[..],
                    bytes,
                    b"\"}",
                ]
                .concat(),
            );
            self.push([bytes, &b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}"[..]].concat());
        }
        for id in [
            "0",
            "-0",
            "1.5",
            "1e5",
            "1E-5",
            "-1e308",
            "1e999",
            "123456789012345678901234567890",
            "\"\"",
            "\"\\u0041\"",
            "\"\\ud800\"",
            "null",
            "true",
            "false",
            "[]",
            "[1]",
            "{}",
            "{\"id\":1}",
            "\"1\"",
            "18446744073709551616",
        ] {
            for method in ["\"m\"", "\"session/cancel\"", "\"logout\"", "5", "null", "[]"] {
                self.push(format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{method},\"params\":{{}}}}"
                ));
            }
            self.push(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}"));
            self.push(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":1,\"message\":\"{CANARY}\"}}}}"));
            self.push(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":1,\"error\":2}}"));
            self.push(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id}}}"));
        }
        for length in [1_000, 1_022, 1_023, 5_000] {
            self.push(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"m\"}}",
                "i".repeat(length)
            ));
            self.push(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1{},\"method\":\"m\"}}",
                "0".repeat(length)
            ));
        }
        for depth in [100, 127, 128, 129, 500, 100_000] {
            for (open, close) in [("[", "]"), ("{\"a\":[", "]}")] {
                let deep = nested(open, close, depth);
                self.push(deep.clone());
                self.push(open.repeat(depth));
                for method in ["m", "session/set_mode", "session/new", "initialize"] {
                    let session = &sessions.working;
                    self.last += 2;
                    self.push(format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"{method}\",\"params\":{deep}}}", self.last));
                    self.push(format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"{method}\",\"params\":{{\"sessionId\":\"{session}\",\"modeId\":\"plan\",\"cwd\":\"/tmp\",\"protocolVersion\":1,\"_meta\":{{\"a\":{deep}}},\"x\":{deep}}}}}", self.last + 1));
                }
                self.push(format!("{{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{deep}}}"));
            }
        }
        let call = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "logout" });
        self.push(json!([call(1), call(2)]).to_string());
        self.push(format!("{}{}", call(1), call(2)));
        self.push(format!("\u{feff}{}\r", call(1)));
        self.push(format!("\t {} \r\r", call(2)));
        self.push(format!("{}\r{}", call(1), call(2)));
        let huge = format!("{CANARY} ").repeat(10_000);
        for method in [
            "initialize",
            "session/new",
            "session/prompt",
            "session/set_mode",
            "m",
            "session/update",
            &huge,
        ] {
            self.last += 1;
            self.push(json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": { "sessionId": huge } }).to_string());
            self.push(json!({ "jsonrpc": "2.0", "id": self.last + 1_000_000, "params": { "cwd": huge }, "method": method }).to_string());
            self.push(
                json!({ "jsonrpc": "2.0", "method": method, "params": { "x": huge } }).to_string(),
            );
        }
    }

    /// Calls in the wrong order, and far too many of them.
    fn storms(&mut self, sessions: &Sessions) {
        let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": sessions.working } });
        let prompt = json!({ "jsonrpc": "2.0", "method": "session/prompt", "params": {
            "sessionId": sessions.working, "prompt": [{ "type": "text", "text": CANARY }] } });
        let close = json!({ "jsonrpc": "2.0", "method": "session/close", "params": { "sessionId": sessions.closing } });
        for round in 0..200_u64 {
            for message in [&cancel, &prompt, &cancel, &prompt, &cancel, &close] {
                let line = self.print(message);
                self.push(line);
            }
            let twice = self.print(&prompt);
            self.push(twice.clone());
            self.push(json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": self.last } }).to_string());
            self.push(
                json!({ "jsonrpc": "2.0", "id": round, "result": { "content": CANARY } })
                    .to_string(),
            );
            self.push(json!({ "jsonrpc": "2.0", "id": round, "error": { "code": -1, "message": CANARY } }).to_string());
        }
    }
}

/// Returns JSON pointers to every value in a message, without the message itself.
fn places(message: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, out: &mut Vec<String>) {
        let members: Vec<(String, &Value)> = match value {
            Value::Object(members) => members
                .iter()
                .map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value))
                .collect(),
            Value::Array(items) => {
                items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect()
            }
            _ => Vec::new(),
        };
        for (name, value) in members {
            let place = format!("{at}/{name}");
            walk(value, &place, out);
            out.push(place);
        }
    }
    let mut out = Vec::new();
    walk(message, "", &mut out);
    out
}

fn unescape(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}
