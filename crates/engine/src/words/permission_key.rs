//! The keys of permission rules.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::visible::one_line;

/// What a permission rule is about: something that a call does, whichever tool makes it. Each tool says what its call needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PermissionKey {
    /// Reading a file.
    Read,
    /// Changing a file.
    Edit,
    /// Running a command.
    RunCommand,
    /// Running a command that is known to only read. For rules: the command itself has the key of all commands.
    RunReadingCommand,
    /// Listing a directory.
    ListDirectory,
    /// Finding files by name.
    FindFiles,
    /// Searching in files.
    SearchText,
    /// Fetching a web page.
    Fetch,
    /// Fetching from this machine or a private network.
    FetchPrivate,
    /// Searching the web.
    WebSearch,
    /// Access to a directory outside the session's directories.
    ExternalDirectory,
    /// Writing to a directory outside the session's directories.
    WriteOutside,
    /// The network, for a command.
    Network,
    /// Changes of `.git`, by a command.
    Git,
    /// Changing files that editors, shells and other agents run by themselves, such as `.vscode` and `.envrc`.
    AutoRun,
    /// Running a command without a sandbox.
    Unsandboxed,
    /// Giving a task to an agent.
    Task,
    /// Loading a skill.
    Skill,
    /// Reading and changing issues and pull requests on GitHub.
    GitHub,
    /// Merging pull requests on GitHub.
    GitHubMerge,
    /// Pushing a branch to a remote, with the user's credentials.
    GitPush,
    /// A tool of an MCP server. Made by [`PermissionKey::mcp`].
    Mcp(McpKey),
}

/// An MCP tool. Its name in rules is never that of a built-in key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct McpKey {
    /// Its name in rules.
    name: String,
    /// The server's name, for people.
    server: String,
    /// The tool's name on the server, for people.
    tool: String,
}

impl McpKey {
    /// Describes the tool for the user.
    pub(crate) fn words(&self) -> String {
        let McpKey { server, tool, .. } = self;
        format!("the tool `{}` of the MCP server `{}`", one_line(tool), one_line(server))
    }
}

impl PermissionKey {
    /// Every built-in key.
    pub const BUILT_IN: [PermissionKey; 21] = [
        PermissionKey::Read,
        PermissionKey::Edit,
        PermissionKey::RunCommand,
        PermissionKey::RunReadingCommand,
        PermissionKey::ListDirectory,
        PermissionKey::FindFiles,
        PermissionKey::SearchText,
        PermissionKey::Fetch,
        PermissionKey::FetchPrivate,
        PermissionKey::WebSearch,
        PermissionKey::ExternalDirectory,
        PermissionKey::WriteOutside,
        PermissionKey::Network,
        PermissionKey::Git,
        PermissionKey::AutoRun,
        PermissionKey::Unsandboxed,
        PermissionKey::Task,
        PermissionKey::Skill,
        PermissionKey::GitHub,
        PermissionKey::GitHubMerge,
        PermissionKey::GitPush,
    ];

    /// Returns the key of an MCP tool that models know by `name`. It is never a built-in one, whatever the name.
    #[must_use]
    pub fn mcp(name: &str, server: &str, tool: &str) -> PermissionKey {
        let is_built_in = PermissionKey::BUILT_IN.iter().any(|key| key.as_str() == name);
        let name = if is_built_in { format!("mcp_{name}") } else { name.to_owned() };
        PermissionKey::Mcp(McpKey { name, server: server.to_owned(), tool: tool.to_owned() })
    }

    /// Returns the name of an MCP tool that is also the name of a built-in key. A rule that denies this name denies the tool, too.
    #[must_use]
    pub fn shared_name(&self) -> Option<&str> {
        let PermissionKey::Mcp(McpKey { name, .. }) = self else { return None };
        let name = name.strip_prefix("mcp_")?;
        PermissionKey::BUILT_IN.iter().any(|key| key.as_str() == name).then_some(name)
    }

    /// Returns its name in a configuration. Most are OpenCode's.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            PermissionKey::Read => "read",
            PermissionKey::Edit => "edit",
            PermissionKey::RunCommand => "bash",
            PermissionKey::RunReadingCommand => "bash_read",
            PermissionKey::ListDirectory => "list",
            PermissionKey::FindFiles => "glob",
            PermissionKey::SearchText => "grep",
            PermissionKey::Fetch => "webfetch",
            PermissionKey::FetchPrivate => "webfetch_private",
            PermissionKey::WebSearch => "websearch",
            PermissionKey::ExternalDirectory => "external_directory",
            PermissionKey::WriteOutside => "write_outside",
            PermissionKey::Network => "network",
            PermissionKey::Git => "git",
            PermissionKey::AutoRun => "auto_run",
            PermissionKey::Unsandboxed => "unsandboxed",
            PermissionKey::Task => "task",
            PermissionKey::Skill => "skill",
            PermissionKey::GitHub => "github",
            PermissionKey::GitHubMerge => "github_merge",
            PermissionKey::GitPush => "git_push",
            PermissionKey::Mcp(McpKey { name, .. }) => name,
        }
    }
}

impl fmt::Display for PermissionKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T2
    #[test]
    fn mcp_tool_with_the_name_of_a_built_in_key_gets_another_key() {
        for key in PermissionKey::BUILT_IN {
            let mcp = PermissionKey::mcp(key.as_str(), "server", "tool");
            assert_ne!(mcp.as_str(), key.as_str());
            assert_eq!(mcp.shared_name(), Some(key.as_str()));
        }
        let issues = PermissionKey::mcp("github_issues", "github", "issues");
        assert_eq!(issues.as_str(), "github_issues");
        assert_eq!(issues.shared_name(), None);
    }
}
