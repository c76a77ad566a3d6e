//! Dialects cost a v1 client nothing: reading and printing allocate no more than without them.
//!
//! A separate test binary, because counting needs its own global allocator.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

use allocation_counter::measure;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use wire::acp::dialect::print::{print_call, print_error, print_note, print_result, read_reply};
use wire::acp::dialect::{Dialect, SessionFacts};
use wire::acp::{schema, tolerate};
use wire::{Code, RequestId, RpcError, rpc};

/// Counts the allocations of `work`, after one run for everything that is allocated only once.
fn count(mut work: impl FnMut()) -> u64 {
    work();
    measure(work).count_total
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

/// Compares reading a method's parameters directly with reading them through the dialect.
fn assert_reads_alike<T: DeserializeOwned>(method: &str, params: &Value, boxes: u64) {
    let params = raw(params);
    let direct = count(|| drop(serde_json::from_str::<T>(params.get()).unwrap()));
    let through_dialect = count(|| drop(Dialect::V1.decode_call(method, Some(&params)).unwrap()));
    assert_eq!(through_dialect, direct + boxes, "{method}");
}

// R: D1
#[test]
fn reading_v1_has_no_extra_allocations() {
    let offers = json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true });
    let client = json!({ "name": "zed", "version": "0.1.0" });
    let initialize =
        json!({ "protocolVersion": 1, "clientCapabilities": offers, "clientInfo": client });
    // The request is boxed, so that the enum of calls stays small.
    assert_reads_alike::<schema::InitializeRequest>("initialize", &initialize, 1);
    let servers = json!([{ "name": "n", "command": "c", "args": ["a"], "env": [] }]);
    let new = json!({ "cwd": "/w", "mcpServers": servers });
    assert_reads_alike::<schema::NewSessionRequest>("session/new", &new, 0);
    let load = json!({ "sessionId": "s", "cwd": "/w", "mcpServers": servers });
    assert_reads_alike::<tolerate::Reopen>("session/load", &load, 0);
    let prompt = json!({ "sessionId": "s", "prompt": [
        { "type": "text", "text": "Explain this", "_meta": { "a": 1 } },
        { "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" },
        { "type": "resource_link", "uri": "file:///w/a.rs", "name": "a.rs" },
        { "type": "resource", "resource": { "uri": "file:///w/b.rs", "text": "fn main() {}" } },
    ] });
    assert_reads_alike::<schema::PromptRequest>("session/prompt", &prompt, 0);
    let mode = json!({ "sessionId": "s", "modeId": "plan" });
    assert_reads_alike::<schema::SetSessionModeRequest>("session/set_mode", &mode, 0);
}

type Print<'a> = &'a dyn Fn(&mut Vec<u8>) -> serde_json::Result<()>;

/// Compares the output and the allocations of two ways to print.
fn assert_prints_alike(what: &str, direct: Print<'_>, through_dialect: Print<'_>) {
    let printed = |print: Print<'_>| {
        let mut line = Vec::with_capacity(1024);
        let allocations = count(|| {
            line.clear();
            print(&mut line).unwrap();
        });
        (line, allocations)
    };
    assert_eq!(printed(direct), printed(through_dialect), "{what}");
}

// R: D1
#[test]
fn printing_v1_has_no_extra_allocations() {
    let id = RequestId::number(7);
    let chunk = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "Hi" } });
    let update = json!({ "sessionId": "s", "update": chunk });
    let asked = raw(&json!({ "sessionId": "s", "path": "/w/a.rs", "line": 1, "limit": 10 }));
    let error = RpcError::of(Code::INVALID_PARAMS).details("'prompt' is empty");
    assert_prints_alike("a note", &|out| rpc::print_note(out, "session/update", &update), &|out| {
        print_note(out, Dialect::V1, "session/update", &update)
    });
    assert_prints_alike(
        "a call",
        &|out| rpc::print_call(out, &id, "terminal/kill", &asked),
        &|out| print_call(out, Dialect::V1, &id, "terminal/kill", &asked),
    );
    assert_prints_alike("a result", &|out| rpc::print_result(out, &id, &update), &|out| {
        print_result(out, Dialect::V1, &id, "session/new", &update)
    });
    assert_prints_alike("an error", &|out| rpc::print_error(out, Some(&id), &error), &|out| {
        print_error(out, Dialect::V1, Some(&id), &error)
    });
}

// R: D1
#[test]
fn other_dialects_cost_v1_no_allocations() {
    let hello =
        raw(&json!({ "protocolVersion": 1, "clientCapabilities": { "fs": {}, "terminal": true } }));
    let written = raw(&json!({ "success": true }));
    let allocations = count(|| {
        assert_eq!(Dialect::recognise(Some(&hello)), Dialect::V1);
        assert_eq!(Dialect::V1.turn_begins("s"), None);
        assert_eq!(Dialect::V1.turn_ends("s", None), None);
        assert_eq!(Dialect::V1.agent_facts(true, true, true), None);
        let session = SessionFacts {
            id: "s",
            directory: "/w",
            may_change: true,
            has_failed: false,
            created_ms: 1,
            now_ms: 2,
            branch: None,
            history: None,
            modified: None,
        };
        assert_eq!(Dialect::V1.session_facts(session), None);
        read_reply(Dialect::V1, "fs/write_text_file", Ok(&written), |heard| {
            assert!(std::ptr::eq(heard.unwrap(), &*written));
        });
    });
    assert_eq!(allocations, 0);
}

/// Checks the measurement itself: it shows the allocations of another dialect.
#[test]
fn another_dialect_allocates_more() {
    let params = raw(&json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": "Hi" }] }));
    let with = |dialect: Dialect| {
        count(|| drop(dialect.decode_call("session/prompt", Some(&params)).unwrap()))
    };
    assert!(with(Dialect::MessageReference) > with(Dialect::V1));
}
