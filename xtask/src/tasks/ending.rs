//! How a run ended for the person in front of the screen.

use std::fmt;

use super::limited::Exit;

/// An ending that no user should see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BadEnd {
    /// The last thing on the screen is a tool call as the model wrote it.
    RawCall,
    /// The text did not end: it was stopped by the limits of the bench, or repeats itself to its end.
    Endless,
    /// The agent ended with an error.
    Error,
}

impl fmt::Display for BadEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            BadEnd::RawCall => "raw JSON",
            BadEnd::Endless => "endless",
            BadEnd::Error => "error",
        })
    }
}

/// How much of the end must be the same few characters.
const REPEATED: usize = 2000;
const LONGEST_REPEATED: usize = 80;

/// Forms in which models write a call as text, other than JSON.
const CALL_MARKS: [&str; 4] = ["<tool_call>", "</tool_call>", "<function=", "[TOOL_CALLS]"];
const NAME_KEYS: [&str; 4] = ["\"name\"", "\"function\"", "\"tool\"", "\"type\""];
const ARGUMENT_KEYS: [&str; 3] = ["\"arguments\"", "\"parameters\"", "\"input\""];
/// How many lines are the end of the output.
const LAST_LINES: usize = 5;
const ERROR_STARTS: [&str; 3] = ["error:", "fatal:", "ran into this error"];

/// Returns what was bad about the end of a run, if anything.
pub(crate) fn bad_end(exit: Exit, stdout: &str, stderr: &str) -> Option<BadEnd> {
    if exit == Exit::Stopped || repeats(stdout) {
        return Some(BadEnd::Endless);
    }
    if ends_with_raw_call(stdout) {
        return Some(BadEnd::RawCall);
    }
    let failed = exit != Exit::Code(0) || shows_error(stderr) || shows_error(stdout);
    failed.then_some(BadEnd::Error)
}

/// Returns whether one of the last lines is an error message. Errors of commands are indented or further up.
fn shows_error(text: &str) -> bool {
    let lines = text.lines().rev().filter(|line| !line.trim().is_empty()).take(LAST_LINES);
    lines
        .map(str::to_lowercase)
        .any(|line| ERROR_STARTS.iter().any(|start| line.starts_with(start)))
}

/// Returns the text without the control sequences of a terminal.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        if next != '\x1b' {
            plain.push(next);
        } else if rest.next() == Some('[') {
            // The sequence ends with its first letter.
            rest.by_ref().find(|c| c.is_ascii_alphabetic());
        }
    }
    plain
}

/// Returns whether the text ends with a call: an object with the name of a tool and its arguments, and no word after it.
fn ends_with_raw_call(text: &str) -> bool {
    let text = text.trim();
    let last_lines = text.lines().rev().take(LAST_LINES);
    if last_lines.flat_map(|line| CALL_MARKS.map(|mark| line.contains(mark))).any(|found| found) {
        return true;
    }
    let is_call = |object: &str| {
        let inner = object[1..].trim_start();
        NAME_KEYS.iter().any(|key| inner.starts_with(key))
            && ARGUMENT_KEYS.iter().any(|key| object.contains(key))
    };
    let objects = text.match_indices('{').filter(|(at, _)| {
        let before = text[..*at].trim_end_matches([' ', '\t', '[']);
        before.is_empty() || before.ends_with('\n')
    });
    objects.map(|(at, _)| &text[at..]).any(|object| {
        let rest = object_end(object).map_or("", |end| &object[end..]);
        is_call(object) && rest.trim_matches([']', '`', ' ', '\n']).is_empty()
    })
}

/// Returns where an object ends. Models forget to escape line breaks, so this is no JSON parser.
fn object_end(object: &str) -> Option<usize> {
    let (mut depth, mut is_string, mut is_escaped) = (0, false, false);
    for (at, next) in object.char_indices() {
        match next {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_string = !is_string,
            '{' if !is_string => depth += 1,
            '}' if !is_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Returns whether the end of the text is a few characters again and again.
fn repeats(text: &str) -> bool {
    let bytes = text.trim_end().as_bytes();
    let Some(end) = bytes.len().checked_sub(REPEATED).map(|start| &bytes[start..]) else {
        return false;
    };
    (1..=LONGEST_REPEATED).any(|period| end[period..] == end[..end.len() - period])
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Exit = Exit::Code(0);

    #[test]
    fn raw_call_at_the_end_is_found_in_every_form() {
        let calls = [
            "{\"name\": \"read\", \"arguments\": {\"filePath\": \"a.py\"}}",
            "I will read it.\n```json\n{\n  \"name\": \"read\",\n  \"arguments\": {}\n}\n```\n",
            "[{\"name\":\"bash\",\"parameters\":{}}]",
            "{\"name\": \"write\", \"arguments\": {\"content\": \"a\nb\"}}",
            "<tool_call>\n{\"name\": 1}\n</tool_call>",
            "{\"name\": \"read\", \"arguments\": {\"filePath\": \"a",
            "{\"name\": \"a\", \"arguments\": {}}\n{\"name\": \"b\", \"arguments\": {}}",
            "[TOOL_CALLS] read",
            "<function=read>\n<parameter=x>",
        ];
        for call in calls {
            assert_eq!(bad_end(WELL, call, ""), Some(BadEnd::RawCall), "{call}");
        }
        let answers = [
            "The file is a.py.",
            "{\"host\": \"x\", \"port\": 1}",
            "It sends {\"name\": \"read\", \"arguments\": {}}",
            "{\"name\": \"read\", \"arguments\": {}}\n\nThat was the call.",
            "{\"name\": \"read\", \"arguments\": {}}\n\nThe code is:\n\nfn main() {\n}",
            "",
        ];
        for answer in answers {
            assert_eq!(bad_end(WELL, answer, ""), None, "{answer}");
        }
    }

    #[test]
    fn text_without_end_is_found() {
        assert_eq!(bad_end(Exit::Stopped, "", ""), Some(BadEnd::Endless));
        assert_eq!(bad_end(WELL, &".F".repeat(2000), ""), Some(BadEnd::Endless));
        assert_eq!(bad_end(WELL, &format!("{} Stopped.", ".F".repeat(2000)), ""), None);
    }

    #[test]
    fn error_of_the_agent_is_found() {
        assert_eq!(bad_end(Exit::Code(1), "", ""), Some(BadEnd::Error));
        assert_eq!(bad_end(WELL, "", "\nError: no model\n"), Some(BadEnd::Error));
        assert_eq!(
            bad_end(WELL, "\nRan into this error: no\n\nPlease retry.", ""),
            Some(BadEnd::Error)
        );
        assert_eq!(bad_end(WELL, "The test ends with a TypeError: x", ""), None);
        assert_eq!(bad_end(WELL, "Done.", "Run x\n    error: unknown\n"), None);
    }

    #[test]
    fn control_sequences_are_removed() {
        assert_eq!(plain("\x1b[1;31mError:\x1b[0m no"), "Error: no");
    }
}
