//! A change as a unified diff, for exported sessions.

use std::fmt::Write;

use crate::count::count;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// Formats a change as one hunk, from the first line that differs to the last.
pub(super) fn unified(path: &str, old: Option<&str>, new: &str, limit: usize) -> String {
    let old_lines: Vec<&str> = old.unwrap_or_default().lines().collect();
    let new_lines: Vec<&str> = new.lines().collect();
    let pairs = old_lines.iter().zip(&new_lines);
    let front = pairs.take_while(|(old, new)| old == new).count();
    let pairs = old_lines[front..].iter().rev().zip(new_lines[front..].iter().rev());
    let back = pairs.take_while(|(old, new)| old == new).count();
    let start = front.saturating_sub(CONTEXT);
    let tail = back.min(CONTEXT);
    let (old_end, new_end) = (old_lines.len() - back, new_lines.len() - back);

    let before = old_lines[start..front].iter().map(|line| format!(" {line}"));
    let removed = old_lines[front..old_end].iter().map(|line| format!("-{line}"));
    let added = new_lines[front..new_end].iter().map(|line| format!("+{line}"));
    let after = old_lines[old_end..old_end + tail].iter().map(|line| format!(" {line}"));
    let body: Vec<String> = before.chain(removed).chain(added).chain(after).collect();

    let from = if old.is_some() { path } else { "/dev/null" };
    let mut text = format!("--- {from}\n+++ {path}\n");
    let (old_count, new_count) = (old_end + tail - start, new_end + tail - start);
    let first = |count: usize| if count == 0 { start } else { start + 1 };
    // Writing to a string cannot fail.
    write!(text, "@@ -{},{old_count} +{},{new_count} @@", first(old_count), first(new_count)).ok();
    for line in body.iter().take(limit) {
        write!(text, "\n{line}").ok();
    }
    if body.len() > limit {
        write!(text, "\n… {}", count(body.len() - limit, "more line", "more lines")).ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_and_long_files_are_diffs_too() {
        assert_eq!(unified("/a", None, "x\n", 9), "--- /dev/null\n+++ /a\n@@ -0,0 +1,1 @@\n+x");
        assert_eq!(
            unified("/a", Some(""), "1\n2\n3\n", 2),
            "--- /a\n+++ /a\n@@ -0,0 +1,3 @@\n+1\n+2\n… 1 more line"
        );
        assert_eq!(unified("/a", Some("x\n"), "", 9), "--- /a\n+++ /a\n@@ -1,1 +0,0 @@\n-x");
    }
}
