//! The output of our commands while they run, in a form that editors show as a terminal.
//!
//! Not part of the protocol: several clients and agents use these members of `_meta`. The terminal has the id of its tool
//! call.

use engine::words::{Live, ToolCallId, ToolContent};
use serde_json::{Value, json};
use wire::acp::schema::Meta;

/// Announces the terminal of a call that has one.
pub(super) fn begin(call: &ToolCallId, content: &ToolContent) -> Option<Meta> {
    let ToolContent::Live { cwd } = content else {
        return None;
    };
    Some(member("terminal_info", json!({ "terminal_id": call.as_str(), "cwd": cwd })))
}

/// Appends to the terminal, or ends it; `None` for what is content.
pub(super) fn update(call: &ToolCallId, live: &Live) -> Option<Meta> {
    Some(match live {
        Live::Progress(_) => return None,
        Live::Output(text) => {
            member("terminal_output", json!({ "terminal_id": call.as_str(), "data": text }))
        }
        Live::Ended(status) => member(
            "terminal_exit",
            json!({
                "terminal_id": call.as_str(),
                "exit_code": status.code,
                "signal": status.signal,
            }),
        ),
    })
}

fn member(name: &str, value: Value) -> Meta {
    let mut meta = Meta::new();
    meta.insert(name.to_owned(), value);
    meta
}
