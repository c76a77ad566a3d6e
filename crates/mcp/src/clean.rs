//! Cleans text from servers for display: no terminal control sequences, no invisible characters.

use std::borrow::Cow;

/// Removes control and invisible characters, and cuts the text at a character boundary.
pub(crate) fn clean(text: &str, limit: usize) -> String {
    // Most texts need no change.
    let mut cleaned: String = if text.chars().all(is_plain) {
        text.to_owned()
    } else {
        text.chars().filter(|character| is_plain(*character)).collect()
    };
    if cleaned.len() > limit {
        cleaned.truncate(cleaned.floor_char_boundary(limit));
        cleaned.push('…');
    }
    cleaned
}

/// Like [`clean`], and joins the lines to one.
pub(crate) fn clean_line(text: &str, limit: usize) -> String {
    let one_line: Vec<&str> = text.split_whitespace().collect();
    clean(&one_line.join(" "), limit)
}

/// Cleans an address for a client that makes a link of it: what could end the link or start another one is encoded. `None` for an
/// address that is a program by itself.
pub(crate) fn clean_uri(uri: &str, limit: usize) -> Option<String> {
    let cleaned = clean_line(uri, limit);
    let scheme = cleaned.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
    if ["javascript", "vbscript", "data"].contains(&scheme.as_str()) {
        return None;
    }
    let mut safe = String::with_capacity(cleaned.len());
    for character in cleaned.chars() {
        match character {
            ' ' | '(' | ')' | '[' | ']' | '<' | '>' | '`' | '"' | '\\' | '|' => {
                safe.push_str(&format!("%{:02X}", u32::from(character)));
            }
            other => safe.push(other),
        }
    }
    Some(safe)
}

/// Replaces halves of characters in JSON by U+FFFD. Servers that cut UTF-16 text send them as `\ud83d`, which is no valid string.
pub(crate) fn whole_characters(json: &str) -> Cow<'_, str> {
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let (mut whole, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(at) = rest.find('\\') {
        whole.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match (unit_of(rest), rest.get(UNIT..).and_then(unit_of)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * UNIT,
            (Some(0xd800..=0xdfff), _) => {
                whole.push_str("\\ufffd");
                rest = &rest[UNIT..];
                continue;
            }
            (Some(_), _) => UNIT,
            // An escape of another kind: the character after the backslash belongs to it.
            (None, _) => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        whole.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    whole.push_str(rest);
    Cow::Owned(whole)
}

/// The length of `\u` with four digits.
const UNIT: usize = 6;

/// Returns the number of the escape that a text begins with.
fn unit_of(text: &str) -> Option<u16> {
    let digits = text.get(..UNIT)?.strip_prefix("\\u")?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

/// Returns whether a character is visible. Newlines and tabs are.
fn is_plain(character: char) -> bool {
    match character {
        '\n' | '\t' => true,
        // Soft hyphen, and letters without width.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => {
            false
        }
        '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{ffa0}' => false,
        // Zero-width characters, and those that change the text direction.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{feff}' | '\u{fff0}'..='\u{fffb}' => false,
        // Variation selectors and tags, which can encode hidden sentences.
        '\u{fe00}'..='\u{fe0e}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => false,
        other => !other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: M3
    // R: M2
    #[test]
    fn halves_of_characters_are_replaced_and_whole_ones_stay() {
        for (json, text) in [
            (r#""a""#, "a"),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\ude00x\uD83D""#, "\u{fffd}x\u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\\ud83d \n\u0041é\ud83d\n""#, "\\ud83d \nAé\u{fffd}\n"),
        ] {
            assert_eq!(
                serde_json::from_str::<String>(&whole_characters(json)).unwrap(),
                text,
                "{json}"
            );
        }
        for broken in [r#""\"#, r#""\u"#, r#""\ud8"#, "\\é", r#""\ud83d\"#] {
            whole_characters(broken);
        }
    }

    #[test]
    fn hidden_and_control_characters_are_removed() {
        let hostile =
            "a\u{1b}[31mb\u{7}\u{9b}c\u{202e}d\u{200b}e\u{e0041}\u{e0042}f\u{feff}g\r\n\th";
        assert_eq!(clean(hostile, 100), "a[31mbcdefg\n\th");
        assert_eq!(clean("grüße 💛", 100), "grüße 💛");
        assert_eq!(clean_line(" two\n lines ", 100), "two lines");
    }

    // R: M3
    #[test]
    fn address_cannot_end_its_link() {
        let safe = |uri: &str| clean_uri(uri, 200);
        assert_eq!(safe("test://a/b?c=d#e%20f").as_deref(), Some("test://a/b?c=d#e%20f"));
        assert_eq!(safe("x:)![](http://e)\u{1b}\n").as_deref(), Some("x:%29!%5B%5D%28http://e%29"));
        assert_eq!(safe("<img src=x>").as_deref(), Some("%3Cimg%20src=x%3E"));
        for program in
            ["javascript:alert(1)", " JavaScript:x", "data:text/html,x", "java\u{200b}script:x"]
        {
            assert_eq!(safe(program), None, "{program}");
        }
    }

    #[test]
    fn long_text_is_cut_at_a_character_boundary() {
        assert_eq!(clean("aéé", 2), "a…");
        assert_eq!(clean("aéé", 5), "aéé");
    }

    proptest::proptest! {
        #[test]
        fn cleaned_text_is_plain_and_short(text in ".{0,200}", limit in 0_usize..100) {
            let cleaned = clean(&text, limit);
            proptest::prop_assert!(cleaned.chars().all(is_plain));
            proptest::prop_assert!(cleaned.len() <= limit + '…'.len_utf8());
            proptest::prop_assert_eq!(clean(&cleaned, 1000), cleaned);
        }
    }
}
