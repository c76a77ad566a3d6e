//! The keys of permission rules.

use std::fmt;

/// What a permission rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PermissionKey {
    /// Reading a file.
    Read,
    /// Changing a file.
    Edit,
    /// Running a command.
    Bash,
    /// Listing a folder.
    List,
    /// Finding files by name.
    Glob,
    /// Searching in files.
    Grep,
    /// Fetching a web page.
    WebFetch,
    /// Fetching from this machine or a private network.
    WebFetchPrivate,
    /// Access to a folder outside the session's folders.
    ExternalDirectory,
    /// Writing to a folder outside the session's folders.
    WriteOutside,
    /// The network, for a command.
    Network,
    /// Changes of `.git`, by a command.
    Git,
    /// Running a command without a sandbox.
    Unsandboxed,
    /// Giving a task to an agent.
    Task,
    /// Loading a skill.
    Skill,
    /// A tool of an MCP server. Made by [`PermissionKey::mcp`].
    Mcp(McpKey),
}

/// The name of an MCP tool, which is never a built-in key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct McpKey(String);

impl PermissionKey {
    /// Every built-in key.
    pub const BUILT_IN: [PermissionKey; 15] = [
        PermissionKey::Read,
        PermissionKey::Edit,
        PermissionKey::Bash,
        PermissionKey::List,
        PermissionKey::Glob,
        PermissionKey::Grep,
        PermissionKey::WebFetch,
        PermissionKey::WebFetchPrivate,
        PermissionKey::ExternalDirectory,
        PermissionKey::WriteOutside,
        PermissionKey::Network,
        PermissionKey::Git,
        PermissionKey::Unsandboxed,
        PermissionKey::Task,
        PermissionKey::Skill,
    ];

    /// Returns the key of an MCP tool. It is never a built-in one, whatever the name.
    #[must_use]
    pub fn mcp(name: &str) -> PermissionKey {
        let is_built_in = PermissionKey::BUILT_IN.iter().any(|key| key.as_str() == name);
        let name = if is_built_in { format!("mcp_{name}") } else { name.to_owned() };
        PermissionKey::Mcp(McpKey(name))
    }

    /// Returns the name of an MCP tool that is also the name of a built-in key. A rule that denies this name denies the tool, too.
    #[must_use]
    pub fn shared_name(&self) -> Option<&str> {
        let PermissionKey::Mcp(McpKey(name)) = self else { return None };
        let name = name.strip_prefix("mcp_")?;
        PermissionKey::BUILT_IN.iter().any(|key| key.as_str() == name).then_some(name)
    }

    /// Returns its name in a configuration.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            PermissionKey::Read => "read",
            PermissionKey::Edit => "edit",
            PermissionKey::Bash => "bash",
            PermissionKey::List => "list",
            PermissionKey::Glob => "glob",
            PermissionKey::Grep => "grep",
            PermissionKey::WebFetch => "webfetch",
            PermissionKey::WebFetchPrivate => "webfetch_private",
            PermissionKey::ExternalDirectory => "external_directory",
            PermissionKey::WriteOutside => "write_outside",
            PermissionKey::Network => "network",
            PermissionKey::Git => "git",
            PermissionKey::Unsandboxed => "unsandboxed",
            PermissionKey::Task => "task",
            PermissionKey::Skill => "skill",
            PermissionKey::Mcp(McpKey(name)) => name,
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
            assert_ne!(PermissionKey::mcp(key.as_str()).as_str(), key.as_str());
        }
        assert_eq!(PermissionKey::mcp("github_issues").as_str(), "github_issues");
    }
}
