//! A form of the agent: its fields one after the other. Pure.

use std::collections::BTreeMap;

use wire::acp::schema::{
    self, ElicitationContentValue as Value, ElicitationPropertySchema as Property,
};

use crate::clean::{clean, one_line};
use crate::keys::{Key, KeyCode};
use crate::picker::{Choice, Picked, Picker};
use crate::style::{Line, Span, Style};
use crate::text::wrap;

/// A form, and which field is being filled in.
#[derive(Debug)]
pub struct FormDialog {
    /// Which question the answer belongs to.
    pub id: u64,
    message: String,
    fields: Vec<Field>,
    at: usize,
    content: BTreeMap<String, Value>,
    problem: Option<String>,
}

#[derive(Debug)]
struct Field {
    name: String,
    title: String,
    is_required: bool,
    input: FieldInput,
}

#[derive(Debug)]
enum FieldInput {
    Text(String),
    Integer(String),
    Number(String),
    Pick(Picker<Value>),
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
        let fields = match request.mode {
            schema::ElicitationMode::Form(form) => {
                let required = form.requested_schema.required.unwrap_or_default();
                let properties = form.requested_schema.properties.into_iter();
                properties
                    .map(|(name, property)| field(name, property, &required))
                    .collect::<Option<Vec<Field>>>()
            }
            schema::ElicitationMode::Url(page) => {
                let title = format!("Open this page: {}", one_line(&page.url));
                let done = [("I have opened it", true), ("No", false)];
                let choices =
                    done.map(|(name, value)| Choice::new(name, "", Value::Boolean(value)));
                let input = FieldInput::Pick(Picker::new(&title, choices.to_vec(), 1));
                Some(vec![Field { name: String::new(), title, is_required: true, input }])
            }
            _ => None,
        };
        match fields {
            Some(fields) if !fields.is_empty() => Ok(FormDialog {
                id,
                message,
                fields,
                at: 0,
                content: BTreeMap::new(),
                problem: None,
            }),
            _ => Err(response(schema::ElicitationAction::Decline)),
        }
    }

    /// Handles a key.
    pub fn key(&mut self, key: Key) -> FormAnswer {
        self.problem = None;
        let Some(field) = self.fields.get_mut(self.at) else { return self.accept() };
        if let FieldInput::Pick(picker) = &mut field.input {
            return match picker.key(key) {
                Picked::Chosen(Value::Boolean(false)) if field.name.is_empty() => {
                    FormAnswer::Done(response(schema::ElicitationAction::Decline))
                }
                Picked::Chosen(value) => self.next(Some(value)),
                // Closing the list of a field that may be empty continues without it.
                Picked::Closed if !field.is_required && key.code != KeyCode::Esc => self.next(None),
                Picked::Closed => FormAnswer::Done(response(schema::ElicitationAction::Decline)),
                Picked::Other(Key { code: KeyCode::Right, .. }, _) if !field.is_required => {
                    self.next(None)
                }
                Picked::Open | Picked::Other(..) => FormAnswer::Open,
            };
        }
        let (FieldInput::Text(text) | FieldInput::Integer(text) | FieldInput::Number(text)) =
            &mut field.input
        else {
            return FormAnswer::Open;
        };
        match key.code {
            KeyCode::Esc => return FormAnswer::Done(response(schema::ElicitationAction::Decline)),
            KeyCode::Char('c') if key.ctrl => {
                return FormAnswer::Done(response(schema::ElicitationAction::Decline));
            }
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Enter => return self.submit(),
            KeyCode::Char(char) if !key.ctrl && !key.alt => text.push(char),
            _ => {}
        }
        FormAnswer::Open
    }

    /// Adds pasted text to the field.
    pub fn paste(&mut self, pasted: &str) {
        if let Some(Field {
            input: FieldInput::Text(text) | FieldInput::Integer(text) | FieldInput::Number(text),
            ..
        }) = self.fields.get_mut(self.at)
        {
            text.push_str(&one_line(pasted));
        }
    }

    fn submit(&mut self) -> FormAnswer {
        let Some(field) = self.fields.get(self.at) else { return self.accept() };
        let value = match &field.input {
            FieldInput::Text(text) if text.is_empty() => Ok(None),
            FieldInput::Text(text) => Ok(Some(Value::String(text.clone()))),
            FieldInput::Integer(text) if text.is_empty() => Ok(None),
            FieldInput::Integer(text) => text
                .trim()
                .parse()
                .map(|number| Some(Value::Integer(number)))
                .map_err(|_| "a whole number"),
            FieldInput::Number(text) if text.is_empty() => Ok(None),
            FieldInput::Number(text) => text
                .trim()
                .parse()
                .map(|number| Some(Value::Number(number)))
                .map_err(|_| "a number"),
            FieldInput::Pick(_) => Ok(None),
        };
        match value {
            Ok(None) if field.is_required => {
                self.problem = Some("This field must be filled in.".to_owned());
                FormAnswer::Open
            }
            Ok(value) => self.next(value),
            Err(wanted) => {
                self.problem = Some(format!("This must be {wanted}."));
                FormAnswer::Open
            }
        }
    }

    fn next(&mut self, value: Option<Value>) -> FormAnswer {
        if let (Some(value), Some(field)) = (value, self.fields.get(self.at))
            && !field.name.is_empty()
        {
            self.content.insert(field.name.clone(), value);
        }
        self.at += 1;
        // One answer is enough for fields of which all may be empty.
        let rest_is_free =
            self.fields[self.at.min(self.fields.len())..].iter().all(|field| !field.is_required);
        if self.at >= self.fields.len() || rest_is_free && !self.content.is_empty() {
            return self.accept();
        }
        FormAnswer::Open
    }

    fn accept(&mut self) -> FormAnswer {
        let content = std::mem::take(&mut self.content);
        let accept = schema::ElicitationAcceptAction::new().content(content);
        FormAnswer::Done(response(schema::ElicitationAction::Accept(accept)))
    }

    /// Returns the lines.
    #[must_use]
    pub fn lines(&self, columns: usize) -> Vec<Line> {
        let none = Line::default();
        let style = Style { bold: true, ..Style::ansi(3) };
        let mut lines: Vec<Line> = self
            .message
            .lines()
            .flat_map(|line| wrap(&Line::of(line, style), columns, &none, &Line::plain("  ")))
            .collect();
        let Some(field) = self.fields.get(self.at) else { return lines };
        match &field.input {
            FieldInput::Pick(picker) => lines.extend(picker.lines(columns)),
            FieldInput::Text(text) | FieldInput::Integer(text) | FieldInput::Number(text) => {
                let line = Line::of(format!("{}: ", field.title), Style::BOLD)
                    .then(Span::plain(format!("{text}▏")));
                lines.extend(wrap(&line, columns, &none, &none));
                let hint = if field.is_required {
                    "Enter answers, Esc declines"
                } else {
                    "Enter answers or skips, Esc declines"
                };
                lines.push(Line::of(hint, Style::DIM));
            }
        }
        lines.extend(
            self.problem.as_ref().map(|problem| Line::of(problem.as_str(), Style::ansi(1))),
        );
        lines
    }
}

fn response(action: schema::ElicitationAction) -> schema::CreateElicitationResponse {
    schema::CreateElicitationResponse::new(action)
}

/// Returns the field of a property; `None` if its type is unknown.
fn field(name: String, property: Property, required: &[String]) -> Option<Field> {
    let is_required = required.contains(&name);
    let title_of = |title: &Option<String>| one_line(title.as_deref().unwrap_or(&name));
    // Values and titles are read from the JSON form, which is the same for all kinds of lists.
    let raw = serde_json::to_value(&property).ok()?;
    let (title, input) = match &property {
        Property::Boolean(property) => {
            let title = title_of(&property.title);
            let choices = [("Yes", true), ("No", false)];
            let choices =
                choices.map(|(label, value)| Choice::new(label, "", Value::Boolean(value)));
            let selected = usize::from(property.default != Some(true));
            let picker = Picker::new(&title, choices.to_vec(), selected);
            (title, FieldInput::Pick(picker))
        }
        Property::Integer(property) => {
            (title_of(&property.title), FieldInput::Integer(String::new()))
        }
        Property::Number(property) => {
            (title_of(&property.title), FieldInput::Number(String::new()))
        }
        Property::String(property) => {
            let title = title_of(&property.title);
            let choices = choices_of(&raw);
            let input = match choices.is_empty() {
                true => FieldInput::Text(raw["default"].as_str().unwrap_or_default().to_owned()),
                false => {
                    let hint = if is_required {
                        "Enter chooses, Esc declines"
                    } else {
                        "Enter chooses, → another answer, Esc declines"
                    };
                    FieldInput::Pick(Picker::new(&title, choices, 0).hint(hint))
                }
            };
            (title, input)
        }
        Property::Array(property) => {
            let title = title_of(&property.title);
            let choices = choices_of(&raw["items"]).into_iter().map(|choice| {
                let value = match choice.value {
                    Value::String(text) => Value::StringArray(vec![text]),
                    other => other,
                };
                Choice { value, ..choice }
            });
            let picker = Picker::new(&title, choices.collect(), 0);
            (title, FieldInput::Pick(picker))
        }
        _ => return None,
    };
    Some(Field { name, title, is_required, input })
}

fn choices_of(raw: &serde_json::Value) -> Vec<Choice<Value>> {
    let plain = raw["enum"].as_array().into_iter().flatten().filter_map(|value| {
        let text = value.as_str()?;
        Some(Choice::new(text, "", Value::String(text.to_owned())))
    });
    let titled =
        ["oneOf", "anyOf"].into_iter().flat_map(|name| raw[name].as_array().into_iter().flatten());
    let titled = titled.filter_map(|value| {
        let text = value["const"].as_str()?;
        let title = value["title"].as_str().unwrap_or(text);
        Some(Choice::new(title, "", Value::String(text.to_owned())))
    });
    plain.chain(titled).collect()
}
