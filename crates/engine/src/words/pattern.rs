//! Patterns of rules: `*` stands for any characters, `?` for one, `\` takes the next character as it is.

/// Tells whether a pattern fits the whole of a text. A pattern that ends in ` *` also fits without the rest, so
/// `git status *` fits `git status`.
#[must_use]
pub fn fits(pattern: &str, text: &str) -> bool {
    if !pattern.contains(['*', '?', '\\']) {
        return pattern == text;
    }
    let text: Vec<char> = text.chars().collect();
    let whole = pieces(pattern);
    if fits_pieces(&whole, &text) {
        return true;
    }
    match whole.as_slice() {
        [front @ .., Piece::One(' '), Piece::Many] => fits_pieces(front, &text),
        _ => false,
    }
}

/// Returns the pattern that fits this text and no other.
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

/// Returns how much a pattern says: how many characters it has that stand for themselves.
#[must_use]
pub fn weight(pattern: &str) -> usize {
    pieces(pattern).iter().filter(|piece| matches!(piece, Piece::One(_))).count()
}

enum Piece {
    One(char),
    Any,
    Many,
}

fn pieces(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        pieces.push(match character {
            '*' => Piece::Many,
            '?' => Piece::Any,
            '\\' => Piece::One(characters.next().unwrap_or('\\')),
            other => Piece::One(other),
        });
    }
    pieces
}

/// Goes back only to the last `*`, so that no pattern costs more than its length times the text's.
fn fits_pieces(pieces: &[Piece], text: &[char]) -> bool {
    let (mut piece, mut at) = (0, 0);
    let mut last_star = None;
    while at < text.len() {
        match pieces.get(piece) {
            Some(Piece::Many) => {
                last_star = Some((piece, at));
                piece += 1;
            }
            Some(Piece::Any) => (piece, at) = (piece + 1, at + 1),
            Some(Piece::One(character)) if *character == text[at] => {
                (piece, at) = (piece + 1, at + 1);
            }
            Some(Piece::One(_)) | None => {
                let Some((star, from)) = last_star else { return false };
                last_star = Some((star, from + 1));
                (piece, at) = (star + 1, from + 1);
            }
        }
    }
    pieces[piece..].iter().all(|piece| matches!(piece, Piece::Many))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
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
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_literal_fits_itself_alone() {
        for text in ["rm *.o", r"a\b", "what?", ""] {
            assert!(fits(&literal(text), text), "{text}");
        }
        assert!(!fits(&literal("rm *.o"), "rm -rf / x.o"));
        assert_eq!(weight(&literal("rm *.o")), 6);
        assert_eq!(weight("git *"), 4);
    }

    #[test]
    fn a_hostile_pattern_costs_little() {
        let pattern = "*a".repeat(500);
        assert!(!fits(&pattern, &"a".repeat(499)));
        assert!(!fits(&format!("{pattern}b"), &"a".repeat(5000)));
    }
}
