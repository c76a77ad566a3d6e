//! Files that editors, shells, git and other agents run by themselves, or that name programs for them. A command that could write
//! them would decide what runs later, outside the sandbox.
//!
//! Not here: what a build or a test runs (`Makefile`, `package.json`). The user starts those.

use std::path::Path;

/// Files and directories by name, wherever they are in a project.
pub const AUTO_RUN: [&str; 74] = [
    // Editors.
    ".vscode",
    ".zed",
    ".idea",
    ".fleet",
    ".vs",
    ".vim",
    ".vimrc",
    ".exrc",
    ".nvim",
    ".nvimrc",
    ".nvim.lua",
    ".helix",
    ".dir-locals.el",
    ".dir-locals-2.el",
    ".devcontainer",
    ".devcontainer.json",
    ".vimrc.local",
    ".local.vimrc",
    ".lvimrc",
    ".nova",
    ".lapce",
    ".theia",
    // Agents.
    ".mcp.json",
    ".claude",
    ".cursor",
    ".codex",
    ".gemini",
    ".opencode",
    "opencode.json",
    "opencode.jsonc",
    ".windsurf",
    ".continue",
    ".kiro",
    ".roo",
    ".aider.conf.yml",
    ".qwen",
    ".trae",
    ".amazonq",
    ".augment",
    ".junie",
    ".factory",
    ".kimi",
    ".goose",
    ".rovodev",
    ".tabnine",
    ".crush.json",
    "crush.json",
    ".purlin",
    "purlin.json",
    // Shells, interpreters and tools that act when a directory is entered or when they start in it.
    ".envrc",
    ".mise.toml",
    "mise.toml",
    ".mise.local.toml",
    "mise.local.toml",
    ".mise",
    ".autoenv",
    ".autoenv.zsh",
    ".rprofile",
    ".ghci",
    // Hooks of git, and version control with hooks in a configuration of its own.
    ".hg",
    ".sl",
    "_darcs",
    ".pijul",
    ".husky",
    ".githooks",
    ".lefthook.yml",
    "lefthook.yml",
    ".lefthook.yaml",
    "lefthook.yaml",
    ".lefthook.toml",
    "lefthook.toml",
    "lefthook-local.yml",
    ".pre-commit-config.yaml",
    ".gitmodules",
];

/// Extensions of files that open as a project of an editor.
const PROJECTS: [&str; 2] = [".code-workspace", ".sublime-project"];

/// Tells whether a name is that of a file or directory that something runs by itself.
#[must_use]
pub fn is_auto_run_name(name: &str) -> bool {
    // Some file systems ignore case.
    let name = name.to_ascii_lowercase();
    AUTO_RUN.contains(&name.as_str()) || PROJECTS.iter().any(|end| name.ends_with(end))
}

/// Tells whether a path, relative to the session's directory, is such a file or in such a directory.
#[must_use]
pub fn is_auto_run(relative: &Path) -> bool {
    relative.components().any(|part| part.as_os_str().to_str().is_some_and(is_auto_run_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_in_the_guide_and_in_lower_case() {
        let guide = include_str!("../../../docs/guide/security.md").to_lowercase();
        for name in AUTO_RUN {
            assert!(guide.contains(&format!("`{name}`")), "{name}");
            assert_eq!(name, name.to_lowercase());
        }
    }

    // R: T2
    #[test]
    fn files_that_run_by_themselves_are_recognised_anywhere() {
        for path in
            [".vscode/tasks.json", "a/.ENVRC", "x/b.code-workspace", ".husky", "purlin.json"]
        {
            assert!(is_auto_run(Path::new(path)), "{path}");
        }
        for path in ["src/main.rs", "vscode", ".env", "code-workspace", "package.json", ".vscodes"]
        {
            assert!(!is_auto_run(Path::new(path)), "{path}");
        }
    }
}
