//! The outline of a file: what it says of itself, and the lines that define something. Pure.

use crate::count::count;

/// Definitions that are listed.
const MOST: usize = 80;
/// Characters of a line that are shown.
const WIDTH: usize = 110;

/// Words a file's outline.
pub(super) fn words(path: &str, text: &[String]) -> String {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    let defines: Vec<(usize, &str)> = text
        .iter()
        .enumerate()
        .filter(|(_, line)| is_definition(ending, line))
        .map(|(at, line)| (at + 1, line.trim_end()))
        .collect();
    let mut words = format!("`{path}` has {}.\n", count(text.len(), "line", "lines"));
    let about = about(text);
    if !about.is_empty() {
        words.push_str(&format!("\nIt says of itself: {about}\n"));
    }
    if defines.is_empty() {
        words.push_str("\nI see nothing in it that looks like a definition or a heading.\n");
        return words;
    }
    words.push_str("\n```\n");
    for (number, line) in defines.iter().take(MOST) {
        let cut: String = line.chars().take(WIDTH).collect();
        words.push_str(&format!("{number:>5}  {}\n", cut.trim_end_matches([' ', '{'])));
    }
    words.push_str("```\n");
    if defines.len() > MOST {
        words.push_str(&format!("({} more)\n", defines.len() - MOST));
    }
    words.push_str("\nTo have it explained takes a model.\n");
    words
}

/// The comment at the top of a file, as one paragraph.
fn about(text: &[String]) -> String {
    const MARKS: [&str; 6] = ["//!", "///", "//", "/**", "\"\"\"", "#"];
    let mut paragraph = String::new();
    for line in text.iter().take(20).map(|line| line.trim()).filter(|line| !line.starts_with("#!"))
    {
        let Some(mark) = MARKS.iter().find(|mark| line.starts_with(**mark)) else { break };
        let said = line.trim_start_matches(mark).trim_matches(['*', '"', '#', '/', ' ']);
        if said.is_empty() {
            break;
        }
        paragraph.push_str(&format!("{said} "));
    }
    paragraph.trim_end().to_owned()
}

/// Tells whether a line defines something, or is a heading.
fn is_definition(ending: &str, line: &str) -> bool {
    const MARKUP: [&str; 4] = ["md", "markdown", "txt", "rst"];
    const SETTINGS: [&str; 3] = ["toml", "ini", "cfg"];
    const OPENINGS: [&str; 16] = [
        "pub",
        "pub(crate)",
        "pub(super)",
        "async",
        "export",
        "default",
        "public",
        "private",
        "protected",
        "static",
        "abstract",
        "final",
        "unsafe",
        "extern",
        "const",
        "override",
    ];
    const KINDS: [&str; 22] = [
        "fn",
        "struct",
        "enum",
        "trait",
        "impl",
        "mod",
        "type",
        "union",
        "macro_rules!",
        "class",
        "def",
        "function",
        "interface",
        "func",
        "module",
        "package",
        "object",
        "protocol",
        "namespace",
        "record",
        "const",
        "static",
    ];
    if MARKUP.contains(&ending) {
        return line.starts_with('#');
    }
    if SETTINGS.contains(&ending) {
        return line.starts_with('[');
    }
    // Deeper than a method of a class is inside a body.
    let depth = line.len() - line.trim_start().len();
    if depth > 4 {
        return false;
    }
    let mut words = line.split_whitespace().skip_while(|word| OPENINGS.contains(word));
    let first = words.next().unwrap_or_default();
    let is_constant =
        depth == 0 && line.split_whitespace().any(|word| word == "const" || word == "static");
    let bare = first.split(['<', '(']).next().unwrap_or(first);
    KINDS.contains(&bare) || (is_constant && line.contains(['=', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(path: &str, text: &str) -> String {
        words(path, &text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn definitions_are_listed_with_their_lines() {
        let words = outline(
            "a.rs",
            "//! Ships.\n\nuse std::fmt;\npub(crate) async fn sail() {\n    let x = 1;\n}\nimpl<T> Ship<T> {\n",
        );
        assert!(words.contains("It says of itself: Ships."), "{words}");
        assert!(
            words.contains("    4  pub(crate) async fn sail()\n    7  impl<T> Ship<T>\n"),
            "{words}"
        );
        let words = outline("a.py", "class Ship:\n    def sail(self):\n        return 1\n");
        assert!(words.contains("    1  class Ship:\n    2      def sail(self):\n"), "{words}");
        let words = outline("a.md", "# One\ntext\n## Two\n");
        assert!(words.contains("    1  # One\n    3  ## Two\n"), "{words}");
        assert!(outline("data.csv", "1,2").contains("nothing in it"));
    }
}
