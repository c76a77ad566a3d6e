//! The conversation: updates of a session become finished lines, and what is still moving.
//!
//! Items are printed in the order in which they came, each once. An item that still moves keeps the ones after it in the live
//! area. Pure; time is passed in. `conversation::calls` prints tool calls.

mod calls;

use std::collections::{HashMap, VecDeque};

use wire::acp::schema::{self, SessionUpdate};

use crate::clean::clean;
use crate::image::ImageProtocol;
use crate::markdown::Markdown;
use crate::style::{Line, Span, Style, Theme};
use crate::text::wrap;
use crate::tool_view::{ToolView, block_text, duration, indent};

use calls::parent_of;

/// A running call no longer keeps back more lines than this: it is printed as it is, and again when it ends.
const MAX_WAITING: usize = 400;

/// How many bodies that were shown in part can be shown whole.
const MAX_FOLDED: usize = 50;

/// How many lines these bodies have together.
const MAX_FOLDED_LINES: usize = 10_000;

/// Of how many terminals output is stored before a call names them.
const MAX_UNCLAIMED: usize = 16;

/// How many lines of a thought are shown while it arrives.
const THOUGHT_LINES: usize = 3;

/// How much of a thought is stored.
const MAX_THOUGHT: usize = 64 * 1024;

const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// What is shown of one session.
#[derive(Debug)]
pub struct Conversation {
    columns: usize,
    theme: Theme,
    items: VecDeque<Item>,
    /// Calls that have not ended; later updates change them.
    calls: HashMap<schema::ToolCallId, ToolView>,
    /// Output of terminals that no call has named yet.
    unclaimed: HashMap<schema::TerminalId, String>,
    /// Finished lines that were not taken yet.
    done: Vec<Line>,
    /// Bodies that were shown in part, the last one at the end.
    folded: VecDeque<Vec<Line>>,
    plan: Option<schema::Plan>,
    images: ImageProtocol,
    /// Nothing is shown that moves: a call is printed when it starts and when it ends, a plan with every change.
    is_linear: bool,
    /// What the last printed item was, for the empty lines between items.
    last: Option<Sort>,
    /// How many updates were shown since the session was opened; see `skip`.
    now: u64,
}

#[derive(Debug)]
enum Item {
    /// A message of the agent or the user.
    Text {
        sort: Sort,
        markdown: Markdown,
        lines: Vec<Line>,
        is_open: bool,
    },
    Thought {
        text: String,
        started: u64,
        is_open: bool,
    },
    Call(schema::ToolCallId),
    Lines(Sort, Vec<Line>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    User,
    Agent,
    Thought,
    Call,
    Note,
}

impl Conversation {
    /// Starts without a message.
    #[must_use]
    pub fn new(columns: usize, theme: Theme) -> Conversation {
        Conversation {
            columns,
            theme,
            items: VecDeque::new(),
            calls: HashMap::new(),
            unclaimed: HashMap::new(),
            done: Vec::new(),
            folded: VecDeque::new(),
            plan: None,
            images: ImageProtocol::None,
            is_linear: false,
            last: None,
            now: 0,
        }
    }

    /// Changes the width of what comes next.
    pub fn set_columns(&mut self, columns: usize) {
        self.columns = columns;
        for item in &mut self.items {
            if let Item::Text { markdown, .. } = item {
                markdown.set_columns(columns);
            }
        }
    }

    /// Sets the colours of diffs.
    pub fn set_theme(&mut self, theme: Theme) {
        self.theme = theme;
    }

    /// Sets how images are shown.
    pub fn set_images(&mut self, images: ImageProtocol) {
        self.images = images;
    }

    /// Sets whether nothing is shown that moves.
    pub fn set_linear(&mut self, is_linear: bool) {
        self.is_linear = is_linear;
    }

    /// Sets the time, in milliseconds since the client started.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Returns the finished lines since the last call.
    pub fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.done)
    }

    /// Shows a line that is not part of the session.
    pub fn note(&mut self, line: Line) {
        self.notes(vec![line]);
    }

    /// Shows lines that are not part of the session.
    pub fn notes(&mut self, lines: Vec<Line>) {
        let wrapped = lines
            .iter()
            .flat_map(|line| wrap(line, self.columns, &Line::default(), &Line::default()))
            .collect();
        self.add(Item::Lines(Sort::Note, wrapped));
    }

    /// Shows a message of the user.
    pub fn user(&mut self, text: &str) {
        self.close_texts();
        let marked = |(index, line): (usize, &str)| {
            let mark = if index == 0 { "> " } else { "  " };
            let first = Line::of(mark, Style { bold: true, ..Style::ansi(4) });
            wrap(&Line::of(line, Style::BOLD), self.columns, &first, &Line::plain("  "))
        };
        let lines = clean(text).lines().enumerate().flat_map(marked).collect();
        self.add(Item::Lines(Sort::User, lines));
    }

    /// Shows an update. Updates about the session itself are none of the conversation's business.
    pub fn update(&mut self, update: SessionUpdate) {
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => self.block(Sort::Agent, &chunk.content),
            SessionUpdate::UserMessageChunk(chunk) => self.block(Sort::User, &chunk.content),
            SessionUpdate::AgentThoughtChunk(chunk) => self.thought(&block_text(&chunk.content)),
            SessionUpdate::ToolCall(call) => {
                let id = call.tool_call_id.clone();
                self.call(call);
                self.claim(&id);
            }
            SessionUpdate::ToolCallUpdate(update) => {
                let id = update.tool_call_id.clone();
                self.call_update(update);
                self.claim(&id);
            }
            SessionUpdate::Plan(plan) if self.is_linear => {
                let lines = plan_lines(&plan);
                self.add(Item::Lines(Sort::Note, lines));
            }
            SessionUpdate::Plan(plan) => self.plan = Some(plan),
            SessionUpdate::Notice(notice) => {
                let style = match notice.severity {
                    schema::NoticeSeverity::Error => Style::ansi(1),
                    schema::NoticeSeverity::Warning => Style::ansi(3),
                    _ => Style::DIM,
                };
                let mut lines = vec![Line::of(format!("! {}", notice.title), style)];
                let more = notice.description.unwrap_or_default();
                lines.extend(
                    clean(&more).lines().map(|line| Line::of(format!("  {line}"), Style::DIM)),
                );
                self.notes(lines);
            }
            _ => {}
        }
        self.print();
    }

    /// Shows what a command in a terminal has written, with the call that it belongs to.
    pub fn terminal_output(&mut self, terminal: schema::TerminalId, text: &str) {
        let owner = self.calls.values_mut().find(|view| view.terminals().any(|id| *id == terminal));
        if let Some(view) = owner {
            return view.write(text);
        }
        let is_known = self.unclaimed.contains_key(&terminal);
        if is_known || self.unclaimed.len() < MAX_UNCLAIMED {
            let unclaimed = self.unclaimed.entry(terminal).or_default();
            if unclaimed.len() < MAX_THOUGHT {
                unclaimed.push_str(text);
            }
        }
    }

    /// Gives a call the output that came before it named its terminal.
    fn claim(&mut self, id: &schema::ToolCallId) {
        let Some(view) = self.calls.get_mut(id) else { return };
        let terminals: Vec<schema::TerminalId> = view.terminals().cloned().collect();
        for terminal in terminals {
            if let Some(text) = self.unclaimed.remove(&terminal) {
                view.write(&text);
            }
        }
    }

    /// Ends the turn: everything that still moves is printed as it is.
    pub fn end_turn(&mut self) {
        self.close_texts();
        let open: Vec<schema::ToolCallId> = self
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Call(id) => Some(id.clone()),
                _ => None,
            })
            .collect();
        if let Some(plan) = self.plan.take() {
            let lines = plan_lines(&plan);
            self.items.push_back(Item::Lines(Sort::Note, lines));
        }
        for id in open {
            self.release(&id);
        }
        self.calls.clear();
        self.unclaimed.clear();
        self.print();
    }

    /// Returns a call with the changes of a question.
    #[must_use]
    pub fn call_with(&self, update: schema::ToolCallUpdate) -> ToolView {
        let id = update.tool_call_id.clone();
        let known = self.calls.get(&id).cloned();
        let mut view = known
            .unwrap_or_else(|| ToolView::new(schema::ToolCall::new(id, "Tool call"), self.now));
        view.update(update, self.now);
        view
    }

    /// Returns the last body that was shown in part; each once.
    pub fn unfold(&mut self) -> Option<Vec<Line>> {
        self.folded.pop_back()
    }

    /// Returns the lines of what still moves.
    #[must_use]
    pub fn live(&self, rows: usize) -> Vec<Line> {
        let spinner = spinner(self.now);
        let mut lines = Vec::new();
        let mut last = self.last;
        for item in &self.items {
            let (sort, part) = match item {
                Item::Text { sort, markdown, lines, .. } => {
                    let mut all = lines.clone();
                    all.extend(markdown.tail());
                    (*sort, all)
                }
                Item::Thought { text, started, is_open } => {
                    (Sort::Thought, self.thought_lines(text, *started, *is_open))
                }
                Item::Call(id) => (Sort::Call, self.running(id, spinner)),
                Item::Lines(sort, lines) => (*sort, lines.clone()),
            };
            // A message whose first lines are printed brings its own empty lines.
            let is_more = sort == Sort::Agent && last == Some(Sort::Agent);
            if needs_gap(last, sort) && !is_more && !part.is_empty() {
                lines.push(Line::default());
            }
            if !part.is_empty() {
                last = Some(sort);
            }
            lines.extend(part);
        }
        let skipped = lines.len().saturating_sub(rows);
        lines.drain(..skipped);
        lines
    }

    /// Returns the plan, for the live area.
    #[must_use]
    pub fn plan(&self) -> Option<Vec<Line>> {
        self.plan.as_ref().map(plan_lines)
    }

    /// Returns whether anything still moves.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        !self.items.is_empty()
    }

    fn add(&mut self, item: Item) {
        self.close_texts();
        self.items.push_back(item);
        self.print();
    }

    fn close_texts(&mut self) {
        for item in &mut self.items {
            match item {
                Item::Text { is_open, .. } | Item::Thought { is_open, .. } => *is_open = false,
                Item::Call(_) | Item::Lines(..) => {}
            }
        }
    }

    fn block(&mut self, sort: Sort, block: &schema::ContentBlock) {
        match self.picture(block) {
            Some(line) => self.add(Item::Lines(sort, vec![line])),
            None => self.text(sort, &block_text(block)),
        }
    }

    fn picture(&self, block: &schema::ContentBlock) -> Option<Line> {
        let schema::ContentBlock::Image(image) = block else { return None };
        self.images.picture(&image.data, self.columns).map(Line::image)
    }

    fn text(&mut self, sort: Sort, text: &str) {
        let is_same = matches!(self.items.back(), Some(Item::Text { sort: last, is_open: true, .. }) if *last == sort);
        if !is_same {
            self.close_texts();
            // The mark of the user's messages takes two columns.
            let columns =
                if sort == Sort::User { self.columns.saturating_sub(2) } else { self.columns };
            let markdown = Markdown::new(columns);
            self.items.push_back(Item::Text { sort, markdown, lines: Vec::new(), is_open: true });
        }
        if let Some(Item::Text { markdown, lines, .. }) = self.items.back_mut() {
            lines.extend(markdown.push(text));
        }
    }

    fn thought(&mut self, text: &str) {
        if !matches!(self.items.back(), Some(Item::Thought { is_open: true, .. })) {
            self.close_texts();
            let started = self.now;
            self.items.push_back(Item::Thought { text: String::new(), started, is_open: true });
        }
        if let Some(Item::Thought { text: all, .. }) = self.items.back_mut()
            && all.len() < MAX_THOUGHT
        {
            all.push_str(text);
        }
    }

    fn call(&mut self, call: schema::ToolCall) {
        let id = call.tool_call_id.clone();
        if let Some(view) = self.calls.get_mut(&id) {
            let fields = schema::ToolCallUpdateFields::new()
                .title(call.title)
                .status(call.status)
                .content(call.content);
            view.update(schema::ToolCallUpdate::new(id, fields), self.now);
            return;
        }
        self.close_texts();
        let mut view = ToolView::new(call, self.now);
        view.parent = parent_of(&view.call).filter(|parent| self.calls.contains_key(parent));
        self.calls.insert(id.clone(), view);
        self.items.push_back(Item::Call(id));
    }

    fn call_update(&mut self, update: schema::ToolCallUpdate) {
        let id = update.tool_call_id.clone();
        if let Some(view) = self.calls.get_mut(&id) {
            view.update(update, self.now);
            let is_waiting =
                self.items.iter().any(|item| matches!(item, Item::Call(call) if *call == id));
            if !is_waiting && self.calls.get(&id).is_some_and(ToolView::is_over) {
                // It was printed while it ran.
                self.close_texts();
                self.items.push_back(Item::Call(id));
            }
        } else if update.fields.title.is_some() {
            // Some agents start with an update.
            let mut call = schema::ToolCall::new(id, "Tool call");
            call.update(update.fields);
            self.call(call);
        }
    }

    /// Prints the items at the front that no longer move.
    fn print(&mut self) {
        loop {
            let waiting: usize = self.items.iter().skip(1).map(weight).sum();
            let is_over = match self.items.front() {
                None => return,
                Some(Item::Text { is_open, .. } | Item::Thought { is_open, .. }) => !is_open,
                Some(Item::Call(id)) => {
                    let is_over = self.calls.get(id).is_none_or(ToolView::is_over);
                    is_over || self.is_linear || waiting > MAX_WAITING
                }
                Some(Item::Lines(..)) => true,
            };
            if !is_over {
                self.print_open();
                return;
            }
            let Some(item) = self.items.pop_front() else { return };
            self.print_item(item);
        }
    }

    /// Prints the finished lines of a message that is not finished.
    fn print_open(&mut self) {
        let Some(Item::Text { sort, lines, .. }) = self.items.front_mut() else { return };
        // A message of the user is marked as a whole.
        if lines.is_empty() || *sort == Sort::User {
            return;
        }
        let (sort, lines) = (*sort, std::mem::take(lines));
        self.emit(sort, lines, true);
    }

    fn print_item(&mut self, item: Item) {
        match item {
            Item::Text { sort, mut markdown, mut lines, .. } => {
                lines.extend(markdown.finish());
                self.emit(sort, lines, true);
            }
            Item::Thought { text, started, .. } => {
                let lines = self.thought_lines(&text, started, false);
                self.fold(clean(&text).lines().map(|line| Line::of(line, Style::DIM)).collect());
                self.emit(Sort::Thought, lines, false);
            }
            Item::Call(id) => self.print_call(&id),
            Item::Lines(sort, lines) => self.emit(sort, lines, false),
        }
    }

    fn emit(&mut self, sort: Sort, lines: Vec<Line>, is_message: bool) {
        if lines.is_empty() {
            return;
        }
        let is_more = is_message && self.last == Some(sort) && sort == Sort::Agent;
        if needs_gap(self.last, sort) && !is_more {
            self.done.push(Line::default());
        }
        let is_users = sort == Sort::User && is_message;
        let mark = |(index, line): (usize, &Line)| {
            let mark = if index == 0 { "> " } else { "  " };
            let mut marked = Line::of(mark, Style { bold: true, ..Style::ansi(4) });
            marked.extend(line.clone().styled(Style::BOLD).spans().to_vec());
            marked
        };
        match is_users {
            true => self.done.extend(lines.iter().enumerate().map(mark)),
            false => self.done.extend(lines),
        }
        self.last = Some(sort);
    }

    fn thought_lines(&self, text: &str, started: u64, is_open: bool) -> Vec<Line> {
        let style = Style { dim: true, italic: true, ..Style::PLAIN };
        let took = duration(std::time::Duration::from_millis(self.now.saturating_sub(started)));
        if !is_open {
            let first = clean(text)
                .lines()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("")
                .trim()
                .to_owned();
            let head = format!("∴ Thought for {took}: {first}");
            return vec![crate::text::fit(&Line::of(head, style), self.columns)];
        }
        let mut lines = vec![Line::of(format!("∴ Thinking… {took}"), style)];
        let none = Line::default();
        let wrapped: Vec<Line> = clean(text)
            .lines()
            .flat_map(|line| {
                wrap(&Line::of(line, style), self.columns.saturating_sub(2), &none, &none)
            })
            .collect();
        let from = wrapped.len().saturating_sub(THOUGHT_LINES);
        lines.extend(wrapped[from..].iter().map(indent));
        lines
    }
}

/// Returns the frame of the spinner at this time.
#[must_use]
pub fn spinner(now: u64) -> char {
    let frame = usize::try_from(now / 120).unwrap_or(0);
    SPINNER[frame % SPINNER.len()]
}

fn weight(item: &Item) -> usize {
    match item {
        Item::Text { lines, .. } | Item::Lines(_, lines) => lines.len(),
        Item::Thought { .. } | Item::Call(_) => 1,
    }
}

fn needs_gap(last: Option<Sort>, next: Sort) -> bool {
    match last {
        None => false,
        Some(last) => last != next || matches!(next, Sort::User | Sort::Agent),
    }
}

fn plan_lines(plan: &schema::Plan) -> Vec<Line> {
    use schema::PlanEntryStatus::{Completed, InProgress};
    let done = plan.entries.iter().filter(|entry| entry.status == Completed).count();
    let head = format!("Plan {done}/{}", plan.entries.len());
    let entry = |entry: &schema::PlanEntry| {
        let (mark, style) = match entry.status {
            Completed => ("☑ ", Style { strike: true, ..Style::DIM }),
            InProgress => ("▶ ", Style::BOLD),
            _ => ("☐ ", Style::PLAIN),
        };
        let mark = Span::new(mark, Style { strike: false, ..style });
        Line::plain("  ").then(mark).then(Span::new(crate::clean::one_line(&entry.content), style))
    };
    std::iter::once(Line::of(head, Style::BOLD)).chain(plan.entries.iter().map(entry)).collect()
}
