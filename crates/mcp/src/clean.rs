//! Cleans text from servers for display: no terminal control sequences, no invisible characters.

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
