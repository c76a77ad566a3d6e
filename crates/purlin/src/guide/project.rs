//! What the guide can tell of a project from its README and its manifests. Pure.

use crate::count::count;

/// A kind of project: the file that shows it, its name, and how it is built, tested and run.
struct Kind {
    file: &'static str,
    name: &'static str,
    commands: &'static [&'static str],
}

/// What projects are known by, the surest first.
const KINDS: [Kind; 13] = [
    Kind { file: "Cargo.toml", name: "Rust", commands: &["cargo build", "cargo test"] },
    Kind {
        file: "package.json",
        name: "JavaScript or TypeScript",
        commands: &["npm install", "npm test"],
    },
    Kind {
        file: "pyproject.toml",
        name: "Python",
        commands: &["pip install -e .", "python -m pytest"],
    },
    Kind { file: "go.mod", name: "Go", commands: &["go build ./...", "go test ./..."] },
    Kind { file: "pom.xml", name: "Java (Maven)", commands: &["mvn package", "mvn test"] },
    Kind {
        file: "build.gradle",
        name: "Java (Gradle)",
        commands: &["./gradlew build", "./gradlew test"],
    },
    Kind {
        file: "build.gradle.kts",
        name: "Kotlin (Gradle)",
        commands: &["./gradlew build", "./gradlew test"],
    },
    Kind { file: "Gemfile", name: "Ruby", commands: &["bundle install", "bundle exec rake"] },
    Kind { file: "mix.exs", name: "Elixir", commands: &["mix deps.get", "mix test"] },
    Kind { file: "composer.json", name: "PHP", commands: &["composer install"] },
    Kind {
        file: "CMakeLists.txt",
        name: "C or C++ (CMake)",
        commands: &["cmake -B build", "cmake --build build"],
    },
    Kind { file: "setup.py", name: "Python", commands: &["pip install -e ."] },
    Kind { file: "Makefile", name: "make", commands: &["make"] },
];

/// Files that are worth reading next.
const NEXT: [&str; 5] =
    ["ARCHITECTURE.md", "CONTRIBUTING.md", "AGENTS.md", "CLAUDE.md", "CHANGELOG.md"];

/// How much of a README is told.
const LONGEST: usize = 700;

/// Returns the files that describe the project, of those there are.
pub(super) fn sources(names: &[String]) -> Vec<String> {
    let readme =
        names.iter().find(|name| name.to_lowercase().starts_with("readme") && !name.ends_with('/'));
    let manifests = KINDS.iter().filter(|kind| names.iter().any(|name| name == kind.file));
    readme.cloned().into_iter().chain(manifests.take(2).map(|kind| kind.file.to_owned())).collect()
}

/// Tells what the project is, from the names at its top and its files.
pub(super) fn words(names: &[String], files: &[(String, String)]) -> String {
    if names.is_empty() {
        return "There is nothing in this folder, or nothing that git does not ignore.\n"
            .to_owned();
    }
    let mut words = String::new();
    let readme = files.iter().find(|(name, _)| name.to_lowercase().starts_with("readme"));
    match readme.map(|(name, text)| (name, summary(text))) {
        Some((name, (title, first))) if !(title.is_empty() && first.is_empty()) => {
            let title = if title.is_empty() { name } else { &title };
            words.push_str(&format!("**{title}**\n\n{first}\n\n"));
        }
        Some((name, _)) => words.push_str(&format!("`{name}` says nothing.\n\n")),
        None => words.push_str("There is no README here, so this is what the files show.\n\n"),
    }
    for (file, text) in files {
        if let Some(kind) = KINDS.iter().find(|kind| kind.file == file) {
            words.push_str(&format!("- {} (`{file}`{})\n", kind.name, details(file, text)));
        }
    }
    let (folders, plain): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| name.ends_with('/'));
    for (names, one, many) in [(&folders, "folder", "folders"), (&plain, "file", "files")] {
        match names.len() {
            0 => words.push_str(&format!("- no {many}\n")),
            number => {
                words.push_str(&format!("- {}: {}\n", count(number, one, many), list(names)));
            }
        }
    }
    let next: Vec<String> = NEXT
        .iter()
        .filter(|name| plain.iter().any(|plain| plain == *name))
        .map(|name| format!("`{name}`"))
        .collect();
    if !next.is_empty() {
        words.push_str(&format!("\nWorth reading next: {}.\n", next.join(", ")));
    }
    words
}

/// Tells how the project is built and tested.
pub(super) fn how_to(files: &[(String, String)]) -> String {
    let mut words = String::new();
    for (file, text) in files {
        let Some(kind) = KINDS.iter().find(|kind| kind.file == file) else { continue };
        let mut commands: Vec<String> =
            kind.commands.iter().map(|&command| command.to_owned()).collect();
        if file == "package.json" {
            commands = vec!["npm install".to_owned()];
            commands.extend(scripts(text).iter().map(|script| format!("npm run {script}")));
        }
        if file == "Makefile" {
            commands = targets(text).iter().map(|target| format!("make {target}")).collect();
        }
        let commands: Vec<String> =
            commands.iter().map(|command| format!("- `{command}`")).collect();
        words.push_str(&format!(
            "`{file}` says {}, so usually:\n{}\n\n",
            kind.name,
            commands.join("\n")
        ));
    }
    let readme = files.iter().find(|(name, _)| name.to_lowercase().starts_with("readme"));
    let shown: Vec<&str> = readme.map_or_else(Vec::new, |(_, text)| shell_lines(text));
    if !shown.is_empty() {
        words.push_str(&format!("The README shows:\n```\n{}\n```\n", shown.join("\n")));
    }
    if words.is_empty() {
        words.push_str("Nothing at the top of this folder says how it is built: no manifest that I know, and no README with commands.");
    }
    words
}

/// The title of a README and its first paragraph.
fn summary(text: &str) -> (String, String) {
    let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    let mut first = String::new();
    let mut is_code = false;
    for line in text.lines().map(str::trim) {
        is_code ^= line.starts_with("```");
        // Headings, badges and markup are no sentences.
        let is_prose = !is_code
            && !line.is_empty()
            && !line.starts_with(['#', '[', '!', '<', '`', '|', '=', '-', '*']);
        match (is_prose, first.is_empty()) {
            (true, _) if first.len() < LONGEST => first.push_str(&format!("{line} ")),
            (false, true) => {}
            _ => break,
        }
    }
    (title.trim().to_owned(), first.trim_end().to_owned())
}

/// What a manifest says of the project, as far as it can be seen without parsing it.
fn details(file: &str, text: &str) -> String {
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let rest = line.trim().trim_start_matches('"').strip_prefix(key)?;
            let rest = rest.trim_start_matches('"').trim_start();
            let rest = rest.strip_prefix(['=', ':'])?.trim();
            Some(rest.trim_end_matches(',').trim_matches('"').to_owned())
        })
    };
    let members = text.split_once("members = [").and_then(|(_, rest)| rest.split_once(']'));
    match (file, value("name"), members) {
        ("Cargo.toml", _, Some((members, _))) => {
            format!(", a workspace of {}", members.replace('"', "").trim().trim_end_matches(','))
        }
        ("go.mod", _, _) => text
            .lines()
            .find_map(|line| line.strip_prefix("module "))
            .map_or_else(String::new, |name| format!(", `{name}`")),
        (_, Some(name), _) if !name.is_empty() => {
            let version = value("version").filter(|version| version.len() < 20);
            format!(
                ", `{name}`{}",
                version.map_or_else(String::new, |version| format!(" {version}"))
            )
        }
        _ => String::new(),
    }
}

fn scripts(package: &str) -> Vec<String> {
    let parsed: serde_json::Value = serde_json::from_str(package).unwrap_or_default();
    parsed["scripts"]
        .as_object()
        .map_or_else(Vec::new, |scripts| scripts.keys().take(8).cloned().collect())
}

fn targets(makefile: &str) -> Vec<&str> {
    makefile
        .lines()
        .filter_map(|line| line.split_once(':').map(|(name, _)| name))
        .filter(|name| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|character| character.is_alphanumeric() || "-_".contains(character))
        })
        .take(8)
        .collect()
}

/// The commands that a README shows, behind a prompt sign.
fn shell_lines(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("$ ")).take(8).collect()
}

fn list(names: &[&String]) -> String {
    const SHOWN: usize = 12;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match (shown.len(), names.len().saturating_sub(SHOWN)) {
        (0, _) => "none".to_owned(),
        (_, 0) => shown.join(", "),
        (_, rest) => format!("{} and {rest} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn a_project_is_told_from_its_readme_and_manifest() {
        let names = ["Cargo.toml", "README.md", "src/", "ARCHITECTURE.md"].map(str::to_owned);
        assert_eq!(sources(&names), ["README.md", "Cargo.toml"]);
        let readme = "# Ship\n\n[badge](x)\n\nSails the\nseas.\n\n## More\n";
        let words = words(
            &names,
            &[
                file("README.md", readme),
                file("Cargo.toml", "[package]\nname = \"ship\"\nversion = \"1.2.0\"\n"),
            ],
        );
        assert_eq!(
            words,
            "**Ship**\n\nSails the seas.\n\n- Rust (`Cargo.toml`, `ship` 1.2.0)\n- 1 folder: `src/`\n\
             - 3 files: `Cargo.toml`, `README.md`, `ARCHITECTURE.md`\n\nWorth reading next: `ARCHITECTURE.md`.\n"
        );
    }

    #[test]
    fn how_it_is_built_is_told_from_what_is_there() {
        let package =
            file("package.json", r#"{"name":"x","scripts":{"build":"tsc","test":"jest"}}"#);
        let words = how_to(&[package, file("README.md", "```\n$ make it\n```")]);
        assert!(words.contains("- `npm run build`\n- `npm run test`"), "{words}");
        assert!(words.contains("make it"), "{words}");
        assert!(how_to(&[]).contains("Nothing at the top"));
    }

    #[test]
    fn a_folder_with_nothing_known_is_told_as_it_is() {
        let words = words(&["a.txt".to_owned()], &[]);
        assert!(words.contains("no README") && words.contains("`a.txt`"), "{words}");
    }
}
