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
const ERROR_STARTS: [&str; 3] = ["error:", "fatal:", "ran into this error"];

/// Returns what was bad about the end of a run, if anything.
pub(crate) fn bad_end(exit: Exit, stdout: &str, stderr: &str) -> Option<BadEnd> {
    if exit == Exit::Stopped || repeats(stdout) {
        return Some(BadEnd::Endless);
    }
    if ends_with_raw_call(stdout) {
        return Some(BadEnd::RawCall);
    }
    let shows_error = |text: &str| {
        text.lines()
            .map(|line| line.trim().to_lowercase())
            .any(|line| ERROR_STARTS.iter().any(|start| line.starts_with(start)))
    };
    let failed = exit != Exit::Code(0) || shows_error(stderr) || shows_error(stdout);
    failed.then_some(BadEnd::Error)
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
    let text = text.trim_end().trim_end_matches('`').trim_end();
    let last_lines = text.lines().rev().take(3).collect::<Vec<_>>();
    if CALL_MARKS.iter().any(|mark| last_lines.iter().any(|line| line.contains(mark))) {
        return true;
    }
    if !text.ends_with(['}', ']']) {
        return false;
    }
    // Models forget to escape line breaks, so this is no JSON parser: the last object that starts with a name.
    let starts_with_name = |at: usize| {
        let inner = text[at + 1..].trim_start();
        ["\"name\"", "\"function\"", "\"tool\"", "\"type\""]
            .iter()
            .any(|key| inner.starts_with(key))
    };
    let has_arguments = |at: usize| {
        ["\"arguments\"", "\"parameters\"", "\"input\""].iter().any(|key| text[at..].contains(key))
    };
    let objects = text.match_indices('{').map(|(at, _)| at);
    objects.filter(|at| starts_with_name(*at)).any(|at| {
        let before = text[..at].trim_end_matches([' ', '\t', '[', '\n']);
        let opens_a_line = before.is_empty() || text[before.len()..at].contains('\n');
        opens_a_line && has_arguments(at) && !text[at..].contains("\n\n\n")
    })
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
        assert_eq!(bad_end(WELL, "The test ends with a TypeError: x", ""), None);
    }

    #[test]
    fn control_sequences_are_removed() {
        assert_eq!(plain("\x1b[1;31mError:\x1b[0m no"), "Error: no");
    }
}
