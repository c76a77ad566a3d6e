//! What edits match, keep and refuse.

use proptest::prelude::*;

use super::*;

fn once(body: &str, old: &str, new: &str) -> Result<String, Miss> {
    replace(body, old, new, false).map(|(body, _)| body)
}

#[test]
fn exact_text_is_replaced_and_nothing_else() {
    assert_eq!(once("a b c", "b", "x"), Ok("a x c".into()));
    assert_eq!(once("aXbXc", "X", "-"), Err(Miss::Ambiguous(vec![1, 1])));
    assert_eq!(replace("aXb\nX", "X", "-", true), Ok(("a-b\n-".into(), 2)));
    assert_eq!(once("aaa", "aa", "b"), Err(Miss::Ambiguous(vec![1, 1])));
    assert_eq!(once("a\nb\na\n", "a", "x"), Err(Miss::Ambiguous(vec![1, 3])));
    assert_eq!(once("a\n", "zzz", "x"), Err(Miss::NotFound(vec![])));
}

// Fault: F04, F05, F06, F07
#[test]
fn line_endings_stay_as_they_are() {
    assert_eq!(once("a\r\nb\r\nc\r\n", "b\n", "x\ny\n"), Ok("a\r\nx\r\ny\r\nc\r\n".into()));
    assert_eq!(once("a\r\nb\nc\r\n", "a\nb\nc", "a\nB\nc"), Ok("a\r\nB\nc\r\n".into()));
    assert_eq!(once("a\nb\r\nc", "a\nb", "A\nb"), Ok("A\nb\r\nc".into()));
    assert_eq!(once("a\rb\rc", "b", "x"), Ok("a\rx\rc".into()));
    assert_eq!(once("a\nb", "b", "c"), Ok("a\nc".into()));
    assert_eq!(once("a\r\nb", "b", "c\nd"), Ok("a\r\nc\r\nd".into()));
    assert_eq!(once("a\nb\n", "b\r\n", "c\r\n"), Ok("a\nc\n".into()));
}

#[test]
fn trailing_white_space_is_ignored_and_kept_in_unchanged_lines() {
    let body = "fn a() {  \n    b();\t\n}\n";
    assert_eq!(
        once(body, "fn a() {\n    b();\n}", "fn a() {\n    c();\n}"),
        Ok("fn a() {  \n    c();\n}\n".into())
    );
    assert_eq!(once("x \ny\nz\n", "x\ny\n", ""), Ok("z\n".into()));
    assert_eq!(once("x \ny", "x\ny\n", "z\n"), Ok("z".into()));
}

#[test]
fn indentation_is_taken_from_the_file() {
    let body = "class A:\n        def f(self):\n            return 1\n";
    assert_eq!(
        once(body, "def f(self):\n    return 1", "def f(self):\n    if x:\n        return 2"),
        Ok("class A:\n        def f(self):\n            if x:\n                return 2\n".into())
    );
    let tabs = "{\n\tif a {\n\t\tb();\n\t}\n}\n";
    assert_eq!(
        once(
            tabs,
            "    if a {\n        b();\n    }",
            "    if a {\n        if c {\n            b();\n        }\n    }"
        ),
        Ok("{\n\tif a {\n\t\tif c {\n\t\t\tb();\n\t\t}\n\t}\n}\n".into())
    );
    // One indentation for two in the file is ambiguous.
    assert_eq!(once("  a\n    b\n", "a\nb", "c"), Err(Miss::NotFound(vec![1])));
}

#[test]
fn typographic_characters_match_plain_ones() {
    assert_eq!(
        once("say \u{201c}hi\u{201d} \u{2013} now\nend\n", "say \"hi\" - now\n", "bye\n"),
        Ok("bye\nend\n".into())
    );
}

#[test]
fn two_matches_are_refused_at_every_step() {
    let body = "  a();\n  b();\n\n    a();\n    b();\n";
    assert_eq!(once(body, "a();\nb();", "c();"), Err(Miss::Ambiguous(vec![1, 4])));
    assert_eq!(once("a \nb\na \nb\n", "a\nb", "c"), Err(Miss::Ambiguous(vec![1, 3])));
    assert_eq!(once("x\n  first\nother\n", "first\nsecond", "c"), Err(Miss::NotFound(vec![2])));
    assert_eq!(once("a\n\n\nb", " \n \n", "c"), Err(Miss::NotFound(vec![])));
}

/// Texts of few different lines, so that matches repeat, with all kinds of endings and indentation.
fn body() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec!["a", "b", "  a", "\ta", "é“", "", "a ", "b  ", "x\ry"]);
    let ending = prop::sample::select(vec!["\n", "\r\n"]);
    (prop::collection::vec((line, ending), 0..12), any::<bool>()).prop_map(|(lines, ends)| {
        let mut body: String = lines.iter().flat_map(|(line, ending)| [*line, *ending]).collect();
        if !ends {
            body.truncate(body.trim_end_matches(['\r', '\n']).len());
        }
        body
    })
}

/// Such a string with at least one complete line.
fn lines() -> impl Strategy<Value = String> {
    body().prop_map(|body| body + "a\n")
}

/// Splits a string into lines with their endings.
fn split_lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

proptest! {
    #[test]
    fn arbitrary_input_causes_no_panic(body in any::<String>(), old in any::<String>(), new in any::<String>(), all: bool) {
        prop_assume!(!old.is_empty());
        drop(replace(&body, &old, &new, all));
    }

    #[test]
    fn single_match_is_replaced_and_the_rest_is_unchanged(
        before in body(), after in body(), new in "[a-z\n]{0,9}"
    ) {
        let whole = format!("{before}<once>{after}");
        let done = once(&whole, "<once>", &new).unwrap();
        prop_assert!(done.starts_with(&before) && done.ends_with(&after));
        let middle = &done[before.len()..done.len() - after.len()];
        prop_assert_eq!(middle.replace("\r\n", "\n"), new);
    }

    #[test]
    fn replacing_by_the_same_changes_no_byte(
        body in lines(), from in any::<prop::sample::Index>(), length in 1usize..20
    ) {
        let plain = body.replace("\r\n", "\n");
        let start = plain.floor_char_boundary(from.index(plain.len()));
        let end = plain.ceil_char_boundary((start + length).min(plain.len()));
        let old = &plain[start..end];
        match replace(&body, old, old, false) {
            Ok((done, _)) => prop_assert_eq!(done, body),
            // The text occurs, so the only reason to refuse is that it occurs more than once.
            Err(miss) => {
                prop_assert!(matches!(miss, Miss::Ambiguous(_)), "{miss:?}");
                let starts = plain.char_indices().filter(|(at, _)| plain[*at..].starts_with(old));
                prop_assert!(starts.count() > 1);
            }
        }
    }

    #[test]
    fn lines_outside_of_the_replaced_text_stay_unchanged(body in lines(), old in "[ab \t\n]{1,8}", new in "[ab \n]{0,8}") {
        if let Ok((done, _)) = replace(&body, &old, &new, false) {
            let count = |text: &str| text.matches('\n').count();
            prop_assert_eq!(count(&done) + count(&old), count(&body) + count(&new));
            // Only lines of the old text may differ; all before and after them are the same, byte by byte.
            let (before, after) = (split_lines(&body), split_lines(&done));
            let front = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
            let most = before.len().min(after.len()) - front;
            let back = before.iter().rev().zip(after.iter().rev()).take(most);
            let back = back.take_while(|(a, b)| a == b).count();
            prop_assert!(before.len() - front - back <= count(&old) + 1, "{body:?} became {done:?}");
        }
    }
}
