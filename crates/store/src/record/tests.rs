//! Records survive the round trip, and damage is detected.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn name() -> impl Strategy<Value = Name> {
    "[a-z0-9-]{0,12}".prop_map(|text| Name(text.into()))
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no such number", |n| n.is_finite())
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        any::<String>().prop_map(Block::Text),
        any::<(String, String)>().prop_map(|(data, mime)| Block::Image { data, mime }),
        any::<(String, String)>().prop_map(|(uri, name)| Block::Link { uri, name }),
        any::<(String, Option<String>, String)>()
            .prop_map(|(uri, mime, text)| Block::TextResource { uri, mime, text }),
        any::<(String, Option<String>, String)>()
            .prop_map(|(uri, mime, blob)| Block::BlobResource { uri, mime, blob }),
    ]
}

fn content() -> impl Strategy<Value = ToolContent> {
    prop_oneof![
        block().prop_map(ToolContent::Block),
        any::<(String, Option<String>, String)>().prop_map(|(path, old, new)| ToolContent::Diff {
            path,
            old,
            new
        }),
        name().prop_map(ToolContent::Terminal),
        any::<String>().prop_map(|cwd| ToolContent::Live { cwd }),
    ]
}

/// Records of events.
fn event_record() -> impl Strategy<Value = Record> {
    let status = prop_oneof![Just(ToolStatus::InProgress), Just(ToolStatus::Failed)];
    prop_oneof![
        (name(), any::<String>()).prop_map(|(message, text)| Record::Text { message, text }),
        (name(), any::<String>()).prop_map(|(message, text)| Record::Thought { message, text }),
        (name(), block()).prop_map(|(message, block)| Record::Shown { message, block }),
        (name(), any::<String>(), prop::collection::vec(content(), 0..3), value()).prop_map(
            |(id, title, content, raw_input)| {
                Record::ToolCall(Box::new(ToolCall {
                    id,
                    name: "tool".to_owned(),
                    title,
                    kind: ToolKind::Edit,
                    status: ToolStatus::Pending,
                    content,
                    locations: vec![Location { path: "/w/a".to_owned(), line: Some(3) }],
                    raw_input,
                }))
            }
        ),
        (
            name(),
            prop::option::of(status),
            prop::option::of(prop::collection::vec(content(), 0..3)),
        )
            .prop_map(|(id, status, content)| Record::ToolUpdate {
                id,
                status,
                content,
                raw_output: Some(json!({ "code": 1 })),
                live_output: Some("more".to_owned()),
            }),
        any::<(u64, u64, Option<u32>)>().prop_map(|(used, size, cost)| Record::Usage {
            used,
            size,
            cost: cost.map(f64::from),
        }),
    ]
}

/// The metadata of a block, which is always an object.
fn aside() -> impl Strategy<Value = Value> {
    value().prop_map(|value| json!({ "_meta": value }))
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        event_record(),
        (name(), prop::collection::vec((block(), prop::option::of(aside())), 0..3)).prop_map(
            |(message, parts)| {
                let (blocks, asides) = parts.into_iter().unzip();
                Record::Prompt { message, kind: PromptKind::Message, blocks, asides }
            }
        ),
        (name(), value()).prop_map(|(id, input)| {
            Record::ToolIntent(ToolRequest { id, name: "tool".to_owned(), input: input.into() })
        }),
        (name(), value(), any::<String>(), name()).prop_map(|(id, input, field, text)| {
            let call = ToolRequest { id, name: "tool".to_owned(), input: input.into() };
            let values = vec![LargeValue { call: 0, field, text }];
            Record::AnswerLargeValues { calls: vec![call], values }
        }),
        (name(), any::<String>(), any::<bool>())
            .prop_map(|(id, text, failed)| Record::ToolResult { id, text, failed }),
        (name(), any::<String>(), prop::option::of((any::<String>(), prop::option::of(name()))))
            .prop_map(|(by, text, seal)| {
                let seal = seal.map(|(data, call)| Seal { data, call });
                Record::Thoughts(vec![Thought { by, text, seal, at: 7 }])
            }),
        (any::<String>(), prop::option::of(name()), prop::option::of(name()))
            .prop_map(|(path, before, after)| Record::Change { path, before, after }),
        (name(), name(), prop::option::of(name()))
            .prop_map(|(mode, model, thinking)| Record::Settings { mode, model, thinking }),
        name().prop_map(|first| Record::Undone { first }),
        name().prop_map(|last| Record::Redone { last }),
        Just(Record::TurnEnd { stop: Some(StopReason::Cancelled) }),
        Just(Record::TurnEnd { stop: None }),
        Just(Record::Interrupted {}),
    ]
}

proptest! {
    // R: S9
    #[test]
    fn record_survives_the_round_trip(record in record()) {
        let encoded = record.encode().unwrap();
        prop_assert_eq!(encoded.decode(), Decoded::Record(record));
    }

    #[test]
    fn event_survives_the_round_trip(record in event_record()) {
        let event = event_out(record.clone()).unwrap();
        prop_assert_eq!(event_in(&event), Some(record));
    }

    #[test]
    fn arbitrary_bytes_are_never_read_as_a_record(body in any::<Vec<u8>>(), sum in any::<u32>(), version in any::<u32>()) {
        let decoded = Encoded { version, checksum: sum, body }.decode();
        prop_assert!(matches!(decoded, Decoded::Damaged | Decoded::Opaque));
    }
}

/// Flips every bit of a record and cuts it at every byte.
#[test]
fn every_flipped_bit_and_every_cut_is_detected() {
    let record = Record::Text { message: Name("m".into()), text: "Hello, wörld".to_owned() };
    let encoded = record.encode().unwrap();
    for at in 0..encoded.body.len() {
        for bit in 0..8 {
            let mut flipped = encoded.clone();
            flipped.body[at] ^= 1 << bit;
            assert_eq!(flipped.decode(), Decoded::Damaged, "byte {at}, bit {bit}");
        }
        let mut cut = encoded.clone();
        cut.body.truncate(at);
        assert_eq!(cut.decode(), Decoded::Damaged, "cut at {at}");
    }
}

#[test]
fn record_of_a_newer_version_is_opaque() {
    let newer = |version, body: &[u8]| {
        let body = body.to_vec();
        Encoded { version, checksum: checksum(version, &body), body }.decode()
    };
    assert_eq!(newer(VERSION + 1, br#"{"text":{"message":"m","text":"t"}}"#), Decoded::Opaque);
    assert_eq!(newer(VERSION, br#"{"hologram":{"depth":3}}"#), Decoded::Opaque);
}

/// The names in stored records must never change, whatever the variants and fields are called.
#[test]
fn stored_names_do_not_change() {
    let name = || Name("n".into());
    let update = Record::ToolUpdate {
        id: name(),
        status: None,
        content: None,
        raw_output: None,
        live_output: Some("x".to_owned()),
    };
    let value = LargeValue { call: 0, field: "f".to_owned(), text: name() };
    let usage = Record::ModelUsage {
        model: name(),
        input: 1,
        output: 2,
        cache_read: 3,
        cache_write: 4,
        dollars: None,
    };
    let records = [
        (update, r#"{"tool_update":{"id":"n","said":"x"}}"#),
        (
            Record::AnswerLargeValues { calls: Vec::new(), values: vec![value] },
            r#"{"answer_apart":{"calls":[],"texts":[{"call":0,"field":"f","text":"n"}]}}"#,
        ),
        (Record::Undone { first: name() }, r#"{"taken_back":{"first":"n"}}"#),
        (Record::Redone { last: name() }, r#"{"brought_back":{"last":"n"}}"#),
        (Record::Note { text: "x".to_owned() }, r#"{"told":{"text":"x"}}"#),
        (usage, r#"{"spent":{"model":"n","input":1,"output":2,"cache_read":3,"cache_write":4}}"#),
    ];
    for (record, stored) in records {
        assert_eq!(serde_json::to_string(&record).unwrap(), stored);
    }
}
