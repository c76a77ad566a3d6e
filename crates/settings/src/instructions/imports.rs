//! Claude Code's additions to instruction files: `@path` imports, and `.claude/rules`.

use std::path::{Path, PathBuf};

use engine::ports::{InstructionFile, MAX_INSTRUCTION_FILE};
use engine::words::pattern::matches_pattern;
use serde_json::Value;

use super::{Beginning, Places, ProjectFiles, is_private, read_own, read_project};
use crate::custom::files::markdown_in;
use crate::custom::front_matter;

/// How deep imports may be nested, and how many files one file may import.
const DEEPEST: usize = 5;
const MOST: usize = 32;

/// Adds the files that a file imports, behind it. A file of a project imports only files of the project that need no
/// permission; a user's file imports any file.
pub(super) fn add(
    file: &InstructionFile,
    is_own: bool,
    places: &Places,
    files: &dyn ProjectFiles,
    all: &mut Vec<InstructionFile>,
) {
    let mut open = vec![(PathBuf::from(&file.origin), file.text.clone(), 0)];
    let mut count = 0;
    while let Some((from, text, depth)) = open.pop() {
        let directory = from.parent().unwrap_or(Path::new("/"));
        for named in imports(&text) {
            let path = match (named.strip_prefix("~/"), &places.home) {
                (Some(rest), Some(home)) if is_own => home.join(rest),
                (Some(_), _) => continue,
                (None, _) => directory.join(named),
            };
            let is_refused = !is_own && is_private(&path, files);
            let origin = path.to_string_lossy().into_owned();
            if is_refused || count >= MOST || all.iter().any(|known| known.origin == origin) {
                continue;
            }
            let read = match is_own {
                true => read_own(&path, MAX_INSTRUCTION_FILE),
                false => read_project(files, &path, MAX_INSTRUCTION_FILE),
            };
            let Some((text, size)) = read else { continue };
            count += 1;
            if depth + 1 < DEEPEST {
                open.push((path, text.clone(), depth + 1));
            }
            all.push(InstructionFile { origin, text, size });
        }
    }
}

/// Returns what a text imports: words that begin with `@`, outside of code.
fn imports(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        }
        if is_fenced {
            continue;
        }
        // Every second part is inside a code span.
        for part in line.split('`').step_by(2) {
            let words = part.split_whitespace().filter_map(|word| word.strip_prefix('@'));
            let words = words.map(|word| word.trim_end_matches([',', '.', ';', ':', ')']));
            found.extend(words.filter(|word| !word.is_empty()));
        }
    }
    found
}

/// Returns the rules below a `.claude` directory that apply always, or, with a path, those that are about this path.
pub(super) fn rules(
    claude: &Path,
    about: Option<&Path>,
    read: &dyn Fn(&Path, usize) -> Beginning,
) -> Vec<InstructionFile> {
    let one = |path: PathBuf| {
        let (text, size) = read(&path, MAX_INSTRUCTION_FILE)?;
        let (head, body) = front_matter::split(&text);
        let patterns = match head.get("paths") {
            None | Some(Value::Null) => None,
            Some(Value::Array(list)) => Some(list.iter().filter_map(Value::as_str).collect()),
            Some(value) => {
                let list = value.as_str().unwrap_or_default().split(',').map(str::trim);
                Some(list.collect::<Vec<&str>>())
            }
        };
        let applies = match (&patterns, about) {
            (None, None) => true,
            (Some(patterns), Some(path)) => {
                let path = path.to_string_lossy();
                patterns.iter().any(|pattern| is_about(pattern, &path))
            }
            (None, Some(_)) | (Some(_), None) => false,
        };
        let origin = path.to_string_lossy().into_owned();
        applies.then(|| InstructionFile { origin, text: body.to_owned(), size })
    };
    markdown_in(&claude.join("rules")).into_iter().filter_map(one).collect()
}

/// Tells whether a pattern such as `src/**/*.ts` is about a path. Our `*` crosses slashes.
fn is_about(pattern: &str, path: &str) -> bool {
    let mut pattern = pattern.replace("**/", "*");
    while pattern.contains("**") {
        pattern = pattern.replace("**", "*");
    }
    matches_pattern(&pattern, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_outside_of_code_are_found() {
        let text = "See @docs/a.md, and (@b.md)\n`@no.md` me@mail.x\n```\n@no.md\n```\n- @~/c.md";
        assert_eq!(imports(text), ["docs/a.md", "~/c.md"]);
    }

    #[test]
    fn patterns_of_rules_match_paths() {
        assert!(is_about("src/**/*.ts", "src/a.ts") && is_about("src/**/*.ts", "src/a/b.ts"));
        assert!(is_about("**/*.md", "a.md") && !is_about("src/**", "docs/a.md"));
    }
}
