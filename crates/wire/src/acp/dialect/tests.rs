//! Each dialect: how it is recognised, what it rejects, how it reads unusual shapes. `identity` tests the round trip.

mod identity;

use proptest::prelude::*;

use super::*;
use crate::Code;
use crate::acp::block;

fn recognised(params: Value) -> Dialect {
    Dialect::recognise(Some(&serde_json::value::to_raw_value(&params).unwrap()))
}

fn rejected(dialect: Dialect, method: &str, params: Value) -> Value {
    let raw = serde_json::value::to_raw_value(&params).unwrap();
    let error = dialect.decode_call(method, Some(&raw)).unwrap_err();
    assert_eq!(error.code, Code::INVALID_PARAMS, "{params}");
    dialect.error_out(error).data.unwrap()
}

// R: D1, D2, D3
#[test]
fn client_is_recognised_by_its_initialize() {
    let v1 = [
        json!({ "protocolVersion": 1 }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "fs": {}, "filesystem": {} } }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "filesystem": true } }),
        json!({ "protocolVersion": "one" }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "fs": { "readTextFile": true }, "filesRead": true } }),
        json!([1]),
        json!({ "protocolVersion": "1..2", "clientCapabilities": [] }),
    ];
    assert!(v1.into_iter().all(|params| recognised(params) == Dialect::V1));
    let reference =
        json!({ "protocolVersion": 1, "clientCapabilities": { "filesystem": { "read": true } } });
    assert_eq!(recognised(reference), Dialect::MessageReference);
    let container = [
        json!({ "protocolVersion": "0.3.1", "clientCapabilities": "all" }),
        json!({ "protocolVersion": "0.3.1" }),
        json!({ "protocolVersion": "v0.4.0-beta.1" }),
        json!({ "protocolVersion": "1", "clientCapabilities": { "fs": {} } }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "filesRead": false } }),
        json!({ "clientCapabilities": { "editWorkspace": true } }),
    ];
    assert!(container.into_iter().all(|params| recognised(params) == Dialect::Container));
    assert_eq!(Dialect::recognise(None), Dialect::V1);
    assert!(
        Dialect::ALL.iter().all(|dialect| Dialect::from_name(dialect.name()) == Some(*dialect))
    );
}

// R: D2, D3
#[test]
fn rejected_shape_is_described_with_the_names_of_the_dialect() {
    let cases = [
        (
            Dialect::MessageReference,
            "session/prompt",
            json!({ "sessionId": "s" }),
            "content",
            "Missing required field 'content'",
        ),
        (
            Dialect::MessageReference,
            "session/prompt",
            json!({ "sessionId": "s", "content": 7 }),
            "content",
            "'content' has the wrong type: expected an array",
        ),
        (
            Dialect::MessageReference,
            "session/prompt",
            json!({ "sessionId": "s", "content": [{ "type": "x" }] }),
            "content[0].type",
            "'content[0].type' has an unknown value: expected one of `text`, `image`, `resource`",
        ),
        (
            Dialect::MessageReference,
            "authenticate",
            json!({}),
            "method",
            "Missing required field 'method'",
        ),
        (
            Dialect::MessageReference,
            "session/new",
            json!({}),
            "cwd",
            "Missing required field 'cwd'",
        ),
        (
            Dialect::Container,
            "session/prompt",
            json!({ "sessionId": "s", "content": [{ "type": "x", "content": "y" }] }),
            "content[0].type",
            "'content[0].type' has an unknown value: expected one of `text`, `image`, `diff`, `file`, `thought`",
        ),
        (
            Dialect::Container,
            "session/prompt",
            json!({ "sessionId": "s", "content": [{ "type": "diff" }] }),
            "content[0].content",
            "Missing required field 'content[0].content'",
        ),
        (
            Dialect::Container,
            "session/prompt",
            json!({ "sessionId": "s", "content": [], "contextFiles": "a" }),
            "contextFiles",
            "'contextFiles' must be a list of paths",
        ),
        (
            Dialect::Container,
            "session/prompt",
            json!({ "sessionId": "s", "content": [], "contextFiles": [""] }),
            "contextFiles[0]",
            "'contextFiles[0]' must be the path of a file",
        ),
        (
            Dialect::Container,
            "session/new",
            json!({ "workspaceUri": "/w" }),
            "workspaceUri",
            "'workspaceUri' must be a file:// URI",
        ),
        (
            Dialect::Container,
            "session/new",
            json!({ "mode": "plan" }),
            "mode",
            "'mode' has an unknown value: expected `conversation` or `development`",
        ),
        (
            Dialect::Container,
            "initialize",
            json!({ "protocolVersion": true }),
            "protocolVersion",
            "'protocolVersion' has the wrong type: expected a string such as `0.3.1`",
        ),
    ];
    for (dialect, method, params, path, details) in cases.into_iter().chain(more_rejections()) {
        let data = rejected(dialect, method, params);
        assert_eq!((data["path"].as_str(), data["details"].as_str()), (Some(path), Some(details)));
    }
}

type Rejection = (Dialect, &'static str, Value, &'static str, &'static str);

/// Shapes that are nearly right.
fn more_rejections() -> Vec<Rejection> {
    use Dialect::{Container, MessageReference};
    let prompt = |dialect, content: Value, path, details| {
        let params = json!({ "sessionId": "s", "content": content });
        (dialect, "session/prompt", params, path, details)
    };
    vec![
        prompt(
            MessageReference,
            json!([{ "type": "resource" }]),
            "content[0].uri",
            "Missing required field 'content[0].uri'",
        ),
        prompt(
            MessageReference,
            json!([{ "type": "image" }]),
            "content[0].data",
            "Missing required field 'content[0].data'",
        ),
        prompt(
            MessageReference,
            json!(["x"]),
            "content[0]",
            "'content[0]' has the wrong type: expected an object",
        ),
        prompt(
            Container,
            json!([{ "type": "image" }]),
            "content[0].content",
            "Missing required field 'content[0].content'",
        ),
        prompt(
            Container,
            json!([{ "type": "text", "content": 7 }]),
            "content[0]",
            "'content[0]' has the wrong type: expected a string",
        ),
        prompt(
            Container,
            json!([{ "type": "text", "content": "x", "metadata": "y" }]),
            "content[0].metadata",
            "'content[0].metadata' must be an object",
        ),
        prompt(
            Container,
            json!([{ "type": "file", "content": "x", "metadata": { "uri": 7 } }]),
            "content[0].metadata.uri",
            "'content[0].metadata.uri' must be a string",
        ),
        prompt(
            Container,
            json!([{ "type": "file", "content": "" }]),
            "content[0].content",
            "'content[0].content' must be the path of a file",
        ),
        (
            MessageReference,
            "session/prompt",
            json!({ "sessionId": "s", "content": "a", "prompt": "b" }),
            "content",
            "'content' and `prompt` are both given and differ. Send one of them.",
        ),
        (
            MessageReference,
            "authenticate",
            json!({ "method": "api_key", "credentials": "sk-secret" }),
            "credentials",
            "'credentials' has the wrong type: expected an object",
        ),
        (
            Container,
            "session/new",
            json!({ "workspaceUri": "file:///w", "cwd": "/x" }),
            "workspaceUri",
            "'workspaceUri' and `cwd` name different directories. Send one of them.",
        ),
    ]
}

// R: D3, W20
#[test]
fn unknown_member_of_a_container_block_survives_the_round_trip() {
    let given = json!({ "type": "diff", "content": "+a", "color": "red", "metadata": { "x": 1 } });
    let mut block = given.clone();
    block::to_v1(&mut block);
    assert_eq!(block["_meta"], json!({ "x": 1, "purlin": { "color": "red", "type": "diff" } }));
    assert_eq!(block::from_v1(block), given);
}

// R: D2, W20
#[test]
fn unknown_member_of_a_reference_block_survives_the_round_trip() {
    let resource = json!({ "uri": "file:///w/a", "text": "x", "language": "rust" });
    let given = json!({ "sessionId": "s", "content": [
        { "type": "text", "text": "a", "color": "red" },
        { "type": "resource", "resource": resource, "pinned": true },
    ] });
    let Value::Object(mut members) = given.clone() else { panic!("an object") };
    message_reference::to_v1("session/prompt", Payload::Params, &mut members).unwrap();
    assert_eq!(members["prompt"][0]["_meta"], json!({ "purlin": { "color": "red" } }));
    assert_eq!(members["prompt"][1]["resource"], json!({ "uri": "file:///w/a", "text": "x" }));
    message_reference::from_v1("session/prompt", Payload::Params, &mut members);
    assert_eq!(Value::Object(members), given);
}

// R: D2, P1
#[test]
fn image_type_is_guessed_from_its_bytes() {
    for (data, mime) in
        [("/9j/4AAQ", "image/jpeg"), ("R0lGODlh", "image/gif"), ("AAEC", "image/png")]
    {
        let mut block = json!({ "type": "image", "data": data });
        block::to_v1(&mut block);
        assert_eq!(block["mimeType"], mime);
    }
}

// R: W18
#[test]
fn checks_of_v1_apply_in_every_dialect() {
    for dialect in Dialect::ALL {
        let null = json!({ "sessionId": "s", "content": [{ "type": "text", "text": "a\0b" }] });
        let details = rejected(dialect, "session/prompt", null)["details"].clone();
        assert!(details.as_str().unwrap().ends_with("contains a null character"), "{details}");
        for bad in [r#"{"sessionId":"s","sessionId":"s","content":[]}"#, r#"[1]"#] {
            let raw: &RawValue = serde_json::from_str(bad).unwrap();
            let error = dialect.decode_call("session/prompt", Some(raw)).unwrap_err();
            assert_eq!(error.code, Code::INVALID_PARAMS, "{bad}");
        }
        let error = dialect.decode_call("_custom/myMethod", None).unwrap_err();
        assert_eq!(error.code, Code::METHOD_NOT_FOUND);
    }
}

// R: D2, W20
#[test]
fn unknown_member_survives_the_round_trip() {
    let params = json!({ "sessionId": "s", "content": "hi", "color": "red", "_meta": { "a": 1 } });
    let v1 = Dialect::MessageReference.to_v1("session/prompt", Payload::Params, params).unwrap();
    assert_eq!(v1["_meta"], json!({ "a": 1, "purlin": { "color": "red" } }));
    let answer = json!({ "stopReason": "end_turn", "_meta": v1["_meta"] });
    assert_eq!(
        Dialect::MessageReference.from_v1("session/prompt", Payload::Result, answer).unwrap(),
        json!({ "stopReason": "end_turn", "_meta": { "a": 1 }, "color": "red" })
    );
}

// R: D2, P3
#[test]
fn failed_turn_has_a_stop_reason_in_one_dialect_only() {
    let failed = RpcError::of(Code::INTERNAL_ERROR).details("the model failed");
    let answer = Dialect::MessageReference.turn_failed(failed.clone(), None).unwrap();
    assert_eq!(answer["stopReason"], "error");
    let back = Dialect::MessageReference.to_v1("session/prompt", Payload::Result, answer);
    assert_eq!(back.unwrap_err(), failed);
    assert_eq!(Dialect::V1.turn_failed(failed.clone(), None).unwrap_err(), failed);
    assert_eq!(Dialect::Container.turn_failed(failed.clone(), None).unwrap_err(), failed);
    let locked = RpcError::of(Code::SESSION_LOCKED);
    assert_eq!(Dialect::MessageReference.turn_failed(locked.clone(), None).unwrap_err(), locked);
}

// R: D2
#[test]
fn unsuccessful_write_is_an_error() {
    let dialect = Dialect::MessageReference;
    let result = |success: bool| {
        dialect.to_v1("fs/write_text_file", Payload::Result, json!({ "success": success }))
    };
    assert_eq!(result(true).unwrap(), json!({}));
    assert!(result(false).is_err());
}

// R: D3, P1
#[test]
fn container_blocks_are_read() {
    let cases = [
        (
            json!({ "type": "text", "content": "a", "metadata": { "x": 1 } }),
            json!({ "type": "text", "text": "a", "_meta": { "x": 1 } }),
        ),
        (
            json!({ "type": "thought", "content": "a" }),
            json!({ "type": "text", "text": "a", "_meta": { "purlin": { "type": "thought" } } }),
        ),
        (
            json!({ "type": "diff", "content": "+a" }),
            json!({ "type": "text", "text": "+a", "_meta": { "purlin": { "type": "diff" } } }),
        ),
        (
            json!({ "type": "image", "content": "AAEC" }),
            json!({ "type": "image", "data": "AAEC", "mimeType": "image/png" }),
        ),
        (
            json!({ "type": "image", "content": "data:image/gif;base64,AAEC" }),
            json!({ "type": "image", "data": "AAEC", "mimeType": "image/gif" }),
        ),
        (
            json!({ "type": "file", "content": "/w/a.rs" }),
            json!({ "type": "resource_link", "uri": "file:///w/a.rs", "name": "a.rs" }),
        ),
        (
            json!({ "type": "file", "content": "fn main", "metadata": { "path": "/w/a.rs" } }),
            json!({ "type": "resource", "resource": { "uri": "file:///w/a.rs", "text": "fn main" } }),
        ),
    ];
    for (given, expected) in cases {
        let mut block = given.clone();
        block::to_v1(&mut block);
        assert_eq!(block, expected, "{given}");
    }
}

proptest! {
    #[test]
    fn arbitrary_strings_cause_no_panic(text in any::<String>(), key in "content|prompt|metadata|type|uri|workspaceUri|mode|contextFiles|_meta") {
        for dialect in Dialect::ALL {
            for method in ["initialize", "authenticate", "session/new", "session/prompt", "session/update"] {
                for value in [json!({ &key: text }), json!({ &key: [text] }), json!({ &key: { "purlin": text } }), json!({ "content": [{ &key: text, "type": "file" }] })] {
                    let raw = serde_json::value::to_raw_value(&value).unwrap();
                    drop(dialect.decode_call(method, Some(&raw)));
                    for part in [Payload::Params, Payload::Result] {
                        drop(dialect.to_v1(method, part, value.clone()));
                        drop(dialect.from_v1(method, part, value.clone()));
                    }
                }
            }
        }
    }
}
