//! Forms: expectations for agents whose wording is not known, such as "one of these" or "contains this".
//!
//! A form is an object with one member whose name starts with `…`. `conformance/README.md` lists them.

use serde_json::Value;

/// The member of an expectation for an object that contains a text anywhere.
pub(super) const SHOWS: &str = "…shows";

/// What a value must be like.
pub(super) enum Form<'a> {
    /// One of these.
    In(&'a [Value]),
    /// A string that contains this.
    Has(&'a str),
    /// Of this type.
    Is(&'a str),
    /// A list whose items are all like this.
    Each(&'a Value),
    /// A list with an item like this.
    Some(&'a Value),
    /// Not like this.
    Not(&'a Value),
}

/// Returns the form that an expectation is, if it is one.
pub(super) fn of(expected: &Value) -> Option<Form<'_>> {
    let members = expected.as_object().filter(|members| members.len() == 1)?;
    let (name, value) = members.iter().next()?;
    match name.as_str() {
        "…in" => value.as_array().map(|values| Form::In(values)),
        "…has" => value.as_str().map(Form::Has),
        "…is" => value.as_str().map(Form::Is),
        "…each" => Some(Form::Each(value)),
        "…some" => Some(Form::Some(value)),
        "…not" => Some(Form::Not(value)),
        _ => None,
    }
}

/// Returns whether an expectation is that a member is absent or null.
pub(super) fn is_absent(expected: &Value) -> bool {
    expected.get("…absent").is_some()
}

impl Form<'_> {
    pub(super) fn matches(&self, got: &Value, is_open: bool) -> bool {
        let fits = |expected: &Value, got: &Value| super::compare(expected, got, is_open).is_none();
        match self {
            Form::In(values) => values.iter().any(|value| fits(value, got)),
            Form::Has(text) => got.as_str().is_some_and(|got| got.contains(text)),
            Form::Is(name) => is_type(name, got),
            Form::Each(item) => {
                got.as_array().is_some_and(|items| items.iter().all(|got| fits(item, got)))
            }
            Form::Some(item) => {
                got.as_array().is_some_and(|items| items.iter().any(|got| fits(item, got)))
            }
            Form::Not(value) => !fits(value, got),
        }
    }
}

fn is_type(name: &str, got: &Value) -> bool {
    match name {
        "string" => got.as_str().is_some_and(|text| !text.is_empty()),
        "integer" => got.is_i64() || got.is_u64(),
        "object" => got.is_object(),
        "array" => got.is_array(),
        "boolean" => got.is_boolean(),
        "absolute" => got.as_str().is_some_and(|path| std::path::Path::new(path).is_absolute()),
        "uuid" => got.as_str().is_some_and(is_uuid),
        _ => false,
    }
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    lengths == [8, 4, 4, 4, 12]
        && groups.iter().all(|group| group.chars().all(|digit| digit.is_ascii_hexdigit()))
}
