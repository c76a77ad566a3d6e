//! Suggestions for unknown names.

/// Finds the most similar word, if one is similar enough.
#[must_use]
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = words.into_iter().map(|known| (distance(word, known), known)).min()?;
    // A long name may have more typos than a short one.
    (near.0 <= (word.len() / 4).max(2) && near.0 < near.1.len()).then_some(near.1)
}

/// Returns the edit distance of two words.
#[must_use]
pub fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, character) in from.chars().enumerate() {
        let mut corner = row[0];
        row[0] = index + 1;
        for at in 0..to.len() {
            let change = corner + usize::from(character != to[at]);
            corner = row[at + 1];
            row[at + 1] = change.min(corner + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_words_are_found_and_others_are_not() {
        assert_eq!(nearest("modle", ["model", "mcp"]), Some("model"));
        assert_eq!(nearest("entirely", ["mode", "model"]), None);
        assert_eq!(nearest("prompts_per_min", ["prompts_per_minute"]), Some("prompts_per_minute"));
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(distance("", "abc"), 3);
    }
}
