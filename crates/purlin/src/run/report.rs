//! What a run did: the object that is printed at the end, and the exit code.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use serde_json::{Value, json};
use wire::acp::schema;

/// Exit codes.
const DONE: u8 = 0;
const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;
const REJECTED: u8 = 3;
const LIMIT: u8 = 4;
const INTERRUPTED: u8 = 130;

/// An option that names something unknown, such as a mode or a session.
#[derive(Debug)]
pub(super) struct WrongUsage(pub(super) String);

impl std::fmt::Display for WrongUsage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

/// How much of the answer is reported. No more is stored, however long it is.
const MAX_TEXT: usize = 16 * 1024 * 1024;
/// How many files are reported.
const MAX_FILES: usize = 10_000;

/// How a run ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The turn ended.
    Stopped(schema::StopReason),
    /// The prompt was an unknown slash command or had an invalid argument; the agent has said so.
    CommandRefused,
    /// The agent was stopped, because it reached a limit of this run.
    Limit(String),
    /// By Ctrl-C or another signal.
    Interrupted,
    /// Our output is closed.
    ReaderGone,
}

/// What is known about a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    text: String,
    session: Option<schema::SessionId>,
    files: BTreeSet<PathBuf>,
    usage: Option<schema::Usage>,
    cost: Option<schema::Cost>,
    rejected: Vec<String>,
    rejected_calls: HashSet<schema::ToolCallId>,
}

impl Report {
    pub(super) fn set_session(&mut self, session: schema::SessionId) {
        self.session = Some(session);
    }

    pub(super) fn set_usage(&mut self, usage: Option<schema::Usage>) {
        self.usage = usage;
    }

    pub(super) fn set_cost(&mut self, cost: schema::Cost) {
        self.cost = Some(cost);
    }

    /// Adds a part of the answer.
    pub(super) fn add_text(&mut self, text: &str) {
        if self.text.len() + text.len() <= MAX_TEXT {
            self.text.push_str(text);
        }
    }

    /// Returns the answer.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Notes that a call was rejected; only once for each.
    pub(super) fn add_rejected(&mut self, call: &schema::ToolCall) {
        if self.rejected_calls.insert(call.tool_call_id.clone()) {
            self.rejected.push(call.title.clone());
        }
    }

    /// Notes what a call did that has ended.
    pub(super) fn add_call(&mut self, call: &schema::ToolCall) {
        use schema::ToolKind::{Delete, Edit, Move};
        // Of other agents nothing is known about a call that they rejected themselves.
        let code = call.raw_output.as_ref().and_then(|raw| raw["code"].as_i64());
        if call.status == schema::ToolCallStatus::Failed
            && code == Some(i64::from(wire::Code::TOOL_DISABLED.0))
        {
            self.add_rejected(call);
        }
        let is_change = matches!(call.kind, Edit | Delete | Move);
        if call.status != schema::ToolCallStatus::Completed || !is_change {
            return;
        }
        let diffs = call.content.iter().filter_map(|content| match content {
            schema::ToolCallContent::Diff(diff) => Some(&diff.path),
            _ => None,
        });
        let locations = call.locations.iter().map(|location| &location.path);
        let room = MAX_FILES.saturating_sub(self.files.len());
        self.files.extend(diffs.chain(locations).take(room).cloned());
    }

    /// Returns the exit code.
    pub(super) fn code(&self, ended: &anyhow::Result<Ended>) -> u8 {
        use schema::StopReason::{EndTurn, MaxTokens, MaxTurnRequests};
        match ended {
            Ok(Ended::Stopped(EndTurn)) if self.rejected.is_empty() => DONE,
            Ok(Ended::Stopped(EndTurn)) => REJECTED,
            Ok(Ended::Stopped(MaxTokens | MaxTurnRequests) | Ended::Limit(_)) => LIMIT,
            // A turn that was not cancelled here was cancelled by another process, or refused by the model.
            Ok(Ended::Stopped(_) | Ended::CommandRefused) => FAILED,
            Err(err) if err.is::<WrongUsage>() => WRONG_USAGE,
            Err(_) => FAILED,
            Ok(Ended::Interrupted) => INTERRUPTED,
            // The reader has seen enough; that is not a failure.
            Ok(Ended::ReaderGone) => DONE,
        }
    }

    /// Returns the object that is printed at the end.
    pub(super) fn object(&self, ended: &anyhow::Result<Ended>) -> Value {
        let stop = match ended {
            Ok(Ended::Stopped(reason)) => json!(reason),
            Ok(Ended::CommandRefused) => json!(schema::StopReason::EndTurn),
            Ok(Ended::Limit(_) | Ended::Interrupted | Ended::ReaderGone) => {
                json!(schema::StopReason::Cancelled)
            }
            Err(_) => Value::Null,
        };
        let error = match ended {
            Ok(Ended::Limit(why)) => json!({ "message": why }),
            Ok(_) => Value::Null,
            Err(err) => match err.downcast_ref::<client::Error>() {
                Some(client::Error::Refused { error, .. }) => json!(error),
                _ => json!({ "message": format!("{err:#}") }),
            },
        };
        json!({
            "type": "result", "text": self.text, "session": self.session, "stopReason": stop,
            "usage": self.usage, "cost": self.cost, "filesChanged": self.files,
            "rejected": self.rejected, "exitCode": self.code(ended), "error": error,
        })
    }

    /// Returns one line about tokens and cost; `None` if the agent reported neither.
    pub(super) fn usage_line(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(usage) = &self.usage {
            let cached =
                usage.cached_read_tokens.unwrap_or(0) + usage.cached_write_tokens.unwrap_or(0);
            parts.push(format!("{} tokens in", short(usage.input_tokens + cached)));
            if let Some(read) = usage.cached_read_tokens {
                parts.push(format!("{} from the cache", short(read)));
            }
            parts.push(format!("{} out", short(usage.output_tokens)));
        }
        if let Some(cost) = &self.cost {
            let amount = amount(cost.amount);
            parts.push(match &*cost.currency {
                "USD" => format!("${amount} for the session"),
                other => format!("{amount} {other} for the session"),
            });
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Formats an amount of money. Single requests may cost very little.
pub(super) fn amount(amount: f64) -> String {
    if amount < 0.01 { format!("{amount:.6}") } else { format!("{amount:.4}") }
}

/// Formats a number of tokens.
fn short(tokens: u64) -> String {
    match tokens {
        0..1000 => tokens.to_string(),
        1000..1_000_000 => format!("{:.1}k", tokens as f64 / 1e3),
        _ => format!("{:.1}M", tokens as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(status: &str, kind: &str, code: i64) -> schema::ToolCall {
        serde_json::from_value(json!({
            "toolCallId": "t", "title": "Edit a", "status": status, "kind": kind,
            "content": [{ "type": "diff", "path": "/a", "newText": "x" }], "rawOutput": { "code": code },
        }))
        .unwrap()
    }

    #[test]
    fn every_end_has_an_exit_code() {
        use schema::StopReason::{Cancelled, EndTurn, MaxTokens, MaxTurnRequests, Refusal};
        let report = Report::default();
        let code = |ended: Ended| report.code(&Ok(ended));
        let stops = [EndTurn, Refusal, MaxTokens, MaxTurnRequests, Cancelled];
        assert_eq!(stops.map(|stop| code(Ended::Stopped(stop))), [0, 1, 4, 4, 1]);
        assert_eq!(code(Ended::Limit("cost".to_owned())), 4);
        assert_eq!(code(Ended::Interrupted), 130);
        assert_eq!(code(Ended::CommandRefused), 1);
        assert_eq!(report.code(&Err(anyhow::anyhow!("x"))), 1);
        assert_eq!(report.code(&Err(WrongUsage("no such session".to_owned()).into())), 2);
        let mut report = Report::default();
        report.add_call(&call("failed", "edit", -31801));
        report.add_call(&call("failed", "edit", -31801));
        assert_eq!(report.code(&Ok(Ended::Stopped(EndTurn))), 3);
        assert_eq!(report.object(&Ok(Ended::Stopped(EndTurn)))["rejected"], json!(["Edit a"]));
    }

    #[test]
    fn object_has_the_files_that_were_changed() {
        let mut report = Report::default();
        report.add_call(&call("completed", "edit", 0));
        report.add_call(&call("completed", "read", 0));
        let object = report.object(&Ok(Ended::Stopped(schema::StopReason::EndTurn)));
        assert_eq!(object["filesChanged"], json!(["/a"]));
        assert_eq!((&object["stopReason"], &object["exitCode"]), (&json!("end_turn"), &json!(0)));
        let error = wire::RpcError::new(wire::Code(-32000), "Authentication required");
        let refused = anyhow::Error::from(client::Error::Refused { method: "m", error });
        assert_eq!(report.object(&Err(refused))["error"]["code"], -32000);
        let other = report.object(&Err(anyhow::anyhow!("no agent")));
        assert_eq!(other["error"]["message"], "no agent");
    }
}
