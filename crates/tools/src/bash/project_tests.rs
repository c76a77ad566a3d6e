//! The command that runs a project's tests, for models that call `run_tests`.

use std::path::Path;

use engine::ports::ToolError;

/// What stands for the command.
pub(super) const NAME: &str = "run_tests";
/// Other names for it, as `adopt::plain` writes them.
pub(super) const NAMES: [&str; 5] = ["runtests", "runtest", "test", "tests", "runalltests"];

/// Files that show what runs the tests, and the command. The first that exists decides.
const COMMANDS: [(&str, &str); 7] = [
    ("package.json", "npm test"),
    ("Cargo.toml", "cargo test"),
    ("go.mod", "go test ./..."),
    ("pytest.ini", "python3 -m pytest"),
    ("pom.xml", "mvn test"),
    ("build.gradle", "gradle test"),
    ("mix.exs", "mix test"),
];

/// Tells whether a command stands for the project's tests.
pub(super) fn is_requested(command: &str) -> bool {
    command.split_whitespace().next() == Some(NAME)
}

/// Returns the command for the project in a directory.
///
/// # Errors
/// Fails if nothing in the directory shows it.
pub(super) async fn find(command: &str, directory: &Path) -> Result<String, ToolError> {
    let rest = command.trim_start().trim_start_matches(NAME).trim().to_owned();
    let directory = directory.to_owned();
    let found = tokio::task::spawn_blocking(move || command_for(&directory, &rest)).await;
    found.ok().flatten().ok_or_else(|| {
        let why = "no test command is known for this project; run the tests with their own command";
        ToolError::Model(why.to_owned())
    })
}

/// Returns the command, with the words that follow `run_tests`.
fn command_for(directory: &Path, rest: &str) -> Option<String> {
    let with_rest = |command: &str| format!("{command} {rest}").trim_end().to_owned();
    if let Some((_, command)) = COMMANDS.iter().find(|(file, _)| directory.join(file).is_file()) {
        return Some(with_rest(command));
    }
    let makefile = tree::read(directory, "Makefile", 1024 * 1024).unwrap_or_default();
    if String::from_utf8_lossy(&makefile).lines().any(|line| line.starts_with("test:")) {
        return Some(with_rest("make test"));
    }
    let names = |directory: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().take(1_000);
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let has_tests = |names: &[String]| {
        names.iter().any(|name| name.starts_with("test") && name.ends_with(".py"))
    };
    if !rest.is_empty() && rest.ends_with(".py") || has_tests(&names(directory)) {
        return Some(with_rest("python3 -m unittest"));
    }
    let below =
        ["tests", "test"].into_iter().find(|name| has_tests(&names(&directory.join(name))))?;
    Some(with_rest(&format!("python3 -m unittest discover -s {below}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_follows_from_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |rest: &str| command_for(directory.path(), rest);
        assert_eq!(at(""), None);
        std::fs::create_dir(directory.path().join("tests")).unwrap();
        std::fs::write(directory.path().join("tests/test_a.py"), "").unwrap();
        assert_eq!(at("").as_deref(), Some("python3 -m unittest discover -s tests"));
        std::fs::write(directory.path().join("test_b.py"), "").unwrap();
        assert_eq!(at("").as_deref(), Some("python3 -m unittest"));
        assert_eq!(at("test_b.py").as_deref(), Some("python3 -m unittest test_b.py"));
        std::fs::write(directory.path().join("Makefile"), "all:\ntest: all\n").unwrap();
        assert_eq!(at("").as_deref(), Some("make test"));
        std::fs::write(directory.path().join("package.json"), "{}").unwrap();
        assert_eq!(at("").as_deref(), Some("npm test"));
    }
}
