//! A form of the agent: all its fields, one of them being filled in. Pure. `form::field` is one field.

mod field;

use std::collections::BTreeMap;

use wire::acp::schema::{self, ElicitationContentValue as Value};

use self::field::{Field, Input};
use crate::clean::{clean, one_line};
use crate::keys::{Key, KeyCode};
use crate::style::{Line, Span, Style};
use crate::text::{fit, wrap};

/// How many options of a list are shown at a time.
const SHOWN: usize = 8;

/// A form, and which field is being filled in.
#[derive(Debug)]
pub struct FormDialog {
    /// Which question the answer belongs to.
    pub id: u64,
    message: String,
    fields: Vec<Field>,
    at: usize,
    /// Only a yes is wanted: a page to open, or a form without fields.
    is_confirmation: bool,
    problem: Option<String>,
}

/// What a key did.
#[derive(Debug)]
pub enum FormAnswer {
    /// The form is still open.
    Open,
    /// This is the answer.
    Done(schema::CreateElicitationResponse),
}

impl FormDialog {
    /// Makes a form.
    ///
    /// # Errors
    /// Returns the answer for a question that cannot be shown.
    pub fn new(
        id: u64,
        request: schema::CreateElicitationRequest,
    ) -> Result<FormDialog, schema::CreateElicitationResponse> {
        let message = clean(&request.message);
        let (fields, is_confirmation) = match request.mode {
            schema::ElicitationMode::Form(form) => {
                let required = form.requested_schema.required.unwrap_or_default();
                let properties = form.requested_schema.properties.into_iter();
                let fields: Option<Vec<Field>> = properties
                    .map(|(name, property)| Field::new(name, property, &required))
                    .collect();
                match fields {
                    Some(fields) if fields.is_empty() => (Some(vec![Field::confirmation()]), true),
                    fields => (fields.map(with_other), false),
                }
            }
            schema::ElicitationMode::Url(page) => {
                (Some(vec![Field::page(&one_line(&page.url))]), true)
            }
            _ => (None, false),
        };
        match fields {
            Some(fields) => {
                Ok(FormDialog { id, message, fields, at: 0, is_confirmation, problem: None })
            }
            // Unknown fields cannot be filled in.
            None => Err(response(schema::ElicitationAction::Decline)),
        }
    }

    /// Makes a form of the client itself, with one text.
    #[must_use]
    pub fn text(title: &str, text: &str) -> FormDialog {
        let fields = vec![Field::text(title, text)];
        let (id, at, is_confirmation, problem) = (0, 0, false, None);
        FormDialog { id, message: String::new(), fields, at, is_confirmation, problem }
    }

    /// Handles a key.
    pub fn key(&mut self, key: Key) -> FormAnswer {
        self.problem = None;
        let Some(field) = self.fields.get_mut(self.at) else { return FormAnswer::Open };
        match key.code {
            KeyCode::Esc => return done(schema::ElicitationAction::Decline),
            KeyCode::Char('c') if key.ctrl => return done(schema::ElicitationAction::Cancel),
            KeyCode::Tab if key.shift => self.at = self.at.saturating_sub(1),
            KeyCode::Tab => self.at = (self.at + 1).min(self.fields.len() - 1),
            KeyCode::Enter => return self.enter(),
            KeyCode::Up if field.is_text() => self.at = self.at.saturating_sub(1),
            KeyCode::Down if field.is_text() => self.at = (self.at + 1).min(self.fields.len() - 1),
            _ => field.key(key),
        }
        FormAnswer::Open
    }

    /// Takes a line that was typed without an editor: the value of the field. An empty line is its default.
    pub fn line(&mut self, line: &str) -> FormAnswer {
        self.problem = None;
        match line.trim() {
            "/decline" => return done(schema::ElicitationAction::Decline),
            "/cancel" => return done(schema::ElicitationAction::Cancel),
            line => {
                let Some(field) = self.fields.get_mut(self.at) else { return FormAnswer::Open };
                if let Err(problem) = field.set(line) {
                    self.problem = Some(problem);
                    return FormAnswer::Open;
                }
            }
        }
        self.enter()
    }

    /// Adds pasted text to the field.
    pub fn paste(&mut self, pasted: &str) {
        if let Some(field) = self.fields.get_mut(self.at) {
            field.paste(&one_line(pasted));
        }
    }

    /// Checks the field and goes to the next. After the last one the form is sent, unless a field is missing.
    fn enter(&mut self) -> FormAnswer {
        let Some(field) = self.fields.get(self.at) else { return FormAnswer::Open };
        match field.value() {
            Err(problem) => {
                self.problem = Some(problem);
                return FormAnswer::Open;
            }
            Ok(Some(Value::Boolean(false))) if self.is_confirmation => {
                return done(schema::ElicitationAction::Decline);
            }
            // The other field is for those who chose none of the list.
            Ok(Some(_)) if field.has_other && !field.is_other_chosen() => return self.send(),
            Ok(_) => {}
        }
        if self.at + 1 < self.fields.len() {
            self.at += 1;
            return FormAnswer::Open;
        }
        self.send()
    }

    fn send(&mut self) -> FormAnswer {
        let mut content: BTreeMap<String, Value> = BTreeMap::new();
        for (at, field) in self.fields.iter().enumerate() {
            match field.value() {
                Ok(Some(value)) if !self.is_confirmation => {
                    content.insert(field.name.clone(), value);
                }
                Ok(_) => {}
                Err(problem) => {
                    self.at = at;
                    self.problem = Some(problem);
                    return FormAnswer::Open;
                }
            }
        }
        let accept = schema::ElicitationAcceptAction::new();
        let accept = if self.is_confirmation { accept } else { accept.content(content) };
        done(schema::ElicitationAction::Accept(accept))
    }

    /// Returns the lines, at most so many.
    #[must_use]
    pub fn lines(&self, columns: usize, rows: usize) -> Vec<Line> {
        let mut lines = self.head(columns);
        let hint = self.hint();
        let mut body = Vec::new();
        let mut focus = 0;
        for (at, field) in self.fields.iter().enumerate() {
            let is_current = at == self.at;
            if is_current {
                focus = body.len();
            }
            body.extend(field.lines(columns, is_current, SHOWN));
        }
        body.extend(self.problem_line());
        // Around the current field.
        let room = rows.saturating_sub(lines.len() + 1).max(3);
        let from = (focus + room / 2).saturating_sub(room).min(body.len().saturating_sub(room));
        lines.extend(body.into_iter().skip(from).take(room));
        lines.push(fit(&Line::of(hint, Style::DIM), columns));
        lines
    }

    /// Returns the lines for a terminal without a cursor: the question, and the field that is next.
    #[must_use]
    pub fn plain_lines(&self, columns: usize) -> Vec<Line> {
        let mut lines = if self.at == 0 { self.head(columns) } else { Vec::new() };
        lines.extend(self.problem_line());
        if let Some(field) = self.fields.get(self.at) {
            lines.extend(field.plain_lines(columns));
        }
        lines.push(Line::of("/decline declines", Style::DIM));
        lines
    }

    fn head(&self, columns: usize) -> Vec<Line> {
        let style = Style { bold: true, ..Style::ansi(3) };
        let none = Line::default();
        let wrapped = |line| wrap(&Line::of(line, style), columns, &none, &Line::plain("  "));
        self.message.lines().flat_map(wrapped).collect()
    }

    fn problem_line(&self) -> Option<Line> {
        self.problem.as_ref().map(|problem| Line::of(problem.as_str(), Style::ansi(1)))
    }

    fn hint(&self) -> String {
        let is_whole = |field: &Field| field.has_other && !field.is_other_chosen();
        let is_last =
            self.at + 1 >= self.fields.len() || self.fields.get(self.at).is_some_and(is_whole);
        let enter = if is_last { "Enter answers" } else { "Enter: next" };
        let input = match self.fields.get(self.at).map(|field| &field.input) {
            Some(Input::Choice { .. }) => ", ↑ ↓ choose",
            Some(Input::Several { .. }) => ", ↑ ↓ move, Space marks",
            Some(Input::Text { .. }) | None => "",
        };
        let fields = if self.fields.len() > 1 { ", Tab another field" } else { "" };
        let esc = if self.message.is_empty() { "closes" } else { "declines" };
        format!("{enter}{input}{fields}, Esc {esc}")
    }
}

/// A list, and a text for those who want none of it, is how agents let a question be answered freely: the list gets an entry for
/// the text, and choosing another one is the whole answer.
fn with_other(mut fields: Vec<Field>) -> Vec<Field> {
    if let [list, text] = &mut fields[..]
        && matches!(list.input, Input::Choice { .. })
        && text.is_text()
        && !list.is_required
        && !text.is_required
    {
        list.add_other(&text.title);
    }
    fields
}

fn done(action: schema::ElicitationAction) -> FormAnswer {
    FormAnswer::Done(response(action))
}

fn response(action: schema::ElicitationAction) -> schema::CreateElicitationResponse {
    schema::CreateElicitationResponse::new(action)
}

/// Returns a line with a mark if it is the current one. The mark is visible without colours.
fn marked(text: &str, is_current: bool) -> Line {
    let style = if is_current { Style { bold: true, ..Style::ansi(6) } } else { Style::PLAIN };
    Line::of(if is_current { "› " } else { "  " }, style).then(Span::new(text, style))
}

#[cfg(test)]
mod tests;
