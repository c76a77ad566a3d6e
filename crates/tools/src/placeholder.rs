//! Placeholders for omitted text: "rest of the code", "... existing code ...". Written to a file they would delete the text they
//! stand for, so they are refused.

/// Phrases that stand for omitted code.
const PHRASES: [&str; 24] = [
    "rest of",
    "remaining code",
    "remaining methods",
    "remaining functions",
    "remainder of",
    "existing code",
    "existing implementation",
    "existing content",
    "existing methods",
    "existing functions",
    "existing imports",
    "previous code",
    "other code",
    "other methods",
    "other functions",
    "unchanged",
    "same as before",
    "same as above",
    "no changes",
    "stays the same",
    "remains the same",
    "omitted for brevity",
    "code omitted",
    "code continues",
];

/// Phrases that are placeholders even without dots, at the start of a comment.
const STARTS: [&str; 5] =
    ["rest of", "remaining code", "remainder of", "existing code", "previous code"];

/// Phrases that say that the rest is unchanged, which distinguish a placeholder from a sentence.
const KEPT: [&str; 6] = [
    "unchanged",
    "remains the same",
    "stays the same",
    "same as before",
    "no changes",
    "as before",
];

/// How comments begin.
const LEADERS: [&str; 8] = ["//", "/*", "<!--", "{/*", "--", "#", ";", "%"];

/// Finds a line of `new` that is a placeholder and was not in the file before.
pub(crate) fn find<'a>(new: &'a str, before: &str) -> Option<&'a str> {
    // Most texts have no dots, so their lines need not be searched for them.
    let has = |dots: &str| memchr::memmem::find(new.as_bytes(), dots.as_bytes()).is_some();
    let has_dots = has("...") || has("…");
    let is_new = |line: &str| !before.lines().any(|old| old.trim() == line);
    let mut rest = new;
    // Faster than `lines` for large files.
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        if may_stand(line, has_dots) && stands_for_text(line.trim()) && is_new(line.trim()) {
            return Some(line.trim());
        }
    }
    None
}

fn stands_for_text(line: &str) -> bool {
    is_stand_in(line) || comment_behind(line).is_some_and(is_stand_in)
}

/// Returns the comment after a line's code, if it begins with dots.
fn comment_behind(line: &str) -> Option<&str> {
    let at = ["...", "…"].iter().filter_map(|dots| line.find(dots)).min()?;
    let before = line[..at].trim_end();
    let leader = LEADERS.iter().find(|leader| before.ends_with(**leader))?;
    let code = &before[..before.len() - leader.len()];
    code.ends_with(char::is_whitespace).then(|| &line[code.len()..])
}

fn is_stand_in(line: &str) -> bool {
    let leader = LEADERS.iter().find(|leader| line.starts_with(**leader));
    let body = leader.map_or(line, |leader| &line[leader.len()..]);
    let body = body.trim_matches(|c: char| c.is_whitespace() || "*/-}>#(){[]".contains(c));
    let words = body.trim_matches(['.', '…', ' ', '(', ')', '[', ']']).to_lowercase();
    let has_dots = ["...", "…"].iter().any(|dots| body.starts_with(dots) || body.ends_with(dots));
    if has_dots {
        // Prose may end in dots; a placeholder is short.
        return words.len() <= 60 && PHRASES.iter().any(|phrase| words.contains(phrase));
    }
    let begins = |words: &str| STARTS.iter().any(|phrase| words.starts_with(phrase));
    let is_kept = || KEPT.iter().any(|phrase| words.contains(phrase));
    let is_rest = words.len() <= 40 && begins(&words)
        || words.len() <= 60 && words.strip_prefix("the ").is_some_and(begins) && is_kept();
    leader.is_some() && is_rest && is_about_code(&words)
}

/// Tells quickly whether a line may be a placeholder.
fn may_stand(line: &str, may_have_dots: bool) -> bool {
    // A comment does not begin with a letter or a digit.
    let mut bytes = line.bytes().skip_while(u8::is_ascii_whitespace);
    let may_lead = bytes.next().is_some_and(|first| !first.is_ascii_alphanumeric());
    may_lead && LEADERS.iter().any(|leader| line.trim_start().starts_with(leader))
        || may_have_dots && (line.contains("...") || line.contains('…'))
}

fn is_about_code(words: &str) -> bool {
    [
        "code",
        "file",
        "function",
        "method",
        "class",
        "implementation",
        "content",
        "module",
        "component",
    ]
    .iter()
    .any(|what| words.contains(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found() {
        let stand_ins = [
            "// ... existing code ...",
            "    # ... rest of the file unchanged ...",
            "// rest of the code",
            "/* ... rest of implementation ... */",
            "<!-- ... existing content ... -->",
            "... rest of the code ...",
            "{/* ... existing code ... */}",
            "// … other methods …",
            "-- rest of the function",
            "// existing code here",
            "# (rest of the code remains the same ...)",
            "[... code omitted for brevity ...]",
            "# The rest of the code remains unchanged",
            "// the rest of the file stays the same",
            "x = 1  # ... rest of the code remains the same",
            "    foo(); // … existing code …",
        ];
        for line in stand_ins {
            let text = format!("fn a() {{\n{line}\n}}\n");
            assert_eq!(find(&text, ""), Some(line.trim()), "{line}");
            assert_eq!(find(&text, &text), None, "{line}");
        }
    }

    #[test]
    fn ordinary_text_is_not_a_placeholder() {
        let ordinary = [
            "let rest = rest_of(code);",
            "// The rest of the arguments is handed to nextest as it is.",
            "...",
            "def f(*args): ...",
            "let all = [..., existing];",
            "# Unchanged files are not rebuilt",
            "// Waits for the rest of the line to come, which may take a while, as clients may be slow...",
            "print(\"loading...\")",
            "The existing code of conduct applies.",
            "match x { .. }",
            "// The rest of the code is in lib.rs.",
            "x = load()  # ... and the cache is filled",
            "print(\"# ... rest of the code\")",
            "f(...) # the rest of the arguments",
            "",
        ];
        for line in ordinary {
            assert_eq!(find(line, ""), None, "{line}");
        }
    }
}
