//! The input of a call as it is shown: what is long in it loses its middle. The model's own words stay as they are.

use serde_json::Value;

/// Texts up to this size are shown whole.
const LONGEST: usize = 16 * 1024;

/// Returns the input with long texts cut. A file that is written would otherwise be carried twice by every message
/// about the call, once as input and once as change.
pub(crate) fn shorten(input: &Value) -> Value {
    match input {
        Value::String(text) if text.len() > LONGEST => {
            let half = LONGEST / 2;
            let head = &text[..text.floor_char_boundary(half)];
            let tail = &text[text.ceil_char_boundary(text.len() - half)..];
            let left_out = text.len() - head.len() - tail.len();
            format!("{head}\n… {left_out} bytes left out …\n{tail}").into()
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
    fn only_long_texts_lose_their_middle() {
        let short = json!({ "a": ["é", 1, null, true], "b": { "c": "x".repeat(LONGEST) } });
        assert_eq!(shorten(&short), short);
        let long = shorten(&json!({ "content": "é".repeat(LONGEST) }));
        let text = long["content"].as_str().unwrap();
        assert!(text.len() < LONGEST + 50 && text.contains("bytes left out"), "{}", text.len());
    }
}
