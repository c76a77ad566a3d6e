//! The diff of a change: both whole texts of a small file, or the changed lines of a large one.
//!
//! Clients compute the diff from an old and a new text. For a small file they get both whole, so that line numbers are right; for a
//! large one each group of changed lines with some context.

use std::path::Path;

use engine::words::{Block, ToolContent};

/// Texts up to this combined size are shown whole.
const WHOLE: usize = 32 * 1024;
/// The most bytes that are shown of one text.
const LONGEST: usize = 32 * 1024;
/// Context lines around a change.
const AROUND: usize = 3;
/// The most groups of changed lines; with more, everything from the first to the last change is one group.
const GROUPS: usize = 8;

/// Returns the change of a file for the client; a new file has no old text.
pub(crate) fn diff(path: &Path, old: Option<&str>, new: &str) -> Vec<ToolContent> {
    let content =
        |old: Option<String>, new: String| ToolContent::Diff { path: path.to_owned(), old, new };
    let Some(old) = old else {
        let (start, omitted) = beginning(new);
        return noted(vec![content(None, start.to_owned())], omitted);
    };
    if old.len() + new.len() <= WHOLE {
        return vec![content(Some(old.to_owned()), new.to_owned())];
    }
    let before: Vec<&str> = old.split_inclusive('\n').collect();
    let after: Vec<&str> = new.split_inclusive('\n').collect();
    let groups = groups(&before, &after);
    let around = |lines: &[&str], from: usize, to: usize| {
        lines[from.saturating_sub(AROUND)..(to + AROUND).min(lines.len())].concat()
    };
    let shown = groups.iter().map(|group| {
        let old = around(&before, group.from, group.old_to);
        content(Some(old), around(&after, group.new_from, group.new_to))
    });
    capped(shown.collect())
}

/// Cuts very long texts, and adds a note: every message about the change would carry them.
fn capped(mut shown: Vec<ToolContent>) -> Vec<ToolContent> {
    let mut omitted = 0;
    let mut cut = |text: &mut String| {
        let (start, rest) = beginning(text);
        let end = start.len();
        omitted += rest;
        text.truncate(end);
    };
    for content in &mut shown {
        if let ToolContent::Diff { old, new, .. } = content {
            cut(new);
            old.iter_mut().for_each(&mut cut);
        }
    }
    noted(shown, omitted)
}

/// Returns the shown part of a string, in whole lines, and how many bytes are omitted.
fn beginning(text: &str) -> (&str, usize) {
    if text.len() <= LONGEST {
        return (text, 0);
    }
    let start = &text[..text.floor_char_boundary(LONGEST)];
    let start = &start[..start.rfind('\n').map_or(start.len(), |line| line + 1)];
    (start, text.len() - start.len())
}

fn noted(mut shown: Vec<ToolContent>, omitted: usize) -> Vec<ToolContent> {
    if omitted > 0 {
        let text = format!("{omitted} more bytes of this change are not shown.");
        shown.push(ToolContent::Block(Block::Text(text)));
    }
    shown
}

/// Returns the first line that differs, counting from 1.
pub(crate) fn first_line(old: &str, new: &str) -> u32 {
    let same = old.split_inclusive('\n').zip(new.split_inclusive('\n')).take_while(|(a, b)| a == b);
    u32::try_from(same.count() + 1).unwrap_or(u32::MAX)
}

/// Lines `from..old_to` became lines `new_from..new_to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    from: usize,
    old_to: usize,
    new_from: usize,
    new_to: usize,
}

fn groups(old: &[&str], new: &[&str]) -> Vec<Group> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let whole =
        Group { from: head, old_to: old.len() - tail, new_from: head, new_to: new.len() - tail };
    if old.len() != new.len() {
        return vec![whole];
    }
    // The same number of lines: probably a name was changed in several places.
    let mut groups: Vec<Group> = Vec::new();
    for at in (head..old.len() - tail).filter(|at| old[*at] != new[*at]) {
        match groups.last_mut() {
            Some(last) if at <= last.old_to + 2 * AROUND => {
                (last.old_to, last.new_to) = (at + 1, at + 1);
            }
            _ => groups.push(Group { from: at, old_to: at + 1, new_from: at, new_to: at + 1 }),
        }
    }
    if groups.len() > GROUPS { vec![whole] } else { groups }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str) -> Vec<(Option<String>, String)> {
        let shown = diff(Path::new("/w/a"), Some(old), new);
        shown
            .into_iter()
            .map(|content| match content {
                ToolContent::Diff { old, new, .. } => (old, new),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    // R: P7
    #[test]
    fn small_change_in_a_large_file_has_a_small_diff() {
        let line = |at: usize| format!("line {at} of a file that is long enough to be cut\n");
        let old: String = (0..1000).map(line).collect();
        let new = old.replace("line 500 of", "LINE 500 of");
        let cut = shown(&old, &new);
        assert_eq!(cut.len(), 1);
        assert_eq!(cut[0].1.lines().count(), 7);
        assert!(
            cut[0].1.contains("LINE 500 of") && cut[0].0.as_ref().unwrap().contains("line 500")
        );
        let twice = new.replace("line 900 of", "LINE 900 of");
        assert_eq!(shown(&old, &twice).len(), 2);
        let longer = old.replace("line 10 of", "new\nline 10 of");
        let cut = shown(&old, &longer);
        assert_eq!((cut.len(), cut[0].1.lines().count()), (1, 7));
        assert_eq!(first_line(&old, &new), 501);
    }

    // R: P7
    #[test]
    fn small_file_is_shown_whole_and_a_new_one_has_no_old_text() {
        assert_eq!(shown("a\nb\n", "a\nc\n"), [(Some("a\nb\n".to_owned()), "a\nc\n".to_owned())]);
        let new = diff(Path::new("/w/a"), None, "x");
        assert!(matches!(&new[0], ToolContent::Diff { old: None, new, .. } if new == "x"));
    }

    // R: P7
    #[test]
    fn very_long_text_is_cut_with_a_note() {
        let long = "a line of text\n".repeat(10_000);
        let new = diff(Path::new("/w/a"), None, &long);
        let [ToolContent::Diff { new, .. }, ToolContent::Block(Block::Text(note))] = new.as_slice()
        else {
            panic!("{new:?}");
        };
        assert!(new.len() <= LONGEST && new.ends_with('\n'));
        let omitted = long.len() - new.len();
        assert_eq!(*note, format!("{omitted} more bytes of this change are not shown."));
    }
}
