//! Custom slash commands: `command` in a configuration, and Markdown files with front matter.

use engine::permission::Decision;
use engine::permission::rules::{Rule, Source};
use engine::words::visible;
use engine::{commands::COMMANDS, words::SlashCommand};
use serde_json::{Map, Value};

use super::agents::ALIASES;
use super::files::Found;
use super::template::{self, Part};
use crate::claude::rules::{self, Effect};

/// Who wrote a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The user.
    User,
    /// A project that the user trusts.
    Trusted,
    /// A project that is not trusted: its commands run nothing and change no setting.
    Stranger,
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Its name, without the slash.
    pub name: String,
    description: String,
    /// The template of the prompt.
    pub parts: Vec<Part>,
    /// The mode of its turn.
    pub agent: Option<String>,
    /// The model of its turn.
    pub model: Option<String>,
    /// Who wrote it.
    pub author: Author,
    /// What its turn may do without a question: `allowed-tools`, unless a stranger wrote it.
    pub grants: Vec<Rule>,
}

impl Command {
    /// Returns the entry for the client's list of commands.
    pub fn listed(&self) -> SlashCommand {
        SlashCommand {
            name: self.name.clone().into(),
            description: visible(&self.description).into(),
            hint: template::hint(&self.parts).map(Into::into),
        }
    }
}

/// Reads `command` of a configuration.
pub fn of_config(
    value: &Map<String, Value>,
    author: Author,
    commands: &mut Vec<Command>,
    problems: &mut Vec<String>,
) {
    for (name, value) in value {
        let at = format!("command.{name}");
        match (value.as_object(), value.get("template").and_then(Value::as_str)) {
            (Some(head), Some(template)) => {
                take(name, head, template, author, &at, commands, problems)
            }
            _ => problems.push(format!("`{at}` has no `template`")),
        }
    }
}

/// Reads a Markdown file: the front matter has the settings, the text is the template.
pub fn of_file(
    file: &Found,
    author: Author,
    commands: &mut Vec<Command>,
    problems: &mut Vec<String>,
) {
    let template = file.body.trim_end();
    let before = commands.len();
    take(&file.name, &file.head, template, author, &file.shown, commands, problems);
    // A nested command can also be called by its last name alone, if that is free.
    let short = file.name.rsplit_once(':').map(|(_, last)| last.to_owned());
    let aliases = match file.head.get("aliases") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(names)) => names.split(',').map(str::trim).collect(),
        _ => Vec::new(),
    };
    let aliases = aliases.into_iter().map(str::to_owned).chain(short);
    let Some(command) = commands.get(before).cloned() else { return };
    for name in aliases {
        let is_taken = commands.iter().any(|known| known.name == name)
            || COMMANDS.iter().any(|known| known.name == name);
        if !is_taken && super::is_name(&name) && commands.len() < super::MOST {
            commands.push(Command { name, ..command.clone() });
        }
    }
}

fn take(
    name: &str,
    head: &Map<String, Value>,
    template: &str,
    author: Author,
    at: &str,
    commands: &mut Vec<Command>,
    problems: &mut Vec<String>,
) {
    if !super::is_name(name) {
        problems.push(format!("`{at}`: a command name may contain letters, digits, `-` and `_`"));
        return;
    }
    if COMMANDS.iter().any(|known| known.name == name) {
        problems.push(format!("`{at}` is ignored: `/{name}` is a built-in command"));
        return;
    }
    // The first definition is used: the user's come before a project's.
    if commands.len() >= super::MOST || commands.iter().any(|known| known.name == name) {
        return;
    }
    let text = |key: &str| head.get(key).and_then(Value::as_str).map(|text| text.trim().to_owned());
    let setting = |key: &str| text(key).filter(|_| author != Author::Stranger);
    let model = setting("model").filter(|model| model != "inherit");
    let is_model = |model: &String| model.contains('/') || ALIASES.contains(&model.as_str());
    if let Some(model) = model.as_ref().filter(|model| !is_model(model)) {
        problems.push(format!("`{at}`: invalid model `{model}`: expected `provider/model`"));
    }
    let grants = match author {
        Author::User | Author::Trusted => grants(head.get("allowed-tools"), at, problems),
        Author::Stranger => Vec::new(),
    };
    let first_line = || template.lines().next().unwrap_or_default().chars().take(80).collect();
    commands.push(Command {
        name: name.to_owned(),
        description: text("description").unwrap_or_else(first_line),
        parts: template::parse(template),
        agent: setting("agent"),
        model: model.filter(is_model),
        author,
        grants,
    });
}

/// Reads `allowed-tools`, in Claude Code's form. Wrong or unsupported entries are reported: what they would allow asks.
fn grants(value: Option<&Value>, at: &str, problems: &mut Vec<String>) -> Vec<Rule> {
    let entries: Vec<String> = match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(Value::String(text)) => split_rules(text),
        Some(_) => {
            problems.push(format!("`{at}`: `allowed-tools` must be a list"));
            Vec::new()
        }
    };
    let mut grants = Vec::new();
    for entry in entries {
        match rules::translate(&entry, Effect::Allows, None) {
            Ok(targets) => grants.extend(targets.into_iter().map(|(key, pattern)| Rule {
                key,
                pattern,
                decision: Decision::Allow,
                source: Source::Command,
            })),
            Err(unclear) => problems
                .push(format!("`{at}`: `{entry}` in `allowed-tools` {}; it asks", unclear.why)),
        }
    }
    grants
}

/// Splits rules at commas and blanks outside of parentheses.
fn split_rules(text: &str) -> Vec<String> {
    let mut depth = 0;
    let parts = text.split(|letter: char| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth == 0 && (letter == ',' || letter.is_whitespace())
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn first_command_of_a_name_is_used_and_builtin_commands_cannot_be_replaced() {
        let (mut commands, mut problems) = (Vec::new(), Vec::new());
        let mine = json!({
            "fix": { "template": "Fix $1", "description": "Fixes", "agent": "build", "model": "a/b" },
            "help": { "template": "x" },
            "empty": {},
            "bad name": { "template": "x" },
        });
        of_config(mine.as_object().unwrap(), Author::User, &mut commands, &mut problems);
        let theirs = json!({
            "fix": { "template": "Other" }, "look": { "template": "Look\nclosely", "agent": "build" },
        });
        of_config(theirs.as_object().unwrap(), Author::Stranger, &mut commands, &mut problems);
        let names: Vec<&str> = commands.iter().map(|command| command.name.as_str()).collect();
        assert_eq!(names, ["fix", "look"]);
        assert_eq!(commands[0].agent.as_deref(), Some("build"));
        assert_eq!(commands[0].listed().hint.as_deref(), Some("<1>"));
        assert_eq!(commands[1].agent, None);
        assert_eq!(commands[1].listed().description, "Look");
        assert_eq!(problems.len(), 3);
    }
}
