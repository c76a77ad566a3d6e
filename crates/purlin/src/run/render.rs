//! Formats updates for a terminal. Does no IO.
//!
//! Remembers the tool calls of the turn, since later updates and questions contain only what changed.

use std::collections::{HashMap, HashSet};

use chat::{Line, Span, Style, Theme, one_line};
use engine::words::visible;
use serde_json::Value;
use wire::acp::schema;

use super::live::{LiveOutput, shortened};

/// Lines of a diff that are shown with a tool call; a question shows more.
pub(super) const DIFF_LINES: usize = 20;

/// One item of output.
#[derive(Debug, PartialEq)]
pub(super) enum OutputItem {
    /// A part of the answer.
    Answer(String),
    /// A part of a thought.
    Thought(String),
    /// A line on stderr.
    Aside(String),
    /// Lines on stderr: a diff.
    Diff(Vec<Line>),
    /// Lines of a command's output.
    Output(Vec<String>),
}

/// Turns updates into text.
#[derive(Debug, Default)]
pub(super) struct Renderer {
    shows_thoughts: bool,
    /// A spinner says what runs, so a call is a line when it has ended or has output.
    has_spinner: bool,
    calls: HashMap<schema::ToolCallId, schema::ToolCall>,
    /// Calls whose diff was shown.
    shown_diffs: HashSet<schema::ToolCallId>,
    /// The output of commands that run, as far as it arrives meanwhile.
    live: HashMap<schema::ToolCallId, LiveOutput>,
    /// Calls that ended since they were last taken.
    ended: Vec<schema::ToolCall>,
    /// What the agent is doing.
    activity: String,
}

impl Renderer {
    pub(super) fn new(shows_thoughts: bool, has_spinner: bool) -> Renderer {
        Renderer {
            shows_thoughts,
            has_spinner,
            activity: THINKING.to_owned(),
            ..Renderer::default()
        }
    }

    /// Returns what to show for an update.
    pub(super) fn render(&mut self, update: schema::SessionUpdate) -> Vec<OutputItem> {
        match update {
            schema::SessionUpdate::AgentMessageChunk(chunk) => {
                "Writing".clone_into(&mut self.activity);
                vec![OutputItem::Answer(block_text(&chunk.content))]
            }
            schema::SessionUpdate::AgentThoughtChunk(chunk) => {
                THINKING.clone_into(&mut self.activity);
                let text = self.shows_thoughts.then(|| block_text(&chunk.content));
                text.map(OutputItem::Thought).into_iter().collect()
            }
            schema::SessionUpdate::ToolCall(call) => self.render_call(call),
            schema::SessionUpdate::ToolCallUpdate(update) => self.render_call_update(update),
            schema::SessionUpdate::Plan(plan) => vec![OutputItem::Aside(plan_text(&plan))],
            schema::SessionUpdate::Notice(notice) => {
                self.activity = one_line(&notice.title);
                vec![OutputItem::Aside(match notice.description {
                    Some(more) => format!("{}: {more}", notice.title),
                    None => notice.title,
                })]
            }
            _ => Vec::new(),
        }
    }

    /// Returns what the agent is doing, in one line.
    pub(super) fn activity(&self) -> &str {
        &self.activity
    }

    /// Takes the calls that ended.
    pub(super) fn take_ended(&mut self) -> Vec<schema::ToolCall> {
        std::mem::take(&mut self.ended)
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
        let mut items = Vec::new();
        if !self.has_spinner || has_ended(&call) {
            items.push(OutputItem::Aside(call_line(&call)));
        }
        items.extend(self.new_diffs(&call));
        self.note(call, None);
        items
    }

    fn render_call_update(&mut self, update: schema::ToolCallUpdate) -> Vec<OutputItem> {
        let before = self.calls.get(&update.tool_call_id).map(|call| call.status);
        let meta = update.meta.clone();
        let call = self.call_with(update);
        let mut items = Vec::new();
        let live = live_output(meta.as_ref());
        if let Some(data) = live {
            if self.has_spinner && !self.live.contains_key(&call.tool_call_id) {
                items.push(OutputItem::Aside(call_line(&call)));
            }
            let output = self.live.entry(call.tool_call_id.clone()).or_default();
            items.push(OutputItem::Output(output.push(data)));
        }
        let has_ended = has_ended(&call) && before != Some(call.status);
        if has_ended && let Some(mut output) = self.live.remove(&call.tool_call_id) {
            items.push(OutputItem::Output(output.end()));
            items.push(OutputItem::Aside(call_line(&call)));
        } else if has_ended || (before.is_none() && !self.has_spinner) {
            items.push(OutputItem::Aside(call_line(&call)));
            items.extend(output_of(&call).filter(|_| has_ended).map(OutputItem::Output));
        }
        items.extend(self.new_diffs(&call));
        self.note(call, live);
        items.retain(|item| !matches!(item, OutputItem::Output(lines) if lines.is_empty()));
        items
    }

    /// Remembers a call, and what it says about what is going on.
    fn note(&mut self, call: schema::ToolCall, output: Option<&str>) {
        let last =
            output.and_then(|text| text.lines().map(one_line).rfind(|line| !line.is_empty()));
        if has_ended(&call) {
            THINKING.clone_into(&mut self.activity);
            self.ended.push(call.clone());
        } else {
            let title = one_line(&call.title);
            self.activity = match last {
                Some(line) => format!("{title}: {line}"),
                None => title,
            };
        }
        self.calls.insert(call.tool_call_id.clone(), call);
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
        if diffs.is_empty() || !self.shown_diffs.insert(call.tool_call_id.clone()) {
            return Vec::new();
        }
        diffs.into_iter().map(OutputItem::Diff).collect()
    }
}

const THINKING: &str = "Thinking";

fn has_ended(call: &schema::ToolCall) -> bool {
    matches!(call.status, schema::ToolCallStatus::Completed | schema::ToolCallStatus::Failed)
}

/// Returns the output of a command that arrived while it runs.
fn live_output(meta: Option<&schema::Meta>) -> Option<&str> {
    meta?.get("terminal_output")?.get("data")?.as_str()
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
            text.lines().find(|line| !is_fence(line) && !line.trim().is_empty()).map(str::to_owned)
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
fn output_of(call: &schema::ToolCall) -> Option<Vec<String>> {
    if call.kind != schema::ToolKind::Execute {
        return None;
    }
    let text = texts_of(call).collect::<Vec<_>>().join("\n");
    let mut lines: Vec<&str> = text.trim_matches('\n').lines().collect();
    // Editors show output that is fenced as it is.
    if lines.first().is_some_and(|line| is_fence(line)) {
        lines.remove(0);
        if let Some(end) = lines.iter().rposition(|line| is_fence(line)) {
            lines.remove(end);
        }
    }
    if call.status == schema::ToolCallStatus::Failed && !lines.is_empty() {
        // The reason is shown with the title.
        lines.remove(0);
    }
    (!lines.is_empty()).then(|| shortened(&lines))
}

fn is_fence(line: &str) -> bool {
    line.starts_with("```")
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

/// Returns the diffs of a call, each cut to this many lines. Control characters are shown escaped.
pub(super) fn diffs_of(call: &schema::ToolCall, limit: usize) -> Vec<Vec<Line>> {
    let diffs = call.content.iter().filter_map(|content| match content {
        schema::ToolCallContent::Diff(diff) => Some(diff),
        _ => None,
    });
    diffs
        .map(|diff| {
            let old = diff.old_text.as_deref().map(visible);
            let shown = chat::diff::diff(old.as_deref(), &visible(&diff.new_text), Theme::Dark);
            let path = visible(&diff.path.to_string_lossy());
            let size = format!(" (+{} -{})", shown.size.added, shown.size.removed);
            let title = Line::of(path, Style::BOLD).then(Span::new(size, Style::DIM));
            std::iter::once(title).chain(shown.first_lines(limit)).collect()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(renderer: &mut Renderer, update: Value) -> Vec<OutputItem> {
        renderer.render(serde_json::from_value(update).unwrap())
    }

    #[test]
    fn tool_call_is_a_line_when_it_starts_and_when_it_ends() {
        let mut renderer = Renderer::new(false, false);
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
    fn with_a_spinner_a_call_is_a_line_when_it_has_output_or_ends() {
        let mut renderer = Renderer::new(false, true);
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "ls", "status": "in_progress", "kind": "execute" });
        assert_eq!(rendered(&mut renderer, call), []);
        assert_eq!(renderer.activity(), "ls");
        let output = |data: &str| json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "_meta": { "terminal_output": { "data": data } } });
        let first = rendered(&mut renderer, output("a\n"));
        assert_eq!(first[0], OutputItem::Aside("… ls".into()));
        assert_eq!(first[1], OutputItem::Output(vec!["a".into()]));
        assert_eq!(rendered(&mut renderer, output("b\n")), [OutputItem::Output(vec!["b".into()])]);
        let done = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed" });
        assert_eq!(rendered(&mut renderer, done), [OutputItem::Aside("✓ ls".into())]);
    }

    #[test]
    fn output_of_a_command_is_shown_when_it_ends() {
        let ended = |kind: &str, text: &str| {
            let mut renderer = Renderer::new(false, false);
            let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "ls", "kind": kind,
                "content": [{ "type": "content", "content": { "type": "text", "text": text } }] });
            rendered(&mut renderer, call);
            let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed" });
            let mut items = rendered(&mut renderer, update);
            assert_eq!(items.remove(0), OutputItem::Aside("✓ ls".into()));
            items
        };
        let output = |lines: [&str; 2]| [OutputItem::Output(lines.map(str::to_owned).to_vec())];
        assert_eq!(ended("execute", "a\n b\n"), output(["a", " b"]));
        assert_eq!(ended("execute", "```\na\n b\n```\n"), output(["a", " b"]));
        assert_eq!(ended("execute", ""), []);
        assert_eq!(ended("read", "a"), []);
    }

    #[test]
    fn output_that_arrives_while_a_command_runs_is_shown_once() {
        let mut renderer = Renderer::new(false, false);
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "make", "kind": "execute" });
        rendered(&mut renderer, call);
        let update = |more: Value| {
            let mut update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t" });
            update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            update
        };
        let output =
            json!({ "_meta": { "terminal_output": { "terminal_id": "t", "data": "one\ntw" } } });
        let items = rendered(&mut renderer, update(output));
        assert_eq!(items, [OutputItem::Output(vec!["one".to_owned()])]);
        assert_eq!(renderer.activity(), "make: tw");
        let items = rendered(&mut renderer, update(json!({ "status": "completed" })));
        let rest = OutputItem::Output(vec!["tw".to_owned()]);
        assert_eq!(items, [rest, OutputItem::Aside("✓ make".to_owned())]);
        assert_eq!(renderer.take_ended().len(), 1);
    }

    fn command_ended(status: &str, raw: Value, text: &str) -> Vec<OutputItem> {
        let mut renderer = Renderer::new(false, false);
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
            [
                OutputItem::Aside(format!("✗ make: {reason}")),
                OutputItem::Output(vec!["said".into()])
            ]
        );
        assert_eq!(
            command_ended("failed", Value::Null, "no"),
            [OutputItem::Aside("✗ make: no".into())]
        );
    }

    #[test]
    fn diff_is_shown_once() {
        let mut renderer = Renderer::new(false, false);
        let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Edit", "status": "in_progress",
            "content": [{ "type": "diff", "path": "/a", "oldText": "1\n2\n3\n4\n5\n6\n", "newText": "1\n2\n3\n4\nfive\n6\n" }] });
        let items = rendered(&mut renderer, update.clone());
        let [OutputItem::Aside(title), OutputItem::Diff(lines)] = &items[..] else {
            panic!("{items:?}");
        };
        assert_eq!(title, "… Edit");
        let text: Vec<String> = lines.iter().map(Line::text).collect();
        assert_eq!(text[0], "/a (+1 -1)");
        assert!(text.iter().any(|line| line.contains("five")), "{text:?}");
        assert_eq!(rendered(&mut renderer, update.clone()), []);
        // Not before the question, which shows it, nor after.
        let mut renderer = Renderer::new(false, false);
        let mut call = update.clone();
        call["sessionUpdate"] = json!("tool_call");
        call["status"] = json!("pending");
        assert_eq!(rendered(&mut renderer, call), [OutputItem::Aside("· Edit".into())]);
        let asked = renderer.call_with(serde_json::from_value(update.clone()).unwrap());
        renderer.has_shown_diffs(&asked);
        assert_eq!(rendered(&mut renderer, update), []);
    }

    #[test]
    fn plans_are_check_lists_and_thoughts_need_a_terminal() {
        let plan = json!({ "sessionUpdate": "plan", "entries": [
            { "content": "look", "priority": "high", "status": "completed" },
            { "content": "change", "priority": "high", "status": "in_progress" },
            { "content": "test", "priority": "low", "status": "pending" } ] });
        let list = "[x] look\n[>] change\n[ ] test";
        assert_eq!(
            rendered(&mut Renderer::new(false, false), plan),
            [OutputItem::Aside(list.into())]
        );
        let thought = json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": "hm" } });
        assert_eq!(rendered(&mut Renderer::new(false, false), thought.clone()), []);
        assert_eq!(
            rendered(&mut Renderer::new(true, false), thought),
            [OutputItem::Thought("hm".into())]
        );
    }
}
