//! The input of a call as it is shown: long strings lose their middle. The model's own input is not changed.

use serde_json::Value;

/// Strings up to this size are shown whole.
const LONGEST: usize = 16 * 1024;

/// Cuts long strings. Otherwise every message about a call that writes a file would contain the file twice, as input and
/// as change.
pub(crate) fn shorten(input: &Value) -> Value {
    match input {
        Value::String(text) if text.len() > LONGEST => {
            let half = LONGEST / 2;
            let head = &text[..text.floor_char_boundary(half)];
            let tail = &text[text.ceil_char_boundary(text.len() - half)..];
            let omitted = text.len() - head.len() - tail.len();
            format!("{head}\n… {omitted} bytes omitted …\n{tail}").into()
        }
        Value::Array(values) => values.iter().map(shorten).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), shorten(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => input.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_long_strings_are_cut() {
        let short = json!({ "a": ["é", 1, null, true], "b": { "c": "x".repeat(LONGEST) } });
        assert_eq!(shorten(&short), short);
        let long = shorten(&json!({ "content": "é".repeat(LONGEST) }));
        let text = long["content"].as_str().unwrap();
        assert!(text.len() < LONGEST + 50 && text.contains("bytes omitted"), "{}", text.len());
    }
}
