//! Custom slash commands: `command` in a configuration, and Markdown files with front matter.

use engine::words::visible;
use engine::{commands::COMMANDS, words::SlashCommand};
use serde_json::{Map, Value};

use super::files::Found;
use super::template::{self, Part};

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
    take(&file.name, &file.head, file.body.trim_end(), author, &file.shown, commands, problems);
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
    if let Some(model) = model.as_ref().filter(|model| !model.contains('/')) {
        problems.push(format!("`{at}`: invalid model `{model}`: expected `provider/model`"));
    }
    let first_line = || template.lines().next().unwrap_or_default().chars().take(80).collect();
    commands.push(Command {
        name: name.to_owned(),
        description: text("description").unwrap_or_else(first_line),
        parts: template::parse(template),
        agent: setting("agent"),
        model: model.filter(|model| model.contains('/')),
        author,
    });
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
