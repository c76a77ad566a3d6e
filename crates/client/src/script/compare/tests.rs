//! Tests of the comparison.

use serde_json::json;

use super::*;

fn describe(expected: Value, got: Value) -> String {
    difference(&expected, &got).map_or("fits".to_owned(), |difference| difference.to_string())
}

#[test]
fn wildcards_stand_for_values_and_members() {
    assert_eq!(describe(json!({ "a": "…" }), json!({ "a": [1, 2] })), "fits");
    assert_eq!(describe(json!({ "a": "…" }), json!({})), "a is missing");
    assert_eq!(describe(json!({ "a": 1, "…": "…" }), json!({ "a": 1, "b": 2 })), "fits");
    assert_eq!(describe(json!({ "a": 1, "…": "…" }), json!({ "a": 1 })), "fits");
    assert_eq!(describe(json!({ "a": 1, "…": "…" }), json!({ "b": 2 })), "a is missing");
    assert_eq!(describe(json!(["…", 2]), json!([1, 2])), "fits");
}

#[test]
fn first_difference_is_named() {
    assert_eq!(
        describe(
            json!({ "a": { "b": [1, { "c": 2 }] } }),
            json!({ "a": { "b": [1, { "c": 3 }] } })
        ),
        "a.b[1].c is 3, not 2"
    );
    assert_eq!(describe(json!({}), json!({ "a": 1 })), "a was not expected");
    assert_eq!(describe(json!([1]), json!([1, 2])), "the message is [1,2], not [1]");
}

#[test]
fn rewritten_line_keeps_matching_wildcards() {
    let expected = json!({ "id": "…", "result": { "a": 1, "b": 1, "…": "…" }, "old": 1 });
    let got = json!({ "id": 7, "result": { "a": 2, "b": 1, "c": 3 }, "new": 1 });
    let new = rewrite(&expected, &got);
    assert_eq!(print(&new), r#"{"id":"…","result":{"a":2,"b":1,"…":"…"},"new":1}"#);
    assert_eq!(difference(&new, &got), None);
}

#[test]
fn missing_and_unexpected_messages_are_distinguished() {
    let [a, b, c, x, y] = ["a", "b", "c", "x", "y"].map(|name| json!({ "m": name }));
    let aligned = |expected: &[&Value], got: &[&Value]| {
        align(expected, got.iter().map(|value| (*value).clone()).collect())
    };
    let fits = || (Vec::new(), MatchResult::Matched);
    assert_eq!(
        aligned(&[&a, &b, &c], &[&a, &c]),
        Alignment { slots: vec![fits(), (vec![], MatchResult::Missing), fits()], rest: vec![] }
    );
    assert_eq!(
        aligned(&[&a, &b, &c], &[&a, &x, &y, &c, &x]),
        Alignment {
            slots: vec![
                fits(),
                (vec![], MatchResult::Changed(x.clone())),
                (vec![y.clone()], MatchResult::Matched)
            ],
            rest: vec![x.clone()],
        }
    );
    assert_eq!(
        aligned(&[&b], &[&x, &y]),
        Alignment { slots: vec![(vec![], MatchResult::Changed(x))], rest: vec![y] }
    );
}

#[test]
fn only_chunks_of_one_message_are_merged() {
    let chunk = |kind: &str, id: &str, text: &str| {
        json!({ "method": "session/update", "params": { "sessionId": "s1", "update": {
            "sessionUpdate": kind, "messageId": id, "content": { "type": "text", "text": text } } } })
    };
    let say = "agent_message_chunk";
    let merged = merge_chunks([
        chunk(say, "m1", "a"),
        chunk(say, "m1", "b"),
        chunk("agent_thought_chunk", "m1", "c"),
        chunk(say, "m1", "d"),
        chunk(say, "m2", "e"),
        json!({ "id": 1 }),
        chunk(say, "m2", "f"),
    ]);
    let texts: Vec<_> = merged.iter().map(|message| chunk_text(message).unwrap_or("-")).collect();
    assert_eq!(texts, ["ab", "c", "d", "e", "-", "f"]);
}

#[test]
fn forms_match_what_the_wording_leaves_open() {
    let fits = |expected: Value, got: Value| open_difference(&expected, &got).is_none();
    assert!(fits(json!({ "code": { "…in": [1, 2] } }), json!({ "code": 2, "more": 1 })));
    assert!(!fits(json!({ "code": { "…in": [1, 2] } }), json!({ "code": 3 })));
    assert!(fits(json!({ "…has": "ell" }), json!("hello")));
    assert!(!fits(json!({ "…has": "elf" }), json!("hello")));
    assert!(fits(json!({ "…is": "integer" }), json!(1)));
    assert!(!fits(json!({ "…is": "integer" }), json!("1")));
    assert!(fits(json!({ "…is": "absolute" }), json!("/w/a")));
    assert!(!fits(json!({ "…is": "absolute" }), json!("a")));
    assert!(fits(json!({ "…each": { "…is": "string" } }), json!(["a", "b"])));
    assert!(!fits(json!({ "…each": { "…is": "string" } }), json!(["a", 1])));
    assert!(fits(json!({ "…some": { "id": 2 } }), json!([{ "id": 1 }, { "id": 2, "x": 1 }])));
    assert!(!fits(json!({ "…some": { "id": 3 } }), json!([{ "id": 1 }])));
    assert!(fits(json!({ "…not": "a" }), json!("b")));
    assert!(!fits(json!({ "…not": "a" }), json!("a")));
    assert!(fits(json!({ "a": { "…absent": true } }), json!({ "a": null })));
    assert!(!fits(json!({ "a": { "…absent": true } }), json!({ "a": 1 })));
}
