//! The table of faults: which messages are changed, and how. Faults in what a turn does are in `turn` and `sessions`.

use serde_json::{Value, json};

/// What happens to a message.
enum Act {
    /// It becomes an error with this code.
    Error(i64),
    /// Its result becomes this.
    Result(&'static str),
    /// It is not sent.
    Silence,
    /// Its id becomes null.
    NullId,
    /// The value at this place becomes this.
    Patch(&'static str, &'static str),
    /// The value at this place is removed.
    Remove(&'static str),
    /// It is sent twice.
    Twice,
    /// This line follows it.
    Then(&'static [u8]),
}

use Act::{Error, NullId, Patch, Remove, Result as Answer, Silence, Then, Twice};

/// Replies: the fault, what the request contains (parts separated by `&`, `!` for parts that it does not contain), the act.
const REPLIES: &[(&str, &str, Act)] = &[
    ("wire.id-number", "\"id\":7,", NullId),
    ("wire.id-string", "\"seven\"", NullId),
    ("wire.id-text-number", "\"id\":\"8\"", NullId),
    ("wire.id-large", "9007199254740991", NullId),
    ("wire.method-unknown", "\"id\":10,&nonsense", Error(-32603)),
    ("wire.extension-answered", "\"id\":11,&_check", Answer("{}")),
    ("wire.extension-code", "\"id\":12,&_check", Error(-32603)),
    ("wire.params-invalid", "\"id\":13,&\"params\":{}", Answer(r#"{"stopReason":"end_turn"}"#)),
    ("wire.params-code", "\"id\":14,&\"params\":{}", Error(-32603)),
    ("wire.details", "\"id\":15,&\"params\":{}", Remove("/error/data")),
    ("wire.field", "\"id\":17,&\"cwd\":5", Remove("/error/data")),
    ("wire.continues", "\"id\":16,&session/new", Error(-32603)),
    ("wire.two-in-one", "\"id\":3,&nonsense", Silence),
    ("wire.whitespace", "\"id\" : 4", Error(-32603)),
    ("wire.crlf", "\r", Error(-32603)),
    ("wire.escapes", "u006d", Error(-32603)),
    ("wire.unknown-members", "checkUnknown&session/new", Error(-32602)),
    ("wire.meta", "\"_meta\"&session/new", Error(-32602)),
    ("wire.parse-error", "this is not JSON", Silence),
    ("wire.invalid-request", "\"id\":40", Silence),
    ("wire.batch", "\"id\":41", Silence),
    ("wire.result-or-error", "\"id\":101,", Patch("/error", r#"{"code":1,"message":"x"}"#)),
    ("wire.error-shape", "nonsense/method", Remove("/error/message")),
    ("wire.answer-once", "\"id\":10,&nonsense", Twice),
    ("init.answer", "check-init", Error(-32603)),
    ("init.version", "check-init", Patch("/result/protocolVersion", "\"1\"")),
    ("init.version-supported", "check-init", Patch("/result/protocolVersion", "2")),
    ("init.version-unsupported", "65535", Patch("/result/protocolVersion", "65535")),
    ("init.info", "check-init", Remove("/result/agentInfo")),
    ("init.no-capabilities", "\"id\":0,&!clientCapabilities&initialize", Error(-32602)),
    ("init.unknown-capabilities", "checkUnknown&initialize", Error(-32602)),
    ("init.auth-ids", "initialize", Patch("/result/authMethods/1/id", "\"login\"")),
    ("init.terminal-auth", "initialize", Patch("/result/authMethods/1/type", "\"terminal\"")),
    ("init.auth-required", "initialize", Patch("/result/authMethods", "[]")),
    ("init.auth-required", "\"id\":4,&check-unknown&session/prompt", Error(-32000)),
    ("init.auth-unknown", "check-unknown&authenticate", Answer("{}")),
    ("init.logout", "logout", Error(-32603)),
    ("init.first", "\"id\":1,&session/new", Patch("/error/code", "-32603")),
    ("init.twice", "\"id\":5,&initialize", Silence),
    ("session.new", "\"id\":101,", Error(-32603)),
    ("session.models", "\"id\":103,", Remove("/result/models")),
    ("session.cwd-only", "\"id\":104,", Error(-32602)),
    (
        "session.cwd-missing",
        "session/new&!\"cwd\"&!workspaceUri",
        Answer(r#"{"sessionId":"00000000-0000-4000-8000-000000000001"}"#),
    ),
    (
        "session.cwd-relative",
        "some/folder",
        Answer(r#"{"sessionId":"00000000-0000-4000-8000-000000000001"}"#),
    ),
    (
        "session.unknown",
        "\"id\":4,&check-unknown&session/prompt",
        Answer(r#"{"stopReason":"end_turn"}"#),
    ),
    ("session.unknown-own-code", "\"id\":6,&check-unknown&session/prompt", Error(-32002)),
    ("session.modes-current", "session/new", Patch("/result/modes/currentModeId", "\"nowhere\"")),
    (
        "session.modes-unique",
        "session/new",
        Patch("/result/modes/availableModes/1/id", "\"build\""),
    ),
    ("session.set-mode", "\"id\":2,&session/set_mode\"", Error(-32603)),
    ("session.set-mode-unknown", "\"id\":3,&session/set_mode\"", Answer("{}")),
    ("session.set-model", "\"id\":2,&session/set_model", Error(-32603)),
    ("session.set-model-unknown", "check/unknown", Answer("{}")),
    (
        "session.options-current",
        "session/new",
        Patch("/result/configOptions/1/currentValue", "\"xl\""),
    ),
    ("session.options-unique", "session/new", Patch("/result/configOptions/1/id", "\"mode\"")),
    (
        "session.options-boolean",
        "session/new",
        Patch(
            "/result/configOptions/1",
            r#"{"id":"b","name":"B","type":"boolean","currentValue":true}"#,
        ),
    ),
    ("session.set-option", "\"id\":2,&set_config_option", Patch("/result/configOptions", "[]")),
    (
        "session.set-option-value",
        "\"id\":2,&set_config_option",
        Patch("/result/configOptions/0/currentValue", "\"plan\""),
    ),
    (
        "session.set-option-unknown",
        "\"id\":3,&set_config_option",
        Answer(r#"{"configOptions":[]}"#),
    ),
    ("session.set-option-bad", "\"id\":4,&set_config_option", Answer(r#"{"configOptions":[]}"#)),
    ("session.list", "\"id\":3,&session/list", Patch("/result/sessions", "{}")),
    ("session.list-has", "\"id\":3,&session/list", Patch("/result/sessions", "[]")),
    ("session.close", "session/close", Error(-32603)),
    ("session.close-cancels", "check-close", Patch("/result/stopReason", "\"end_turn\"")),
    ("session.closed", "check-closed", Answer(r#"{"stopReason":"end_turn"}"#)),
    ("session.delete", "\"id\":3,&session/delete", Error(-32603)),
    ("session.delete-unknown", "\"id\":4,&session/delete", Error(-32002)),
    ("session.directories", "additionalDirectories", Error(-32602)),
    ("prompt.answer", "\"id\":2,&check-prompt", Answer(r#"{"stopReason":"whatever"}"#)),
    ("prompt.end-turn", "\"id\":2,&check-prompt", Patch("/result/stopReason", "\"refusal\"")),
    ("prompt.second", "\"id\":3,&check-prompt", Error(-32603)),
    ("prompt.resource-link", "resource_link", Error(-32602)),
    ("prompt.embedded", "check-embedded", Error(-32602)),
    ("prompt.image", "check-image", Error(-32602)),
    ("prompt.audio", "check-audio", Error(-32602)),
    ("prompt.meta", "check-meta", Error(-32602)),
    (
        "prompt.missing",
        "\"id\":2,&\"params\":{\"sessionId\"&!\"prompt\":[&session/prompt",
        Answer(r#"{"stopReason":"end_turn"}"#),
    ),
    ("prompt.unknown-block", "\"check-unknown\",\"data\"", Answer(r#"{"stopReason":"end_turn"}"#)),
    ("prompt.unknown-block", "\"data\":1", Answer(r#"{"stopReason":"end_turn"}"#)),
    ("prompt.empty", "\"prompt\":[]", Silence),
    ("prompt.max-tokens", "check-max", Patch("/result/stopReason", "\"end_turn\"")),
    ("prompt.model-fails", "\"id\":2,&check-fails", Silence),
    ("prompt.model-fails-next", "\"id\":3,&check-fails: once", Silence),
    ("prompt.busy", "check-busy-two", Error(-32603)),
    ("prompt.busy-answered", "check-busy-two", Silence),
    ("permission.rejected-answered", "check-reject", Silence),
    ("cancel.answer", "\"id\":2,&check-cancel", Error(-32800)),
    ("cancel.next", "check-cancel: again", Error(-32603)),
    ("cancel.unknown", "\"id\":3,&session/new", Silence),
    ("cancel.request-unknown", "\"id\":4,&session/new", Silence),
    ("cancel.tool", "check-sleep", Patch("/result/stopReason", "\"end_turn\"")),
    ("cancel.permission", "check-ask", Patch("/result/stopReason", "\"end_turn\"")),
    ("load.answer", "\"id\":5,&session/load", Error(-32603)),
    ("load.next", "check-load: next", Error(-32603)),
    ("load.unknown", "\"id\":5,&00000000-0000&session/load", Answer("{}")),
    ("resume.answer", "\"id\":5,&session/resume&!00000000-0000", Error(-32603)),
    ("resume.next", "check-resume: next", Error(-32603)),
    ("resume.unknown", "00000000-0000&session/resume", Answer("{}")),
    ("mcp.broken", "\"broken\"", Error(-32603)),
    ("mcp.local-form", "\"local\"", Error(-32602)),
    ("order.new-during-turn", "\"id\":3,&session/new", Silence),
    ("order.mode-during-turn", "\"id\":4,&nonsense", Silence),
    ("order.other-session", "check-quick", Silence),
    ("limits.initialize", "xxxxxxxxxx&initialize", Answer(r#"{"protocolVersion":1}"#)),
    ("limits.new", "\"id\":60,", Answer(r#"{"sessionId":"00000000-0000-4000-8000-000000000001"}"#)),
    ("limits.line", "\"id\":62,", Silence),
    ("limits.rate-retry", "\"id\":21,&check-rate", Remove("/error/data")),
    ("isolation.permission", "check-free", Silence),
    ("limits.prompt", "check-too-large", Answer(r#"{"stopReason":"end_turn"}"#)),
    ("limits.prompt-continues", "\"id\":4,&session/new", Silence),
    ("limits.prompt-large", "check-large", Error(-32603)),
    ("limits.rate", "\"id\":20,&check-rate", Answer(r#"{"stopReason":"end_turn"}"#)),
    ("limits.sessions", "\"id\":29,&session/new", Error(-32603)),
    ("limits.message-size", "\"id\":103,", Patch("/result/_meta", "{\"big\":1}")),
    ("crash.load", "\"id\":5,&session/load", Error(-32603)),
    ("crash.next", "check-crash: next", Error(-32603)),
    ("crash.list", "\"id\":7,&session/list", Patch("/result/sessions", "[]")),
    ("reference.init", "filesystem", Remove("/result/agentCapabilities/mcp")),
    ("reference.prompt", "check-reference", Error(-32602)),
    ("container.init", "0.3.1", Patch("/result/protocolVersion", "1")),
    ("container.new", "workspaceUri", Error(-32602)),
    ("schema.own-members", "session/new", Patch("/result/mutant", "true")),
    ("schema.initialize", "initialize", Patch("/result/_meta", "5")),
    ("schema.authenticate", "authenticate&login", Patch("/result/_meta", "5")),
    ("schema.logout", "logout", Patch("/result/_meta", "5")),
    ("schema.new", "session/new", Patch("/result/_meta", "5")),
    ("schema.load", "session/load", Patch("/result/_meta", "5")),
    ("schema.resume", "session/resume", Patch("/result/_meta", "5")),
    ("schema.list", "session/list", Patch("/result/_meta", "5")),
    ("schema.close", "session/close", Patch("/result/_meta", "5")),
    ("schema.delete", "session/delete", Patch("/result/_meta", "5")),
    ("schema.prompt", "session/prompt", Patch("/result/_meta", "5")),
    ("schema.set-mode", "session/set_mode", Patch("/result/_meta", "5")),
    ("schema.set-option", "session/set_config_option", Patch("/result/_meta", "5")),
];

/// Messages that are no replies, by what they contain.
const OUTPUT: &[(&str, &str, Act)] = &[
    ("wire.utf8", "available_commands_update", Then(b"log \xff")),
    ("wire.json", "available_commands_update", Then(b"log: hello")),
    ("wire.object", "available_commands_update", Then(b"[]")),
    ("wire.version", "available_commands_update", Patch("/jsonrpc", "\"1.0\"")),
    ("wire.kind", "available_commands_update", Then(br#"{"jsonrpc":"2.0","hello":1}"#)),
    (
        "wire.answer-known",
        "available_commands_update",
        Then(br#"{"jsonrpc":"2.0","id":99999,"result":{}}"#),
    ),
    (
        "wire.params",
        "available_commands_update",
        Then(br#"{"jsonrpc":"2.0","method":"_mutant/note","params":"x"}"#),
    ),
    (
        "wire.methods",
        "available_commands_update",
        Then(br#"{"jsonrpc":"2.0","method":"mutant/note","params":{}}"#),
    ),
    ("session.commands", "available_commands_update", Silence),
    (
        "session.commands-unique",
        "available_commands_update",
        Patch("/params/update/availableCommands/1/name", "\"init\""),
    ),
    ("session.set-mode-announced", "_mode_update", Silence),
    ("session.set-mode-announced", "config_option_update", Silence),
    ("prompt.text", "Hello, ", Silence),
    ("prompt.unicode", "żółw", Patch("/params/update/content/text", "\"world. zolw\"")),
    ("prompt.update-session", "session_info_update", Patch("/params/sessionId", "\"nobody\"")),
    ("prompt.order", "c10;", Silence),
    (
        "prompt.thought",
        "inner-voice",
        Patch("/params/update/sessionUpdate", "\"agent_message_chunk\""),
    ),
    ("prompt.slash-unknown", "agent_message_chunk&ommand", Silence),
    ("prompt.usage", "usage_update", Silence),
    ("tool.announced", "\"tool_call\"&Read a file", Silence),
    ("tool.title", "\"tool_call\"&Read a file", Patch("/params/update/title", "\"\"")),
    ("tool.ends", "\"completed\"", Remove("/params/update/status")),
    (
        "tool.paths",
        "\"tool_call\"&Read a file",
        Patch("/params/update/locations/0/path", "\"a.txt\""),
    ),
    ("tool.lines", "\"tool_call\"&Read a file", Patch("/params/update/locations/0/line", "0")),
    ("tool.diff-new", "\"tool_call\"&new.txt", Patch("/params/update/content/0/oldText", "\"\"")),
    (
        "tool.terminal-known",
        "tool_call_update&\"terminal\"",
        Patch("/params/update/content/0/terminalId", "\"none\""),
    ),
    ("tool.read", "tool_call", Silence),
    ("tool.read-kind", "\"tool_call\"&Read a file", Patch("/params/update/kind", "\"other\"")),
    ("tool.edit-kind", "\"tool_call\"&Write a file", Patch("/params/update/kind", "\"other\"")),
    ("tool.execute-kind", "\"tool_call\"&\"execute\"", Patch("/params/update/kind", "\"other\"")),
    ("tool.edit-diff", "\"tool_call\"&Write a file", Remove("/params/update/content")),
    ("tool.edit-location", "\"tool_call\"&Write a file", Remove("/params/update/locations")),
    ("tool.failed", "\"failed\"&the content", Patch("/params/update/status", "\"completed\"")),
    ("tool.command-shown", "\"tool_call\"&\"execute\"", Patch("/params/update/title", "\"Run\"")),
    ("permission.options", "request_permission", Patch("/params/options", "[]")),
    (
        "permission.option-ids",
        "request_permission",
        Patch("/params/options/1/optionId", "\"once\""),
    ),
    (
        "permission.tool-call",
        "request_permission",
        Patch("/params/toolCall", "{\"toolCallId\":\"nothing\"}"),
    ),
    ("permission.session", "request_permission", Patch("/params/sessionId", "\"nobody\"")),
    ("permission.both-ways", "request_permission", Remove("/params/options/2")),
    (
        "permission.rejected-failed",
        "\"failed\"&rejected",
        Patch("/params/update/status", "\"completed\""),
    ),
    ("client.paths", "fs/read_text_file", Patch("/params/path", "\"a.txt\"")),
    ("client.lines", "fs/read_text_file", Patch("/params/line", "0")),
    ("client.session", "fs/read_text_file", Patch("/params/sessionId", "\"nobody\"")),
    ("client.terminal-known", "terminal/output", Patch("/params/terminalId", "\"none\"")),
    ("limits.update-size", "session_info_update", Patch("/params/update/title", "\"BIG\"")),
    (
        "schema.update.agent_message_chunk",
        "agent_message_chunk",
        Patch("/params/update/_meta", "5"),
    ),
    (
        "schema.update.agent_thought_chunk",
        "agent_thought_chunk",
        Patch("/params/update/_meta", "5"),
    ),
    ("schema.update.user_message_chunk", "user_message_chunk", Patch("/params/update/_meta", "5")),
    ("schema.update.tool_call", "\"tool_call\"", Patch("/params/update/_meta", "5")),
    ("schema.update.tool_call_update", "tool_call_update", Patch("/params/update/_meta", "5")),
    ("schema.update.plan", "\"plan\"&entries", Patch("/params/update/_meta", "5")),
    (
        "schema.update.available_commands_update",
        "available_commands_update",
        Patch("/params/update/_meta", "5"),
    ),
    (
        "schema.update.current_mode_update",
        "current_mode_update",
        Patch("/params/update/_meta", "5"),
    ),
    (
        "schema.update.config_option_update",
        "config_option_update",
        Patch("/params/update/_meta", "5"),
    ),
    (
        "schema.update.session_info_update",
        "session_info_update",
        Patch("/params/update/_meta", "5"),
    ),
    ("schema.update.usage_update", "usage_update", Patch("/params/update/_meta", "5")),
    ("schema.permission", "session/request_permission", Patch("/params/_meta", "5")),
    ("schema.fs-read", "fs/read_text_file", Patch("/params/_meta", "5")),
    ("schema.fs-write", "fs/write_text_file", Patch("/params/_meta", "5")),
    ("schema.terminal-create", "terminal/create", Patch("/params/_meta", "5")),
    ("schema.terminal-output", "terminal/output", Patch("/params/_meta", "5")),
    ("schema.terminal-wait", "terminal/wait_for_exit", Patch("/params/_meta", "5")),
    ("schema.terminal-kill", "terminal/kill", Patch("/params/_meta", "5")),
    ("schema.terminal-release", "terminal/release", Patch("/params/_meta", "5")),
];

/// Lines after which the agent exits.
const EXITS: &[(&str, &str)] = &[
    ("wire.extension-note", "_check/note"),
    ("wire.parse-error-continues", "this is not JSON"),
    ("wire.deep", "[[[[[["),
    ("wire.invalid-utf8", "\u{fffd}"),
    ("wire.unknown-reply", "check-nothing"),
    ("wire.bad-lines-flood", "not JSON 1999"),
];

/// Notifications that are answered.
const ANSWERED: &[(&str, &str)] = &[
    ("wire.notification-silent", "nonsense/note"),
    ("cancel.idle", "session/cancel&!check-unknown"),
];

fn contains(text: &str, parts: &str) -> bool {
    parts.split('&').all(|part| match part.strip_prefix('!') {
        Some(part) => !text.contains(part),
        None => text.contains(part),
    })
}

pub(crate) fn exits(fault: &str, line: &str) -> bool {
    (fault == "wire.empty-line" && line.is_empty())
        || EXITS.iter().any(|(id, part)| *id == fault && line.contains(part))
}

pub(crate) fn answers_note(fault: &str, line: &str) -> bool {
    ANSWERED.iter().any(|(id, parts)| *id == fault && contains(line, parts))
}

/// Whether a line of a stored session is forgotten.
pub(crate) fn forgets(fault: &str, line: &Value) -> bool {
    let text = line.to_string();
    match fault {
        "load.user" => text.contains("user_message_chunk"),
        "load.agent" => text.contains("remembered-answer"),
        "load.tool" => text.contains("\"tool_call"),
        "shutdown.stored" => text.contains("shown-at-the-end"),
        "crash.shown" => text.contains("shown-before"),
        "crash.turn" => text.contains("shown-in-the-turn"),
        _ => false,
    }
}

pub(crate) fn change_reply(fault: &str, request: &str, reply: Value) -> Vec<Value> {
    let mut reply = reply;
    slow(fault, request);
    for (_, _, act) in
        REPLIES.iter().filter(|(id, parts, _)| *id == fault && contains(request, parts))
    {
        match act {
            Error(code) => {
                reply = json!({ "id": reply["id"], "error": { "code": code, "message": "Fault" } })
            }
            Answer(result) => {
                let result: Value = serde_json::from_str(result).unwrap();
                reply = json!({ "id": reply["id"], "result": result });
            }
            Silence => return Vec::new(),
            NullId => reply["id"] = Value::Null,
            Twice => return vec![reply.clone(), reply],
            Patch(place, value) => patch(&mut reply, place, value),
            Remove(place) => remove(&mut reply, place),
            Then(_) => {}
        }
    }
    vec![reply]
}

/// Faults of time.
fn slow(fault: &str, request: &str) {
    let is_slow = match fault {
        "init.fast" => request.contains("check-fast"),
        "timing.new" => request.contains("session/new"),
        "timing.roundtrip" => request.contains("nonsense/method"),
        "cancel.fast" => request.contains("check-quick-cancel"),
        _ => false,
    };
    if is_slow {
        let millis = if fault == "timing.roundtrip" { 700 } else { 2200 };
        std::thread::sleep(std::time::Duration::from_millis(millis));
    }
}

pub(crate) fn change_output(fault: &str, mut message: Value) -> Vec<Vec<u8>> {
    if message.get("method").is_none() {
        return vec![message.to_string().into_bytes()];
    }
    let text = message.to_string();
    let mut after = None;
    for (_, _, act) in OUTPUT.iter().filter(|(id, parts, _)| *id == fault && contains(&text, parts))
    {
        match act {
            Silence => return Vec::new(),
            Patch(place, value) => patch(&mut message, place, value),
            Remove(place) => remove(&mut message, place),
            Then(line) => after = Some(line.to_vec()),
            _ => {}
        }
    }
    let mut lines = vec![message.to_string().into_bytes()];
    lines.extend(after);
    lines
}

fn patch(message: &mut Value, place: &str, value: &str) {
    let mut value: Value = serde_json::from_str(value).unwrap();
    if value == "BIG" {
        value = Value::from("x".repeat(120 * 1024));
    } else if value == json!({ "big": 1 }) {
        value = json!({ "big": "x".repeat(1100 * 1024) });
    }
    let (parent, name) = place.rsplit_once('/').unwrap();
    let Some(parent) = message.pointer_mut(parent) else { return };
    match parent {
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        parent => parent[name] = value,
    }
}

fn remove(message: &mut Value, place: &str) {
    let (parent, name) = place.rsplit_once('/').unwrap();
    match message.pointer_mut(parent) {
        Some(Value::Object(members)) => drop(members.remove(name)),
        Some(Value::Array(items)) => drop(items.remove(name.parse().unwrap())),
        _ => {}
    }
}
