//! Describes a project from the output of the tools: its README, its manifests and its top-level entries. Pure.

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
pub(super) fn entries(listing: &str) -> Vec<String> {
    let is_entry = |line: &&str| !line.is_empty() && !line.starts_with('(');
    listing.lines().filter(is_entry).map(str::to_owned).collect()
}

/// Returns the text that `read` printed, without the line numbers and without remarks.
pub(super) fn without_line_numbers(text: &str) -> String {
    let content = |line: &str| {
        let (number, content) = line.split_once('\t')?;
        number.trim().parse::<u32>().ok().map(|_| format!("{content}\n"))
    };
    text.lines().filter_map(content).collect()
}

/// Returns the files among `entries` that describe the project: its README and at most two manifests.
pub(super) fn sources(entries: &[String]) -> Vec<String> {
    let readme = entries.iter().find(|name| is_readme(name) && !name.ends_with('/')).cloned();
    let manifests = MANIFESTS.iter().map(|(file, _)| (*file).to_owned());
    let present = manifests.filter(|file| entries.contains(file));
    readme.into_iter().chain(present.take(2)).collect()
}

/// Describes the project with these top-level entries and these files (name and content).
pub(super) fn describe(entries: &[String], files: &[(String, String)]) -> String {
    if entries.is_empty() {
        return "This folder is empty, or git ignores everything in it.\n".to_owned();
    }
    let mut text = String::new();
    match files.iter().find(|(name, _)| is_readme(name)) {
        Some((name, readme)) => {
            let (title, paragraph) = summary(readme);
            let title = if title.is_empty() { name } else { &title };
            text.push_str(&format!("**{title}**\n\n"));
            if !paragraph.is_empty() {
                text.push_str(&format!("{paragraph}\n\n"));
            }
        }
        None => text.push_str("This project has no README.\n\n"),
    }
    for (file, language) in MANIFESTS {
        if let Some((_, manifest)) = files.iter().find(|(name, _)| name == file) {
            text.push_str(&format!("- {language} (`{file}`{})\n", details(file, manifest)));
        }
    }
    let (folders, plain): (Vec<&String>, Vec<&String>) =
        entries.iter().partition(|name| name.ends_with('/'));
    for (names, one, many) in [(folders, "folder", "folders"), (plain, "file", "files")] {
        if !names.is_empty() {
            text.push_str(&format!("- {}: {}\n", count(names.len(), one, many), list(&names)));
        }
    }
    text
}

fn is_readme(name: &str) -> bool {
    name.to_lowercase().starts_with("readme")
}

/// Returns the title of a README and its first paragraph of prose.
fn summary(readme: &str) -> (String, String) {
    let title = readme.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    let mut paragraph = String::new();
    let mut is_code = false;
    for line in readme.lines().map(str::trim) {
        is_code ^= line.starts_with("```");
        // Headings, badges, lists and other markup are not prose.
        let is_markup = line.starts_with(['#', '[', '!', '<', '`', '|', '=', '-', '*']);
        if !is_code && !is_markup && !line.is_empty() && paragraph.len() < SUMMARY_LENGTH {
            paragraph.push_str(&format!("{line} "));
        } else if !paragraph.is_empty() {
            break;
        }
    }
    (title.trim().to_owned(), paragraph.trim_end().to_owned())
}

/// Returns the name and version from a manifest, or the members of a Cargo workspace.
fn details(file: &str, manifest: &str) -> String {
    if file == "Cargo.toml"
        && let Some((_, rest)) = manifest.split_once("members = [")
        && let Some((members, _)) = rest.split_once(']')
    {
        let members = members.replace('"', "");
        return format!(", a workspace of {}", members.trim().trim_end_matches(','));
    }
    let value = |key: &str| {
        let of_line = |line: &str| {
            let rest = line.trim().trim_start_matches('"').strip_prefix(key)?;
            let rest = rest.trim_start_matches('"').trim_start().strip_prefix(['=', ':'])?;
            Some(rest.trim().trim_end_matches(',').trim_matches('"').to_owned())
        };
        manifest.lines().find_map(of_line).filter(|value| !value.is_empty())
    };
    let Some(name) = value("name") else { return String::new() };
    let version = value("version").map_or_else(String::new, |version| format!(" {version}"));
    format!(", `{name}`{version}")
}

fn list(names: &[&String]) -> String {
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
    fn readme_and_manifest_describe_the_project() {
        let entries = ["Cargo.toml", "README.md", "src/"].map(str::to_owned);
        assert_eq!(sources(&entries), ["README.md", "Cargo.toml"]);
        let readme = "1\t# Ship\n2\t\n3\t[badge](x)\n4\t\n5\tSails the\n6\tseas.\n7\t\n8\t## More\n(more follows)\n";
        let manifest = "[package]\nname = \"ship\"\nversion = \"1.2.0\"\n";
        let files =
            [("README.md", without_line_numbers(readme)), ("Cargo.toml", manifest.to_owned())];
        assert_eq!(
            describe(&entries, &files.map(|(name, text)| (name.to_owned(), text))),
            "**Ship**\n\nSails the seas.\n\n- Rust (`Cargo.toml`, `ship` 1.2.0)\n- 1 folder: `src/`\n\
             - 2 files: `Cargo.toml`, `README.md`\n"
        );
    }

    #[test]
    fn project_without_readme_is_described_by_its_entries() {
        let text = describe(&entries("a.txt\n(1 more is ignored)\n"), &[]);
        assert_eq!(text, "This project has no README.\n\n- 1 file: `a.txt`\n");
        assert!(describe(&[], &[]).contains("empty"));
    }
}
