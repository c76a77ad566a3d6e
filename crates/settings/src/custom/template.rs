//! The template of a slash command: where arguments, files and the output of commands are inserted.
//!
//! Parsed before anything is inserted, so that inserted text is never read as part of the template.

/// One part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Plain text.
    Text(String),
    /// All arguments.
    Arguments,
    /// One argument, from 1; the last one of a template takes the rest.
    Word(usize),
    /// A file, if it exists; else plain text, with its `@`.
    File(String),
    /// The output of a command.
    Shell(String),
}

/// Parses a template. Every text is valid.
pub fn parse(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '@', '!']) {
        let before = rest[..at].chars().next_back().or_else(|| plain.chars().next_back());
        plain.push_str(&rest[..at]);
        let here = &rest[at..];
        match special(here, before) {
            Some((part, length)) => {
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                parts.push(part);
                rest = &here[length..];
            }
            None => {
                plain.push_str(&here[..1]);
                rest = &here[1..];
            }
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    parts
}

/// Reads the part at the start of a string, and returns its length.
fn special(text: &str, before: Option<char>) -> Option<(Part, usize)> {
    if let Some(rest) = text.strip_prefix('$') {
        if rest.starts_with("ARGUMENTS") {
            return Some((Part::Arguments, "$ARGUMENTS".len()));
        }
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = rest[..digits].parse().ok().filter(|number| (1..=99).contains(number))?;
        return Some((Part::Word(number), 1 + digits));
    }
    if let Some(rest) = text.strip_prefix("!`") {
        let (command, _) = rest.split_once('`')?;
        let part = Part::Shell(command.to_owned());
        return (!command.trim().is_empty()).then_some((part, command.len() + 3));
    }
    // An e-mail address is not a file.
    let rest = text.strip_prefix('@').filter(|_| !before.is_some_and(is_of_path))?;
    let length = rest.find(|c: char| !is_of_path(c)).unwrap_or(rest.len());
    let path = rest[..length].trim_end_matches(['.', ',']);
    (!path.is_empty()).then(|| (Part::File(path.to_owned()), path.len() + 1))
}

fn is_of_path(c: char) -> bool {
    c.is_alphanumeric() || "/._-~+".contains(c)
}

/// Splits arguments into words; quotes keep whitespace together.
pub fn words(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in arguments.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Returns the hint for the arguments of a command with this template.
pub fn hint(parts: &[Part]) -> Option<String> {
    let last = last_word(parts);
    if last > 0 {
        let words: Vec<String> = (1..=last.min(9)).map(|number| format!("<{number}>")).collect();
        return Some(words.join(" "));
    }
    parts.contains(&Part::Arguments).then(|| "arguments".to_owned())
}

/// Returns the highest number of an argument in a template.
pub fn last_word(parts: &[Part]) -> usize {
    let number = |part: &Part| if let Part::Word(number) = part { *number } else { 0 };
    parts.iter().map(number).max().unwrap_or(0)
}

/// Returns the value of an argument; the last one takes the rest.
pub fn word(words: &[String], number: usize, last: usize) -> String {
    match words.get(number - 1..) {
        Some(rest) if number == last => rest.join(" "),
        Some(rest) => rest.first().cloned().unwrap_or_default(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn short(text: &str) -> Vec<String> {
        let one = |part: &Part| match part {
            Part::Text(text) => format!("'{text}'"),
            Part::Arguments => "all".to_owned(),
            Part::Word(number) => format!("word {number}"),
            Part::File(path) => format!("file {path}"),
            Part::Shell(command) => format!("shell {command}"),
        };
        parse(text).iter().map(one).collect()
    }

    #[test]
    fn templates_are_parsed() {
        assert_eq!(
            short("Fix $1 in $2: $ARGUMENTS"),
            ["'Fix '", "word 1", "' in '", "word 2", "': '", "all"]
        );
        assert_eq!(
            short("See @src/a.rs, and mail a@b.c."),
            ["'See '", "file src/a.rs", "', and mail a@b.c.'"]
        );
        assert_eq!(short("Now: !`git diff $1`!"), ["'Now: '", "shell git diff $1", "'!'"]);
        assert_eq!(short("$0 $HOME $ ! @ !``"), ["'$0 $HOME $ ! @ !``'"]);
        assert_eq!(short("Is it @README.md?"), ["'Is it '", "file README.md", "'?'"]);
    }

    #[test]
    fn quoted_words_stay_together_and_the_last_argument_takes_the_rest() {
        let words = words(r#"one "two three" four '' five"#);
        assert_eq!(words, ["one", "two three", "four", "", "five"]);
        assert_eq!(word(&words, 1, 3), "one");
        assert_eq!(word(&words, 3, 3), "four  five");
        assert_eq!(word(&words, 9, 9), "");
        assert_eq!(hint(&parse("$2 and $1")).as_deref(), Some("<1> <2>"));
        assert_eq!(hint(&parse("nothing")), None);
    }

    proptest! {
        #[test]
        fn parsed_template_has_the_same_text(text in "[$@!`a-zA1-9 ./é\n]{0,80}") {
            let parts = parse(&text);
            let back: String = parts.iter().map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Arguments => "$ARGUMENTS".to_owned(),
                Part::Word(number) => format!("${number}"),
                Part::File(path) => format!("@{path}"),
                Part::Shell(command) => format!("!`{command}`"),
            }).collect();
            prop_assert_eq!(back, text);
        }

        #[test]
        fn quoted_words_are_read_back(expected in proptest::collection::vec("[a-z '\t]{0,8}", 0..6)) {
            let text: Vec<String> = expected.iter().map(|word| format!("\"{word}\"")).collect();
            prop_assert_eq!(words(&text.join("  ")), expected);
        }

        #[test]
        fn unquoted_words_are_separated_by_white_space(text in "[^\"']{0,60}") {
            let expected: Vec<&str> = text.split_whitespace().collect();
            prop_assert_eq!(words(&text), expected);
        }
    }
}
