//! Short labels for messages, safe for Mermaid.

use serde_json::Value;

const LONGEST: usize = 60;

/// The most useful members of a call's params, the best first.
const TELLING: [&str; 12] = [
    "/prompt/0/text",
    "/update/content/text",
    "/update/title",
    "/update/toolCallId",
    "/update/currentModeId",
    "/toolCall/title",
    "/toolCall/toolCallId",
    "/path",
    "/command",
    "/message",
    "/modeId",
    "/value",
];

/// The most useful members of a result, the best first.
const TELLING_RESULTS: [&str; 7] = [
    "/stopReason",
    "/outcome/optionId",
    "/outcome/outcome",
    "/sessionId",
    "/terminalId",
    "/action",
    "/protocolVersion",
];

/// Returns the label of a call or a notification.
pub(crate) fn of_call(method: &str, message: &Value) -> String {
    let params = &message["params"];
    let mut label = method.to_owned();
    let kind = params.pointer("/update/sessionUpdate").and_then(Value::as_str);
    let status = params.pointer("/update/status").and_then(Value::as_str);
    let subject = first(params, &TELLING).map(|(place, value)| in_words(place, value));
    for part in [kind.map(str::to_owned), subject, status.map(str::to_owned)].into_iter().flatten()
    {
        label.push(' ');
        label.push_str(&part);
    }
    short(&label)
}

/// Returns the label of a reply to a call of this method, if the transcript has that call.
pub(crate) fn of_reply(method: Option<&str>, message: &Value) -> String {
    let outcome = match message.get("error") {
        Some(error) => {
            let text = error["message"].as_str().unwrap_or_default();
            format!("error {} {text}", error["code"])
        }
        None => first(&message["result"], &TELLING_RESULTS)
            .map_or_else(|| "done".to_owned(), |(_, value)| plain(value)),
    };
    match method {
        Some(method) => short(&format!("{method}: {outcome}")),
        None => short(&outcome),
    }
}

/// Shortens a string for an arrow and removes the characters with a meaning in Mermaid.
pub(crate) fn short(text: &str) -> String {
    let mut label = String::new();
    for (count, character) in text.trim().chars().enumerate() {
        if count == LONGEST {
            label.push('…');
            break;
        }
        match character {
            ';' => label.push_str("#59;"),
            '#' => label.push_str("#35;"),
            '<' => label.push_str("#lt;"),
            '>' => label.push_str("#gt;"),
            control if control.is_control() => label.push(' '),
            other => label.push(other),
        }
    }
    label
}

fn first<'a>(value: &'a Value, places: &[&'static str]) -> Option<(&'static str, &'a Value)> {
    places.iter().find_map(|place| value.pointer(place).map(|found| (*place, found)))
}

/// Quotes free text, but not names.
fn in_words(place: &str, value: &Value) -> String {
    let is_text = ["/text", "/title", "/message"].iter().any(|end| place.ends_with(end));
    if is_text { format!("\"{}\"", plain(value)) } else { plain(value) }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_is_short_and_safe() {
        assert_eq!(short("a;b#c\n<d>"), "a#59;b#35;c #lt;d#gt;");
        assert_eq!(short(&"x".repeat(100)), format!("{}…", "x".repeat(60)));
    }

    #[test]
    fn calls_and_replies_say_what_they_are_about() {
        let read = json!({"params": {"sessionId": "s1", "path": "/w/a.txt"}});
        assert_eq!(of_call("fs/read_text_file", &read), "fs/read_text_file /w/a.txt");
        assert_eq!(of_call("logout", &json!({})), "logout");
        assert_eq!(of_reply(Some("logout"), &json!({"result": {}})), "logout: done");
        assert_eq!(
            of_reply(None, &json!({"error": {"code": -32700, "message": "bad"}})),
            "error -32700 bad"
        );
    }
}
