//! Fuzz targets: patches, edits, diffs, web pages.

use std::path::Path;

use crate::apply_patch::parse::{Step, apply, parse, paths};
use crate::diff::{diff, first_line};
use crate::fetch::html::to_markdown;
use crate::matching::replace;

const LINES: [&str; 12] =
    ["\n", "\r\n", "\u{0}", "a\n", " ", "\t", "}", "é", "\n\n\n", "x", "\"", "aaaaaaaa\n"];

/// Splits an input into texts.
fn texts(input: &[u8]) -> Vec<String> {
    input.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

#[test]
fn fuzz_patch() {
    let words = [
        "*** Begin Patch\n",
        "*** End Patch\n",
        "*** Update File: a\n",
        "*** Add File: b\n",
        "*** Delete File: c\n",
        "*** Move to: d\n",
        "@@\n",
        "@@ x\n",
        "+a\n",
        "-a\n",
        " a\n",
        "\u{0}",
        "*** End of File\n",
        "../",
    ];
    fuzzing::run("patch", &words, |input| {
        let texts = texts(input);
        let (patch, body) = (&texts[0], texts.get(1).map_or("", String::as_str));
        drop(paths(patch));
        for step in parse(patch).unwrap_or_default() {
            if let Step::Update { hunks, .. } = &step {
                drop(apply(body, hunks));
            }
        }
    });
}

#[test]
fn fuzz_edit() {
    fuzzing::run("edit", &LINES, |input| {
        let texts = texts(input);
        let text = |index: usize| texts.get(index).map_or("", String::as_str);
        let (body, old, new) = (text(0), text(1), text(2));
        if old.is_empty() || body.len() > 8 * 1024 {
            return;
        }
        if let Ok((_, count)) = replace(body, old, new, false) {
            assert_eq!(count, 1);
        }
        let has_returns = [body, old, new].iter().any(|text| text.contains('\r'));
        if let Ok((changed, count)) = replace(body, old, new, true)
            && body.matches(old).count() == count
            && !has_returns
        {
            assert_eq!(changed, body.replace(old, new));
        }
    });
}

#[test]
fn fuzz_diff() {
    fuzzing::run("diff", &LINES, |input| {
        let texts = texts(input);
        let (old, new) = (&texts[0], texts.get(1).map_or("", String::as_str));
        assert!(!diff(Path::new("/a"), Some(old), new).is_empty());
        assert!(!diff(Path::new("/a"), None, new).is_empty());
        assert!(first_line(old, new) >= 1);
    });
}

#[test]
fn fuzz_html() {
    let words = [
        "<",
        ">",
        "</",
        "<a href=\"",
        "<script>",
        "</script>",
        "<!--",
        "-->",
        "&#x",
        "&amp;",
        "&#99999999;",
        "<pre>",
        "<table><tr><td>",
        "<li>",
        "<h1>",
        "javascript:",
        "<style>",
        "<![CDATA[",
        "<img src=x>",
        "<base href=\"",
    ];
    let base = reqwest::Url::parse("https://a.example/b/c?d#e").unwrap();
    fuzzing::run("html", &words, |input| {
        let text = String::from_utf8_lossy(input);
        let markdown = to_markdown(&text, &base);
        assert!(markdown.len() <= 100 * text.len() + 1000, "{} of {}", markdown.len(), text.len());
    });
}
