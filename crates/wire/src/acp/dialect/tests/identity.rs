//! Rewriting v1 to a dialect and back gives the same message, for everything that the dialect can express.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Dialect, Payload};

fn word() -> impl Strategy<Value = String> {
    "[a-z]{1,8}"
}

fn choice(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

fn maybe<T: std::fmt::Debug>(
    strategy: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    prop::option::of(strategy)
}

fn meta() -> impl Strategy<Value = Option<Value>> {
    maybe(word().prop_map(|word| json!({ "x-own": { "deep": [word] } })))
}

fn with(mut value: Value, key: &str, member: Option<impl Into<Value>>) -> Value {
    if let Some(member) = member {
        value[key] = member.into();
    }
    value
}

fn annotations() -> impl Strategy<Value = Option<Value>> {
    maybe((0u8..9).prop_map(|priority| json!({ "audience": ["user"], "priority": priority })))
}

fn text_block() -> impl Strategy<Value = Value> {
    (any::<String>(), maybe(choice(&["diff", "thought"]))).prop_map(|(text, kind)| {
        let kind = kind.map(|kind| json!({ "purlin": { "type": kind } }));
        with(json!({ "type": "text", "text": text }), "_meta", kind)
    })
}

fn image_block() -> impl Strategy<Value = Value> {
    ("[A-Za-z0-9+/]{0,12}", "image/[a-z]{3}", maybe(word())).prop_map(|(data, mime, uri)| {
        with(json!({ "type": "image", "data": data, "mimeType": mime }), "uri", uri)
    })
}

fn audio_block() -> impl Strategy<Value = Value> {
    ("[A-Za-z0-9+/]{0,12}", "audio/[a-z]{3}")
        .prop_map(|(data, mime)| json!({ "type": "audio", "data": data, "mimeType": mime }))
}

fn link_block() -> impl Strategy<Value = Value> {
    let more = (maybe(word()), maybe(word()), maybe(word()), maybe(any::<u32>()));
    (word(), word(), more).prop_map(|(uri, name, (title, description, mime, size))| {
        let uri = format!("file:///{uri}");
        let block = json!({ "type": "resource_link", "uri": uri, "name": name });
        let block = with(with(block, "title", title), "description", description);
        with(with(block, "mimeType", mime), "size", size)
    })
}

fn resource_block() -> impl Strategy<Value = Value> {
    (word(), any::<String>(), maybe(word()), any::<bool>()).prop_map(
        |(uri, text, mime, is_text)| {
            let payload = if is_text { "text" } else { "blob" };
            let resource = json!({ "uri": format!("file:///{uri}"), payload: text });
            json!({ "type": "resource", "resource": with(resource, "mimeType", mime) })
        },
    )
}

fn block() -> impl Strategy<Value = Value> {
    let kinds =
        prop_oneof![text_block(), image_block(), audio_block(), link_block(), resource_block()];
    (kinds, annotations(), meta()).prop_map(|(block, annotations, meta)| {
        let mut block = with(block, "annotations", annotations);
        if let Some(Value::Object(meta)) = meta {
            let own = block["_meta"].take();
            block["_meta"] = json!(meta);
            if let Value::Object(own) = own {
                block["_meta"].as_object_mut().unwrap().extend(own);
            }
        }
        block
    })
}

fn tool_content() -> impl Strategy<Value = Value> {
    let diff = (word(), maybe(any::<String>()), any::<String>()).prop_map(|(path, old, new)| {
        let path = format!("/{path}");
        with(json!({ "type": "diff", "path": path, "newText": new }), "oldText", old)
    });
    let terminal = word().prop_map(|id| json!({ "type": "terminal", "terminalId": id }));
    let block = block().prop_map(|block| json!({ "type": "content", "content": block }));
    prop_oneof![(diff, meta()).prop_map(|(diff, meta)| with(diff, "_meta", meta)), terminal, block]
}

fn tool() -> impl Strategy<Value = Value> {
    let status = choice(&["pending", "in_progress", "completed", "failed"]);
    let kind = choice(&["read", "edit", "execute", "fetch", "other"]);
    let location = (word(), maybe(1u32..))
        .prop_map(|(path, line)| with(json!({ "path": format!("/{path}") }), "line", line));
    let shown = (
        maybe(prop::collection::vec(tool_content(), 0..4)),
        maybe(prop::collection::vec(location, 0..3)),
    );
    let sent = (maybe(any::<String>()), maybe(word()), maybe(status), maybe(kind));
    (word(), sent, shown, any::<bool>(), meta()).prop_map(
        |(id, (title, name, status, kind), (content, locations), has_raw, meta)| {
            let call = with(with(json!({ "toolCallId": id }), "title", title), "name", name);
            let call = with(with(call, "status", status), "kind", kind);
            let call = with(with(call, "content", content), "locations", locations);
            let raw = has_raw.then(|| json!({ "type": "text", "content": ["x"] }));
            with(with(with(call, "rawInput", raw.clone()), "rawOutput", raw), "_meta", meta)
        },
    )
}

fn update() -> impl Strategy<Value = Value> {
    let kinds = choice(&["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"]);
    let chunk =
        (kinds, block(), maybe(word()), meta()).prop_map(|(kind, content, message, meta)| {
            let chunk = json!({ "sessionUpdate": kind, "content": content });
            with(with(chunk, "messageId", message), "_meta", meta)
        });
    let tool =
        (choice(&["tool_call", "tool_call_update"]), tool()).prop_map(|(kind, mut update)| {
            update["sessionUpdate"] = json!(kind);
            update
        });
    let status = choice(&["pending", "in_progress", "completed"]);
    let priority = choice(&["high", "medium", "low"]);
    let entry = (any::<String>(), status, priority, meta()).prop_map(
        |(content, status, priority, meta)| {
            let entry = json!({ "content": content, "status": status, "priority": priority });
            with(entry, "_meta", meta)
        },
    );
    let plan = (prop::collection::vec(entry, 0..4), meta()).prop_map(|(entries, meta)| {
        with(json!({ "sessionUpdate": "plan", "entries": entries }), "_meta", meta)
    });
    prop_oneof![chunk, tool, plan]
}

type Exchange = (&'static str, Payload, Value);

fn handshake() -> impl Strategy<Value = Exchange> {
    let flags = any::<[bool; 3]>();
    let initialize = (flags, maybe(word()), meta()).prop_map(|([read, write, terminal], name, meta)| {
        let offers = json!({ "fs": { "readTextFile": read, "writeTextFile": write }, "terminal": terminal, "elicitation": { "form": {} } });
        let params = json!({ "protocolVersion": 1, "clientCapabilities": with(offers, "_meta", meta.clone()) });
        let info = name.map(|name| json!({ "name": name, "version": "1" }));
        ("initialize", Payload::Params, with(with(params, "clientInfo", info), "_meta", meta))
    });
    let initialized = any::<[bool; 3]>().prop_map(|[load, image, http]| {
        let offers = json!({ "loadSession": load, "promptCapabilities": { "image": image }, "mcpCapabilities": { "http": http }, "sessionCapabilities": { "close": {} } });
        let info = json!({ "name": "purlin", "version": "1" });
        ("initialize", Payload::Result, json!({ "protocolVersion": 1, "agentCapabilities": offers, "authMethods": [{ "id": "a", "name": "b" }], "agentInfo": info }))
    });
    let login = (word(), meta()).prop_map(|(method, meta)| {
        ("authenticate", Payload::Params, with(json!({ "methodId": method }), "_meta", meta))
    });
    let logged_in =
        meta().prop_map(|meta| ("authenticate", Payload::Result, with(json!({}), "_meta", meta)));
    prop_oneof![initialize, initialized, login, logged_in]
}

fn sessions() -> impl Strategy<Value = Exchange> {
    let mode = maybe(choice(&["conversation", "development"]));
    let server = word().prop_map(|name| {
        json!({ "name": name, "command": "c", "args": [], "env": [{ "name": "A", "value": "1" }] })
    });
    let more = (prop::collection::vec(server, 0..2), maybe(Just(json!(["/more"]))));
    let new = ("/[^\0\\\\]{0,20}", mode, more).prop_map(|(cwd, mode, (servers, directories))| {
        let params = json!({ "cwd": cwd, "mcpServers": servers });
        let meta = mode.map(|mode| json!({ "purlin": { "mode": mode } }));
        let params = with(params, "additionalDirectories", directories);
        ("session/new", Payload::Params, with(params, "_meta", meta))
    });
    let opened = (word(), meta()).prop_map(|(id, meta)| {
        ("session/new", Payload::Result, with(json!({ "sessionId": id }), "_meta", meta))
    });
    let again = choice(&["session/load", "session/resume", "session/fork"]);
    let reopen = (again, word(), meta()).prop_map(|(method, id, meta)| {
        let params = json!({ "sessionId": id, "cwd": "/w", "mcpServers": [] });
        (method, Payload::Params, with(params, "_meta", meta))
    });
    let named = choice(&["session/cancel", "session/close", "session/delete"]);
    let other = (named, word(), meta()).prop_map(|(method, id, meta)| {
        (method, Payload::Params, with(json!({ "sessionId": id }), "_meta", meta))
    });
    let set = (word(), word()).prop_map(|(id, mode)| {
        ("session/set_mode", Payload::Params, json!({ "sessionId": id, "modeId": mode }))
    });
    let listed = word().prop_map(|id| {
        let session = json!({ "sessionId": id, "cwd": "/w", "_meta": { "state": "active" } });
        ("session/list", Payload::Result, json!({ "sessions": [session], "nextCursor": id }))
    });
    prop_oneof![new, opened, reopen, other, set, listed]
}

fn turn() -> impl Strategy<Value = Exchange> {
    let prompt =
        (word(), prop::collection::vec(block(), 0..4), meta()).prop_map(|(id, blocks, meta)| {
            let params = json!({ "sessionId": id, "prompt": blocks });
            ("session/prompt", Payload::Params, with(params, "_meta", meta))
        });
    let stop = choice(&["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]);
    let answered = (stop, meta()).prop_map(|(stop, meta)| {
        ("session/prompt", Payload::Result, with(json!({ "stopReason": stop }), "_meta", meta))
    });
    let text_with_metadata = (word(), update(), meta()).prop_map(|(id, update, meta)| {
        let params = json!({ "sessionId": id, "update": update });
        ("session/update", Payload::Params, with(params, "_meta", meta))
    });
    prop_oneof![prompt, answered, text_with_metadata.boxed()]
}

fn asked() -> impl Strategy<Value = Exchange> {
    let permission = (word(), tool(), meta()).prop_map(|(id, call, meta)| {
        let option = json!({ "optionId": "once", "name": "Once", "kind": "allow_once" });
        let params = json!({ "sessionId": id, "toolCall": call, "options": [option] });
        ("session/request_permission", Payload::Params, with(params, "_meta", meta))
    });
    let allowed = word().prop_map(|id| {
        let outcome = json!({ "outcome": "selected", "optionId": id });
        ("session/request_permission", Payload::Result, json!({ "outcome": outcome }))
    });
    let read = (maybe(0u32..), maybe(0u32..), meta()).prop_map(|(line, limit, meta)| {
        let params = with(json!({ "sessionId": "s", "path": "/a" }), "line", line);
        ("fs/read_text_file", Payload::Params, with(with(params, "limit", limit), "_meta", meta))
    });
    let found = any::<String>()
        .prop_map(|text| ("fs/read_text_file", Payload::Result, json!({ "content": text })));
    let write = any::<String>().prop_map(|text| {
        let params = json!({ "sessionId": "s", "path": "/a", "content": text });
        ("fs/write_text_file", Payload::Params, params)
    });
    let wrote = meta()
        .prop_map(|meta| ("fs/write_text_file", Payload::Result, with(json!({}), "_meta", meta)));
    let run = word().prop_map(|word| {
        let params = json!({ "sessionId": "s", "command": word, "args": [word], "cwd": "/w" });
        ("terminal/create", Payload::Params, params)
    });
    prop_oneof![permission, allowed, read, found, write, wrote, run]
}

proptest! {
    // R: D1, D2, D3
    #[test]
    fn round_trip_changes_nothing((method, part, v1) in prop_oneof![handshake(), sessions(), turn(), asked()]) {
        for dialect in Dialect::ALL {
            let sent = dialect.from_v1(method, part, v1.clone());
            let sent = sent.ok_or_else(|| TestCaseError::fail(format!("{dialect:?} cannot express {v1}")))?;
            let back = dialect.to_v1(method, part, sent.clone());
            prop_assert_eq!(back.as_ref(), Ok(&v1), "{:?} sent {}", dialect, sent);
        }
    }
}

// R: D3
#[test]
fn inexpressible_updates_are_not_sent() {
    let kinds = [
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
        "compaction_update",
        "compaction_summary_chunk",
    ];
    for kind in kinds {
        let update = json!({ "sessionId": "s", "update": { "sessionUpdate": kind } });
        let sent = |dialect: Dialect| {
            dialect.from_v1("session/update", Payload::Params, update.clone()).is_some()
        };
        assert_eq!(Dialect::ALL.map(sent), [true, true, false], "{kind}");
    }
}
