//! A project's own settings. Each file is read once, and trust is checked once, by [`Project::read`].
//!
//! Opening a project runs nothing of it. Its rules can only narrow what the user allows; what it could run, or would
//! allow, is a [`Part`], and inert until the user trusts the project.

use std::path::{Path, PathBuf};

use engine::permission::Decision;
use engine::permission::rules::{AskFloor, Rule, Source};
use engine::words::visible;
use serde_json::Value;

use crate::claude::{self, ClaudeSettings};
use crate::config::check::{Checked, check};
use crate::config::keys::{self, ProjectUse};
use crate::config::permission;
use crate::config::sources::unknown_restrictions;
use crate::custom::files::{self, Found, Sort};
use crate::custom::hooks::Hook;
use crate::custom::tool_switches::ToolSwitches;
use crate::custom::{Additions, template, unclear_hook, unclear_tool};
use crate::diagnostics::Diagnostics;
use crate::mcp_servers::McpServers;
use crate::trust::{self, Trust};
use crate::{Directories, ReadText, quote_all};

/// One part of a project that could run something, or allow something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is and where it is written.
    pub name: String,
    /// The literal command, or the text that holds it.
    pub runs: String,
}

/// The files that are read, in this order.
const FILES: [&str; 4] = ["purlin.json", "purlin.jsonc", "opencode.json", "opencode.jsonc"];
/// The files that are ours: hooks of other programs have another form, and mistakes in their files are not reported.
const OURS: [&str; 2] = ["purlin.json", "purlin.jsonc"];
/// The largest file that is read.
const LARGEST: u64 = 1024 * 1024;
/// The most patterns of instructions that are used.
const MOST_PATTERNS: usize = 32;

/// A project as it was when it was read.
#[derive(Debug)]
pub struct Project {
    directory: PathBuf,
    home: Option<PathBuf>,
    configs: Vec<ConfigFile>,
    agents: Vec<Found>,
    commands: Vec<Found>,
    parts: Vec<Part>,
    trust: Trust,
    /// What could not be read.
    problems: Vec<String>,
    /// What is asked for at least, because a file cannot be read.
    floors: Vec<AskFloor>,
    /// The settings of Claude Code, each with the name of its file.
    claude: Vec<(&'static str, ClaudeSettings)>,
    /// The content of `.mcp.json`.
    mcp_json: Value,
}

/// One configuration file.
#[derive(Debug)]
struct ConfigFile {
    name: &'static str,
    value: Value,
    /// The same, checked against the table of keys, if the file is ours.
    checked: Option<Checked>,
}

impl ConfigFile {
    fn is_ours(&self) -> bool {
        OURS.contains(&self.name)
    }
}

impl Project {
    /// Reads a project and checks whether the user trusts it.
    #[must_use]
    pub fn read(directory: &Path, directories: &Directories, reader: &dyn ReadText) -> Project {
        let mut problems = Vec::new();
        let mut floors = Vec::new();
        let configs = configs(directory, reader, &mut problems, &mut floors);
        let agents = files::of_project(directory, Sort::Agents, reader, &mut problems);
        let commands = files::of_project(directory, Sort::Commands, reader, &mut problems);
        let claude = claude_settings(directory, directories.home.as_deref(), reader);
        let mcp_json = mcp_json(directory, reader, &mut problems);
        let mut parts = parts_of(&configs, &commands, directories.home.as_deref());
        for (file, settings) in &claude {
            parts.extend(settings.parts.iter().map(|(key, runs)| Part {
                name: format!("`{key}` in {file}"),
                runs: runs.clone(),
            }));
        }
        if let Some(servers) = mcp_json.get("mcpServers") {
            list(&format!("`mcpServers` in {MCP_JSON}"), servers, &mut parts);
        }
        let trust = trust::check(directories.data.as_deref(), directory, &parts, reader);
        let (directory, home) = (directory.to_owned(), directories.home.clone());
        Project {
            directory,
            home,
            configs,
            agents,
            commands,
            parts,
            trust,
            problems,
            floors,
            claude,
            mcp_json,
        }
    }

    /// Returns the project's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns what it could run or would allow.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns whether the user trusts it.
    #[must_use]
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Tells whether the user trusts it.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.trust == Trust::Trusted
    }

    /// Returns the permission rules. Without trust, those that allow something are omitted, and the others can only restrict.
    #[must_use]
    pub fn rules(&self) -> Vec<Rule> {
        self.rules_and_problems().0
    }

    /// Returns what is asked for at least, because a file of the project that may restrict it cannot be read.
    pub fn floors(&self) -> impl Iterator<Item = &AskFloor> {
        self.floors.iter().chain(self.claude.iter().flat_map(|(_, settings)| &settings.floors))
    }

    /// Returns the hooks of Claude Code's settings.
    pub(crate) fn claude_hooks(&self) -> impl Iterator<Item = &Hook> {
        self.claude.iter().flat_map(|(_, settings)| &settings.hooks)
    }

    /// Returns the patterns of tools that sessions in this project do not have. A project cannot bring back what the user
    /// removed.
    pub fn removed_tools(&self) -> impl Iterator<Item = (String, bool)> {
        let given = self.configs.iter().filter_map(|file| file.value.get("tools"));
        given.flat_map(|value| ToolSwitches::read(value).tools).filter(|(_, has)| !has)
    }

    fn rules_and_problems(&self) -> (Vec<Rule>, Vec<String>) {
        let mut problems = Vec::new();
        let mut rules = Vec::new();
        let source = if self.is_trusted() { Source::TrustedProject } else { Source::Project };
        for ConfigFile { name, value, .. } in &self.configs {
            if let Some(value) = value.get("permission") {
                let mut wrong = Vec::new();
                let home = self.home.as_deref();
                rules.extend(permission::rules(value.clone(), source, home, &mut wrong));
                problems.extend(wrong.iter().map(|problem| format!("{name}: {problem}")));
            }
        }
        for (_, settings) in &self.claude {
            rules.extend(settings.rules.iter().map(|rule| Rule { source, ..rule.clone() }));
            problems.extend(settings.problems.iter().cloned());
        }
        rules.retain(|rule| self.is_trusted() || rule.decision != Decision::Allow);
        (rules, problems)
    }

    /// Returns the MCP servers, if the user trusts the project, and what is wrong with them.
    #[must_use]
    pub fn servers(&self) -> (McpServers, Vec<String>) {
        let (mut found, mut problems) = (McpServers::default(), Vec::new());
        for ConfigFile { name, value, .. } in self.configs.iter().filter(|_| self.is_trusted()) {
            let mut wrong = Vec::new();
            if let Some(value) = value.get("mcp") {
                found.extend(McpServers::read(value.clone(), &mut wrong));
            }
            problems.extend(wrong.iter().map(|problem| format!("{name}: {problem}")));
        }
        if self.is_trusted() {
            let mut wrong = Vec::new();
            found.extend(claude::of_project(&self.mcp_json, &mut wrong));
            problems.extend(wrong.iter().map(|problem| format!("{MCP_JSON}: {problem}")));
        }
        let off = self.claude.iter().flat_map(|(_, settings)| &settings.disabled);
        found.disabled.extend(off.cloned());
        // These two are for the user to set, in the user's own file.
        for server in &mut found.servers {
            (server.is_shared, server.is_unsandboxed) = (false, false);
        }
        (found, problems)
    }

    /// Returns the checkers and language servers, if the user trusts the project.
    #[must_use]
    pub fn diagnostics(&self) -> Diagnostics {
        let mut found = Diagnostics::default();
        // What is wrong was reported when the file was checked.
        for file in self.configs.iter().filter(|file| self.is_trusted() && file.is_ours()) {
            found.read_check(&file.value["check"], true);
            found.read_lsp(&file.value["lsp"], true, &mut Vec::new());
        }
        found
    }

    /// Returns the patterns of instruction files, which name files inside the project only.
    #[must_use]
    pub fn instructions(&self) -> Vec<String> {
        let named =
            self.configs.iter().filter_map(|file| file.value.get("instructions")?.as_array());
        let named = named.flatten().filter_map(Value::as_str);
        named
            .filter(|path| !path.starts_with(['/', '~']))
            .map(str::to_owned)
            .take(MOST_PATTERNS)
            .collect()
    }

    /// Returns the agents, commands and hooks of the configuration files.
    pub(crate) fn additions(&self) -> impl Iterator<Item = Additions> {
        let members = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_object).cloned().unwrap_or_default()
        };
        self.configs.iter().map(move |ConfigFile { name, value, .. }| Additions {
            agent: members(value, "agent"),
            command: members(value, "command"),
            hooks: value.get("hooks").filter(|_| OURS.contains(name)).cloned().unwrap_or_default(),
        })
    }

    /// Returns the Markdown files that describe agents.
    pub(crate) fn agents(&self) -> &[Found] {
        &self.agents
    }

    /// Returns the Markdown files that describe commands.
    pub(crate) fn commands(&self) -> &[Found] {
        &self.commands
    }

    /// Returns the configuration files that are ours, each with its name.
    pub fn checked(&self) -> impl Iterator<Item = (&'static str, &Checked)> {
        self.configs.iter().filter_map(|file| Some((file.name, file.checked.as_ref()?)))
    }

    /// Lists what cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> &[String] {
        &self.problems
    }

    /// Lists what cannot be read, what is wrong, and what a project may not set.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.problems.clone();
        problems.extend(self.rules_and_problems().1);
        for (name, checked) in self.checked() {
            let wrong = checked.problems.iter();
            problems.extend(wrong.map(|(line, problem)| format!("{name}:{line}: {problem}")));
            for key in checked.value.keys() {
                let line = checked.lines.get(key).copied().unwrap_or(1);
                if let Some(ProjectUse::Never(why)) = keys::find(key).map(|top| top.project) {
                    problems
                        .push(format!("{name}:{line}: `{key}` cannot be set by a project: {why}"));
                }
            }
        }
        problems
    }

    /// Lists what users should know when a session opens: problems, and what waits for trust.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let mut notices: Vec<String> =
            self.problems().iter().map(|problem| visible(problem)).collect();
        if let Trust::Not(why) = &self.trust {
            notices.push(self.inert(why));
        }
        notices
    }

    /// Says what is not used and how to use it.
    fn inert(&self, why: &str) -> String {
        let shown = self.parts.iter().take(5);
        let mut names: Vec<String> = shown.map(|part| visible(&part.name)).collect();
        if self.parts.len() > names.len() {
            names.push(format!("{} more", self.parts.len() - names.len()));
        }
        let directory = visible(&self.directory.to_string_lossy());
        format!(
            "{}: {why}. To review and trust it, run `purlin trust {directory}`.",
            names.join(", ")
        )
    }
}

fn configs(
    directory: &Path,
    reader: &dyn ReadText,
    problems: &mut Vec<String>,
    floors: &mut Vec<AskFloor>,
) -> Vec<ConfigFile> {
    let mut found = Vec::new();
    for name in FILES {
        let mut fail_closed = |why: &str| {
            problems.push(format!("{name}: {why}"));
            floors.push(AskFloor::everything(unknown_restrictions(&format!(
                "This project's {name}"
            ))));
        };
        let text = match reader.read_text(&directory.join(name), LARGEST) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(why) => {
                fail_closed(&why);
                continue;
            }
        };
        let checked = check(&text);
        if checked.is_broken {
            let (line, why) = checked.problems.first().cloned().unwrap_or_default();
            fail_closed(&format!("line {line}: {why}"));
        }
        if !OURS.contains(&name) {
            let unclear = checked.unclear.iter();
            problems.extend(unclear.map(|(line, problem)| format!("{name}:{line}: {problem}")));
        }
        if checked.has_unclear_hooks && OURS.contains(&name) {
            floors.push(unclear_hook(&format!("This project's {name}")));
        }
        let checked = Some(checked).filter(|_| OURS.contains(&name));
        let options = jsonc_parser::ParseOptions::default();
        let value = jsonc_parser::parse_to_serde_value::<Value>(&text, &options);
        let value = value.unwrap_or_default();
        let switches = value.get("tools").map(ToolSwitches::read).unwrap_or_default();
        let place = format!("This project's {name}");
        floors.extend(switches.asks.into_iter().map(|key| unclear_tool(&place, key)));
        found.push(ConfigFile { name, value, checked });
    }
    found
}

/// The file of a project with MCP servers for Claude Code and others.
const MCP_JSON: &str = ".mcp.json";

fn claude_settings(
    directory: &Path,
    home: Option<&Path>,
    reader: &dyn ReadText,
) -> Vec<(&'static str, ClaudeSettings)> {
    let read = |name: &'static str| match reader.read_text(&directory.join(name), LARGEST) {
        Ok(Some(text)) => Some((name, claude::read(&text, name, Source::Project, home))),
        Ok(None) => None,
        Err(why) => Some((name, claude::unreadable(name, &why))),
    };
    claude::IN_PROJECT.into_iter().filter_map(read).collect()
}

fn mcp_json(directory: &Path, reader: &dyn ReadText, problems: &mut Vec<String>) -> Value {
    let text = reader.read_text(&directory.join(MCP_JSON), LARGEST);
    let value = text.and_then(|text| match text {
        Some(text) => {
            serde_json::from_str(&text).map_err(|err| format!("line {}: invalid JSON", err.line()))
        }
        None => Ok(Value::Null),
    });
    value.unwrap_or_else(|why| {
        problems.push(format!("{MCP_JSON}: {why}"));
        Value::Null
    })
}

fn parts_of(configs: &[ConfigFile], commands: &[Found], home: Option<&Path>) -> Vec<Part> {
    let mut parts = Vec::new();
    for ConfigFile { name: file, value, .. } in configs {
        if let Some(value) = value.get("mcp") {
            list(&format!("`mcp` in {file}"), value, &mut parts);
        }
        for key in ["hooks", "check", "lsp"] {
            if let Some(value) = value.get(key).filter(|_| OURS.contains(file)) {
                list(&format!("`{key}` in {file}"), value, &mut parts);
            }
        }
        for (name, command) in value.get("command").and_then(Value::as_object).into_iter().flatten()
        {
            let template = command.get("template").and_then(Value::as_str).unwrap_or_default();
            if let Some(runs) = effects(command, template) {
                parts.push(Part { name: format!("`command` in {file}: {name}"), runs });
            }
        }
        if let Some(value) = value.get("permission") {
            let allowed = permission::rules(value.clone(), Source::Project, home, &mut Vec::new());
            for rule in allowed.iter().filter(|rule| rule.decision == Decision::Allow) {
                let name = format!("`permission` in {file}");
                parts.push(Part { name, runs: format!("allows {}: {}", rule.key, rule.pattern) });
            }
        }
    }
    for file in commands {
        if let Some(runs) = effects(&Value::Object(file.head.clone()), &file.body) {
            parts.push(Part { name: file.shown.clone(), runs });
        }
    }
    parts
}

/// Returns the effects of a slash command that need trust: the commands it runs, and the mode or model it switches to.
fn effects(head: &Value, template: &str) -> Option<String> {
    let setting = |key: &str| Some(format!("{key}: {}", head.get(key)?.as_str()?));
    let mut runs: Vec<String> = ["agent", "model"].into_iter().filter_map(setting).collect();
    runs.extend(head.get("allowed-tools").map(|tools| format!("runs without asking: {tools}")));
    for part in template::parse(template) {
        if let template::Part::Shell(command) = part {
            runs.push(command);
        }
    }
    (!runs.is_empty()).then(|| runs.join("\n"))
}

/// Lists a value: each member of an object is a part of its own.
fn list(name: &str, value: &Value, parts: &mut Vec<Part>) {
    let Value::Object(members) = value else {
        parts.push(Part { name: name.to_owned(), runs: value.to_string() });
        return;
    };
    for (member, value) in members {
        let runs = match value.get("command") {
            Some(Value::Array(words)) => {
                let line = quote_all(words.iter().filter_map(Value::as_str));
                format!("{line}\n{value}")
            }
            _ => value.to_string(),
        };
        parts.push(Part { name: format!("{name}: {member}"), runs });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskReader;

    #[test]
    fn parts_that_could_run_are_listed_and_rules_that_allow_need_trust() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().to_owned();
        std::fs::create_dir_all(directory.join(".purlin/command")).unwrap();
        std::fs::write(directory.join(".purlin/command/x.md"), "!`id`").unwrap();
        let text = r#"{ "mcp": { "x": { "type": "local", "command": ["node", "x y.js"] } },
            "permission": { "bash": { "*": "allow", "git push *": "deny" } }, "model": "a/b" }"#;
        std::fs::write(directory.join("opencode.json"), text).unwrap();
        let data = directory.join("data");
        let directories = Directories { data: Some(data), ..Directories::default() };
        let read = || Project::read(&directory, &directories, &DiskReader);
        let project = read();
        let names: Vec<&str> = project.parts().iter().map(|part| part.name.as_str()).collect();
        assert_eq!(
            names,
            ["`mcp` in opencode.json: x", "`permission` in opencode.json", ".purlin/command/x.md"]
        );
        assert!(project.parts()[0].runs.starts_with("node 'x y.js'\n"), "{:?}", project.parts());
        assert_eq!(project.problems(), [""; 0]);
        assert_eq!(project.rules().len(), 1);
        assert_eq!(project.rules()[0].decision, Decision::Reject);
        assert_eq!(project.servers().0, McpServers::default());
        trust::add(directories.data.as_ref().unwrap(), &directory, project.parts()).unwrap();
        assert_eq!(read().rules().len(), 2);
        assert_eq!(read().servers().0.servers.len(), 1);
    }

    // R: T2
    #[test]
    fn hook_that_is_not_understood_asks_and_is_reported_also_with_trust() {
        let guard = r#"{ "hooks": { "before_tool": "guard" } }"#;
        let of_claude = r#"{ "hooks": { "PreToolUse": "guard" } }"#;
        for (file, text) in [("purlin.json", guard), (".claude/settings.json", of_claude)] {
            let temporary = tempfile::tempdir().unwrap();
            let directory = temporary.path().to_owned();
            std::fs::create_dir(directory.join(".claude")).unwrap();
            std::fs::write(directory.join(file), text).unwrap();
            let data = directory.join("data");
            let directories = Directories { data: Some(data.clone()), ..Directories::default() };
            let check = |project: Project| {
                let asks: Vec<&str> = project.floors().map(|floor| floor.key.as_str()).collect();
                assert_eq!(asks, ["*"], "{file}");
                assert!(project.problems()[0].starts_with(file), "{:?}", project.problems());
            };
            let project = Project::read(&directory, &directories, &DiskReader);
            trust::add(&data, &directory, project.parts()).unwrap();
            check(project);
            let trusted = Project::read(&directory, &directories, &DiskReader);
            assert!(trusted.is_trusted(), "{file}");
            check(trusted);
        }
        let temporary = tempfile::tempdir().unwrap();
        // OpenCode's hooks have another form, and are not used.
        std::fs::write(temporary.path().join("opencode.json"), guard).unwrap();
        let project = Project::read(temporary.path(), &Directories::default(), &DiskReader);
        assert_eq!(project.floors().count(), 0);
    }
}
