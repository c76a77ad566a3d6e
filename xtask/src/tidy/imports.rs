//! The modules of a crate and what each of them imports, read from the source.
//!
//! A module is a file. A name that a module re-exports belongs to the module that defines it, so a parent that only
//! re-exports its children adds no edge. Tests are omitted. Reads tokens, not full syntax: enough for
//! `use` declarations and paths such as `crate::a::b`, but it does not see paths made by macros.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;

/// The path of a module from the root of its crate, such as `["turn", "compact"]`.
pub(crate) type Path = Vec<String>;

/// How many re-exports lead to a name at most.
const MAX_STEPS: usize = 8;

/// A crate: its modules by path.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) modules: BTreeMap<Path, Module>,
}

/// A file of a crate.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// The path of the file from the root of the repository.
    pub(crate) file: String,
    uses: Vec<Use>,
    /// Paths in the code itself.
    inline: BTreeSet<Path>,
}

/// One name that a `use` declaration brings in.
#[derive(Debug, PartialEq)]
struct Use {
    path: Path,
    /// The name in this module; `*` for all names.
    name: String,
    is_reexport: bool,
}

impl Crate {
    /// Reads the library (or else the program) in `directory`, such as `crates/engine`.
    pub(crate) fn read(tree: &Tree, directory: &str) -> Crate {
        let source = format!("{directory}/src/");
        let root = ["lib.rs", "main.rs"].map(|name| format!("{source}{name}"));
        let root = root.into_iter().find(|path| tree.find(path).is_some());
        let mut modules = BTreeMap::new();
        for file in tree.with_ending(".rs") {
            let Some(rest) = file.path.strip_prefix(&source) else { continue };
            let name = rest.trim_end_matches(".rs");
            let is_root = root.as_ref() == Some(&file.path);
            if !is_root && (name == "main" || name.starts_with("bin/")) {
                continue;
            }
            let path: Path =
                if is_root { Path::new() } else { name.split('/').map(str::to_owned).collect() };
            // A file of tests is compiled for tests only.
            if !path.iter().any(|name| name == "tests") {
                modules.insert(path, Module::read(&file.path, &file.text));
            }
        }
        Crate { modules }
    }

    /// Returns which modules each module needs.
    pub(crate) fn imports(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let mut imports = BTreeMap::new();
        for (path, module) in &self.modules {
            let used = module.uses.iter().filter(|used| !used.is_reexport).map(|used| &used.path);
            let needed: BTreeSet<&Path> = used
                .chain(&module.inline)
                .filter_map(|name| self.find(path, name, 0))
                .filter(|needed| *needed != path)
                .collect();
            imports.insert(path, needed);
        }
        imports
    }

    /// Returns the module that defines `name` as seen from the module `from`, if it is one of this crate.
    fn find(&self, from: &Path, name: &[String], steps: usize) -> Option<&Path> {
        let mut at = from.clone();
        let mut rest = name;
        match rest.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            // Any other first name is a child or something imported, else another crate.
            first => {
                let module = self.modules.get(&at)?;
                if !self.has_child(&at, first) && module.alias(first, true).is_none() {
                    return None;
                }
            }
        }
        while let Some(name) = rest.first() {
            if self.has_child(&at, name) {
                at.push(name.clone());
                rest = &rest[1..];
                continue;
            }
            // What a module imports for itself is visible in it and below it only.
            let sees_private = from.starts_with(&at);
            if let Some(alias) = self.modules.get(&at)?.alias(name, sees_private)
                && steps < MAX_STEPS
            {
                let target: Path = alias.iter().chain(&rest[1..]).cloned().collect();
                return self.find(&at, &target, steps + 1);
            }
            break;
        }
        self.modules.get_key_value(&at).map(|(path, _)| path)
    }

    fn has_child(&self, at: &Path, name: &str) -> bool {
        let child: Path = at.iter().cloned().chain([name.to_owned()]).collect();
        self.modules.contains_key(&child)
    }
}

impl Module {
    fn read(file: &str, text: &str) -> Module {
        let tokens = without_tests(tokens(text));
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        let mut index = 0;
        while index < tokens.len() {
            let before = index.checked_sub(1).map(|index| tokens[index].as_str());
            if tokens[index] == "use" && before != Some("+") {
                let end = tokens[index..].iter().position(|token| token == ";");
                let end = end.map_or(tokens.len(), |end| index + end);
                let is_reexport = matches!(before, Some("pub" | ")"));
                expand(&tokens[index + 1..end], &Path::new(), is_reexport, &mut module.uses);
                index = end;
            } else if is_name(&tokens[index]) && !matches!(before, Some("::" | "." | "mod")) {
                let path = path_at(&tokens[index..]);
                index += 2 * path.len() - 1;
                if path.len() > 1 {
                    module.inline.insert(path);
                }
                continue;
            }
            index += 1;
        }
        module
    }

    /// Returns the path that a name stands for because of a `use` declaration.
    fn alias(&self, name: &str, sees_private: bool) -> Option<&Path> {
        let mut visible = self.uses.iter().filter(|used| used.is_reexport || sees_private);
        let found = visible.find(|used| used.name == name)?;
        // `use a;` would otherwise lead to itself.
        (found.path.as_slice() != [name.to_owned()]).then_some(&found.path)
    }
}

/// Returns the path `a::b::c` at the start of the tokens.
fn path_at(tokens: &[String]) -> Path {
    let mut path = vec![tokens[0].clone()];
    for pair in tokens[1..].chunks_exact(2) {
        if pair[0] != "::" || !is_name(&pair[1]) {
            break;
        }
        path.push(pair[1].clone());
    }
    path
}

/// Reads the tree of a `use` declaration: `a::{b, c::{self, d as e}, f::*}`.
fn expand(tokens: &[String], prefix: &Path, is_reexport: bool, uses: &mut Vec<Use>) {
    let mut path = prefix.clone();
    let mut index = 0;
    while index < tokens.len() {
        match tokens[index].as_str() {
            "::" => {}
            "{" => {
                for part in parts(&tokens[index + 1..]) {
                    expand(part, &path, is_reexport, uses);
                }
                return;
            }
            "as" => {
                let name = tokens.get(index + 1).cloned().unwrap_or_default();
                uses.push(Use { path, name, is_reexport });
                return;
            }
            "*" => {
                uses.push(Use { path, name: "*".to_owned(), is_reexport });
                return;
            }
            "self" if !path.is_empty() => {}
            name => path.push(name.to_owned()),
        }
        index += 1;
    }
    let name = path.last().cloned().unwrap_or_default();
    uses.push(Use { path, name, is_reexport });
}

/// Splits the inside of braces at its commas; the tokens start after the opening brace.
fn parts(tokens: &[String]) -> Vec<&[String]> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (index, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" if depth == 0 => {
                parts.push(&tokens[start..index]);
                break;
            }
            "}" => depth -= 1,
            "," if depth == 0 => {
                parts.push(&tokens[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Leaves out items with `#[cfg(test)]`.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut left = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let is_test = tokens[index..].len() > MARK.len()
            && tokens[index..].iter().zip(MARK).all(|(token, mark)| token == mark);
        if !is_test {
            left.push(tokens[index].clone());
            index += 1;
            continue;
        }
        let mut depth = 0_usize;
        index += MARK.len();
        while index < tokens.len() {
            let token = tokens[index].as_str();
            index += 1;
            match token {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && matches!(token, ";" | "}") {
                break;
            }
        }
    }
    left
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Splits source text into names and signs; omits comments, strings and characters.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = skipped(rest);
        if skipped > 0 {
            rest = &rest[skipped..];
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..end].to_owned());
            rest = &rest[end..];
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            rest = &rest[2..];
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    tokens
}

/// Returns how many bytes of comment, string, character or lifetime the text begins with.
fn skipped(text: &str) -> usize {
    let bytes = text.as_bytes();
    let to = |end: &str, from: usize| text[from..].find(end).map_or(text.len(), |at| from + at);
    if text.starts_with("//") {
        return to("\n", 0);
    }
    if text.starts_with("/*") {
        return (to("*/", 2) + 2).min(text.len());
    }
    let raw = text.strip_prefix("br").or_else(|| text.strip_prefix('r'));
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let start = text.len() - raw.len() + hashes + 1;
            let end = format!("\"{}", "#".repeat(hashes));
            return (to(&end, start) + end.len()).min(text.len());
        }
    }
    let start = usize::from(bytes[0] == b'b');
    match bytes.get(start) {
        Some(b'"') => quoted(bytes, start, b'"'),
        // A character literal has its end quote after one character or an escape; else it is a lifetime.
        Some(b'\'') => match text[start + 1..].chars().next() {
            Some('\\') => quoted(bytes, start, b'\''),
            Some(c) if text[start + 1 + c.len_utf8()..].starts_with('\'') => {
                start + 2 + c.len_utf8()
            }
            _ if start == 0 => 1,
            _ => 0,
        },
        _ => 0,
    }
}

/// Returns the end of the quoted text that begins at `start`.
fn quoted(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut index = start + 1;
    while index < bytes.len() {
        match bytes[index] {
            b'\\' => index += 2,
            byte if byte == quote => return index + 1,
            _ => index += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(name, text)| (format!("crates/a/src/{name}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, *text)).collect();
        let found = Crate::read(&Tree::of(&files), "crates/a");
        let name = |path: &Path| if path.is_empty() { "lib".into() } else { path.join("::") };
        let imports = found.imports();
        let edges = imports.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to)));
        edges.map(|(from, to)| format!("{} -> {}", name(from), name(to))).collect()
    }

    #[test]
    fn every_kind_of_import_is_an_edge() {
        let files = [
            ("lib.rs", "mod b; mod c; mod d;"),
            ("b.rs", "use crate::{c::{self, C}, d as dd};\nuse std::fmt;"),
            ("c.rs", "fn f() -> crate::d::D { super::b::x::<u8>(); std::mem::drop(1) }"),
            ("d.rs", "mod e; use e::E; fn f(e: E) { self::e::g(e) }"),
            ("d/e.rs", "use super::D;"),
        ];
        assert_eq!(
            imports(&files),
            ["b -> c", "b -> d", "c -> b", "c -> d", "d -> d::e", "d::e -> d"]
        );
    }

    #[test]
    fn reexported_name_belongs_to_the_module_that_defines_it() {
        let files = [
            ("lib.rs", "mod b; pub mod c; pub use c::d::D;"),
            ("b.rs", "use crate::c::D; use crate::D as E;"),
            ("c.rs", "pub mod d; pub use d::{D, E};"),
            ("c/d.rs", ""),
        ];
        assert_eq!(imports(&files), ["b -> c::d"]);
    }

    #[test]
    fn tests_comments_and_strings_are_no_imports() {
        let files = [
            ("lib.rs", "mod b; mod c;"),
            (
                "b.rs",
                "// crate::c::C\nconst S: &str = \"crate::c\"; const R: &str = r#\"\"crate::c\"#; const C: char = '\"';\n#[cfg(test)]\nmod tests { use crate::c::C; fn f() { { } } }\n#[cfg(test)]\nuse crate::c::D;\nfn f<'a>(x: &'a str) {}",
            ),
            ("c.rs", ""),
            ("c/tests.rs", "use crate::b;"),
        ];
        assert_eq!(imports(&files), Vec::<String>::new());
    }
}
