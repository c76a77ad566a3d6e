//! What a rule finds: a place and advice.

use std::fmt;

/// A place where a rule is broken.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    /// What is wrong and how to fix it.
    pub(crate) advice: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, advice: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_is_printed_as_a_place_and_advice() {
        let finding = Finding::new("crates/a/src/b.rs", 3, "is wrong: fix it");
        assert_eq!(finding.to_string(), "crates/a/src/b.rs:3: is wrong: fix it");
    }
}
