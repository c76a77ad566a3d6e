//! Tests of the parser: the meaning of valid files, and the errors of invalid ones.

use serde_json::json;

use super::*;

fn no_file(_: &str) -> Option<String> {
    None
}

fn parse(text: &str) -> Transcript {
    Transcript::parse(text, &no_file).unwrap()
}

fn steps(text: &str) -> Vec<TranscriptStep> {
    parse(text).lines.into_iter().map(|line| line.step).collect()
}

#[test]
fn every_kind_of_line_is_read() {
    let text = r#"# R: W3
tag black-box
config {"model":"x"}
fs /w/a.txt "hello\n"
model text "I will."

> {"id":1,"method":"m"}
>! {"a\x41\\\t
<   {"id":1,"result":{}}
fs /w/a.txt "bye"
eof
exit 3"#;
    let file = |text: &str, when| TranscriptStep::File {
        path: "/w/a.txt".into(),
        text: text.into(),
        when,
    };
    assert_eq!(
        steps(text),
        [
            TranscriptStep::Comment,
            TranscriptStep::Tag("black-box".into()),
            TranscriptStep::Config(json!({ "model": "x" })),
            file("hello\n", When::Before),
            TranscriptStep::Model("text \"I will.\"".into()),
            TranscriptStep::Comment,
            TranscriptStep::Send(json!({ "id": 1, "method": "m" })),
            TranscriptStep::SendRaw(b"{\"aA\\\t".to_vec()),
            TranscriptStep::Expect(json!({ "id": 1, "result": {} })),
            file("bye", When::After),
            TranscriptStep::Eof,
            TranscriptStep::Exit(Some(3)),
        ]
    );
    let transcript = parse(text);
    assert!(transcript.has_tag("black-box"));
    assert_eq!(transcript.exit(), Some(3));
    assert_eq!(transcript.config(), Some(&json!({ "model": "x" })));
    assert_eq!(transcript.model_lines().collect::<Vec<_>>(), ["text \"I will.\""]);
}

#[test]
fn used_files_are_included() {
    let load = |name: &str| match name {
        "initialized" => Some("> {\"id\":0}\nmodel text \"x\"\n".to_owned()),
        "loop" => Some("use loop".to_owned()),
        _ => None,
    };
    let text =
        "use initialized\nfs /w/a.txt \"\"\nmodel tool read {\"path\":\"/w/a.txt\"}\n> {\"id\":1}";
    let transcript = Transcript::parse(text, &load).unwrap();
    let places: Vec<_> =
        transcript.lines().iter().map(|line| (line.file.as_deref(), line.number)).collect();
    assert_eq!(
        places,
        [
            (None, 1),
            (Some("initialized"), 1),
            (Some("initialized"), 2),
            (None, 2),
            (None, 3),
            (None, 4)
        ]
    );
    assert_eq!(transcript.files(When::Before).count(), 1);
    assert_eq!(
        transcript.script(Path::new("/tmp/x")),
        "> {\"id\":0}\nmodel text \"x\"\nfs /w/a.txt \"\"\nmodel tool read {\"path\":\"/tmp/x/a.txt\"}\n> {\"id\":1}\n"
    );
    let err = Transcript::parse("use loop", &load).unwrap_err();
    assert_eq!(err.to_string(), "loop, line 1: 'use loop' is nested too deeply");
}

#[test]
fn invalid_line_is_named() {
    let cases = [
        ("nonsense", "line 1: unknown keyword 'nonsense'"),
        ("\n> [1]", "line 2: expected a JSON object"),
        ("< {…}", "line 1: invalid JSON: key must be a string at line 1 column 2"),
        (">! \\q", "line 1: unknown escape '\\q'"),
        (">! \\x4", "line 1: '\\x' needs two hexadecimal digits"),
        (">! a\\", "line 1: incomplete escape; write \\\\ for a backslash"),
        ("exit soon", "line 1: 'exit' needs a number"),
        ("tag", "line 1: expected one word"),
        ("model", "line 1: 'model' needs an argument"),
        ("use nothing", "line 1: nothing.acp not found"),
        ("fs /etc/passwd \"\"", "line 1: the path of a file must start with /w/"),
        ("fs /w/../x \"\"", "line 1: the path of a file must start with /w/"),
        ("fs /w/a.txt hello", "line 1: the content of a file must be a JSON string"),
        (
            "> {}\nfs /w/a.txt \"\"\n> {}",
            "line 2: 'fs' must be before the first message or after the last",
        ),
        ("eof\n> {}", "line 2: nothing can be sent after 'eof'"),
    ];
    for (text, message) in cases {
        let err = Transcript::parse(text, &no_file).unwrap_err();
        assert_eq!(err.to_string(), message, "{text}");
    }
}
