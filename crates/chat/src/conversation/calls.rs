//! Tool calls of the conversation, and those of subagents below the call that started them.

use wire::acp::schema;

use super::{Conversation, Item, Sort};
use crate::style::{Line, Style};
use crate::tool_view::{CallLines, indent};

/// How deep calls are indented at most.
const MAX_DEPTH: usize = 4;

/// Returns the call that an agent says has started this one. The protocol has no field for that: Purlin's ids are paths, others
/// use `_meta`.
pub(super) fn parent_of(call: &schema::ToolCall) -> Option<schema::ToolCallId> {
    let meta = call.meta.as_ref();
    let named = meta.and_then(|meta| {
        let of_claude = meta.get("claudeCode").and_then(|meta| meta.get("parentToolUseId"));
        of_claude.or_else(|| meta.get("parentToolCallId"))?.as_str()
    });
    let path = || call.tool_call_id.0.rsplit_once('/').map(|(parent, _)| parent);
    let parent = named.or_else(path)?;
    Some(schema::ToolCallId::new(parent.to_owned()))
}

impl Conversation {
    /// Returns the lines of a call that runs.
    pub(super) fn running(&self, id: &schema::ToolCallId, spinner: char) -> Vec<Line> {
        let Some(view) = self.calls.get(id) else { return Vec::new() };
        let lines = view.running(self.now, spinner);
        indented(lines, self.depth(id))
    }

    fn depth(&self, id: &schema::ToolCallId) -> usize {
        let parent = |id: &schema::ToolCallId| self.calls.get(id)?.parent.clone();
        std::iter::successors(parent(id), parent).take(MAX_DEPTH).count()
    }

    /// Prints a call with the calls of its subagent between its first line and its result.
    pub(super) fn print_call(&mut self, id: &schema::ToolCallId) {
        let lines = self.call_lines(id);
        self.emit(Sort::Call, lines, false);
    }

    fn call_lines(&mut self, id: &schema::ToolCallId) -> Vec<Line> {
        let depth = self.depth(id);
        let Some(view) = self.calls.get(id) else { return Vec::new() };
        let is_over = view.is_over();
        let mut shown = match is_over || !self.is_linear {
            true => view.finished(self.now, self.columns, self.theme),
            // The rest follows with its end.
            false => CallLines { lines: vec![view.head(self.now, '·')], full: None },
        };
        if is_over {
            shown.lines.extend(view.images().filter_map(|image| self.picture(image)));
        }
        if let Some(full) = shown.full {
            self.fold(full);
        }
        let mut lines = indented(shown.lines, depth);
        let below = if is_over { self.take_children(id) } else { Vec::new() };
        let children: Vec<Line> = below.iter().flat_map(|child| self.call_lines(child)).collect();
        lines.splice(lines.len().min(1)..lines.len().min(1), children);
        if is_over {
            self.calls.remove(id);
        }
        lines
    }

    /// Takes the calls that this one has started out of what is to be printed.
    fn take_children(&mut self, id: &schema::ToolCallId) -> Vec<schema::ToolCallId> {
        let calls = &self.calls;
        let is_child = |child: &schema::ToolCallId| {
            calls.get(child).is_some_and(|view| view.parent.as_ref() == Some(id))
        };
        let mut children = Vec::new();
        self.items.retain(|item| match item {
            Item::Call(child) if is_child(child) => {
                children.push(child.clone());
                false
            }
            _ => true,
        });
        children
    }

    /// Lets a call be printed although it has not ended.
    pub(super) fn release(&mut self, id: &schema::ToolCallId) {
        let depth = self.depth(id);
        let at = self.items.iter().position(|item| matches!(item, Item::Call(call) if call == id));
        if let (Some(at), Some(view)) = (at, self.calls.get(id)) {
            let lines = view.finished(self.now, self.columns, self.theme).lines;
            self.items[at] = Item::Lines(Sort::Call, indented(lines, depth));
        }
    }

    /// Stores a body that was shown in part. The oldest ones go when there are too many, or too much text.
    pub(super) fn fold(&mut self, mut body: Vec<Line>) {
        if body.len() > super::MAX_FOLDED_LINES {
            let hidden = body.len() - super::MAX_FOLDED_LINES;
            body.truncate(super::MAX_FOLDED_LINES);
            body.push(Line::of(format!("… {hidden} more lines"), Style::DIM));
        }
        self.folded.push_back(body);
        let mut count: usize = self.folded.iter().map(Vec::len).sum();
        while count > super::MAX_FOLDED_LINES && self.folded.len() > 1
            || self.folded.len() > super::MAX_FOLDED
        {
            count -= self.folded.pop_front().map_or(0, |body| body.len());
        }
    }
}

fn indented(lines: Vec<Line>, depth: usize) -> Vec<Line> {
    (0..depth).fold(lines, |lines, _| lines.iter().map(indent).collect())
}
