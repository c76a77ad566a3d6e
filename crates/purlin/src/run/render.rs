//! Formats updates for a terminal. Does no IO.
//!
//! Remembers the tool calls of the turn, since later updates and questions contain only what changed.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use engine::words::visible;
use serde_json::Value;
use wire::acp::schema;

use crate::count::count;

/// Lines of a diff that are shown with a tool call; a question shows more.
pub(super) const DIFF_LINES: usize = 20;

/// Lines of a command's output that are shown: the first and the last ones.
const OUTPUT_LINES: (usize, usize) = (4, 8);

/// The width of a line of output, in characters.
const WIDTH: usize = 200;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// One item of output.
#[derive(Debug, PartialEq)]
pub(super) enum OutputItem {
    /// A part of the answer.
    Answer(String),
    /// A part of a thought.
    Thought(String),
    /// A line on stderr.
    Aside(String),
    /// Output of a command.
    Output(String),
}

/// Turns updates into text.
#[derive(Debug)]
pub(super) struct Renderer {
    shows_thoughts: bool,
    calls: HashMap<schema::ToolCallId, schema::ToolCall>,
    /// Calls whose diff was shown.
    shown_diffs: HashSet<schema::ToolCallId>,
}

impl Renderer {
    pub(super) fn new(shows_thoughts: bool) -> Renderer {
        Renderer { shows_thoughts, calls: HashMap::new(), shown_diffs: HashSet::new() }
    }

    /// Returns what to show for an update.
    pub(super) fn render(&mut self, update: schema::SessionUpdate) -> Vec<OutputItem> {
        match update {
            schema::SessionUpdate::AgentMessageChunk(chunk) => {
                vec![OutputItem::Answer(block_text(&chunk.content))]
            }
            schema::SessionUpdate::AgentThoughtChunk(chunk) if self.shows_thoughts => {
                vec![OutputItem::Thought(block_text(&chunk.content))]
            }
            schema::SessionUpdate::ToolCall(call) => self.render_call(call),
            schema::SessionUpdate::ToolCallUpdate(update) => self.render_call_update(update),
            schema::SessionUpdate::Plan(plan) => vec![OutputItem::Aside(plan_text(&plan))],
            schema::SessionUpdate::Notice(notice) => {
                vec![OutputItem::Aside(match notice.description {
                    Some(more) => format!("{}: {more}", notice.title),
                    None => notice.title,
                })]
            }
            _ => Vec::new(),
        }
    }

    /// Returns a tool call with the changes of a question or an update.
    pub(super) fn call_with(&self, update: schema::ToolCallUpdate) -> schema::ToolCall {
        let id = update.tool_call_id;
        let known = self.calls.get(&id).cloned();
        let mut call = known.unwrap_or_else(|| schema::ToolCall::new(id, "Tool call"));
        call.update(update.fields);
        call
    }

    fn render_call(&mut self, call: schema::ToolCall) -> Vec<OutputItem> {
        let mut items = vec![OutputItem::Aside(call_line(&call))];
        items.extend(self.new_diffs(&call));
        self.calls.insert(call.tool_call_id.clone(), call);
        items
    }

    fn render_call_update(&mut self, update: schema::ToolCallUpdate) -> Vec<OutputItem> {
        let before = self.calls.get(&update.tool_call_id).map(|call| call.status);
        let call = self.call_with(update);
        let mut items = Vec::new();
        let has_ended = matches!(
            call.status,
            schema::ToolCallStatus::Completed | schema::ToolCallStatus::Failed
        );
        if before.is_none() || (has_ended && before != Some(call.status)) {
            items.push(OutputItem::Aside(call_line(&call)));
        }
        items.extend(self.new_diffs(&call));
        if has_ended && before != Some(call.status) {
            items.extend(output_of(&call).map(OutputItem::Output));
        }
        self.calls.insert(call.tool_call_id.clone(), call);
        items
    }

    /// Notes that a question showed the diffs of a call.
    pub(super) fn has_shown_diffs(&mut self, call: &schema::ToolCall) {
        self.shown_diffs.insert(call.tool_call_id.clone());
    }

    /// Returns the diffs of a call that runs. Before that a question may come, which shows them itself.
    fn new_diffs(&mut self, call: &schema::ToolCall) -> Vec<OutputItem> {
        let is_running = matches!(
            call.status,
            schema::ToolCallStatus::InProgress | schema::ToolCallStatus::Completed
        );
        if !is_running {
            return Vec::new();
        }
        let diffs = diffs_of(call, DIFF_LINES);
        let diffs: Vec<OutputItem> =
            diffs.iter().map(|diff| OutputItem::Aside(visible(diff))).collect();
        if diffs.is_empty() || !self.shown_diffs.insert(call.tool_call_id.clone()) {
            return Vec::new();
        }
        diffs
    }
}

/// Removes what could control a terminal: control characters other than newlines and tabs, and characters that change the
/// direction of text.
pub(super) fn strip_controls(text: &str) -> String {
    text.chars().filter(|char| is_harmless(*char)).collect()
}

fn is_harmless(char: char) -> bool {
    let turns = matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !turns && (!char.is_control() || char == '\n' || char == '\t')
}

fn block_text(block: &schema::ContentBlock) -> String {
    match block {
        schema::ContentBlock::Text(text) => text.text.clone(),
        schema::ContentBlock::Image(image) => format!("[image {}]", image.mime_type),
        schema::ContentBlock::Audio(audio) => format!("[audio {}]", audio.mime_type),
        schema::ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        _ => "[resource]".to_owned(),
    }
}

fn call_line(call: &schema::ToolCall) -> String {
    let title = one_line(&call.title);
    match call.status {
        schema::ToolCallStatus::Completed => match failure_of(call) {
            Some(how) => format!("✗ {title} ({how})"),
            None => format!("✓ {title}"),
        },
        schema::ToolCallStatus::Failed => match reason_of(call) {
            Some(reason) => format!("✗ {title}: {reason}"),
            None => format!("✗ {title}"),
        },
        schema::ToolCallStatus::InProgress => format!("… {title}"),
        _ => format!("· {title}"),
    }
}

/// Returns how a command failed. Its tool call succeeded all the same.
fn failure_of(call: &schema::ToolCall) -> Option<String> {
    let raw = call.raw_output.as_ref().filter(|_| call.kind == schema::ToolKind::Execute)?;
    match (raw["signal"].as_str(), raw["exitCode"].as_u64()) {
        (Some(signal), _) => Some(format!("ended by {}", one_line(signal))),
        (None, code) => code.filter(|code| *code != 0).map(|code| format!("exit code {code}")),
    }
}

/// Returns the first line of a failed call's output.
fn reason_of(call: &schema::ToolCall) -> Option<String> {
    call.content.iter().find_map(|content| match content {
        schema::ToolCallContent::Content(content) => {
            let text = block_text(&content.content);
            text.lines().find(|line| !line.trim().is_empty()).map(str::to_owned)
        }
        _ => None,
    })
}

/// Returns the texts of a call.
pub(super) fn texts_of(call: &schema::ToolCall) -> impl Iterator<Item = String> {
    call.content.iter().filter_map(|content| match content {
        schema::ToolCallContent::Content(content) => Some(block_text(&content.content)),
        _ => None,
    })
}

/// Returns the shortened output of a command; `None` for other tools, whose output is for the model.
fn output_of(call: &schema::ToolCall) -> Option<String> {
    if call.kind != schema::ToolKind::Execute {
        return None;
    }
    let text = texts_of(call).collect::<Vec<_>>().join("\n");
    let mut lines: Vec<&str> = text.trim_matches('\n').lines().collect();
    if call.status == schema::ToolCallStatus::Failed && !lines.is_empty() {
        // The reason is shown with the title.
        lines.remove(0);
    }
    let (first, last) = OUTPUT_LINES;
    if lines.len() <= first + last + 1 {
        return (!lines.is_empty()).then(|| narrow(&lines));
    }
    let (head, rest) = lines.split_at(first);
    let (middle, tail) = rest.split_at(rest.len() - last);
    // A line that says what the agent omitted is shown.
    let is_mark = |line: &&str| line.starts_with("… ") && line.ends_with(" …");
    let left_out = |lines: &[&str]| match lines.len() {
        0 => String::new(),
        lines => format!("… {} …\n", count(lines, "line", "lines")),
    };
    let middle = match middle.iter().position(is_mark) {
        Some(at) => {
            format!("{}{}\n{}", left_out(&middle[..at]), middle[at], left_out(&middle[at + 1..]))
        }
        None => left_out(middle),
    };
    Some(format!("{}\n{middle}{}", narrow(head), narrow(tail)))
}

/// Joins lines, cut to the width. A line in parentheses is not cut: it may say where the full output is.
fn narrow(lines: &[&str]) -> String {
    let is_note = |line: &str| line.starts_with('(') && line.ends_with(')');
    let width = |line: &str| if is_note(line) { usize::MAX } else { WIDTH };
    let cut = |line: &&str| line.chars().take(width(line)).collect::<String>();
    lines.iter().map(cut).collect::<Vec<_>>().join("\n")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn plan_text(plan: &schema::Plan) -> String {
    let lines = plan.entries.iter().map(|entry| {
        let mark = match entry.status {
            schema::PlanEntryStatus::Completed => "[x]",
            schema::PlanEntryStatus::InProgress => "[>]",
            _ => "[ ]",
        };
        format!("{mark} {}", one_line(&entry.content))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the diffs of a call, each cut to this many lines.
pub(super) fn diffs_of(call: &schema::ToolCall, limit: usize) -> Vec<String> {
    let diffs = call.content.iter().filter_map(|content| match content {
        schema::ToolCallContent::Diff(diff) => Some(diff),
        _ => None,
    });
    diffs
        .map(|diff| {
            let path = diff.path.to_string_lossy();
            unified(&path, diff.old_text.as_deref(), &diff.new_text, limit)
        })
        .collect()
}

/// Returns exactly what a call would do: its command, or all of its input.
pub(super) fn input_of(call: &schema::ToolCall) -> Option<String> {
    let input = call.raw_input.as_ref()?;
    match input.get("command") {
        Some(Value::String(command)) if input.as_object().is_some_and(|input| input.len() == 1) => {
            Some(command.clone())
        }
        _ => serde_json::to_string_pretty(input).ok(),
    }
}

/// Formats a change as one hunk, from the first line that differs to the last.
pub(crate) fn unified(path: &str, old: Option<&str>, new: &str, limit: usize) -> String {
    let old_lines: Vec<&str> = old.unwrap_or_default().lines().collect();
    let new_lines: Vec<&str> = new.lines().collect();
    let pairs = old_lines.iter().zip(&new_lines);
    let front = pairs.take_while(|(old, new)| old == new).count();
    let pairs = old_lines[front..].iter().rev().zip(new_lines[front..].iter().rev());
    let back = pairs.take_while(|(old, new)| old == new).count();
    let start = front.saturating_sub(CONTEXT);
    let tail = back.min(CONTEXT);
    let (old_end, new_end) = (old_lines.len() - back, new_lines.len() - back);

    let before = old_lines[start..front].iter().map(|line| format!(" {line}"));
    let removed = old_lines[front..old_end].iter().map(|line| format!("-{line}"));
    let added = new_lines[front..new_end].iter().map(|line| format!("+{line}"));
    let after = old_lines[old_end..old_end + tail].iter().map(|line| format!(" {line}"));
    let body: Vec<String> = before.chain(removed).chain(added).chain(after).collect();

    let from = if old.is_some() { path } else { "/dev/null" };
    let mut text = format!("--- {from}\n+++ {path}\n");
    let (old_count, new_count) = (old_end + tail - start, new_end + tail - start);
    let first = |count: usize| if count == 0 { start } else { start + 1 };
    // Writing to a string cannot fail.
    write!(text, "@@ -{},{old_count} +{},{new_count} @@", first(old_count), first(new_count)).ok();
    for line in body.iter().take(limit) {
        write!(text, "\n{line}").ok();
    }
    if body.len() > limit {
        write!(text, "\n… {}", count(body.len() - limit, "more line", "more lines")).ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(renderer: &mut Renderer, update: Value) -> Vec<OutputItem> {
        renderer.render(serde_json::from_value(update).unwrap())
    }

    #[test]
    fn control_characters_never_reach_a_terminal() {
        assert_eq!(strip_controls("a\u{1b}[31mb\u{7}\r\u{9b}c\u{7f}\n\td"), "a[31mbc\n\td");
        assert_eq!(strip_controls("a\u{202e}b\u{2066}c👩\u{200d}🔬"), "abc👩\u{200d}🔬");
    }

    #[test]
    fn tool_call_is_a_line_when_it_starts_and_when_it_ends() {
        let mut renderer = Renderer::new(false);
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "Run\nls", "status": "in_progress" });
        assert_eq!(rendered(&mut renderer, call), [OutputItem::Aside("… Run ls".into())]);
        let output = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t",
            "content": [{ "type": "content", "content": { "type": "text", "text": "\nno such file\nmore" } }] });
        assert_eq!(rendered(&mut renderer, output), []);
        let failed =
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "failed" });
        assert_eq!(
            rendered(&mut renderer, failed.clone()),
            [OutputItem::Aside("✗ Run ls: no such file".into())]
        );
        assert_eq!(rendered(&mut renderer, failed), []);
    }

    #[test]
    fn output_of_a_command_is_shown_shortened_when_it_ends() {
        let ended = |kind: &str, text: &str| {
            let mut renderer = Renderer::new(false);
            let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "ls", "kind": kind,
                "content": [{ "type": "content", "content": { "type": "text", "text": text } }] });
            rendered(&mut renderer, call);
            let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed" });
            let mut items = rendered(&mut renderer, update);
            assert_eq!(items.remove(0), OutputItem::Aside("✓ ls".into()));
            items
        };
        assert_eq!(ended("execute", "a\n b\n"), [OutputItem::Output("a\n b".into())]);
        assert_eq!(ended("execute", ""), []);
        assert_eq!(ended("read", "a"), []);
        let long: String = (1..=100).map(|line| format!("{line}\n")).collect();
        let short = "1\n2\n3\n4\n… 88 lines …\n93\n94\n95\n96\n97\n98\n99\n100";
        assert_eq!(ended("execute", &long), [OutputItem::Output(short.into())]);
        assert_eq!(ended("execute", &"x".repeat(300)), [OutputItem::Output("x".repeat(200))]);
        let mark = "… 9 bytes omitted …";
        for (before, mark_in) in [
            ("\n4\n", format!("{mark}\n… 88 lines …")),
            ("\n5\n", format!("… 1 line …\n{mark}\n… 87 lines …")),
            ("\n92\n", format!("… 88 lines …\n{mark}")),
        ] {
            let cut = long.replace(before, &format!("{before}{mark}\n"));
            let short = short.replace("… 88 lines …", &mark_in);
            assert_eq!(ended("execute", &cut), [OutputItem::Output(short)]);
        }
        let place = format!("(all of it is in /{})", "p".repeat(300));
        let said = ended("execute", &format!("{long}{place}"));
        assert!(
            matches!(&said[..], [OutputItem::Output(text)] if text.ends_with(&place)),
            "{said:?}"
        );
    }

    fn command_ended(status: &str, raw: Value, text: &str) -> Vec<OutputItem> {
        let mut renderer = Renderer::new(false);
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "make", "kind": "execute" });
        rendered(&mut renderer, call);
        let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": status, "rawOutput": raw,
            "content": [{ "type": "content", "content": { "type": "text", "text": text } }] });
        rendered(&mut renderer, update)
    }

    #[test]
    fn failed_command_is_not_shown_as_a_success() {
        let line = |raw: Value| command_ended("completed", raw, "").remove(0);
        let aside = |text: &str| OutputItem::Aside(text.to_owned());
        assert_eq!(line(json!({ "exitCode": 0, "signal": null })), aside("✓ make"));
        assert_eq!(line(json!({ "exitCode": 2, "signal": null })), aside("✗ make (exit code 2)"));
        let killed = json!({ "exitCode": null, "signal": "SIGKILL" });
        assert_eq!(line(killed), aside("✗ make (ended by SIGKILL)"));
        assert_eq!(line(json!("of another agent")), aside("✓ make"));
    }

    #[test]
    fn reason_of_a_failure_is_shown_whole_and_once() {
        let reason = "r".repeat(300);
        let items = command_ended("failed", Value::Null, &format!("{reason}\nsaid"));
        assert_eq!(
            items,
            [OutputItem::Aside(format!("✗ make: {reason}")), OutputItem::Output("said".into())]
        );
        assert_eq!(
            command_ended("failed", Value::Null, "no"),
            [OutputItem::Aside("✗ make: no".into())]
        );
    }

    #[test]
    fn diff_is_shown_once() {
        let mut renderer = Renderer::new(false);
        let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Edit", "status": "in_progress",
            "content": [{ "type": "diff", "path": "/a", "oldText": "1\n2\n3\n4\n5\n6\n", "newText": "1\n2\n3\n4\nfive\n6\n" }] });
        let diff = "--- /a\n+++ /a\n@@ -2,5 +2,5 @@\n 2\n 3\n 4\n-5\n+five\n 6";
        assert_eq!(
            rendered(&mut renderer, update.clone()),
            [OutputItem::Aside("… Edit".into()), OutputItem::Aside(diff.into())]
        );
        assert_eq!(rendered(&mut renderer, update.clone()), []);
        // Not before the question, which shows it, nor after.
        let mut renderer = Renderer::new(false);
        let mut call = update.clone();
        call["sessionUpdate"] = json!("tool_call");
        call["status"] = json!("pending");
        assert_eq!(rendered(&mut renderer, call), [OutputItem::Aside("· Edit".into())]);
        let asked = renderer.call_with(serde_json::from_value(update.clone()).unwrap());
        renderer.has_shown_diffs(&asked);
        assert_eq!(rendered(&mut renderer, update), []);
    }

    #[test]
    fn new_and_long_files_are_diffs_too() {
        assert_eq!(unified("/a", None, "x\n", 9), "--- /dev/null\n+++ /a\n@@ -0,0 +1,1 @@\n+x");
        assert_eq!(
            unified("/a", Some(""), "1\n2\n3\n", 2),
            "--- /a\n+++ /a\n@@ -0,0 +1,3 @@\n+1\n+2\n… 1 more line"
        );
        assert_eq!(unified("/a", Some("x\n"), "", 9), "--- /a\n+++ /a\n@@ -1,1 +0,0 @@\n-x");
    }

    #[test]
    fn plans_are_check_lists_and_thoughts_need_a_terminal() {
        let plan = json!({ "sessionUpdate": "plan", "entries": [
            { "content": "look", "priority": "high", "status": "completed" },
            { "content": "change", "priority": "high", "status": "in_progress" },
            { "content": "test", "priority": "low", "status": "pending" } ] });
        let list = "[x] look\n[>] change\n[ ] test";
        assert_eq!(rendered(&mut Renderer::new(false), plan), [OutputItem::Aside(list.into())]);
        let thought = json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": "hm" } });
        assert_eq!(rendered(&mut Renderer::new(false), thought.clone()), []);
        assert_eq!(rendered(&mut Renderer::new(true), thought), [OutputItem::Thought("hm".into())]);
    }
}
