//! The permission dialog: exactly what is asked, and the answers by key. Pure.
//!
//! Nothing is chosen by accident: keys that were typed before the dialog was visible go to the input, and the default is no.

use wire::acp::schema::{self, PermissionOptionKind};

use crate::clean::one_line;
use crate::keys::{Key, KeyCode};
use crate::style::{Line, Span, Style, Theme};
use crate::text::{fit, wrap};
use crate::tool_view::ToolView;

/// Keys count as answers once the dialog was visible, and nothing was typed, for so many milliseconds.
const ARM_AFTER: u64 = 400;

/// How many rows of the title are shown if the details repeat it.
const HEAD_ROWS: usize = 3;

/// A question, and what is visible of it.
#[derive(Debug)]
pub struct PermissionDialog {
    /// Which question the answer belongs to.
    pub id: u64,
    title: String,
    details: Vec<Line>,
    options: Vec<PermissionOption>,
    selected: usize,
    scroll: usize,
    shown: Option<u64>,
    /// What is typed as the reason of a no, once it was asked for.
    reason: Option<String>,
}

#[derive(Debug)]
struct PermissionOption {
    key: char,
    name: String,
    option: schema::PermissionOption,
}

/// What a key did.
#[derive(Debug, PartialEq)]
pub enum Permitted {
    /// Nothing is decided.
    Open,
    /// The key was typed too early: it belongs to the input.
    TooEarly,
    /// Nothing is decided, and other details are visible.
    Scrolled,
    /// This option was chosen, with the reason of a no.
    Chosen(schema::PermissionOptionId, Option<String>),
    /// Nothing was chosen: the answer is no, or "cancelled" if there is no such option.
    Rejected,
}

impl PermissionDialog {
    /// Makes a dialog for a call.
    #[must_use]
    pub fn new(
        id: u64,
        view: &ToolView,
        options: &[schema::PermissionOption],
        theme: Theme,
    ) -> PermissionDialog {
        let mut taken = String::new();
        let options: Vec<PermissionOption> = options
            .iter()
            .enumerate()
            .map(|(index, option)| {
                let wanted = match option.kind {
                    PermissionOptionKind::AllowOnce => "yo",
                    PermissionOptionKind::AllowAlways if is_for_session(option) => "sawe",
                    PermissionOptionKind::AllowAlways => "aswe",
                    PermissionOptionKind::RejectOnce => "nm",
                    PermissionOptionKind::RejectAlways => "dv",
                    _ => "",
                };
                let digit = char::from_digit(u32::try_from(index % 9).unwrap_or(0) + 1, 10);
                let free =
                    wanted.chars().find(|key| !taken.contains(*key)).or(digit).unwrap_or('1');
                taken.push(free);
                PermissionOption { key: free, name: one_line(&option.name), option: option.clone() }
            })
            .collect();
        let is_no =
            |option: &PermissionOption| option.option.kind == PermissionOptionKind::RejectOnce;
        let selected = options.iter().position(is_no).unwrap_or(options.len().saturating_sub(1));
        PermissionDialog {
            id,
            title: one_line(&view.call.title),
            details: view.details(theme),
            options,
            selected,
            scroll: 0,
            shown: None,
            reason: None,
        }
    }

    /// Notes that the dialog is on the screen.
    pub fn set_shown(&mut self, now: u64) {
        self.shown.get_or_insert(now);
    }

    /// Handles a key. `last_key` is when the one before it came.
    pub fn key(&mut self, key: Key, now: u64, last_key: u64) -> Permitted {
        let Some(shown) = self.shown else { return Permitted::TooEarly };
        if now.saturating_sub(shown.max(last_key.min(now))) < ARM_AFTER && !self.is_safe(key) {
            return Permitted::TooEarly;
        }
        if self.reason.is_some() {
            return self.reason_key(key);
        }
        match key.code {
            KeyCode::Esc => return Permitted::Rejected,
            KeyCode::Char('c') if key.ctrl => return Permitted::Rejected,
            KeyCode::Enter => return self.choose(self.selected),
            KeyCode::Left | KeyCode::Tab if key.shift || key.code == KeyCode::Left => {
                self.selected =
                    self.selected.checked_sub(1).unwrap_or(self.options.len().saturating_sub(1));
            }
            KeyCode::Right | KeyCode::Tab => {
                self.selected = (self.selected + 1) % self.options.len().max(1);
            }
            KeyCode::Up => return self.scrolled(-1),
            KeyCode::Down => return self.scrolled(1),
            KeyCode::PageUp => return self.scrolled(-10),
            KeyCode::PageDown => return self.scrolled(10),
            KeyCode::Char('r' | 'N') if !key.ctrl && !key.alt => self.reason = Some(String::new()),
            KeyCode::Char(typed) if !key.ctrl && !key.alt => {
                let typed = typed.to_ascii_lowercase();
                if let Some(at) = self.options.iter().position(|option| option.key == typed) {
                    return self.choose(at);
                }
            }
            _ => {}
        }
        Permitted::Open
    }

    /// Takes a line that was typed: the key of an option, or `n` and a reason. An empty line decides nothing.
    #[must_use]
    pub fn line(&self, line: &str, now: u64) -> Permitted {
        let line = line.trim();
        if self.shown.is_none_or(|shown| now.saturating_sub(shown) < ARM_AFTER) {
            return Permitted::TooEarly;
        }
        let (word, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let is_key = |option: &PermissionOption| {
            word.chars().eq(std::iter::once(option.key))
                || word == option.key.to_uppercase().to_string()
        };
        let option = self.options.iter().find(|option| is_key(option));
        match option {
            Some(option) if reason.is_empty() => {
                Permitted::Chosen(option.option.option_id.clone(), None)
            }
            Some(option) if option.option.kind == PermissionOptionKind::RejectOnce => {
                Permitted::Chosen(option.option.option_id.clone(), Some(reason.trim().to_owned()))
            }
            _ => Permitted::Open,
        }
    }

    /// Returns the keys of the options.
    #[must_use]
    pub fn keys(&self) -> String {
        let keys: Vec<String> = self.options.iter().map(|option| option.key.to_string()).collect();
        keys.join(", ")
    }

    fn scrolled(&mut self, rows: isize) -> Permitted {
        // Not beyond what can be shown, or scrolling back would seem to do nothing.
        let last = self.details.iter().map(|line| 1 + line.width() / 20).sum::<usize>();
        self.scroll = self.scroll.saturating_add_signed(rows).min(last);
        Permitted::Scrolled
    }

    /// Scrolling decides nothing, so it works at once.
    fn is_safe(&self, key: Key) -> bool {
        self.reason.is_some()
            || matches!(key.code, KeyCode::Up | KeyCode::Down | KeyCode::PageUp | KeyCode::PageDown)
    }

    fn choose(&self, at: usize) -> Permitted {
        match self.options.get(at) {
            Some(option) => Permitted::Chosen(option.option.option_id.clone(), None),
            None => Permitted::Rejected,
        }
    }

    /// Returns the option that rejects the request, the mildest first.
    #[must_use]
    pub fn no_option(&self) -> Option<schema::PermissionOptionId> {
        let no = |kind| self.options.iter().find(|option| option.option.kind == kind);
        let option =
            no(PermissionOptionKind::RejectOnce).or_else(|| no(PermissionOptionKind::RejectAlways));
        option.map(|option| option.option.option_id.clone())
    }

    fn reason_key(&mut self, key: Key) -> Permitted {
        let Some(reason) = &mut self.reason else { return Permitted::Open };
        match key.code {
            KeyCode::Esc => self.reason = None,
            KeyCode::Backspace => {
                reason.pop();
            }
            KeyCode::Char(char) if !key.ctrl && !key.alt => reason.push(char),
            KeyCode::Enter => {
                let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
                return match self.no_option() {
                    Some(option) => Permitted::Chosen(option, reason),
                    None => Permitted::Rejected,
                };
            }
            _ => {}
        }
        Permitted::Open
    }

    /// Returns the lines, at most so many if possible. What is asked is cut at the top and can be scrolled; the answers never are.
    #[must_use]
    pub fn lines(&self, columns: usize, rows: usize) -> Vec<Line> {
        let none = Line::default();
        let answers = self.answers(columns);
        let bar = Line::of("│ ", Style::DIM);
        let details: Vec<Line> =
            self.details.iter().flat_map(|line| wrap(line, columns, &bar, &bar)).collect();
        let mut head = Line::of("Allow ", Style { bold: true, ..Style::ansi(3) });
        head.push(Span::new(format!("\"{}\"?", self.title), Style::BOLD));
        let mut lines = wrap(&head, columns, &none, &Line::plain("  "));
        if !details.is_empty() && lines.len() > HEAD_ROWS && rows != usize::MAX {
            // The details have all of it.
            lines.truncate(HEAD_ROWS);
            if let Some(last) = lines.last_mut() {
                *last = fit(&last.clone().then(Span::plain(" …")), columns);
            }
        }
        let room = rows.saturating_sub(lines.len() + answers.len() + 1).max(3);
        let scroll = self.scroll.min(details.len().saturating_sub(room));
        lines.extend(details.iter().skip(scroll).take(room).cloned());
        let below = details.len().saturating_sub(scroll.saturating_add(room));
        if details.len() > room {
            let note = format!("│ {below} more lines below, {scroll} above (↑ ↓)");
            lines.push(fit(&Line::of(note, Style::DIM), columns));
        }
        lines.extend(answers);
        lines
    }

    /// Returns the options, or the reason that is being typed.
    fn answers(&self, columns: usize) -> Vec<Line> {
        let none = Line::default();
        if let Some(reason) = &self.reason {
            let line =
                Line::of("No, because: ", Style::BOLD).then(Span::plain(format!("{reason}▏")));
            let mut lines = wrap(&line, columns, &none, &none);
            let hint = "Enter sends it to the model, Esc goes back";
            lines.push(fit(&Line::of(hint, Style::DIM), columns));
            return lines;
        }
        let mut lines = Vec::new();
        for (at, option) in self.options.iter().enumerate() {
            let is_selected = at == self.selected;
            let style =
                if is_selected { Style { bold: true, ..Style::ansi(6) } } else { Style::PLAIN };
            let line = Line::of(if is_selected { "› " } else { "  " }, style)
                .then(Span::new(format!("{} ", option.key), Style { bold: true, ..style }))
                .then(Span::new(option.name.as_str(), style));
            lines.extend(wrap(&line, columns, &none, &Line::plain("    ")));
        }
        lines.push(fit(&Line::of("  N No, with a reason   Esc No", Style::DIM), columns));
        lines
    }
}

/// Returns whether an option lasts as long as the session. The protocol has no word for that, so its name decides the key.
fn is_for_session(option: &schema::PermissionOption) -> bool {
    option.name.to_lowercase().contains("session")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialog() -> PermissionDialog {
        let option =
            |id: &str, kind| schema::PermissionOption::new(id.to_owned(), id.to_owned(), kind);
        let options = [
            option("once", PermissionOptionKind::AllowOnce),
            option("session", PermissionOptionKind::AllowAlways),
            option("project", PermissionOptionKind::AllowAlways),
            option("no", PermissionOptionKind::RejectOnce),
        ];
        let call = schema::ToolCall::new("t", "Run make");
        PermissionDialog::new(7, &ToolView::new(call, 0), &options, Theme::Dark)
    }

    fn chosen(id: &str) -> Permitted {
        Permitted::Chosen(schema::PermissionOptionId::new(id.to_owned()), None)
    }

    const Y: Key = Key::plain(KeyCode::Char('y'));

    // R: C1
    #[test]
    fn keys_typed_before_the_dialog_was_visible_do_not_answer_it() {
        let mut dialog = dialog();
        assert_eq!(dialog.key(Y, 1000, 0), Permitted::TooEarly);
        dialog.set_shown(1000);
        assert_eq!(dialog.key(Y, 1100, 0), Permitted::TooEarly);
        // Somebody who is typing has not seen it either.
        assert_eq!(dialog.key(Y, 1500, 1450), Permitted::TooEarly);
        assert_eq!(dialog.key(Y, 2000, 1500), chosen("once"));
    }

    #[test]
    fn options_have_keys_and_no_is_the_default() {
        let mut dialog = dialog();
        dialog.set_shown(0);
        let mut press = |key| dialog.key(key, 5000, 0);
        assert_eq!(press(Key::plain(KeyCode::Char('s'))), chosen("session"));
        assert_eq!(press(Key::plain(KeyCode::Char('a'))), chosen("project"));
        assert_eq!(press(Key::plain(KeyCode::Char('n'))), chosen("no"));
        assert_eq!(press(Key::plain(KeyCode::Enter)), chosen("no"));
        assert_eq!(press(Key::plain(KeyCode::Esc)), Permitted::Rejected);
        assert_eq!(press(Key::plain(KeyCode::Char('q'))), Permitted::Open);
    }

    #[test]
    fn no_can_have_a_reason() {
        let mut dialog = dialog();
        dialog.set_shown(0);
        for char in "Nuse b".chars() {
            assert_eq!(dialog.key(Key::plain(KeyCode::Char(char)), 5000, 0), Permitted::Open);
        }
        let id = schema::PermissionOptionId::new("no");
        let expected = Permitted::Chosen(id, Some("use b".to_owned()));
        assert_eq!(dialog.key(Key::plain(KeyCode::Enter), 5000, 0), expected);
    }
}
