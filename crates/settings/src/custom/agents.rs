//! Custom agents: `agent` in a configuration, and Markdown files with front matter.

use std::collections::BTreeMap;
use std::path::Path;

use engine::permission::Decision;
use engine::permission::rules::{Rule, Source};
use engine::words::ModelId;
use engine::words::{Agent, Restrictions, Role};
use serde_json::{Map, Value};

use super::files::Found;
use super::tool_switches::ToolSwitches;
use crate::config::permission;

/// The longest description, in characters.
const LONGEST_DESCRIPTION: usize = 1000;

/// Claude Code's names of models, which stand for the first available model with that word in its name.
pub(crate) const ALIASES: [&str; 3] = ["opus", "sonnet", "haiku"];

/// Agents by name; the first definition of a name is used.
pub type Agents = BTreeMap<String, Agent>;

/// Reads `agent` of a configuration.
pub fn of_config(
    value: &Map<String, Value>,
    home: Option<&Path>,
    agents: &mut Agents,
    problems: &mut Vec<String>,
) {
    for (name, value) in value {
        if let Value::Object(members) = value {
            take(name, members, None, &format!("agent.{name}"), home, agents, problems);
        }
    }
}

/// Adds the agents of a project. They cannot replace a built-in agent or one of the user's, which are known by their names.
/// Their models are used only if the project is trusted.
pub fn add_project(
    theirs: Agents,
    is_trusted: bool,
    agents: &mut Agents,
    problems: &mut Vec<String>,
) {
    for (name, mut agent) in theirs {
        if agents.contains_key(&name) || engine::words::is_built_in(&name) {
            problems.push(format!("the project's agent `{name}` is ignored: the name is taken"));
            continue;
        }
        agent.model = agent.model.filter(|_| is_trusted);
        agents.insert(name, agent);
    }
}

/// Reads a Markdown file: the front matter has the settings, the text is the prompt.
pub fn of_file(file: &Found, home: Option<&Path>, agents: &mut Agents, problems: &mut Vec<String>) {
    let mut members = file.head.clone();
    // In Claude Code, agents are subagents.
    if file.is_claude {
        members.entry("mode").or_insert_with(|| "subagent".into());
    }
    let named = members.get("name").and_then(Value::as_str).filter(|_| file.is_claude);
    let name = named.unwrap_or(&file.name).to_owned();
    take(&name, &members, Some(&file.body), &file.shown, home, agents, problems);
}

fn take(
    name: &str,
    members: &Map<String, Value>,
    body: Option<&str>,
    at: &str,
    home: Option<&Path>,
    agents: &mut Agents,
    problems: &mut Vec<String>,
) {
    if !super::is_name(name) {
        problems.push(format!("`{at}`: an agent name may contain letters, digits, `-` and `_`"));
        return;
    }
    // What is neither true nor false is reported elsewhere.
    let is_off = members.get("disable").is_some_and(|value| *value != Value::Bool(false));
    if is_off || agents.contains_key(name) || agents.len() >= super::MOST {
        return;
    }
    let mut wrong = Vec::new();
    let agent = read(name, members, body, home, &mut wrong);
    problems.extend(wrong.iter().map(|problem| format!("`{at}` {problem}")));
    agents.insert(name.to_owned(), agent);
}

fn read(
    name: &str,
    members: &Map<String, Value>,
    body: Option<&str>,
    home: Option<&Path>,
    problems: &mut Vec<String>,
) -> Agent {
    let text = |key: &str| members.get(key).and_then(Value::as_str).map(str::trim);
    let description: String =
        text("description").unwrap_or_default().chars().take(LONGEST_DESCRIPTION).collect();
    let role = match text("mode") {
        Some("primary") => Role::Mode,
        Some("subagent") => Role::Helper,
        None | Some("all") => Role::Both,
        Some(_) => {
            problems.push("has an invalid `mode`: expected primary, subagent or all".to_owned());
            Role::Helper
        }
    };
    for key in ["temperature", "top_p"] {
        if members.contains_key(key) {
            problems.push(format!("sets `{key}`, which is not supported"));
        }
    }
    let model = match text("model") {
        None | Some("inherit" | "") => None,
        Some(model) if model.contains('/') || ALIASES.contains(&model) => Some(ModelId::new(model)),
        Some(model) => {
            problems.push(format!("has an invalid model `{model}`: expected `provider/model`"));
            None
        }
    };
    let mut wrong = Vec::new();
    let rules = members.get("permission").cloned();
    let rules = rules.map(|rules| permission::rules(rules, Source::Agent, home, &mut wrong));
    let switches = members.get("tools").map(ToolSwitches::read).unwrap_or_default();
    let asking = switches.asks.into_iter().map(|key| Rule {
        key,
        pattern: "*".to_owned(),
        decision: Decision::Ask,
        source: Source::Agent,
    });
    let rules = rules.into_iter().flatten().chain(asking).collect();
    problems.extend(wrong.iter().map(|problem| format!("has an invalid rule: {problem}")));
    let steps = members.get("steps").or_else(|| members.get("maxSteps")).and_then(Value::as_u64);
    let prompt = body.or_else(|| text("prompt")).map(str::trim).filter(|prompt| !prompt.is_empty());
    Agent {
        name: name.to_owned(),
        description,
        role,
        prompt: prompt.map(str::to_owned),
        model,
        restrictions: Restrictions { tools: switches.tools, rules },
        max_requests: steps
            .and_then(|steps| usize::try_from(steps).ok())
            .filter(|steps| *steps > 0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_one(value: Value) -> (Agent, Vec<String>) {
        let (mut agents, mut problems) = (Agents::new(), Vec::new());
        let map = json!({ "it": value });
        of_config(map.as_object().unwrap(), None, &mut agents, &mut problems);
        (agents.remove("it").unwrap(), problems)
    }

    // R: T2
    #[test]
    fn project_agent_replaces_no_other_and_gets_no_model_before_trust() {
        let agents = |names: &[&str]| -> Agents {
            let value =
                |name: &&str| ((*name).to_owned(), json!({ "prompt": "Go.", "model": "a/b" }));
            let (mut agents, mut problems) = (Agents::new(), Vec::new());
            of_config(&names.iter().map(value).collect(), None, &mut agents, &mut problems);
            agents
        };
        let (mut all, mut problems) = (agents(&["mine"]), Vec::new());
        let theirs = agents(&["mine", "explore", "build", "architect", "theirs"]);
        add_project(theirs, false, &mut all, &mut problems);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["mine", "theirs"]);
        assert_eq!((all["theirs"].model.is_some(), problems.len()), (false, 4));
    }

    #[test]
    fn agent_is_read_in_the_form_of_opencode() {
        let (agent, problems) = read_one(json!({
            "description": "Looks", "mode": "primary", "model": "a/b", "prompt": "Look.", "steps": 5,
            "tools": { "write": false, "edit": false }, "permission": { "bash": "deny" }, "temperature": 0.2,
        }));
        assert_eq!((agent.role, agent.max_requests), (Role::Mode, Some(5)));
        assert_eq!(agent.model, Some(ModelId::new("a/b")));
        assert!(
            !agent.restrictions.has_tool("write") && !agent.restrictions.has_tool("apply_patch")
        );
        assert!(agent.restrictions.has_tool("read"));
        assert_eq!(agent.restrictions.rules.len(), 1);
        assert_eq!(problems, ["`agent.it` sets `temperature`, which is not supported"]);
    }

    // R: T2
    #[test]
    fn unclear_switch_of_an_agent_asks() {
        let (agent, _) = read_one(json!({ "tools": { "bash": "nope", "write": false } }));
        assert!(agent.restrictions.has_tool("bash") && !agent.restrictions.has_tool("write"));
        let rule = &agent.restrictions.rules[0];
        assert_eq!((rule.key.as_str(), rule.decision), ("bash", Decision::Ask));
    }

    #[test]
    fn list_of_tools_excludes_all_others() {
        for tools in [json!(["Read", "Grep"]), json!("Read, Grep, Bash(git *)")] {
            let (agent, _) = read_one(json!({ "tools": tools }));
            assert!(agent.restrictions.has_tool("read") && !agent.restrictions.has_tool("write"));
        }
        let (agent, problems) = read_one(json!({ "mode": "boss", "model": "gpt" }));
        assert_eq!((agent.role, agent.model), (Role::Helper, None));
        assert_eq!(problems.len(), 2);
    }
}
