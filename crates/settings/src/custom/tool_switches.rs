//! `tools`: which tools sessions or agents have, in the forms of OpenCode and Claude Code.

use engine::words::pattern::matches_pattern;
use serde_json::Value;

/// What `tools` means.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolSwitches {
    /// Patterns of tool names, each with whether there are such tools.
    pub(crate) tools: Vec<(String, bool)>,
    /// The permission keys that ask, because the switch of their tools is neither true nor false.
    pub(crate) asks: Vec<String>,
}

/// Our tools whose permission key has another name. `None` for those that never ask.
const KEYS: [(&str, Option<&str>); 12] = [
    ("write", Some("edit")),
    ("edit", Some("edit")),
    ("apply_patch", Some("edit")),
    ("bash", Some("bash")),
    ("fetch", Some("webfetch")),
    ("web_search", Some("websearch")),
    ("github_read", Some("github")),
    ("github_write", Some("github")),
    ("plan", None),
    ("ask", None),
    ("bash_output", None),
    ("bash_kill", None),
];

/// Returns the permission key of a tool, if it has another name than the tool.
pub(crate) fn other_key(tool: &str) -> Option<&'static str> {
    let (_, key) = KEYS.iter().find(|(name, _)| *name == tool)?;
    key.filter(|key| *key != tool)
}

impl ToolSwitches {
    /// Reads a map of switches, or the list of all tools. What is neither turns all tools off.
    pub(crate) fn read(value: &Value) -> ToolSwitches {
        let mut found = ToolSwitches::default();
        let named: Vec<&str> = match value {
            Value::Object(switches) => {
                for (name, value) in switches {
                    ours(name).into_iter().for_each(|name| found.switch(name, value));
                }
                return found;
            }
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            Value::String(names) => names.split(',').map(str::trim).collect(),
            _ => Vec::new(),
        };
        found.tools.push(("*".to_owned(), false));
        let names = named.iter().filter(|name| !name.is_empty()).flat_map(|name| ours(name));
        found.tools.extend(names.map(|name| (name, true)));
        found
    }

    fn switch(&mut self, name: String, value: &Value) {
        match value {
            Value::Bool(has) => self.tools.push((name, *has)),
            // Whether it should be off is unknown, so it asks; where nothing asks, it is off.
            _ => {
                let is_meant = |tool: &str| matches_pattern(&name, tool);
                let known = KEYS.iter().filter(|(tool, _)| is_meant(tool));
                for (tool, key) in known.clone() {
                    match key {
                        Some(key) => self.asks.push((*key).to_owned()),
                        None => self.tools.push(((*tool).to_owned(), false)),
                    }
                }
                if name.contains('*') || known.count() == 0 {
                    self.asks.push(name);
                }
            }
        }
    }
}

/// Returns our names of a tool of OpenCode or Claude Code; `Bash(git *)` is `bash`.
fn ours(name: &str) -> Vec<String> {
    let name = name.split('(').next().unwrap_or(name).trim();
    // Claude Code's names of MCP tools.
    if let Some(name) = name.strip_prefix("mcp__") {
        return vec![match name.split_once("__") {
            Some((server, tool)) => format!("{server}_{tool}"),
            None => format!("{name}_*"),
        }];
    }
    let name = name.to_ascii_lowercase();
    let names: &[&str] = match name.as_str() {
        // An agent that may not edit may not patch either.
        "edit" | "multiedit" | "notebookedit" | "patch" => &["edit", "apply_patch"],
        "ls" => &["list"],
        "webfetch" => &["fetch"],
        "websearch" => &["web_search"],
        "todowrite" | "todoread" => &["plan"],
        "question" | "askuserquestion" => &["ask"],
        "bashoutput" => &["bash_output"],
        "killshell" | "killbash" => &["bash_kill"],
        _ => return vec![name],
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> (Vec<(String, bool)>, Vec<String>) {
        let mut found = ToolSwitches::read(&value);
        found.tools.sort();
        found.asks.sort();
        (found.tools, found.asks)
    }

    // R: T2
    #[test]
    fn switch_that_is_neither_true_nor_false_asks() {
        let given =
            json!({ "bash": "no", "webfetch": 0, "read": null, "Edit": "yes", "task": false });
        let (tools, asks) = read(given);
        assert_eq!(tools, [("task".to_owned(), false)]);
        assert_eq!(asks, ["bash", "edit", "edit", "read", "webfetch"]);
        // A tool that asks for nothing is off.
        assert_eq!(read(json!({ "plan": "no" })), (vec![("plan".to_owned(), false)], vec![]));
        let (_, asks) = read(json!({ "github_*": "no", "mcp__docs": [] }));
        assert_eq!(asks, ["docs_*", "github", "github", "github_*"]);
        let (_, asks) = read(json!({ "*": "no" }));
        assert!(asks.iter().any(|key| key == "*"));
    }

    #[test]
    fn list_is_all_there_is() {
        let only = |name: &str| vec![("*".to_owned(), false), (name.to_owned(), true)];
        assert_eq!(read(json!(["Bash(git *)"])), (only("bash"), vec![]));
        assert_eq!(read(json!("WebSearch,")), (only("web_search"), vec![]));
        assert_eq!(read(json!(5)), (vec![("*".to_owned(), false)], vec![]));
    }
}
