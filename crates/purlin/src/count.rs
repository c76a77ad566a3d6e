//! Counts with a singular or plural noun.

/// Formats a count with its noun.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let files = [0, 1, 2].map(|number| count(number, "file", "files"));
        assert_eq!(files, ["0 files", "1 file", "2 files"]);
    }
}
