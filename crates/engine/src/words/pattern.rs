//! Patterns of rules: `*` matches any characters, `?` matches one, `\` escapes the next character.

/// Tells whether a pattern matches a whole text. A pattern that ends in ` *` also matches without arguments, so
/// `git status *` matches `git status`.
#[must_use]
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    if !pattern.contains(['*', '?', '\\']) {
        return pattern == text;
    }
    let text: Vec<char> = text.chars().collect();
    let whole = tokens(pattern);
    if matches_tokens(&whole, &text) {
        return true;
    }
    match whole.as_slice() {
        [front @ .., Token::One(' '), Token::Many] => matches_tokens(front, &text),
        _ => false,
    }
}

/// Returns the pattern that matches exactly this text.
#[must_use]
pub fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

/// Returns how specific a pattern is: its number of literal characters.
#[must_use]
pub fn weight(pattern: &str) -> usize {
    tokens(pattern).iter().filter(|token| matches!(token, Token::One(_))).count()
}

enum Token {
    One(char),
    Any,
    Many,
}

fn tokens(pattern: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        tokens.push(match character {
            '*' => Token::Many,
            '?' => Token::Any,
            '\\' => Token::One(characters.next().unwrap_or('\\')),
            other => Token::One(other),
        });
    }
    tokens
}

/// Backtracks only to the last `*`, so the cost is at most the length of the pattern times that of the text.
fn matches_tokens(tokens: &[Token], text: &[char]) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut last_star = None;
    while at < text.len() {
        match tokens.get(token) {
            Some(Token::Many) => {
                last_star = Some((token, at));
                token += 1;
            }
            Some(Token::Any) => (token, at) = (token + 1, at + 1),
            Some(Token::One(character)) if *character == text[at] => {
                (token, at) = (token + 1, at + 1);
            }
            Some(Token::One(_)) | None => {
                let Some((star, from)) = last_star else { return false };
                last_star = Some((star, from + 1));
                (token, at) = (star + 1, from + 1);
            }
        }
    }
    tokens[token..].iter().all(|token| matches!(token, Token::Many))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match() {
        let table = [
            ("*", "", true),
            ("*", "a\nb", true),
            ("git status *", "git status", true),
            ("git status *", "git status -s", true),
            ("git status *", "git statusx", false),
            ("git status", "git status -s", false),
            ("*.env", "/w/.env", true),
            ("*.env", "/w/.env.sample", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            (r"a\*c", "a*c", true),
            (r"a\*c", "abc", false),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("", "", true),
            ("", "a", false),
            ("ä*", "äöü", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches_pattern(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn literal_matches_only_itself() {
        for text in ["rm *.o", r"a\b", "what?", ""] {
            assert!(matches_pattern(&literal(text), text), "{text}");
        }
        assert!(!matches_pattern(&literal("rm *.o"), "rm -rf / x.o"));
        assert_eq!(weight(&literal("rm *.o")), 6);
        assert_eq!(weight("git *"), 4);
    }

    #[test]
    fn hostile_pattern_is_cheap() {
        let pattern = "*a".repeat(500);
        assert!(!matches_pattern(&pattern, &"a".repeat(499)));
        assert!(!matches_pattern(&format!("{pattern}b"), &"a".repeat(5000)));
    }
}
