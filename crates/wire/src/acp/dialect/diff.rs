//! A change to a file as a unified diff: one hunk with three lines of context.

/// How many unchanged lines are shown before and after the change.
const CONTEXT: usize = 3;

/// Writes the change from `old` to `new`, in the unified format.
pub(super) fn unified(path: &str, old: Option<&str>, new: &str) -> String {
    let before: Vec<&str> = old.unwrap_or_default().lines().collect();
    let after: Vec<&str> = new.lines().collect();
    let pairs = before.iter().zip(&after);
    let same_head = pairs.take_while(|(old, new)| old == new).count();
    let pairs = before[same_head..].iter().rev().zip(after[same_head..].iter().rev());
    let same_tail = pairs.take_while(|(old, new)| old == new).count();
    let start = same_head.saturating_sub(CONTEXT);
    let tail = same_tail.min(CONTEXT);
    let old_end = before.len() - same_tail;
    let new_end = after.len() - same_tail;
    let name = path.trim_start_matches('/');
    let mut out = match old {
        Some(_) => format!("--- a/{name}\n+++ b/{name}\n"),
        None => format!("--- /dev/null\n+++ b/{name}\n"),
    };
    let range = |end: usize| {
        let count = end + tail - start;
        format!("{},{count}", if count == 0 { start } else { start + 1 })
    };
    out.push_str(&format!("@@ -{} +{} @@\n", range(old_end), range(new_end)));
    let mut lines = |mark: char, lines: &[&str]| {
        lines.iter().for_each(|line| out.push_str(&format!("{mark}{line}\n")));
    };
    lines(' ', &before[start..same_head]);
    lines('-', &before[same_head..old_end]);
    lines('+', &after[same_head..new_end]);
    lines(' ', &before[old_end..old_end + tail]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_hunk() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n";
        assert_eq!(
            unified("/w/a.txt", Some(old), new),
            "--- a/w/a.txt\n+++ b/w/a.txt\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        );
        assert_eq!(
            unified("a", None, "x\ny\n"),
            "--- /dev/null\n+++ b/a\n@@ -0,0 +1,2 @@\n+x\n+y\n"
        );
        assert_eq!(unified("a", Some("x\n"), ""), "--- a/a\n+++ b/a\n@@ -1,1 +0,0 @@\n-x\n");
        assert_eq!(
            unified("a", Some("x\nx\n"), "x\n"),
            "--- a/a\n+++ b/a\n@@ -1,2 +1,1 @@\n x\n-x\n"
        );
    }
}
