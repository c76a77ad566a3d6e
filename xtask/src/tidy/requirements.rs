//! Every requirement has a test, and every mark at a test names something that exists.
//!
//! The register is docs/internals/requirements.md. The table at its end is generated from the marks in tests
//! (`// R: W3`) and transcripts (`# R: W3`). Marks of faults (`// Fault: T06`) name rows of docs/internals/faults.md.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::tree::{File, Tree};

pub(crate) const REGISTER: &str = "docs/internals/requirements.md";
const FAULTS: &str = "docs/internals/faults.md";
const BEGIN: &str = "<!-- tests: begin -->\n";
const END: &str = "<!-- tests: end -->";
const NOT_BUILT: &str = "## Not built yet";
/// How many lines after its mark a test begins: attributes and other comments may come between.
const REACH: usize = 12;

/// A mark: the ids in it, and the test it belongs to.
#[derive(Debug)]
struct Mark<'a> {
    file: &'a File,
    line: usize,
    ids: Vec<&'a str>,
    /// The name of the test function; `None` for a transcript.
    test: Option<&'a str>,
}

/// Finds requirements without a test, unknown ids, and a table that is out of date.
pub(crate) fn are_tested(tree: &Tree) -> Vec<Finding> {
    let Some(register) = tree.find(REGISTER) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let marks = marks(tree, "R", &mut findings);
    let (known, not_built) = ids(&register.text);
    for mark in &marks {
        for id in mark.ids.iter().filter(|id| !known.contains_key(*id)) {
            let advice = format!("names the requirement `{id}`, which is not in {REGISTER}");
            findings.push(Finding::new(&mark.file.path, mark.line, advice));
        }
    }
    let tested: BTreeSet<&str> = marks.iter().flat_map(|mark| mark.ids.iter().copied()).collect();
    for (id, line) in known {
        let advice = match (tested.contains(id), not_built.contains(id)) {
            (false, false) => {
                format!("`{id}` has no test: mark one, or list the id under \"Not built yet\"")
            }
            (true, true) => format!("`{id}` has a test: remove it from \"Not built yet\""),
            (true, false) | (false, true) => continue,
        };
        findings.push(Finding::new(REGISTER, line, advice));
    }
    if renew(&register.text, &marks).as_deref() != Some(&*register.text) {
        let advice = "its table of tests is out of date: run `cargo xtask tidy --write`";
        findings.push(Finding::new(REGISTER, 1, advice));
    }
    findings
}

/// Finds marks of faults that are not in the lists.
pub(crate) fn faults_are_listed(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let listed = tree.find(FAULTS).map(|page| fault_ids(&page.text)).unwrap_or_default();
    for mark in marks(tree, "Fault", &mut findings) {
        for id in mark.ids.iter().filter(|id| !listed.contains(**id)) {
            let advice = format!("names the fault `{id}`, which is not in {FAULTS}");
            findings.push(Finding::new(&mark.file.path, mark.line, advice));
        }
    }
    findings
}

/// Returns the register with a new table, if it has a place for one.
pub(crate) fn renewed(tree: &Tree) -> Option<String> {
    renew(&tree.find(REGISTER)?.text, &marks(tree, "R", &mut Vec::new()))
}

fn renew(register: &str, marks: &[Mark<'_>]) -> Option<String> {
    let (front, rest) = register.split_once(BEGIN)?;
    let (_, back) = rest.split_once(END)?;
    Some(format!("{front}{BEGIN}{}{END}{back}", table(register, marks)))
}

/// Returns the table from requirements to tests, in the order of the register.
fn table(register: &str, marks: &[Mark<'_>]) -> String {
    let mut table = "| id | tests |\n|---|---|\n".to_owned();
    let (known, _) = ids(register);
    let mut known: Vec<(&str, usize)> = known.into_iter().collect();
    known.sort_by_key(|(_, line)| *line);
    for (id, _) in known {
        let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for mark in marks.iter().filter(|mark| mark.ids.contains(&id)) {
            files.entry(&mark.file.path).or_default().extend(mark.test);
        }
        let cells: Vec<String> = files
            .iter()
            .map(|(path, tests)| {
                if tests.is_empty() {
                    format!("`{path}`")
                } else {
                    format!("`{path}`: {}", tests.join(", "))
                }
            })
            .collect();
        if !cells.is_empty() {
            table += &format!("| {id} | {} |\n", cells.join("; "));
        }
    }
    table
}

/// Returns all ids of the register with their lines, and those that are listed as not built.
fn ids(register: &str) -> (BTreeMap<&str, usize>, BTreeSet<&str>) {
    let (mut known, mut not_built) = (BTreeMap::new(), BTreeSet::new());
    let mut is_not_built = false;
    let register = register.split(BEGIN).next().unwrap_or(register);
    for (index, line) in register.lines().enumerate() {
        if line.starts_with("## ") {
            is_not_built = line == NOT_BUILT;
        }
        let Some(id) = first_cell(line).filter(|cell| is_id(cell)) else { continue };
        if is_not_built {
            not_built.insert(id);
        } else {
            known.insert(id, index + 1);
        }
    }
    (known, not_built)
}

/// Returns the ids of faults in a page; a row may be about several, such as `F01 to F03` or `F09, F10`.
fn fault_ids(page: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for cell in page.lines().filter_map(first_cell) {
        let range: Vec<&str> = cell.split(" to ").collect();
        if let [first, last] = range[..]
            && let (Some(from), Some(to)) = (number(first), number(last))
        {
            ids.extend((from..=to).map(|number| format!("{}{number:02}", &first[..1])));
        }
        ids.extend(cell.split(", ").filter(|id| is_id(id)).map(str::to_owned));
    }
    ids
}

fn first_cell(line: &str) -> Option<&str> {
    line.strip_prefix('|')?.split('|').next().map(str::trim)
}

/// Returns whether this is a capital letter and a number.
fn is_id(text: &str) -> bool {
    number(text).is_some()
}

fn number(id: &str) -> Option<u32> {
    let digits = id.strip_prefix(|letter: char| letter.is_ascii_uppercase())?;
    digits.parse().ok()
}

/// Returns the marks `WORD: id, id` in front of tests and at the top of transcripts.
fn marks<'a>(tree: &'a Tree, word: &str, findings: &mut Vec<Finding>) -> Vec<Mark<'a>> {
    let mut marks = Vec::new();
    let sources = tree.with_ending(".rs").filter(|file| file.path.starts_with("crates/"));
    let transcripts = tree.with_ending(".acp").filter(|file| file.path.starts_with("conformance/"));
    for (file, comment) in
        sources.map(|file| (file, "//")).chain(transcripts.map(|file| (file, "#")))
    {
        let start = format!("{comment} {word}: ");
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(rest) = line.trim_start().strip_prefix(&start) else { continue };
            let ids: Vec<&str> = rest.split(',').map(str::trim).collect();
            let test = (comment == "//").then(|| test_behind(file, &lines[index + 1..]));
            if !ids.iter().all(|id| is_id(id)) {
                let advice = format!("has a mark that cannot be read: write `{start}W3, W4`");
                findings.push(Finding::new(&file.path, index + 1, advice));
            } else if test == Some(None) {
                let advice = "has a mark with no test right after it: put it in front of the test";
                findings.push(Finding::new(&file.path, index + 1, advice));
            } else {
                marks.push(Mark { file, line: index + 1, ids, test: test.flatten() });
            }
        }
    }
    marks
}

/// Returns the name of the test that follows a mark.
///
/// The tests of `tests/transcripts` have no attribute: they have a harness of their own.
fn test_behind<'a>(file: &File, lines: &[&'a str]) -> Option<&'a str> {
    let mut is_test = file.path.contains("/tests/transcripts/");
    for line in lines.iter().take(REACH) {
        let line = line.trim();
        is_test |= line.starts_with("#[") && line.contains("test");
        if let Some((_, rest)) = line.split_once("fn ")
            && !line.starts_with("//")
        {
            return is_test.then(|| rest.split(['(', '<']).next()).flatten();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# R\n\n| id | requirement | decision |\n|---|---|---|\n| W1 | a | |\n| W2 | b | |\n\n## Not built yet\n\n| W2 | the rest |\n\n## Tests\n\n<!-- tests: begin -->\n<!-- tests: end -->\n";

    fn findings(page: &str, source: &str, transcript: &str) -> Vec<String> {
        let files = [
            (REGISTER, page),
            ("crates/a/src/b.rs", source),
            ("conformance/wire/c.acp", transcript),
        ];
        are_tested(&Tree::of(&files)).iter().map(Finding::to_string).collect()
    }

    fn renewed_page(page: &str, source: &str, transcript: &str) -> String {
        let files = [
            (REGISTER, page),
            ("crates/a/src/b.rs", source),
            ("conformance/wire/c.acp", transcript),
        ];
        renewed(&Tree::of(&files)).unwrap()
    }

    #[test]
    fn table_lists_tests_by_file() {
        let source = "    // R: W1\n    #[tokio::test]\n    async fn good_line_is_read() {}\n";
        let page = renewed_page(PAGE, source, "# R: W1\n> {}\n");
        assert!(
            page.contains(
                "| W1 | `conformance/wire/c.acp`; `crates/a/src/b.rs`: good_line_is_read |\n"
            ),
            "{page}"
        );
        assert_eq!(findings(&page, source, "# R: W1\n> {}\n"), Vec::<String>::new());
        let stale = findings(PAGE, source, "# R: W1\n> {}\n");
        assert_eq!(stale.len(), 1);
        assert!(stale[0].contains("out of date"), "{stale:?}");
    }

    #[test]
    fn requirement_without_a_test_is_found_unless_it_is_not_built() {
        let page = renewed_page(PAGE, "", "");
        assert_eq!(
            findings(&page, "", ""),
            [
                "docs/internals/requirements.md:5: `W1` has no test: mark one, or list the id under \"Not built yet\""
            ]
        );
        let page = renewed_page(PAGE, "", "# R: W1, W2\n");
        assert_eq!(
            findings(&page, "", "# R: W1, W2\n"),
            ["docs/internals/requirements.md:6: `W2` has a test: remove it from \"Not built yet\""]
        );
    }

    #[test]
    fn mark_must_name_a_known_id_and_stand_before_a_test() {
        let transcript = "# R: W1\n";
        let bad = [
            ("// R: W9\n#[test]\nfn a() {}\n", "which is not in"),
            ("// R: W1 and W2\n#[test]\nfn a() {}\n", "cannot be read"),
            ("// R: W1\nfn helper() {}\n", "no test right after it"),
            ("// R: W1\n", "no test right after it"),
        ];
        for (source, expected) in bad {
            let page = renewed_page(PAGE, source, transcript);
            let found = findings(&page, source, transcript);
            assert_eq!(found.len(), 1, "{source}: {found:?}");
            assert!(found[0].contains(expected), "{found:?}");
        }
    }

    #[test]
    fn fault_must_be_listed() {
        let page = "| id | fault |\n|---|---|\n| T01 | a |\n| F01 to F03 | b |\n| F09, F10 | c |\n";
        for (mark, is_listed) in
            [("T01", true), ("F02", true), ("F10", true), ("F04", false), ("T1", false)]
        {
            let source = format!("// Fault: {mark}\n#[test]\nfn a() {{}}\n");
            let tree = Tree::of(&[(FAULTS, page), ("crates/a/src/b.rs", &source)]);
            assert_eq!(faults_are_listed(&tree).is_empty(), is_listed, "{mark}");
        }
    }
}
