//! Wildcards: `*` stands for any characters, `?` for one, and `\` takes the next character literally.
//!
//! `engine::words::pattern` matches rules in the same way. Crates of one floor must not depend on each other, and these
//! thirty lines do not deserve a crate; a property test keeps both alike.

/// Tells whether a pattern matches a whole string.
///
/// Goes back only to the last `*`, so that no pattern costs more than its length times the text's.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut next, mut at) = (0, 0);
    let mut last_star = None;
    while at < text.len() {
        let step = match pattern.get(next) {
            Some('*') => {
                last_star = Some((next + 1, at));
                next += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('\\') if next + 1 < pattern.len() => (pattern[next + 1] == text[at]).then_some(2),
            Some(character) => (*character == text[at]).then_some(1),
            None => None,
        };
        match (step, last_star) {
            (Some(step), _) => (next, at) = (next + step, at + 1),
            (None, Some((after, from))) => {
                last_star = Some((after, from + 1));
                (next, at) = (after, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[next..].iter().all(|character| *character == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        let table = [
            ("*", "", true),
            ("*", "a\nb", true),
            ("GIT_*", "GIT_DIR", true),
            ("GIT_*", "GITX", false),
            ("*.env", "x.env", true),
            ("*.env", ".env.sample", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            (r"a\*c", "a*c", true),
            (r"a\*c", "abc", false),
            (r"a\", r"a\", true),
            ("a *", "a", false),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("", "", true),
            ("", "a", false),
            ("ä*", "äöü", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn rules_of_the_engine_match_the_same(pattern in r"[ab*?\\ä]{0,8}", text in r"[ab\\ä]{0,8}") {
            assert_eq!(matches(&pattern, &text), engine::words::pattern::matches_pattern(&pattern, &text));
        }
    }

    #[test]
    fn hostile_pattern_is_matched_quickly() {
        let pattern = "*a".repeat(500);
        assert!(!matches(&pattern, &"a".repeat(499)));
        assert!(!matches(&format!("{pattern}b"), &"a".repeat(5000)));
    }
}
