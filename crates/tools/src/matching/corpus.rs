//! A corpus of edits as models write them: each edit of `edits.txt`, written in many ways, in files that differ in many ways.
//!
//! An edit may be applied as it was meant, or refused. It must never change a file in another way. The counts are published in
//! docs/internals/edits.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use expect_test::expect_file;

use super::*;

/// An edit of a file, with the result that is meant. `None`: it must be refused.
struct Case {
    body: String,
    old: String,
    new: String,
    meant: Option<String>,
}

impl Case {
    /// Changes the text of the file before and after the edit.
    fn with_file(mut self, change: impl Fn(&str) -> String) -> Case {
        self.body = change(&self.body);
        self.meant = self.meant.as_deref().map(change);
        self
    }

    /// Changes the text of the call.
    fn with_call(mut self, change: impl Fn(&str) -> String) -> Case {
        (self.old, self.new) = (change(&self.old), change(&self.new));
        self
    }

    fn refused(mut self) -> Case {
        self.meant = None;
        self
    }
}

fn cases() -> Vec<Case> {
    let texts = format!("\n{}", include_str!("edits.txt").trim_end());
    let cases = texts.split("\n=== ").skip(1).map(|text| {
        let text = format!("{text}\n");
        let (_, text) = text.split_once('\n').unwrap();
        let (body, text) = text.split_once("--- old\n").unwrap();
        let (old, new) = text.split_once("--- new\n").unwrap();
        assert_eq!(body.matches(old).count(), 1, "{old}");
        let meant = Some(body.replacen(old, new, 1));
        Case { body: body.to_owned(), old: old.to_owned(), new: new.to_owned(), meant }
    });
    cases.collect()
}

fn each_line(text: &str, change: impl Fn(&str) -> String) -> String {
    text.lines().map(|line| change(line) + "\n").collect()
}

fn indented(text: &str, by: &str) -> String {
    each_line(text, |line| if line.is_empty() { String::new() } else { format!("{by}{line}") })
}

/// Removes the indentation that all lines have.
fn dedented(text: &str, by: usize) -> String {
    each_line(text, |line| line.get(by..).unwrap_or("").to_owned())
}

/// Writes indentation with tabs.
fn with_tabs(text: &str) -> String {
    each_line(text, |line| {
        let depth = indent(line).len();
        format!("{}{}", "\t".repeat(depth / 2), &line[depth / 2 * 2..])
    })
}

/// Returns the number of the first line that differs between old and new.
fn changed_line(case: &Case) -> usize {
    case.old.lines().zip(case.new.lines()).take_while(|(a, b)| a == b).count()
}

/// Replaces a line.
fn with_line(text: &str, at: usize, new: &str) -> String {
    let lines = text.lines().enumerate();
    lines.map(|(index, line)| format!("{}\n", if index == at { new } else { line })).collect()
}

type Way = (&'static str, fn(Case) -> Case);

const WAYS: [Way; 18] = [
    ("copied exactly", |case| case),
    ("without the last line ending", |case| case.with_call(|text| text.trim_end().to_owned())),
    ("file with CRLF", |case| case.with_file(|text| text.replace('\n', "\r\n"))),
    ("call with CRLF", |case| case.with_call(|text| text.replace('\n', "\r\n"))),
    ("file without a final line ending", |case| case.with_file(|text| text.trim_end().to_owned())),
    ("trailing spaces in the call", |case| Case {
        old: each_line(&case.old, |line| format!("{line}  ")),
        ..case
    }),
    ("no indentation in the call", |case| {
        let by =
            case.old.lines().filter(|line| !line.is_empty()).map(|line| indent(line).len()).min();
        case.with_call(|text| dedented(text, by.unwrap()))
    }),
    ("too much indentation in the call", |case| case.with_call(|text| indented(text, "    "))),
    ("file with tabs, call with spaces", |case| case.with_file(with_tabs)),
    ("file with spaces, call with tabs", |case| case.with_call(with_tabs)),
    ("lines left out with `...`", |case| {
        let (at, count) = (changed_line(&case), case.old.lines().count());
        // A line that is not at the end and does not change becomes a gap.
        let same = |index: &usize| case.old.lines().nth(*index) == case.new.lines().nth(*index);
        let gap = (1..count - 1).filter(same).find(|index| index.abs_diff(at) == 1);
        match gap {
            Some(gap) => case.with_call(|text| with_line(text, gap, "    ...")),
            None => case,
        }
    }),
    ("`...` in the old text only", |case| {
        let old = with_line(&case.old, 1, "    ...");
        Case { old, ..case }.refused()
    }),
    ("first line remembered wrongly", |case| {
        case.with_call(|text| with_line(text, 0, "something else entirely"))
    }),
    ("last line remembered wrongly", |case| {
        let last = case.old.lines().count() - 1;
        let is_changed = case.old.lines().nth(last) != case.new.lines().nth(last);
        let wrong = "something else entirely";
        if is_changed {
            return Case { old: with_line(&case.old, last, wrong), ..case }.refused();
        }
        case.with_call(|text| with_line(text, last, wrong))
    }),
    ("the changed line is not in the file", |case| {
        let at = changed_line(&case);
        let stale = format!("{} changed since", case.old.lines().nth(at).unwrap());
        Case { old: with_line(&case.old, at, &stale), ..case }.refused()
    }),
    ("text that occurs twice", |case| {
        let body = format!("{}{}", case.body, case.body);
        Case { body, ..case }.refused()
    }),
    ("text that was removed from the file", |case| {
        let body = case.body.replace(&case.old, "");
        Case { body, ..case }.refused()
    }),
    ("a similar text before it", |case| {
        let at = changed_line(&case);
        let other = format!("{} other", case.old.lines().nth(at).unwrap());
        let before = with_line(&case.old, at, &other);
        case.with_file(|text| format!("{before}{text}"))
    }),
];

// R: T4
#[test]
fn edits_are_applied_as_meant_or_refused() {
    let mut counts: BTreeMap<usize, [usize; 3]> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (number, (way, write)) in WAYS.iter().enumerate() {
        for case in cases().into_iter().map(write) {
            let count = counts.entry(number).or_default();
            match (replace(&case.body, &case.old, &case.new, false), &case.meant) {
                (Ok((body, _)), Some(meant)) if body == *meant => count[0] += 1,
                (Ok((body, _)), _) => wrong.push(format!("{way}:\n{}\nbecame\n{body}", case.old)),
                (Err(_), None) => count[1] += 1,
                (Err(_), Some(_)) => count[2] += 1,
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} edits were applied wrongly:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
    let total = WAYS.len() * cases().len();
    assert!(total >= 300, "only {total} edits");
    expect_file!["../../../../docs/internals/edits.md"].assert_eq(&table(&counts, total));
}

fn table(counts: &BTreeMap<usize, [usize; 3]>, total: usize) -> String {
    let mut text = format!(
        "# Edits\n\nHow `edit` finds the text that a model means. `crates/tools/src/matching/corpus.rs` writes this file: {} edits in as many languages \
         and formats, each\nwritten in {} ways, {total} in all. An edit is applied as it is meant, or refused with the nearest text of the file; \
         none may change a file in\nanother way.\n\n1. The text as it is; line endings do not matter.\n2. Line by line without trailing white space, then with \
         another indentation, then with plain quotes and dashes.\n3. By anchors: `...` in both texts stands for the same lines; context that is not \
         in the file is ignored if the lines to replace are there once, beside\n   at least half of the context.\n\nEvery step must find \
         exactly one place.\n\n| how it is written | applied as meant | refused, as it must be | refused, though it was clear |\n|---|---|---|---|\n",
        total / WAYS.len(),
        WAYS.len(),
    );
    let mut sums = [0; 3];
    for (number, count) in counts {
        let [right, refused, missed] = count;
        writeln!(text, "| {} | {right} | {refused} | {missed} |", WAYS[*number].0).unwrap();
        sums.iter_mut().zip(count).for_each(|(sum, count)| *sum += count);
    }
    writeln!(text, "| **all** | {} | {} | {} |\n\nApplied wrongly: 0.", sums[0], sums[1], sums[2])
        .unwrap();
    text
}
