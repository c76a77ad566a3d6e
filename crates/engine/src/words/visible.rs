//! Escapes characters that could deceive a reader, in text that is shown before a decision.

/// Escapes control characters, direction marks and invisible characters.
///
/// Line ends and tabs stay. Used for titles and for everything in a permission request.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if deceives(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Makes a text visible and puts it on one line: a name with a line end must not look like two items.
#[must_use]
pub fn one_line(text: &str) -> String {
    visible(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// Tells whether a character controls a terminal, changes the direction of text, or is invisible.
#[must_use]
pub fn deceives(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => {
            true
        }
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' => true,
        '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deceptive_characters_are_escaped() {
        assert_eq!(
            visible("rm\u{1b}[2K \u{202e}x\u{9b}\n\t"),
            "rm\\u{1b}[2K \\u{202e}x\\u{9b}\n\t"
        );
        assert_eq!(visible("a\u{200b}b\u{feff}\u{e0041}"), "a\\u{200b}b\\u{feff}\\u{e0041}");
        assert_eq!(visible("häßlich 漢字 🎉\u{fe0f}"), "häßlich 漢字 🎉\u{fe0f}");
        let once = visible("\r\u{7f}\u{2066}");
        assert_eq!(visible(&once), once);
    }
}
