//! Rules for a single Rust file: header, length of file and functions, skipped tests and missing code.

use super::finding::Finding;
use super::tree::File;

const LONGEST: usize = 600;
const LONGEST_FUNCTION: usize = 70;

/// Files that may be longer than `LONGEST`, each with its reason.
const LONG_FILES: [(&str, &str); 0] = [];

/// Functions that may be longer than `LONGEST_FUNCTION`, each with its reason.
const LONG_FUNCTIONS: [(&str, &str, &str); 1] =
    [("crates/serve/src/bridge/update.rs", "event_out", "a match with one arm per event")];

// Written in two parts, so that this file is not found itself.
const SKIPPED_TESTS: [&str; 4] = [
    concat!("#[", "ignore"),
    concat!("#[", "should_panic"),
    concat!(", ", "ignore)]"),
    concat!(", ", "should_panic)]"),
];
const GAPS: [&str; 2] = [concat!("todo", "!("), concat!("unimplemented", "!(")];

/// Finds a file without a header comment.
pub(crate) fn has_header(file: &File) -> Vec<Finding> {
    if file.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![Finding::new(&file.path, 1, "has no header: open the file with `//! ` and what it is for")]
}

/// Finds a file that is too long.
pub(crate) fn is_short(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().count();
    let may_be_long = LONG_FILES.iter().any(|(path, _reason)| *path == file.path);
    if lines <= LONGEST || may_be_long {
        return Vec::new();
    }
    let advice =
        format!("has {lines} lines, {LONGEST} are allowed: move its second subject to a file");
    vec![Finding::new(&file.path, LONGEST + 1, advice)]
}

/// Finds functions that are too long. Tests may be: a table of cases has as many lines as it has cases.
///
/// Relies on the format of the code: a function ends with the first `}` that is indented as its start.
pub(crate) fn has_short_functions(file: &File) -> Vec<Finding> {
    if file.path.contains("/tests/") || file.path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let code = file.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines: Vec<&str> = code.lines().collect();
    let mut findings = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        // The signature ends with `{` or, for a declaration in a trait, with `;`.
        let signature = lines[start..].iter().find(|line| line.ends_with(['{', ';', '}']));
        if !signature.is_some_and(|line| line.ends_with('{')) {
            continue;
        }
        let length = lines[start..].iter().position(|line| *line == end).map_or(0, |end| end + 1);
        let may_be_long = LONG_FUNCTIONS
            .iter()
            .any(|(path, allowed, _reason)| *path == file.path && *allowed == name);
        if length > LONGEST_FUNCTION && !may_be_long {
            let advice = format!(
                "`{name}` has {length} lines, {LONGEST_FUNCTION} are allowed: move a part of it to a function"
            );
            findings.push(Finding::new(&file.path, start + 1, advice));
        }
    }
    findings
}

/// Returns the name of the function that starts on this line.
fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_modifier = |word: &str| {
        word.starts_with("pub") || ["const", "async", "unsafe", "extern", "\"C\""].contains(&word)
    };
    before.split_whitespace().all(is_modifier).then_some(())?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

/// Finds tests that do not run, and tests that pass with any panic.
pub(crate) fn skips_no_test(file: &File) -> Vec<Finding> {
    find_in_code(file, &SKIPPED_TESTS, |found| {
        let name = found.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
        format!("has a test with `{name}`: assert what happens now, with a FIXME if it is wrong")
    })
}

/// Finds placeholders for missing code.
pub(crate) fn has_no_gaps(file: &File) -> Vec<Finding> {
    find_in_code(file, &GAPS, |found| {
        format!("has a gap `{found}…)`: write the code or return an error that says it is missing")
    })
}

fn find_in_code(file: &File, needles: &[&str], advice: impl Fn(&str) -> String) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or(line);
        if let Some(needle) = needles.iter().find(|needle| code.contains(*needle)) {
            findings.push(Finding::new(&file.path, index + 1, advice(needle)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn lines_found(rule: fn(&File) -> Vec<Finding>, text: &str) -> Vec<usize> {
        rule(&File::new("crates/a/src/b.rs", text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn file_starts_with_its_header() {
        assert_eq!(lines_found(has_header, "//! Says what it is for.\n"), NONE);
        assert_eq!(lines_found(has_header, "use std::fmt;\n//! Too late.\n"), [1]);
        assert_eq!(lines_found(has_header, ""), [1]);
    }

    #[test]
    fn too_long_file_is_found() {
        assert_eq!(lines_found(is_short, &"x\n".repeat(LONGEST)), NONE);
        assert_eq!(lines_found(is_short, &"x\n".repeat(LONGEST + 1)), [LONGEST + 1]);
    }

    #[test]
    fn too_long_function_is_found() {
        let function = |head: &str, lines: usize| {
            let indent = &head[..head.len() - head.trim_start().len()];
            format!("{head} {{\n{}{indent}}}\n", format!("{indent}    x();\n").repeat(lines - 2))
        };
        for head in
            ["fn a()", "    pub(crate) async fn a(&self) -> X", "pub unsafe extern \"C\" fn a()"]
        {
            let fits = function(head, LONGEST_FUNCTION);
            let declaration = "    fn b(\n        &self,\n    );\n    fn c() {}\n";
            assert_eq!(lines_found(has_short_functions, &format!("{declaration}{fits}")), NONE);
            let long = function(head, LONGEST_FUNCTION + 1);
            assert_eq!(lines_found(has_short_functions, &format!("{declaration}{long}")), [5]);
            let test = format!("\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
            assert_eq!(lines_found(has_short_functions, &test), NONE);
        }
        assert_eq!(lines_found(has_short_functions, "// A fn in prose.\n"), NONE);
    }

    #[test]
    fn tests_are_not_switched_off() {
        let attributes = [
            "#[test]\n#[IGNORE]\nfn a() {}",
            "#[test]\n#[IGNORE = \"slow\"]\nfn a() {}",
            "#[test]\n#[cfg_attr(miri, IGNORE)]\nfn a() {}",
        ];
        for text in attributes {
            for word in ["ignore", "should_panic"] {
                assert_eq!(
                    lines_found(skips_no_test, &text.replace("IGNORE", word)),
                    [2],
                    "{text}"
                );
            }
        }
        let comment = concat!("// Never #[", "ignore] a test.\n");
        assert_eq!(lines_found(skips_no_test, comment), NONE);
        assert_eq!(lines_found(skips_no_test, "fn ignore() {}\n"), NONE);
    }

    #[test]
    fn gaps_are_found_in_code_but_not_in_comments() {
        for gap in GAPS {
            assert_eq!(lines_found(has_no_gaps, &format!("//! A.\nfn a() {{ {gap}) }}\n")), [2]);
            assert_eq!(lines_found(has_no_gaps, &format!("// No {gap}) here.\n")), NONE);
        }
    }

    #[test]
    fn advice_names_what_was_found() {
        let file = File::new("a.rs", concat!("#[", "ignore]\n"));
        assert_eq!(
            skips_no_test(&file)[0].to_string(),
            "a.rs:1: has a test with `ignore`: assert what happens now, with a FIXME if it is wrong"
        );
    }
}
