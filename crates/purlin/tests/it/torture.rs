//! Thousands of broken and unusual lines. An independent oracle says what each must be answered with.
//!
//! `lines` generates them from a fixed seed; `oracle` says what docs/internals/wire.md promises for each. After every batch a
//! good call must work.

mod lines;
mod naughty;
mod oracle;

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, Start};
use lines::{Dice, Sessions};
use oracle::{Answer, Codes, Expected};

/// Occurs in the values of every line, and must occur in no error.
const CANARY: &str = "sk-canary-0451";

/// Printed with every failure. Another seed makes another test.
const SEED: u64 = 0x5eed_0003;

/// The number of lines that are sent before their answers are read.
const BATCH: usize = 64;

fn start() -> Start {
    let limits = json!({ "errors_per_minute": 0, "prompts_per_minute": 0 });
    Agent::playing("model echo\nmodel loop").config(json!({ "limits": limits }))
}

/// Sends a batch and reads the answers: every line that must be answered is answered once and as expected, no other is.
fn send(agent: &mut Agent, batch: &[Vec<u8>], judge: fn(&[u8]) -> Expected) {
    let mut open: HashMap<String, Vec<(Codes, usize)>> = HashMap::new();
    for (index, line) in batch.iter().enumerate() {
        if let Expected::Answer { id, codes } = judge(line) {
            open.entry(id).or_default().push((codes, index));
        }
    }
    let bytes = batch.iter().flat_map(|line| [line, &b"\n"[..]]).collect::<Vec<_>>().concat();
    agent.send_bytes(&bytes);
    let mut missing: usize = open.values().map(Vec::len).sum();
    while missing > 0 {
        let line = agent.next_line().unwrap_or_else(|| panic!("the program died{}", listed(batch)));
        let Some(Answer { id, code }) = oracle::read_answer(&line) else { continue };
        let shown = String::from_utf8_lossy(&line);
        let of_id = open.get_mut(&id).filter(|of_id| !of_id.is_empty());
        let of_id = of_id.unwrap_or_else(|| panic!("no request matches {shown}{}", listed(batch)));
        // The strictest expectation first: an answer that fits several lines must be left for the one that needs it.
        of_id.sort_by_key(|(codes, _)| *codes == Codes::Any);
        let fits = of_id.iter().position(|(codes, _)| codes.contain(code));
        let fits = fits.unwrap_or_else(|| {
            let asked: Vec<String> = of_id
                .iter()
                .map(|(codes, index)| format!("{codes:?} for {}", cut(&batch[*index])))
                .collect();
            panic!("seed {SEED:#x}: {shown} but expected {}", asked.join("\n or "))
        });
        of_id.remove(fits);
        missing -= 1;
    }
}

/// Formats a batch for the message of a failure.
fn listed(batch: &[Vec<u8>]) -> String {
    let lines: Vec<String> = batch.iter().map(|line| cut(line)).collect();
    format!("\nseed {SEED:#x}, batch:\n{}", lines.join("\n"))
}

fn cut(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(400)]).into_owned()
}

/// Sends all lines in batches, with a good call after each.
fn torture(agent: &mut Agent, lines: &[Vec<u8>], judge: fn(&[u8]) -> Expected, probe: &Value) {
    for (number, batch) in lines.chunks(BATCH).enumerate() {
        send(agent, batch, judge);
        let mut probe = probe.clone();
        probe["jsonrpc"] = json!("2.0");
        probe["id"] = json!(format!("probe {number}"));
        send(agent, &[probe.to_string().into_bytes()], |probe| match oracle::judge(probe) {
            Expected::Answer { id, .. } => Expected::Answer { id, codes: Codes::Result },
            Expected::Silence => panic!("the probe is no call"),
        });
    }
}

fn open_sessions(agent: &mut Agent) -> (Sessions, String) {
    (Sessions { working: agent.open(), closing: agent.open() }, agent.open())
}

// R: W1, W2, W3, W4, W5, W6, W7, W8, W9, W18, W20
#[test]
fn every_line_is_answered_as_promised_and_the_next_one_works() {
    let mut agent = start().ready();
    let (sessions, other) = open_sessions(&mut agent);
    let lines = lines::all(&sessions, &mut Dice::new(SEED));
    eprintln!("seed {SEED:#x}, attempts: {}", lines.len());
    assert!(lines.len() >= 15_000, "only {} lines", lines.len());
    let probe = json!({ "method": "session/set_mode", "params": { "sessionId": other, "modeId": "build" } });
    torture(&mut agent, &lines, oracle::judge, &probe);
    agent.close_input();
    assert_eq!(agent.wait(DEADLINE).code(), Some(0));
    while let Some(line) = agent.next_line() {
        assert!(oracle::read_answer(&line).is_none(), "{}", String::from_utf8_lossy(&line));
    }
}

/// The same lines before initialize: every call is answered with -32600.
// R: I5, W2, W3, W9
#[test]
fn no_line_is_accepted_before_initialize() {
    let mut agent = start().start();
    let sessions = Sessions { working: "none".to_owned(), closing: "none".to_owned() };
    let lines = lines::all(&sessions, &mut Dice::new(SEED));
    let greets = |line: &[u8]| line.windows(10).any(|word| word == b"initialize");
    let lines: Vec<Vec<u8>> = lines.into_iter().step_by(7).filter(|line| !greets(line)).collect();
    for batch in lines.chunks(BATCH) {
        send(&mut agent, batch, oracle::judge_early);
    }
    agent.initialize();
    agent.open();
}
