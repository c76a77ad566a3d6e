//! Which of our crates may depend on which, read from the manifests.
//!
//! The table is the one in ARCHITECTURE.md. Dev-dependencies are not restricted: a test may use any crate.

use super::finding::Finding;
use super::tree::File;

/// Each crate with the crates it may depend on. `purlin` assembles everything, so nothing may depend on it.
const MAY_SEE: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("engine", &[]),
    ("process", &[]),
    ("tree", &[]),
    ("shell", &["tree"]),
    ("tools", &["engine", "process", "shell", "tree"]),
    ("store", &["engine"]),
    ("providers", &["engine", "wire"]),
    ("mcp", &["engine", "wire", "process"]),
    ("observe", &["wire"]),
    ("recording", &["engine"]),
    ("client", &["wire", "process"]),
    ("settings", &["engine", "tree"]),
    ("chat", &["client", "process", "tree", "wire"]),
    (
        "serve",
        &["wire", "engine", "process", "recording", "shell", "tools", "mcp", "settings", "tree"],
    ),
    ("check", &["client", "fake_model", "process"]),
    (
        "purlin",
        &[
            "wire",
            "engine",
            "process",
            "shell",
            "tools",
            "store",
            "providers",
            "mcp",
            "observe",
            "recording",
            "client",
            "check",
            "settings",
            "chat",
            "serve",
        ],
    ),
    ("fake_model", &[]),
    ("fuzzing", &[]),
    ("xtask", &[]),
];

/// Finds dependencies between our crates that the table does not have.
pub(crate) fn are_allowed(manifest: &File) -> Vec<Finding> {
    let Some(name) = crate_of(&manifest.path) else {
        return Vec::new();
    };
    let Some(allowed) = row(name) else {
        let advice =
            format!("`{name}` is on no floor: add it to the table in xtask/src/tidy/edges.rs");
        return vec![Finding::new(&manifest.path, 1, advice)];
    };
    dependencies(&manifest.text)
        .into_iter()
        .filter(|(_, seen)| row(seen).is_some() && !allowed.contains(&seen.as_str()))
        .map(|(line, seen)| {
            let advice = format!(
                "`{name}` must not see `{seen}`: move the code that needs both up to `purlin`"
            );
            Finding::new(&manifest.path, line, advice)
        })
        .collect()
}

fn row(name: &str) -> Option<&'static [&'static str]> {
    MAY_SEE.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, allowed)| *allowed)
}

/// Returns the crate that a manifest belongs to; the directory's name is the crate's name.
fn crate_of(path: &str) -> Option<&str> {
    let directory = path.strip_suffix("/Cargo.toml")?;
    match directory.strip_prefix("crates/") {
        Some(name) => Some(name),
        None => (directory == "xtask").then_some(directory),
    }
}

/// Returns the packages that a manifest names outside its dev-dependencies, each with its line.
///
/// Reads line by line: our manifests use none of TOML's multi-line forms for dependencies.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            let is_normal = !header.contains("dev-dependencies");
            is_inside = is_normal && header.ends_with("dependencies");
            if let Some((_, name)) = header.rsplit_once("dependencies.").filter(|_| is_normal) {
                found.push((index + 1, name.to_owned()));
            }
        } else if is_inside && let Some(name) = package_of(line) {
            found.push((index + 1, name.to_owned()));
        }
    }
    found
}

/// Returns the package in one line of a dependency table, renamed or not.
fn package_of(line: &str) -> Option<&str> {
    if let Some((_, rest)) = line.split_once("package = \"") {
        return rest.split('"').next();
    }
    let name = line.split(['.', '=', ' ', '#']).next()?.trim_matches('"');
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    fn findings(path: &str, text: &str) -> Vec<String> {
        are_allowed(&File::new(path, text)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn crate_depends_only_on_lower_floors() {
        let manifest =
            "[dependencies]\nwire.workspace = true\nprocess = { path = \"../process\" }\n";
        assert_eq!(findings("crates/client/Cargo.toml", manifest), NONE);
        assert_eq!(
            findings("crates/observe/Cargo.toml", manifest),
            [
                "crates/observe/Cargo.toml:3: `observe` must not see `process`: move the code that needs both up to `purlin`"
            ]
        );
    }

    #[test]
    fn every_form_of_a_dependency_counts() {
        let forms = [
            "[dependencies]\nengine.workspace = true",
            "[dependencies]\n\"engine\" = \"1\"",
            "[dependencies]\nother = { package = \"engine\", path = \"../engine\" }",
            "[build-dependencies]\nengine = \"1\"",
            "[target.'cfg(unix)'.dependencies]\nengine = \"1\"",
        ];
        for form in forms {
            assert_eq!(findings("crates/wire/Cargo.toml", form).len(), 1, "{form}");
        }
        assert_eq!(findings("crates/wire/Cargo.toml", "[dependencies.engine]\n").len(), 1);
    }

    #[test]
    fn dev_dependencies_and_foreign_crates_are_free() {
        let manifest = "[package]\nname = \"wire\"\n\n[dependencies]\nserde = \"1\"\n# engine\n\n[dev-dependencies]\nengine.workspace = true\n\n[dev-dependencies.client]\n";
        assert_eq!(findings("crates/wire/Cargo.toml", manifest), NONE);
    }

    #[test]
    fn nothing_sees_the_program_and_a_new_crate_must_be_listed() {
        let manifest = "[dependencies]\npurlin.workspace = true\n";
        assert_eq!(findings("xtask/Cargo.toml", manifest).len(), 1);
        assert!(findings("crates/helpers/Cargo.toml", "")[0].contains("is on no floor"));
        assert_eq!(findings("fuzz/Cargo.toml", manifest), NONE);
    }
}
