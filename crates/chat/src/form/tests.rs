//! Forms: every field is asked and checked, with keys and with lines.

use serde_json::{Value as Json, json};

use super::*;

fn form(properties: Json, required: Json) -> FormDialog {
    let request = json!({
        "sessionId": "s", "mode": "form", "message": "Tell me",
        "requestedSchema": { "type": "object", "properties": properties, "required": required },
    });
    FormDialog::new(1, serde_json::from_value(request).unwrap()).unwrap()
}

fn press(form: &mut FormDialog, code: KeyCode) -> Option<Json> {
    answer(form.key(Key::plain(code)))
}

fn answer(answer: FormAnswer) -> Option<Json> {
    match answer {
        FormAnswer::Open => None,
        FormAnswer::Done(response) => Some(serde_json::to_value(response).unwrap()),
    }
}

fn write(form: &mut FormDialog, text: &str) {
    text.chars().for_each(|char| assert_eq!(press(form, KeyCode::Char(char)), None));
}

fn properties() -> Json {
    json!({
        "a_name": { "type": "string", "title": "Name", "minLength": 2 },
        "b_age": { "type": "integer", "minimum": 18, "default": 20 },
        "c_is_new": { "type": "boolean", "default": true },
        "d_colours": { "type": "array", "maxItems": 2,
            "items": { "anyOf": [{ "const": "r", "title": "Red" }, { "const": "g", "title": "Green" }, { "const": "b", "title": "Blue" }] } },
    })
}

// R: C1
#[test]
fn every_field_is_asked_and_checked() {
    let mut form = form(properties(), json!(["a_name"]));
    assert_eq!(press(&mut form, KeyCode::Enter), None);
    assert_eq!(form.at, 0, "a required field is not skipped");
    write(&mut form, "A");
    assert_eq!(press(&mut form, KeyCode::Enter), None);
    assert!(form.lines(80, 30).iter().any(|line| line.text() == "Name: at least 2 characters."));
    write(&mut form, "nn");
    press(&mut form, KeyCode::Enter);
    press(&mut form, KeyCode::Backspace);
    press(&mut form, KeyCode::Enter);
    assert!(form.lines(80, 30).iter().any(|line| line.text() == "b_age: at least 18."));
    write(&mut form, "1");
    press(&mut form, KeyCode::Enter);
    press(&mut form, KeyCode::Enter);
    // Nothing is marked, then two, then one too many.
    for step in [" ", "d", " ", "d", " "] {
        let code = if step == "d" { KeyCode::Down } else { KeyCode::Char(' ') };
        assert_eq!(press(&mut form, code), None);
    }
    assert_eq!(press(&mut form, KeyCode::Enter), None);
    assert!(form.lines(80, 30).iter().any(|line| line.text() == "d_colours: mark at most 2."));
    press(&mut form, KeyCode::Char(' '));
    let content =
        json!({ "a_name": "Ann", "b_age": 21, "c_is_new": true, "d_colours": ["r", "g"] });
    let expected = json!({ "action": "accept", "content": content });
    assert_eq!(press(&mut form, KeyCode::Enter), Some(expected));
}

#[test]
fn form_is_declined_or_cancelled() {
    let mut first = form(properties(), json!([]));
    assert_eq!(press(&mut first, KeyCode::Esc), Some(json!({ "action": "decline" })));
    assert_eq!(answer(first.key(Key::ctrl('c'))), Some(json!({ "action": "cancel" })));
}

// R: C1
#[test]
fn list_with_a_free_text_is_one_question() {
    let properties = json!({
        "answer": { "type": "string", "title": "Answer", "enum": ["Tabs", "Spaces"] },
        "other": { "type": "string", "title": "Other" },
    });
    let mut chosen = form(properties.clone(), json!([]));
    press(&mut chosen, KeyCode::Down);
    let expected = json!({ "action": "accept", "content": { "answer": "Spaces" } });
    assert_eq!(press(&mut chosen, KeyCode::Enter), Some(expected));

    let mut free = form(properties, json!([]));
    press(&mut free, KeyCode::Up);
    assert_eq!(press(&mut free, KeyCode::Enter), None);
    write(&mut free, "Both");
    let expected = json!({ "action": "accept", "content": { "other": "Both" } });
    assert_eq!(press(&mut free, KeyCode::Enter), Some(expected));
}

#[test]
fn page_is_opened_or_declined() {
    let request = json!({ "sessionId": "s", "mode": "url", "message": "Log in", "elicitationId": "e", "url": "https://e.org/\u{202e}a" });
    let page = || FormDialog::new(1, serde_json::from_value(request.clone()).unwrap()).unwrap();
    let mut no = page();
    assert!(no.lines(80, 30).iter().any(|line| line.text().contains("https://e.org/a")));
    assert_eq!(press(&mut no, KeyCode::Enter), Some(json!({ "action": "decline" })));
    let mut yes = page();
    press(&mut yes, KeyCode::Up);
    assert_eq!(press(&mut yes, KeyCode::Enter), Some(json!({ "action": "accept" })));
}

// R: C1
#[test]
fn fields_are_lines_where_there_is_no_cursor() {
    let mut form = form(properties(), json!(["a_name"]));
    assert_eq!(answer(form.line("Ann")), None);
    assert_eq!(answer(form.line("")), None);
    assert_eq!(answer(form.line("7")), None);
    assert!(form.plain_lines(80).iter().any(|line| line.text() == "Type the number of an answer."));
    assert_eq!(answer(form.line("no")), None);
    let content =
        json!({ "a_name": "Ann", "b_age": 20, "c_is_new": false, "d_colours": ["r", "b"] });
    let expected = json!({ "action": "accept", "content": content });
    assert_eq!(answer(form.line("1, 3")), Some(expected));
}
