//! Describes a project from the output of the tools: its README and its top-level entries. Pure.

use crate::count::count;

/// The manifests that are recognised, and the language or build system that each stands for.
const MANIFESTS: [(&str, &str); 13] = [
    ("Cargo.toml", "Rust"),
    ("package.json", "JavaScript or TypeScript"),
    ("pyproject.toml", "Python"),
    ("go.mod", "Go"),
    ("pom.xml", "Java (Maven)"),
    ("build.gradle", "Java (Gradle)"),
    ("build.gradle.kts", "Kotlin (Gradle)"),
    ("Gemfile", "Ruby"),
    ("mix.exs", "Elixir"),
    ("composer.json", "PHP"),
    ("CMakeLists.txt", "C or C++ (CMake)"),
    ("setup.py", "Python"),
    ("Makefile", "make"),
];

/// At most this many characters of a README's first paragraph are shown, to the end of the line.
const SUMMARY_LENGTH: usize = 700;
/// At most this many names are listed in one line.
const NAMES_SHOWN: usize = 12;

/// Returns the names that `list` printed, without its remarks in parentheses.
pub(super) fn entries(listing: &str) -> Vec<&str> {
    listing.lines().filter(|line| !line.is_empty() && !line.starts_with('(')).collect()
}

/// Returns the README among the entries.
pub(super) fn readme<'a>(entries: &[&'a str]) -> Option<&'a str> {
    let is_readme =
        |name: &&&str| name.to_lowercase().starts_with("readme") && !name.ends_with('/');
    entries.iter().find(is_readme).copied()
}

/// Returns the title of a README and its first paragraph of prose, from the output of `read`.
pub(super) fn summary(name: &str, output: &str) -> String {
    // Every line of the file has its number in front; remarks of the tool have none.
    let content = |line| {
        let (number, content) = str::split_once(line, '\t')?;
        number.trim().parse::<u32>().ok().map(|_| content.trim())
    };
    let mut title = None;
    let mut paragraph = String::new();
    let mut is_code = false;
    for line in output.lines().filter_map(content) {
        is_code ^= line.starts_with("```");
        title = title.or_else(|| line.strip_prefix("# "));
        // Headings, badges, lists and other markup are not prose.
        let is_markup = line.starts_with(['#', '[', '!', '<', '`', '|', '=', '-', '*']);
        if !is_code && !is_markup && !line.is_empty() && paragraph.len() < SUMMARY_LENGTH {
            paragraph.push_str(&format!("{line} "));
        } else if !paragraph.is_empty() {
            break;
        }
    }
    format!("**{}**\n\n{}", title.unwrap_or(name).trim(), paragraph.trim_end())
}

/// Describes the project: what its README says `about` it, its language, and its top-level entries.
pub(super) fn describe(about: &str, entries: &[&str]) -> String {
    if entries.is_empty() {
        return "This folder is empty, or git ignores everything in it.\n".to_owned();
    }
    let mut text = format!("{}\n\n", about.trim_end());
    for (file, language) in MANIFESTS {
        if entries.contains(&file) {
            text.push_str(&format!("- {language} (`{file}`)\n"));
        }
    }
    let (directories, files): (Vec<&str>, Vec<&str>) =
        entries.iter().partition(|name| name.ends_with('/'));
    for (names, one, many) in [(directories, "folder", "folders"), (files, "file", "files")] {
        if !names.is_empty() {
            text.push_str(&format!("- {}: {}\n", count(names.len(), one, many), list(&names)));
        }
    }
    text
}

fn list(names: &[&str]) -> String {
    let shown: Vec<String> =
        names.iter().take(NAMES_SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown.join(", "),
        rest => format!("{} and {rest} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_and_entries_describe_the_project() {
        let entries = ["Cargo.toml", "README.md", "src/"];
        assert_eq!(readme(&entries), Some("README.md"));
        let output = "1\t# Ship\n2\t\n3\t[badge](x)\n4\t\n5\tSails the\n6\tseas.\n7\t\n8\t## More\n(more follows)\n";
        assert_eq!(
            describe(&summary("README.md", output), &entries),
            "**Ship**\n\nSails the seas.\n\n- Rust (`Cargo.toml`)\n- 1 folder: `src/`\n\
             - 2 files: `Cargo.toml`, `README.md`\n"
        );
    }

    #[test]
    fn project_without_readme_is_described_by_its_entries() {
        let entries = entries("a.txt\n(1 more is ignored)\n");
        assert_eq!(readme(&entries), None);
        assert_eq!(describe("Nothing.", &entries), "Nothing.\n\n- 1 file: `a.txt`\n");
        assert!(describe("Nothing.", &[]).contains("empty"));
        assert!(super::entries("(empty, or everything is ignored by git)").is_empty());
    }
}
