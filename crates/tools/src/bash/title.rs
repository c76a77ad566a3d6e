//! The title of a command. A question shows it, so both ends of a long command must be visible.

use engine::words::{count_blanks, visible};

/// How many characters and lines of either end are shown. More would be out of sight.
const TITLE_END: usize = 200;
const TITLE_LINES: usize = 6;

/// Returns the first line of a command that is not planned yet.
pub(super) fn outline_of(command: &str) -> String {
    let command = count_blanks(&visible(command));
    let line = command.lines().next().unwrap_or_default();
    let shown: String = line.chars().take(TITLE_END).collect();
    match command.chars().count() - shown.chars().count() {
        0 => shown,
        more => format!("{shown} … {more} more characters"),
    }
}

/// Returns a title that shows how a command begins and ends; the middle of a long one is omitted, and long runs of blanks are counted.
pub(super) fn title_of(command: &str) -> String {
    let command = &*count_blanks(command);
    let count = command.chars().count();
    let lines = command.lines().count();
    if count <= 2 * TITLE_END && lines <= 2 * TITLE_LINES {
        return command.to_owned();
    }
    let start: String = command.chars().take(TITLE_END).collect();
    let start = start.lines().take(TITLE_LINES).collect::<Vec<_>>().join("\n");
    let end: String = command.chars().skip(count - TITLE_END.min(count)).collect();
    let last = end.lines().count().saturating_sub(TITLE_LINES);
    let end = end.lines().skip(last).collect::<Vec<_>>().join("\n");
    let left = count - start.chars().count() - end.chars().count();
    format!("{start}\n… {left} of {count} characters omitted; the full command is below …\n{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T2
    #[test]
    fn long_command_shows_both_ends() {
        for short in ["ls", &"x".repeat(400), &"a\n".repeat(12)] {
            assert_eq!(title_of(short), short);
        }
        let spaces = format!("ls{}; rm -rf x", " ".repeat(5000));
        let title = title_of(&spaces);
        assert_eq!(title, "ls ⟨5000 blanks⟩ ; rm -rf x");
        let long = format!("ls{}; rm -rf x", "a".repeat(5000));
        assert!(title_of(&long).contains("… 4612 of 5012 characters omitted"));
        assert!(outline_of(&long).ends_with(" … 4812 more characters"));
        assert_eq!(outline_of("ls\nrm"), "ls … 3 more characters");
        let lines = format!("ls{}rm -rf x", "\n".repeat(50));
        let title = title_of(&lines);
        assert!(title.ends_with("rm -rf x") && title.lines().count() <= 13, "{title}");
        let long_last = format!("ls\n{}; rm -rf x", "é".repeat(1000));
        assert!(title_of(&long_last).ends_with("; rm -rf x"));
    }
}
