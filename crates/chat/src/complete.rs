//! Completion of `@` files and `/` commands: what is being completed, and what fits best. Pure.

/// How many entries are offered.
pub const OFFERED: usize = 50;

/// What the word at the cursor asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A file, after `@`; the position of the `@` and what was typed after it.
    File(usize, String),
    /// A command, after `/` at the start; what was typed after it.
    Command(String),
}

/// Returns what the text before the cursor asks for.
#[must_use]
pub fn wanted(text: &str, cursor: usize) -> Option<Wanted> {
    let before = text.get(..cursor)?;
    if let Some(command) = before.strip_prefix('/')
        && !command.contains(char::is_whitespace)
    {
        return Some(Wanted::Command(command.to_owned()));
    }
    let at = before.rfind('@')?;
    let word = &before[at + 1..];
    let starts_word =
        before[..at].chars().next_back().is_none_or(|char| char.is_whitespace() || char == '(');
    (starts_word && !word.contains(char::is_whitespace)).then(|| Wanted::File(at, word.to_owned()))
}

/// Returns whether the letters of a pattern occur in a text in their order, whatever their case.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    score(pattern, text).is_some()
}

/// Rates how well a text fits a pattern; higher is better. Letters in a row, at the start of a word, and in the last part of a
/// path are worth more; short texts win.
#[must_use]
pub fn score(pattern: &str, text: &str) -> Option<i64> {
    if pattern.is_empty() {
        return Some(0);
    }
    let name = text.rfind('/').map_or(0, |at| at + 1);
    let pattern_lower = pattern.to_lowercase();
    let text_lower = text.to_lowercase();
    if text_lower.len() == text.len() {
        // A whole occurrence beats scattered letters; in the name it beats one in a directory.
        let whole =
            text_lower.get(name..).and_then(|last| last.find(&pattern_lower)).map(|at| (at, 2000));
        let whole = whole.or_else(|| text_lower.find(&pattern_lower).map(|at| (at, 1000)));
        if let Some((at, worth)) = whole {
            let at = i64::try_from(at).unwrap_or(1000).min(40);
            return Some(worth - 10 * at - length(text));
        }
    }
    let mut wanted = pattern_lower.chars().peekable();
    let (mut total, mut run, mut before) = (0, 0, '/');
    for char in text_lower.chars() {
        if wanted.peek() == Some(&char) {
            wanted.next();
            run += 1;
            let starts = !before.is_alphanumeric();
            total += 4 * run + if starts { 10 } else { 0 };
        } else {
            run = 0;
        }
        before = char;
    }
    wanted.peek().is_none().then(|| total - length(text))
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(1000).min(500)
}

/// Returns the best entries, best first.
pub fn best<'a, T>(
    pattern: &str,
    entries: impl Iterator<Item = (&'a str, T)>,
    count: usize,
) -> Vec<(&'a str, T)> {
    let mut found: Vec<(i64, &str, T)> =
        entries.filter_map(|(text, entry)| Some((score(pattern, text)?, text, entry))).collect();
    if found.len() > count {
        found.select_nth_unstable_by(count, |a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        found.truncate(count);
    }
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    found.into_iter().map(|(_, text, entry)| (text, entry)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_at_the_cursor_decides() {
        assert_eq!(wanted("/mo", 3), Some(Wanted::Command("mo".to_owned())));
        assert_eq!(wanted("/mode plan", 10), None);
        assert_eq!(wanted("see @src/ma now", 11), Some(Wanted::File(4, "src/ma".to_owned())));
        assert_eq!(wanted("mail me@home", 12), None);
        assert_eq!(wanted("@", 1), Some(Wanted::File(0, String::new())));
    }

    #[test]
    fn best_file_comes_first() {
        let files =
            ["src/domain.rs", "src/main.rs", "docs/maintain.md", "main/x.rs", "m/a/i/n.txt"];
        let names = |pattern: &str| {
            let found = best(pattern, files.iter().map(|file| (*file, ())), 3);
            found.into_iter().map(|(file, ())| file).collect::<Vec<_>>()
        };
        assert_eq!(names("main"), ["src/main.rs", "docs/maintain.md", "src/domain.rs"]);
        assert_eq!(names("MX")[0], "main/x.rs");
        assert_eq!(names("zzz"), Vec::<&str>::new());
    }
}
