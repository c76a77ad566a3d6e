//! Draws the live area: what moves, the dialog, the input, the footer.

use std::time::Duration;

use wire::acp::schema::SessionConfigOptionCategory;

use super::slash::current_of;
use super::typing::HANGS_AFTER;
use super::{App, Dialog, Link};
use crate::clean::one_line;
use crate::conversation::spinner;
use crate::picker::row;
use crate::screen::Live;
use crate::style::{Line, Span, Style};
use crate::text::fit;
use crate::tool_view::duration;

/// How many rows of the input are shown at most.
const INPUT_ROWS: usize = 10;

/// How many rows of what is offered for completion are shown at a time.
const OFFER_ROWS: usize = 6;

/// How many rows of the plan are shown at most.
const PLAN_ROWS: usize = 7;

/// The status line reports a silent agent after this many milliseconds.
const SILENT_AFTER: u64 = 30_000;

impl App {
    /// Returns the columns of the input: its mark takes two.
    pub(super) fn input_columns(&self) -> usize {
        self.columns.saturating_sub(2).max(2)
    }

    /// Returns the live area.
    pub fn live(&mut self) -> Live {
        if let Some(Dialog::Permission(dialog)) = &mut self.dialog {
            dialog.set_shown(self.now);
        }
        let bottom = self.bottom();
        let room = self.rows.saturating_sub(bottom.0.len() + 1);
        let mut lines = self.conversation.live(room);
        let plan = self.plan(room.saturating_sub(lines.len()));
        if !plan.is_empty() && !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(plan);
        // One empty line between the conversation and the input, if there is room.
        if self.rows > bottom.0.len() + lines.len() {
            lines.push(Line::default());
        }
        let cursor = bottom.1.map(|(row, column)| (row + lines.len(), column));
        lines.extend(bottom.0);
        Live { lines, cursor }
    }

    fn plan(&self, room: usize) -> Vec<Line> {
        if self.dialog.is_some() {
            return Vec::new();
        }
        let mut plan = self.conversation.plan().unwrap_or_default();
        let limit = PLAN_ROWS.min(room);
        if plan.len() > limit && limit > 0 {
            let hidden = plan.len() - limit + 1;
            plan.truncate(limit - 1);
            plan.push(Line::of(format!("  … {hidden} more"), Style::DIM));
        }
        if limit == 0 { Vec::new() } else { plan }
    }

    /// Returns the rows below the conversation, and the cursor in them.
    fn bottom(&self) -> (Vec<Line>, Option<(usize, usize)>) {
        let mut lines = Vec::new();
        lines.extend(self.status().map(|line| fit(&line, self.columns)));
        for text in &self.queued {
            let line = Line::of("⋯ ", Style::DIM).then(Span::new(one_line(text), Style::DIM));
            lines.push(fit(&line, self.columns));
        }
        if self.dialog.is_some() {
            let room = self.rows.saturating_sub(lines.len() + 2);
            let typed = matches!(self.dialog, Some(Dialog::Permission(_)))
                .then(|| one_line(self.editor.text()))
                .filter(|typed| !typed.is_empty());
            let room = room.saturating_sub(usize::from(typed.is_some()));
            lines.extend(self.dialog_lines(room));
            // Otherwise keys that came too early seem to be lost.
            let typed =
                typed.map(|typed| Line::of(format!("Typed, not an answer: {typed}"), Style::DIM));
            lines.extend(typed.map(|line| fit(&line, self.columns)));
            lines.push(fit(&self.footer(), self.columns));
            return (lines, None);
        }
        let view = self.editor.view(self.input_columns());
        // The rows around the cursor.
        let shown = INPUT_ROWS.min(self.rows.saturating_sub(3).max(1));
        let from = (view.cursor.0 + 1).saturating_sub(shown);
        let top = lines.len();
        for (at, text) in view.rows.iter().enumerate().skip(from).take(shown) {
            let mark = match (at, self.is_vi_normal) {
                (0, true) => ": ",
                (0, false) => "> ",
                _ => "  ",
            };
            let line = Line::of(mark, Style { bold: true, ..Style::ansi(4) });
            lines.push(line.then(Span::plain(text.as_str())));
        }
        let cursor = (top + view.cursor.0 - from, view.cursor.1 + 2);
        let offers = &self.offers;
        let selected = self.completion.unwrap_or(0).min(offers.len().saturating_sub(1));
        let from = (selected + 1).saturating_sub(OFFER_ROWS);
        for (at, (text, more)) in offers.iter().enumerate().skip(from).take(OFFER_ROWS) {
            lines.push(fit(&row(text, more, at == selected), self.columns));
        }
        lines.push(fit(&self.footer(), self.columns));
        (lines, Some(cursor))
    }

    fn dialog_lines(&self, rows: usize) -> Vec<Line> {
        match &self.dialog {
            None => Vec::new(),
            Some(Dialog::Permission(dialog)) => dialog.lines(self.columns, rows),
            Some(Dialog::Form(form) | Dialog::Rename(_, form)) => form.lines(self.columns, rows),
            Some(Dialog::Option(picker)) => picker.lines(self.columns),
            Some(Dialog::Options(picker)) => picker.lines(self.columns),
            Some(Dialog::Mode(picker)) => picker.lines(self.columns),
            Some(Dialog::Sessions(picker)) => picker.lines(self.columns),
            Some(Dialog::Login(picker)) => picker.lines(self.columns),
            Some(Dialog::History(picker)) => picker.lines(self.columns),
            Some(Dialog::Continue(picker)) => picker.lines(self.columns),
            Some(Dialog::Delete(picker)) => picker.lines(self.columns),
            Some(Dialog::Rewind(picker)) => picker.lines(self.columns),
        }
    }

    /// Returns the line that says what is going on.
    fn status(&self) -> Option<Line> {
        let spin = match &self.dialog {
            Some(_) => '?',
            None => spinner(self.now),
        };
        let style = Style::ansi(6);
        if self.warned.is_some() && self.turn.is_none() {
            let text = match self.editor.text().is_empty() {
                true => "Press Ctrl-C again to quit",
                false => "Press Esc again to clear the input",
            };
            return Some(Line::of(text, Style::ansi(3)));
        }
        match (&self.link, &self.turn) {
            (Link::Connecting(0), _) => {
                Some(Line::of(format!("{spin} Starting the agent…"), style))
            }
            (Link::Connecting(attempt), _) => Some(Line::of(
                format!("{spin} Reconnecting, attempt {attempt} of 3…"),
                Style::ansi(3),
            )),
            (Link::Down, _) => Some(Line::of("✗ Not connected. Enter tries again", Style::ansi(1))),
            (Link::NoSession, _) => Some(Line::of("No session. Enter opens one", Style::ansi(3))),
            (Link::Ready, Some(turn)) => {
                let time = duration(Duration::from_millis(self.now.saturating_sub(turn.started)));
                let silent = self.now.saturating_sub(turn.heard);
                let text = match turn.cancelled {
                    Some(at) if self.now.saturating_sub(at) > HANGS_AFTER => {
                        "Not cancelled yet. Ctrl-C restarts the agent".to_owned()
                    }
                    Some(_) => "Cancelling…".to_owned(),
                    None if self.dialog.is_some() => "Waiting for you".to_owned(),
                    None if silent > SILENT_AFTER => {
                        let since = duration(Duration::from_millis(silent));
                        format!("Working {time}, silent for {since} · Esc cancels")
                    }
                    None => format!("Working {time} · Esc cancels"),
                };
                Some(Line::of(format!("{spin} {text}"), style))
            }
            (Link::Ready, None) => None,
        }
    }

    /// Mode, model, context, cost, branch, title. What matters most comes first, so that a narrow screen shows it.
    fn footer(&self) -> Line {
        let mut parts: Vec<String> = Vec::new();
        if let Some(session) = &self.session {
            let current = |category: SessionConfigOptionCategory| {
                session
                    .options
                    .iter()
                    .find(|option| option.category.as_ref() == Some(&category))
                    .map(current_of)
            };
            let mode = current(SessionConfigOptionCategory::Mode).or_else(|| {
                let modes = session.modes.as_ref()?;
                let mode =
                    modes.available_modes.iter().find(|mode| mode.id == modes.current_mode_id)?;
                Some(one_line(&mode.name))
            });
            parts.extend(mode);
            parts.extend(current(SessionConfigOptionCategory::Model));
            parts.extend(current(SessionConfigOptionCategory::ThoughtLevel));
            if let Some(usage) = &session.usage {
                let percent = (usage.used * 100).checked_div(usage.size);
                parts.extend(percent.map(|percent| format!("{percent}% context")));
                if let Some(cost) = usage.cost.as_ref().filter(|cost| cost.amount > 0.0) {
                    let sign = if cost.currency == "USD" { "$" } else { cost.currency.as_str() };
                    parts.push(one_line(&format!("{sign}{:.2}", cost.amount)));
                }
            }
            parts.extend(self.branch.clone());
            parts.extend(session.title.clone());
        }
        Line::of(parts.join(" · "), Style::DIM)
    }
}
