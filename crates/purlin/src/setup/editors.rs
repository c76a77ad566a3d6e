//! The editors that can start Purlin, and what each of them wants to be told.
//!
//! docs/guide/editors.md describes the same settings for readers.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The name of our entry.
pub(super) const NAME: &str = "Purlin";

/// Where settings are.
#[derive(Debug)]
pub(super) struct Homes {
    /// The user's home directory.
    pub(super) home: Option<PathBuf>,
    /// The directory for the settings of all programs, `~/.config`.
    pub(super) config: Option<PathBuf>,
}

/// An editor.
#[derive(Debug)]
pub(super) struct Editor {
    /// What the user types.
    pub(super) name: &'static str,
    /// What people call it.
    pub(super) title: &'static str,
    /// How it is configured.
    pub(super) setting: Setting,
    /// What to do next.
    pub(super) then: &'static str,
}

/// How an editor is configured.
#[derive(Debug)]
pub(super) enum Setting {
    /// By an entry in a JSON file.
    File {
        /// Finds the file.
        place: fn(&Homes) -> Option<PathBuf>,
        /// The object that has an entry for each agent.
        key: &'static str,
        /// Makes our entry.
        entry: fn(&Launch) -> Value,
    },
    /// By code or by hand, which we do not change.
    Code {
        /// Where the text goes.
        place: &'static str,
        /// Makes the text.
        snippet: fn(&Launch) -> String,
    },
}

/// The supported editors.
pub(super) static EDITORS: [Editor; 8] = [
    Editor {
        name: "zed",
        title: "Zed",
        setting: Setting::File { place: zed, key: "agent_servers", entry: zed_entry },
        then: "In Zed, open the agent panel, press + and choose Purlin. Logs: command palette, `dev: open acp logs`.",
    },
    Editor {
        name: "jetbrains",
        title: "JetBrains IDEs (AI Assistant)",
        setting: Setting::File { place: jetbrains, key: "agent_servers", entry: plain_entry },
        then: "In the IDE, open AI Chat and choose Purlin in the list of agents. Logs: menu of AI Chat, *Get ACP Logs*.",
    },
    Editor {
        name: "vscode",
        title: "VS Code (ACP Client extension)",
        setting: Setting::File { place: vscode, key: "acp.agents", entry: plain_entry },
        then: "Install the extension `formulahendry.acp-client`, run `ACP: Connect to Agent` and choose Purlin. Logs: `ACP: Show Log`.",
    },
    Editor {
        name: "codecompanion",
        title: "Neovim, CodeCompanion",
        setting: Setting::Code { place: "In your Neovim configuration", snippet: codecompanion },
        then: "Then run `:CodeCompanionChat`. Problems: `:checkhealth codecompanion`.",
    },
    Editor {
        name: "avante",
        title: "Neovim, avante.nvim",
        setting: Setting::Code { place: "In your Neovim configuration", snippet: avante },
        then: "Then run `:AvanteAsk`.",
    },
    Editor {
        name: "agent-shell",
        title: "Emacs, agent-shell",
        setting: Setting::Code { place: "In your init.el", snippet: agent_shell },
        then: "Then run `M-x agent-shell` and choose Purlin.",
    },
    Editor {
        name: "toad",
        title: "Toad, in a terminal",
        setting: Setting::Code {
            place: "In a shell, in the folder of your project",
            snippet: toad,
        },
        then: "Toad starts with Purlin as its agent.",
    },
    Editor {
        name: "qt-creator",
        title: "Qt Creator",
        setting: Setting::Code {
            place: "In Preferences > AI > ACP Servers, Add, template Custom",
            snippet: qt_creator,
        },
        then: "Then open Tools > ACP Client > Show Agentic AI Chat in Side Panel.",
    },
];

/// The command that starts us.
#[derive(Debug, PartialEq)]
pub(super) struct Launch {
    command: String,
    arguments: Vec<String>,
}

impl Launch {
    /// Decides how an editor starts this program: by its absolute path, since editors often have another `PATH` than a shell. A
    /// program in the cache of a package runner may be gone tomorrow, so the runner is started instead.
    pub(super) fn of(program: &Path) -> Launch {
        let path = program.to_string_lossy().replace('\\', "/");
        let words: &[&str] = match () {
            () if path.contains("/_npx/") => &["npx", "--yes", "purlin", "acp"],
            () if path.contains("/uv/archive-v") => {
                &["uvx", "--from", "purlin-agent", "purlin", "acp"]
            }
            () => &["", "acp"],
        };
        let command = match words[0] {
            "" => program.to_string_lossy().into_owned(),
            runner => runner.to_owned(),
        };
        Launch { command, arguments: words[1..].iter().map(|word| (*word).to_owned()).collect() }
    }

    fn words(&self) -> Vec<&str> {
        std::iter::once(&self.command).chain(&self.arguments).map(String::as_str).collect()
    }
}

fn zed(homes: &Homes) -> Option<PathBuf> {
    let config = if cfg!(target_os = "macos") {
        homes.home.as_ref()?.join(".config")
    } else {
        homes.config.clone()?
    };
    Some(config.join("zed/settings.json"))
}

fn jetbrains(homes: &Homes) -> Option<PathBuf> {
    Some(homes.home.as_ref()?.join(".jetbrains/acp.json"))
}

fn vscode(homes: &Homes) -> Option<PathBuf> {
    let config = if cfg!(target_os = "macos") {
        homes.home.as_ref()?.join("Library/Application Support")
    } else {
        homes.config.clone()?
    };
    Some(config.join("Code/User/settings.json"))
}

fn plain_entry(launch: &Launch) -> Value {
    json!({ "command": launch.command, "args": launch.arguments })
}

fn zed_entry(launch: &Launch) -> Value {
    json!({ "type": "custom", "command": launch.command, "args": launch.arguments })
}

/// Quotes a string for Lua and for Emacs Lisp, which agree on these escapes.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn quoted_all(words: &[&str], between: &str) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(between)
}

fn codecompanion(launch: &Launch) -> String {
    format!(
        r#"require("codecompanion").setup({{
  adapters = {{
    acp = {{
      purlin = function()
        return require("codecompanion.adapters").extend("opencode", {{
          name = "purlin",
          formatted_name = "Purlin",
          commands = {{ default = {{ {} }} }},
        }})
      end,
    }},
  }},
  interactions = {{ chat = {{ adapter = "purlin" }} }},
}})
"#,
        quoted_all(&launch.words(), ", ")
    )
}

fn avante(launch: &Launch) -> String {
    let arguments: Vec<&str> = launch.arguments.iter().map(String::as_str).collect();
    format!(
        r#"require("avante").setup({{
  provider = "purlin",
  acp_providers = {{
    ["purlin"] = {{ command = {}, args = {{ {} }} }},
  }},
}})
"#,
        quoted(&launch.command),
        quoted_all(&arguments, ", ")
    )
}

fn agent_shell(launch: &Launch) -> String {
    let arguments: Vec<&str> = launch.arguments.iter().map(String::as_str).collect();
    format!(
        r#"(with-eval-after-load 'agent-shell
  (add-to-list 'agent-shell-agent-configs
               (agent-shell-make-agent-config
                :identifier 'purlin
                :mode-line-name "Purlin"
                :buffer-name "Purlin"
                :shell-prompt "Purlin> "
                :shell-prompt-regexp "Purlin> "
                :client-maker (lambda (buffer)
                                (acp-make-client :command {}
                                                 :command-params '({})
                                                 :context-buffer buffer)))))
"#,
        quoted(&launch.command),
        quoted_all(&arguments, " ")
    )
}

fn toad(launch: &Launch) -> String {
    let line = settings::quote_all(launch.words().into_iter());
    format!("toad acp {}\n", settings::quote_all(std::iter::once(line.as_str())))
}

fn qt_creator(launch: &Launch) -> String {
    let arguments = settings::quote_all(launch.arguments.iter().map(String::as_str));
    format!("Name:       {NAME}\nExecutable: {}\nArguments:  {arguments}\n", launch.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editors_start_the_program_by_its_path_or_its_package_runner() {
        let launch = |path: &str| Launch::of(Path::new(path)).words().join(" ");
        assert_eq!(launch("/usr/bin/purlin"), "/usr/bin/purlin acp");
        assert_eq!(launch("/h/.npm/_npx/1f/node_modules/p/bin/purlin"), "npx --yes purlin acp");
        assert_eq!(
            launch("/h/.cache/uv/archive-v0/x/bin/purlin"),
            "uvx --from purlin-agent purlin acp"
        );
    }

    #[test]
    fn code_quotes_paths_with_unusual_characters() {
        let launch = Launch::of(Path::new("/a b/\"c\"/purlin"));
        assert!(codecompanion(&launch).contains(r#"default = { "/a b/\"c\"/purlin", "acp" }"#));
        assert!(avante(&launch).contains(r#"command = "/a b/\"c\"/purlin", args = { "acp" }"#));
        assert!(agent_shell(&launch).contains(r#":command "/a b/\"c\"/purlin""#));
        assert_eq!(toad(&Launch::of(Path::new("/b/purlin"))), "toad acp '/b/purlin acp'\n");
    }
}
