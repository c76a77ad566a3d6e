//! Finds the place of the scripted model's answers between the messages.
//!
//! The agent sends a request to the model when a prompt arrives, and again when all tool calls of an answer have ended. A
//! cancelled turn sends no more requests.

use std::collections::VecDeque;

use serde_json::Value;

/// The answers in a transcript's `model` lines, returned when the agent requests them.
pub(crate) struct Script {
    answers: VecDeque<Vec<String>>,
    /// The number of tool calls of the last answer that have not ended.
    open_tools: usize,
    /// Whether the tool calls of an answer have ended since the last request.
    is_waiting: bool,
    is_due: bool,
}

impl Script {
    /// Reads the `model` lines and splits them into answers, as `conformance/README.md` describes.
    pub(crate) fn read(transcript: &str) -> Script {
        let mut answers = VecDeque::new();
        let mut answer: Vec<String> = Vec::new();
        for line in transcript.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let part = line.strip_prefix("model ").map(str::trim);
            if ends(&answer, part) {
                answers.push_back(std::mem::take(&mut answer));
            }
            match part {
                Some("end" | "loop") | None => {}
                Some(part) => answer.push(part.to_owned()),
            }
        }
        if !answer.is_empty() {
            answers.push_back(answer);
        }
        Script { answers, open_tools: 0, is_waiting: false, is_due: false }
    }

    /// Returns whether the transcript has no `model` lines.
    pub(crate) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Follows a message from the client.
    pub(crate) fn sent(&mut self, message: &Value) {
        self.is_due |= message["method"] == "session/prompt";
    }

    /// Follows a message from the agent, before it is drawn.
    pub(crate) fn expected(&mut self, message: &Value) {
        let update = &message["params"]["update"];
        let stop_reason = &message["result"]["stopReason"];
        let has_ended = matches!(update["status"].as_str(), Some("completed" | "failed"));
        if stop_reason == "cancelled" {
            self.is_waiting = false;
        } else if self.is_waiting && (update.is_object() || stop_reason.is_string()) {
            self.is_waiting = false;
            self.is_due = true;
        }
        if has_ended && self.open_tools > 0 {
            self.open_tools -= 1;
            self.is_waiting = self.open_tools == 0;
        }
    }

    /// Returns the next answer, if the agent has just requested it and the script is not over.
    pub(crate) fn take_due(&mut self) -> Option<Vec<String>> {
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        let answer = self.answers.pop_front()?;
        self.open_tools = answer.iter().filter(|part| is_tool(part)).count();
        Some(answer)
    }
}

/// Returns whether an answer is complete before the next line, which is `None` if it is not a `model` line.
fn ends(answer: &[String], next: Option<&str>) -> bool {
    let Some(last) = answer.last() else { return false };
    match next {
        Some("end") | None => true,
        Some(next) => is_tool(last) && !is_tool(next),
    }
}

fn is_tool(part: &str) -> bool {
    part.starts_with("tool ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answers(transcript: &str) -> Vec<Vec<String>> {
        Script::read(transcript).answers.into()
    }

    #[test]
    fn answer_ends_at_text_after_a_tool_at_end_and_at_other_lines() {
        let after_tool = "model text \"a\"\nmodel tool x {}\nmodel tool y {}\nmodel text \"b\"\n";
        assert_eq!(
            answers(after_tool),
            [vec!["text \"a\"", "tool x {}", "tool y {}"], vec!["text \"b\""]]
        );
        assert_eq!(answers("model echo\nmodel end\nmodel echo\n"), [["echo"], ["echo"]]);
        assert_eq!(answers("model echo\n> {}\nmodel hang\n"), [["echo"], ["hang"]]);
        assert_eq!(answers("model echo\n\n# Then for ever.\nmodel hang\n"), [["echo", "hang"]]);
    }

    #[test]
    fn cancelled_turn_requests_no_further_answer() {
        let mut script = Script::read("model tool x {}\nmodel text \"b\"\n");
        script.sent(&json!({"method": "session/prompt"}));
        assert_eq!(script.take_due(), Some(vec!["tool x {}".to_owned()]));
        script.expected(&json!({"params": {"update": {"status": "failed"}}}));
        assert_eq!(script.take_due(), None);
        script.expected(&json!({"result": {"stopReason": "cancelled"}}));
        assert_eq!(script.take_due(), None);
    }
}
