//! Tests of Markdown: blocks, chunks, bounds.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::color::ColorLevel;

fn check(source: &str, columns: usize, expected: Expect) {
    let lines: Vec<String> = Markdown::render(source, columns)
        .iter()
        .map(|line| line.text().trim_end().to_owned())
        .collect();
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn common_blocks_are_rendered() {
    let source = "# Title\nSome *text* with `code` and a [link](https://e.org/x).\n\n- one\n- two\n  - nested item that is long\n- three\n\n\
        1. first\n2. second\n\n> quoted\n> text\n\n---\nend <https://e.org>\n";
    check(
        source,
        30,
        expect![[r#"
            Title

            Some text with code and a link
            (https://e.org/x).

            • one
            • two
              ◦ nested item that is long
            • three

            1. first
            2. second

            ▎ quoted text

            ──────────────────────────────

            end https://e.org
        "#]],
    );
}

#[test]
fn code_is_not_wrapped_and_keeps_its_indentation() {
    check(
        "Do:\n```rust\nfn main() {\n    println!(\"a line that is longer than the screen\");\n}\n```\nDone\n- item\n  ```\n  code\n  ```\n",
        20,
        expect![[r#"
            Do:

              fn main() {
                  println!("a line that is longer than the screen");
              }

            Done

            • item
                code
        "#]],
    );
}

#[test]
fn tables_fit_the_screen() {
    let source =
        "| Name | Meaning of it |\n|---|---:|\n| a | short |\n| bb | a much longer cell |\n";
    check(
        source,
        30,
        expect![[r#"
            Name │      Meaning of it
            ─────┼───────────────────
            a    │              short
            bb   │ a much longer cell
        "#]],
    );
    check(
        source,
        20,
        expect![[r#"
            Name │ Meaning of it
            ─────┼──────────────
            a    │         short
            bb   │ a much longer
                 │          cell
        "#]],
    );
    check(
        source,
        12,
        expect![[r#"
            Name: a
            Meaning of
              it: short

            Name: bb
            Meaning of
              it: a much
              longer
              cell
        "#]],
    );
}

#[test]
fn finished_blocks_are_returned_while_the_rest_arrives() {
    let mut markdown = Markdown::new(40);
    let texts = |lines: Vec<Line>| lines.iter().map(Line::text).collect::<Vec<_>>();
    assert_eq!(texts(markdown.push("Hello **wor")), Vec::<String>::new());
    assert_eq!(texts(markdown.tail()), ["Hello **wor"]);
    assert_eq!(texts(markdown.push("ld**\n\n- a\n- b")), ["Hello world"]);
    assert_eq!(texts(markdown.push("\n- c\n")), ["", "• a", "• b"]);
    assert_eq!(texts(markdown.tail()), ["• c"]);
    assert_eq!(texts(markdown.push("\n```py\nx = 1\ny")), ["• c", "", "  x = 1"]);
    assert_eq!(texts(markdown.tail()), ["  y"]);
    assert_eq!(texts(markdown.finish()), ["  y"]);
}

#[test]
fn open_blocks_are_bounded() {
    let mut markdown = Markdown::new(40);
    let mut lines = 0;
    for _ in 0..20_000 {
        lines += markdown.push("> a quote without an end\n").len();
    }
    assert!(markdown.pending.len() <= MAX_PENDING && lines > 1000);
    markdown.push(&"x".repeat(10 * MAX_LINE));
    assert!(markdown.partial.len() <= MAX_LINE);
}

fn source() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\n".to_owned()),
        Just("\n\n".to_owned()),
        Just("```\n".to_owned()),
        Just("- ".to_owned()),
        Just("  - ".to_owned()),
        Just("2. ".to_owned()),
        Just("> ".to_owned()),
        Just("# ".to_owned()),
        Just("| a | b |\n|---|---|\n".to_owned()),
        Just("[x](y)".to_owned()),
        Just("[x]: z\n".to_owned()),
        Just("**".to_owned()),
        Just("`".to_owned()),
        Just("<b>".to_owned()),
        Just("    ".to_owned()),
        Just("\u{1b}[31m".to_owned()),
        Just("\u{1b}]0;".to_owned()),
        Just("---\n".to_owned()),
        "\\PC{0,8}",
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn chunks_do_not_change_the_result(source in source(), columns in 5usize..40, size in 1usize..9) {
        let mut markdown = Markdown::new(columns);
        let mut lines = Vec::new();
        let chars: Vec<char> = source.chars().collect();
        for chunk in chars.chunks(size) {
            lines.extend(markdown.push(&chunk.iter().collect::<String>()));
            drop(markdown.tail());
        }
        lines.extend(markdown.finish());
        prop_assert_eq!(lines, Markdown::render(&source, columns));
    }

    #[test]
    fn no_control_bytes_come_out(bytes in proptest::collection::vec(any::<u8>(), 0..300), source in source()) {
        let text = format!("{}{source}", String::from_utf8_lossy(&bytes));
        for line in Markdown::render(&text, 30) {
            let printed = line.to_ansi(ColorLevel::None);
            prop_assert!(printed.chars().all(crate::clean::is_harmless), "{:?}", printed);
        }
    }
}
