//! Words: one argument as it is written, and what it expands to if that is known without running anything.

/// One argument of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    /// As it is written.
    pub(crate) raw: String,
    /// What it expands to.
    pub(crate) means: Meaning,
}

/// What a word expands to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Exactly this text.
    Text(String),
    /// A pattern: the text with its `*`, `?`, `[…]` and `{…}`; quoted ones have a `\` before them.
    Names(String),
    /// A path below a home directory: the text after `~`.
    Home(String),
    /// Only known at run time.
    Unknown,
}

impl Word {
    /// Makes a word that expands to itself.
    pub(crate) fn text(text: &str) -> Word {
        Word { raw: text.to_owned(), means: Meaning::Text(text.to_owned()) }
    }

    /// Returns what it expands to, if that is exactly one text.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.means {
            Meaning::Text(text) => Some(text),
            Meaning::Names(_) | Meaning::Home(_) | Meaning::Unknown => None,
        }
    }

    /// Tells whether it stays one word whatever it expands to: all of it is between two double quotes.
    pub(crate) fn is_quoted(&self) -> bool {
        let inside = self.raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
        // `"$@"` expands to many words.
        inside.is_some_and(|inside| !inside.contains(['"', '@']))
    }

    /// Returns the word in its normal form: the same meaning is always quoted the same way.
    pub(crate) fn normal(&self) -> String {
        match &self.means {
            Meaning::Text(text) => quote(text),
            Meaning::Names(_) | Meaning::Home(_) | Meaning::Unknown => self.raw.clone(),
        }
    }
}

/// Reads a word without expansions by the rules of the shell; `None` for any other.
///
/// Does not use the grammar, so that a mistake in one of the two is caught by the other.
pub(crate) fn read(raw: &str) -> Option<Word> {
    let mut text = String::new();
    let mut pattern = String::new();
    let mut makes_names = false;
    let mut rest = raw.chars().peekable();
    let is_home = raw.starts_with('~');
    while let Some(character) = rest.next() {
        let (start, is_quoted) = (text.len(), matches!(character, '\\' | '\'' | '"'));
        match character {
            '\\' => match rest.next()? {
                '\n' => return None,
                next => text.push(next),
            },
            '\'' => loop {
                match rest.next()? {
                    '\'' => break,
                    inside => text.push(inside),
                }
            },
            '"' => read_double(&mut rest, &mut text)?,
            '$' if rest.peek().is_none() => text.push('$'),
            '#' if text.is_empty() => return None,
            '$' | '`' | ';' | '|' | '&' | '(' | ')' | '<' | '>' => return None,
            other if other.is_whitespace() || other.is_control() => return None,
            '*' | '?' | '[' => {
                makes_names = true;
                text.push(character);
            }
            other => text.push(other),
        }
        for added in text[start..].chars() {
            if is_quoted && "*?[]{}\\".contains(added) {
                pattern.push('\\');
            }
            pattern.push(added);
        }
    }
    makes_names |= has_braces(&pattern);
    let means = match (is_home, makes_names) {
        (true, true) => return None,
        // `~name` is another user's home directory, `~+` and `~-` are directories that the shell remembers.
        (true, false) => match text.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                Meaning::Home(rest.to_owned())
            }
            _ => return None,
        },
        (false, true) => Meaning::Names(pattern),
        (false, false) => Meaning::Text(text),
    };
    Some(Word { raw: raw.to_owned(), means })
}

/// Tells whether braces expand to several words: a `}` ends them only after a `,` or `..`.
fn has_braces(pattern: &str) -> bool {
    pattern.match_indices('{').any(|(start, _)| {
        let (mut level, mut is_list) = (0, false);
        let mut rest = pattern[start + 1..].chars().peekable();
        while let Some(character) = rest.next() {
            match character {
                '\\' => drop(rest.next()),
                '{' => level += 1,
                '}' if level > 0 => level -= 1,
                '}' if is_list => return true,
                ',' => is_list |= level == 0,
                '.' => is_list |= level == 0 && rest.peek() == Some(&'.'),
                _ => {}
            }
        }
        false
    })
}

/// Returns an upper bound of the words that braces expand to: `{1..9}` is nine, and adjacent or nested braces multiply.
pub(crate) fn brace_count(pattern: &str) -> u64 {
    let mut open: Vec<(usize, u64)> = Vec::new();
    let mut count: u64 = 1;
    let mut rest = pattern.char_indices();
    while let Some((at, character)) = rest.next() {
        match character {
            '\\' => drop(rest.next()),
            '{' => open.push((at + 1, 1)),
            ',' => open.iter_mut().for_each(|(_, parts)| *parts += 1),
            '}' => {
                if let Some((start, parts)) = open.pop() {
                    count = count.saturating_mul(parts.max(range_count(&pattern[start..at])));
                }
            }
            _ => {}
        }
    }
    count
}

/// Returns how many words a range like `1..9` or `a..z..2` expands to; 1 for any other text.
fn range_count(inside: &str) -> u64 {
    let mut ends = inside.split("..");
    let (Some(from), Some(to), false) =
        (ends.next(), ends.next(), inside.contains([',', '{', '}']))
    else {
        return 1;
    };
    match (from.parse::<i64>(), to.parse::<i64>()) {
        (Ok(from), Ok(to)) => from.abs_diff(to).saturating_add(1),
        // A range of letters is small; numbers too large to parse make it too long anyway.
        _ if from.chars().count() == 1 && to.chars().count() == 1 => 256,
        _ if from.contains(|c: char| c.is_ascii_digit()) => u64::MAX,
        _ => 1,
    }
}

fn read_double(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    text: &mut String,
) -> Option<()> {
    loop {
        match rest.next()? {
            '"' => return Some(()),
            '`' => return None,
            '$' => {
                let expands = |next: &char| next.is_alphanumeric() || "_{([@*#?!$-".contains(*next);
                if rest.peek().is_none_or(expands) {
                    return None;
                }
                text.push('$');
            }
            '\\' => match rest.next()? {
                next @ ('$' | '`' | '"' | '\\') => text.push(next),
                '\n' => {}
                next => text.extend(['\\', next]),
            },
            inside => text.push(inside),
        }
    }
}

/// Quotes a string so that the shell reads it as one word.
pub(crate) fn quote(text: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Writes a simple command in its normal form: one space between words, one way to quote.
pub(crate) fn normal(words: &[Word]) -> String {
    words.iter().map(Word::normal).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(raw: &str) -> Option<Meaning> {
        read(raw).map(|word| word.means)
    }

    #[test]
    fn quotes_and_escapes_are_removed() {
        let table = [
            ("ls", "ls"),
            (r"r\m", "rm"),
            (r#""r"m"#, "rm"),
            ("'it'\\''s'", "it's"),
            (r#""a\"b\n""#, "a\"b\\n"),
            (r#""foo$""#, "foo$"),
            (r#""a$ b""#, "a$ b"),
            ("''", ""),
            ("a#b", "a#b"),
            ("{}", "{}"),
            ("HEAD@{1}", "HEAD@{1}"),
            ("HEAD@{2}..HEAD@{1}", "HEAD@{2}..HEAD@{1}"),
            ("a=b", "a=b"),
        ];
        for (raw, text) in table {
            assert_eq!(meaning(raw), Some(Meaning::Text(text.to_owned())), "{raw}");
        }
    }

    #[test]
    fn patterns_and_home_directories_are_distinguished() {
        assert_eq!(meaning("*.rs"), Some(Meaning::Names("*.rs".to_owned())));
        assert_eq!(meaning("a{b,c}"), Some(Meaning::Names("a{b,c}".to_owned())));
        assert_eq!(meaning("{a},b}"), Some(Meaning::Names("{a},b}".to_owned())));
        assert_eq!(meaning("{1..3}"), Some(Meaning::Names("{1..3}".to_owned())));
        assert_eq!(meaning(r"\*'['?"), Some(Meaning::Names(r"\*\[?".to_owned())));
        assert_eq!(meaning("'*.rs'"), Some(Meaning::Text("*.rs".to_owned())));
        assert_eq!(meaning("~/x"), Some(Meaning::Home("/x".to_owned())));
        assert_eq!(meaning("'~/x'"), None.or(Some(Meaning::Text("~/x".to_owned()))));
    }

    #[test]
    fn brace_expansions_are_counted() {
        let table = [
            ("a", 1),
            ("{a,b}", 2),
            ("{1..9}", 9),
            ("{9..-9}", 19),
            ("{1..999999999}", 999_999_999),
            ("{1..99}{1..99}x", 9801),
            ("{a,{1..99}}", 198),
            ("{a..z}", 256),
            ("{1..99999999999999999999}", u64::MAX),
            ("\\{1..999999999\\}", 1),
            ("HEAD@{1}", 1),
        ];
        for (pattern, count) in table {
            assert_eq!(brace_count(pattern), count, "{pattern}");
        }
    }

    #[test]
    fn other_expansions_are_rejected() {
        let refused = [
            "$x", "\"$x\"", "`id`", "$(id)", "$'a'", "a;b", "a|b", "a&b", "a(b", "a>b", "#x",
            "a b", "~root/x", "~+", "'open", "\"open", "open\\", "a\u{a0}b", "a\rb", "\"a`b\"",
            "$\"a\"", "a\\\nb", "~/*",
        ];
        for raw in refused {
            assert_eq!(meaning(raw), None, "{raw:?}");
        }
    }

    #[test]
    fn normal_form_is_stable() {
        for text in ["", "a b", "it's", "$x", "*", "a\nb", "-n", "~/x", "{a,b}", "ä"] {
            assert_eq!(meaning(&quote(text)), Some(Meaning::Text(text.to_owned())), "{text:?}");
        }
    }
}
