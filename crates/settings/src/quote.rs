//! Words of a command line, quoted for a shell.

/// Writes words so that a shell reads them back unchanged.
pub fn quote_all<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(quote).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
