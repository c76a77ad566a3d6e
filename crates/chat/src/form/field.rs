//! One field of a form: its input, its limits, its value. Pure.

use wire::acp::schema::{ElicitationContentValue as Value, ElicitationPropertySchema as Property};

use super::marked;
use crate::clean::{clean, one_line};
use crate::keys::{Key, KeyCode};
use crate::style::{Line, Span, Style};
use crate::text::wrap;

/// The longest text of a field.
const MAX_TEXT: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) is_required: bool,
    /// The last entry of the list is for the next field, a text.
    pub(super) has_other: bool,
    pub(super) input: Input,
    description: String,
}

#[derive(Debug)]
pub(super) enum Input {
    Text { text: String, kind: TextKind, least: Option<f64>, most: Option<f64> },
    Choice { options: Vec<(String, Value)>, selected: usize },
    Several { options: Vec<(String, String, bool)>, at: usize, least: u64, most: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TextKind {
    Text,
    Integer,
    Number,
}

impl Field {
    /// Makes the field of a property; `None` if its type is unknown.
    pub(super) fn new(name: String, property: Property, required: &[String]) -> Option<Field> {
        // Values, titles and defaults are read from the JSON form, which is the same for all kinds.
        let raw = serde_json::to_value(&property).ok()?;
        let default = &raw["default"];
        let text = |kind, text: String, least: &str, most: &str| Input::Text {
            text,
            kind,
            least: raw[least].as_f64(),
            most: raw[most].as_f64(),
        };
        let number = if default.is_number() { default.to_string() } else { String::new() };
        let input = match &property {
            Property::Boolean(_) => {
                let options = [("Yes", true), ("No", false)];
                let options =
                    options.map(|(label, value)| (label.to_owned(), Value::Boolean(value)));
                let selected = usize::from(*default != true);
                Input::Choice { options: options.to_vec(), selected }
            }
            Property::Integer(_) => text(TextKind::Integer, number, "minimum", "maximum"),
            Property::Number(_) => text(TextKind::Number, number, "minimum", "maximum"),
            Property::String(_) => {
                let default = default.as_str().unwrap_or_default();
                let options = options_of(&raw);
                if options.is_empty() {
                    text(TextKind::Text, clean(default), "minLength", "maxLength")
                } else {
                    let selected = options.iter().position(|(_, value)| value == default);
                    let options =
                        options.into_iter().map(|(label, value)| (label, Value::String(value)));
                    Input::Choice { options: options.collect(), selected: selected.unwrap_or(0) }
                }
            }
            Property::Array(_) => {
                let is_marked = |value: &str| {
                    default.as_array().is_some_and(|all| all.iter().any(|one| one == value))
                };
                let options = options_of(&raw["items"]).into_iter();
                let options = options.map(|(label, value)| {
                    let is_marked = is_marked(&value);
                    (label, value, is_marked)
                });
                Input::Several {
                    options: options.collect(),
                    at: 0,
                    least: raw["minItems"].as_u64().unwrap_or(0),
                    most: raw["maxItems"].as_u64().unwrap_or(u64::MAX),
                }
            }
            _ => return None,
        };
        Some(Field {
            is_required: required.contains(&name),
            title: one_line(raw["title"].as_str().unwrap_or(&name)),
            description: one_line(raw["description"].as_str().unwrap_or_default()),
            has_other: false,
            name,
            input,
        })
    }

    /// Makes a text that must be there.
    pub(super) fn text(title: &str, text: &str) -> Field {
        let input =
            Input::Text { text: clean(text), kind: TextKind::Text, least: None, most: None };
        Field {
            name: "text".to_owned(),
            title: title.to_owned(),
            is_required: true,
            has_other: false,
            input,
            description: String::new(),
        }
    }

    /// Makes the question whether the user has opened a page.
    pub(super) fn page(url: &str) -> Field {
        Field::yes_or_no(format!("Open this page: {url}"), "I have opened it")
    }

    /// Makes the question of a form without fields.
    pub(super) fn confirmation() -> Field {
        Field::yes_or_no("Your answer".to_owned(), "Yes")
    }

    fn yes_or_no(title: String, yes: &str) -> Field {
        let options = [(yes, true), ("No", false)];
        let options = options.map(|(label, value)| (label.to_owned(), Value::Boolean(value)));
        Field {
            name: String::new(),
            title,
            is_required: true,
            has_other: false,
            input: Input::Choice { options: options.to_vec(), selected: 1 },
            description: String::new(),
        }
    }

    /// Gives the list an entry for the text in the next field.
    pub(super) fn add_other(&mut self, title: &str) {
        if let Input::Choice { options, .. } = &mut self.input {
            options.push((format!("{title}…"), Value::String(String::new())));
            self.has_other = true;
        }
    }

    pub(super) fn is_other_chosen(&self) -> bool {
        match &self.input {
            Input::Choice { options, selected } => self.has_other && selected + 1 == options.len(),
            Input::Text { .. } | Input::Several { .. } => false,
        }
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self.input, Input::Text { .. })
    }

    pub(super) fn key(&mut self, key: Key) {
        let is_plain = !key.ctrl && !key.alt;
        match (&mut self.input, key.code) {
            (Input::Text { text, .. }, KeyCode::Backspace) => {
                text.pop();
            }
            (Input::Text { text, .. }, KeyCode::Char('u')) if key.ctrl => text.clear(),
            (Input::Text { .. }, KeyCode::Char(char)) if is_plain => {
                self.paste(char.encode_utf8(&mut [0; 4]));
            }
            (Input::Choice { options, selected: at }, code) => {
                *at = moved(*at, options.len(), code);
                if let KeyCode::Char(char) = code
                    && is_plain
                {
                    *at = starting_with(options.iter().map(|(label, _)| label), char, *at);
                }
            }
            (Input::Several { options, at, .. }, KeyCode::Char(' ')) => {
                if let Some((_, _, is_marked)) = options.get_mut(*at) {
                    *is_marked = !*is_marked;
                }
            }
            (Input::Several { options, at, .. }, code) => *at = moved(*at, options.len(), code),
            (Input::Text { .. }, _) => {}
        }
    }

    pub(super) fn paste(&mut self, pasted: &str) {
        if let Input::Text { text, .. } = &mut self.input
            && text.len() + pasted.len() <= MAX_TEXT
        {
            text.push_str(pasted);
        }
    }

    /// Sets the value from a line; an empty one leaves the default.
    pub(super) fn set(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        match &mut self.input {
            Input::Text { text, .. } => *text = clean(line),
            Input::Choice { options, selected } => {
                let labels = options.iter().map(|(label, _)| label.as_str());
                *selected = entry(labels, line).ok_or("Type the number of an answer.")?;
            }
            Input::Several { options, .. } => {
                let mut chosen = Vec::new();
                for word in line.split([',', ' ']).filter(|word| !word.is_empty()) {
                    let labels = options.iter().map(|(label, _, _)| label.as_str());
                    chosen.push(entry(labels, word).ok_or("Type the numbers of the answers.")?);
                }
                for (at, (_, _, is_marked)) in options.iter_mut().enumerate() {
                    *is_marked = chosen.contains(&at);
                }
            }
        }
        Ok(())
    }

    /// Returns the value, if there is one.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(super) fn value(&self) -> Result<Option<Value>, String> {
        match &self.input {
            Input::Text { text, .. } if text.is_empty() && self.is_required => {
                Err(format!("{}: this field must be filled in.", self.title))
            }
            Input::Text { text, .. } if text.is_empty() => Ok(None),
            Input::Text { text, kind, least, most } => {
                self.text_value(text, *kind, *least, *most).map(Some)
            }
            Input::Choice { .. } if self.is_other_chosen() => Ok(None),
            Input::Choice { options, selected } => {
                Ok(options.get(*selected).map(|(_, value)| value.clone()))
            }
            Input::Several { options, least, most, .. } => {
                let marked = options.iter().filter(|(_, _, is_marked)| *is_marked);
                let values: Vec<String> = marked.map(|(_, value, _)| value.clone()).collect();
                let count = values.len() as u64;
                if values.is_empty() && !self.is_required {
                    return Ok(None);
                }
                let least = if self.is_required { (*least).max(1) } else { *least };
                if count < least {
                    return Err(format!("{}: mark at least {least}.", self.title));
                }
                if count > *most {
                    return Err(format!("{}: mark at most {most}.", self.title));
                }
                Ok(Some(Value::StringArray(values)))
            }
        }
    }

    fn text_value(
        &self,
        text: &str,
        kind: TextKind,
        least: Option<f64>,
        most: Option<f64>,
    ) -> Result<Value, String> {
        let title = &self.title;
        let (value, size) = match kind {
            TextKind::Text => (Some(Value::String(text.to_owned())), text.chars().count() as f64),
            TextKind::Integer => {
                let number: Option<i64> = text.trim().parse().ok();
                (number.map(Value::Integer), number.unwrap_or_default() as f64)
            }
            TextKind::Number => {
                let number: Option<f64> =
                    text.trim().parse().ok().filter(|it: &f64| it.is_finite());
                (number.map(Value::Number), number.unwrap_or_default())
            }
        };
        let letters = if kind == TextKind::Text { " characters" } else { "" };
        match value {
            None if kind == TextKind::Integer => Err(format!("{title}: must be a whole number.")),
            None => Err(format!("{title}: must be a number.")),
            Some(_) if least.is_some_and(|least| size < least) => {
                Err(format!("{title}: at least {}{letters}.", least.unwrap_or_default()))
            }
            Some(_) if most.is_some_and(|most| size > most) => {
                Err(format!("{title}: at most {}{letters}.", most.unwrap_or_default()))
            }
            Some(value) => Ok(value),
        }
    }

    /// Returns the lines: title and value, and the options of the current field.
    pub(super) fn lines(&self, columns: usize, is_current: bool, shown: usize) -> Vec<Line> {
        let none = Line::plain("    ");
        let star = if self.is_required { " *" } else { "" };
        let mut head = marked(&format!("{}{star}: ", self.title), is_current);
        match (&self.input, is_current) {
            (Input::Text { text, .. }, true) => head.push(Span::plain(format!("{text}▏"))),
            (Input::Text { text, .. }, false) => head.push(Span::plain(text.as_str())),
            (Input::Choice { options, selected }, false) => {
                let label = options.get(*selected).map(|(label, _)| label.as_str());
                head.push(Span::plain(label.unwrap_or_default()));
            }
            (Input::Several { options, .. }, false) => {
                let marked = options.iter().filter(|(_, _, is_marked)| *is_marked);
                let labels: Vec<&str> = marked.map(|(label, _, _)| label.as_str()).collect();
                head.push(Span::plain(labels.join(", ")));
            }
            (Input::Choice { .. } | Input::Several { .. }, true) => {}
        }
        let mut lines = wrap(&head, columns, &Line::default(), &none);
        if !is_current {
            return lines;
        }
        if !self.description.is_empty() {
            let text = Line::of(self.description.as_str(), Style::DIM);
            lines.extend(wrap(&text, columns, &none, &none));
        }
        let options: Vec<(String, bool)> = match &self.input {
            Input::Text { .. } => Vec::new(),
            Input::Choice { options, selected } => {
                let entries = options.iter().enumerate();
                entries.map(|(at, (label, _))| (label.clone(), at == *selected)).collect()
            }
            Input::Several { options, at, .. } => {
                let mark = |is_marked| if is_marked { "[x]" } else { "[ ]" };
                let entries = options.iter().enumerate().map(|(number, (label, _, is_marked))| {
                    (format!("{} {label}", mark(*is_marked)), number == *at)
                });
                entries.collect()
            }
        };
        let at = options.iter().position(|(_, is_at)| *is_at).unwrap_or(0);
        let from = at.saturating_sub(shown - 1);
        for (label, is_at) in options.iter().skip(from).take(shown) {
            let line = marked(label, *is_at);
            lines.extend(wrap(&line, columns, &Line::plain("  "), &Line::plain("      ")));
        }
        if options.len() > shown {
            lines.push(Line::of(format!("    {} of {}", at + 1, options.len()), Style::DIM));
        }
        lines
    }

    /// Returns the lines for a terminal without a cursor: what to type.
    pub(super) fn plain_lines(&self, columns: usize) -> Vec<Line> {
        let labels: Vec<&str> = match &self.input {
            Input::Text { .. } => Vec::new(),
            Input::Choice { options, .. } => {
                options.iter().map(|(label, _)| label.as_str()).collect()
            }
            Input::Several { options, .. } => {
                options.iter().map(|(label, _, _)| label.as_str()).collect()
            }
        };
        let mut texts = vec![match self.description.is_empty() {
            true => self.title.clone(),
            false => format!("{}: {}", self.title, self.description),
        }];
        texts.extend(labels.iter().enumerate().map(|(at, label)| format!("{}. {label}", at + 1)));
        texts.push(match (&self.input, self.is_required) {
            (Input::Text { text, .. }, _) if !text.is_empty() => {
                format!("Type the answer; an empty line is: {text}")
            }
            (Input::Text { .. }, true) => "Type the answer.".to_owned(),
            (Input::Text { .. }, false) => "Type the answer; an empty line skips it.".to_owned(),
            (Input::Choice { selected, .. }, _) => {
                format!("Type a number; an empty line is {}.", selected + 1)
            }
            (Input::Several { .. }, _) => "Type numbers, such as 1, 3.".to_owned(),
        });
        let none = Line::default();
        texts.iter().flat_map(|text| wrap(&Line::plain(text), columns, &none, &none)).collect()
    }
}

fn moved(at: usize, count: usize, code: KeyCode) -> usize {
    match code {
        KeyCode::Up | KeyCode::Left => at.checked_sub(1).unwrap_or(count.saturating_sub(1)),
        KeyCode::Down | KeyCode::Right => (at + 1) % count.max(1),
        _ => at,
    }
}

/// Returns the next entry after this one that starts with a letter.
fn starting_with<'a>(labels: impl Iterator<Item = &'a String>, letter: char, at: usize) -> usize {
    let is_it = |label: &&String| label.to_lowercase().starts_with(letter.to_ascii_lowercase());
    let found: Vec<usize> =
        labels.enumerate().filter(|(_, label)| is_it(label)).map(|(at, _)| at).collect();
    found.iter().find(|found| **found > at).or(found.first()).copied().unwrap_or(at)
}

/// Returns the entry with this number or name.
fn entry<'a>(labels: impl Iterator<Item = &'a str>, wanted: &str) -> Option<usize> {
    let labels: Vec<&str> = labels.collect();
    match wanted.parse::<usize>() {
        Ok(number @ 1..) if number <= labels.len() => Some(number - 1),
        _ => labels.iter().position(|label| label.eq_ignore_ascii_case(wanted)),
    }
}

/// Returns labels and values of a list, with or without titles.
fn options_of(raw: &serde_json::Value) -> Vec<(String, String)> {
    let plain = raw["enum"].as_array().into_iter().flatten().filter_map(|value| {
        let text = value.as_str()?;
        Some((one_line(text), text.to_owned()))
    });
    let titled =
        ["oneOf", "anyOf"].into_iter().flat_map(|name| raw[name].as_array().into_iter().flatten());
    let titled = titled.filter_map(|value| {
        let text = value["const"].as_str()?;
        let title = value["title"].as_str().unwrap_or(text);
        Some((one_line(title), text.to_owned()))
    });
    plain.chain(titled).collect()
}
