//! The keywords that a line of a transcript may start with.
//!
//! The rest of a line is checked when the transcript is played. The keywords are explained in
//! `conformance/README.md`.

use super::finding::Finding;
use super::tree::File;

const WORDS: [&str; 10] = ["tag", "use", "config", "fs", "model", ">", ">!", "<", "eof", "exit"];

/// The keywords of transcripts for agents of unknown wording. `authenticate` is replaced by `purlin check`.
const LOOSE_WORDS: [&str; 24] = [
    "row",
    "needs",
    "let",
    "seen",
    "never",
    "atmost",
    "says",
    "answered",
    "unanswered",
    "closed",
    "wrote",
    "absent",
    "within",
    "quiet",
    "serve",
    "refuse",
    "policy",
    "flood",
    "kill",
    "restart",
    "term",
    "authenticate",
    "eof",
    "exit",
];

/// Finds lines with an unknown keyword.
pub(crate) fn has_known_words(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let word = line.split_whitespace().next().unwrap_or_default();
        if !word.is_empty() && !line.starts_with('#') && !starts_with_known(line) {
            let advice = format!(
                "starts with `{word}`, which is not a keyword of conformance/README.md: use one of {}, or `#` for a comment",
                WORDS.join(" ")
            );
            findings.push(Finding::new(&file.path, index + 1, advice));
        }
    }
    findings
}

fn starts_with_known(line: &str) -> bool {
    let word = line.split(' ').next().map(str::trim_end);
    word.is_some_and(|word| WORDS.contains(&word) || LOOSE_WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn lines_found(text: &str) -> Vec<usize> {
        let file = File::new("conformance/turn/a.acp", text);
        has_known_words(&file).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn every_documented_line_is_known() {
        let text = "# R: W3\ntag black-box\nuse initialized\nconfig {}\nfs /w/a \"b\"\nmodel echo\n\n> {}\n>! \\x00\n< {}\neof\nexit 0\n";
        assert_eq!(lines_found(text), NONE);
    }

    #[test]
    fn other_lines_are_found_with_their_number() {
        assert_eq!(lines_found("> {}\n{\"id\":1}\n"), [2]);
        assert_eq!(lines_found("models echo\n >{}\n>{}\n"), [1, 2, 3]);
    }
}
