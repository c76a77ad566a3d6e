//! Slash commands: what a prompt that starts with `/` may name, answered without a model.

use std::borrow::Cow;

use crate::ports::Tools;
use crate::turn::prompt_commands;
use crate::turn::session::Settings;
use crate::words::modes::Mode;
use crate::words::nearest::{distance, nearest};
use crate::words::{Block, ModelId, Prompt};

/// A command as clients list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlashCommand {
    /// Its name, without the slash.
    pub name: Cow<'static, str>,
    /// What it does.
    pub description: Cow<'static, str>,
    /// What may stand behind it.
    pub hint: Option<Cow<'static, str>>,
}

impl SlashCommand {
    const fn new(
        name: &'static str,
        description: &'static str,
        hint: Option<&'static str>,
    ) -> SlashCommand {
        let hint = match hint {
            Some(hint) => Some(Cow::Borrowed(hint)),
            None => None,
        };
        SlashCommand { name: Cow::Borrowed(name), description: Cow::Borrowed(description), hint }
    }
}

/// Every command of our own; a session's tools may bring more.
pub static COMMANDS: [SlashCommand; 13] = [
    SlashCommand::new("help", "List commands, modes and models", None),
    SlashCommand::new("mode", "Show or change the mode", Some("build, plan or ask")),
    SlashCommand::new("model", "Show or change the model", Some("a model id")),
    SlashCommand::new("compact", "Sum up the conversation to make room", Some("what matters most")),
    SlashCommand::new("context", "Show what the model sees, and how full its window is", None),
    SlashCommand::new("cost", "Show what this session has used and cost", None),
    SlashCommand::new("continue", "Go on with a turn that was interrupted", None),
    SlashCommand::new(
        "init",
        "Look at the project and write AGENTS.md",
        Some("what it should say besides"),
    ),
    SlashCommand::new(
        "review",
        "Review changes: those that are not committed, or what you name",
        Some("a commit, a branch, files"),
    ),
    SlashCommand::new(
        "undo",
        "Take back the last message: the files it changed and the conversation",
        None,
    ),
    SlashCommand::new("redo", "Bring back what was taken back", None),
    SlashCommand::new("permissions", "Say what is allowed here, and why", None),
    SlashCommand::new(
        "rewind",
        "Take back a message and all behind it, or list the messages",
        Some("the number of a message"),
    ),
];

/// Returns our own commands and those that come with the tools.
#[must_use]
pub fn all(tools: &dyn Tools) -> Vec<SlashCommand> {
    COMMANDS.iter().cloned().chain(tools.commands()).collect()
}

/// What a prompt asks of us instead of the model.
#[derive(Debug, PartialEq)]
pub enum Asked {
    /// Say this.
    Say(String),
    /// Ask the model again, with nothing new from the user.
    Continue,
    /// Sum up the conversation; what matters most, if anything was said of it.
    Compact(String),
    /// Show what the model sees.
    Context,
    /// Show what was used.
    Cost,
    /// Take back the last turn.
    Undo,
    /// Bring back a turn that was taken back.
    Redo,
    /// Take back the turn of this message and all behind it; list them if there is no number.
    Rewind(Option<usize>),
    /// Say what is allowed here.
    Permissions,
    /// Change the mode.
    SetMode(Mode),
    /// Change the model.
    SetModel(ModelId),
}

/// Reads a prompt as a command. `None` means that it is for the model: a path or a sentence may start with `/`.
#[must_use]
pub fn parse(prompt: &Prompt, settings: &Settings, more: &[SlashCommand]) -> Option<Asked> {
    let (name, rest) = words(prompt)?;
    match name {
        "help" => Some(Asked::Say(help(settings, more))),
        "continue" if rest.is_empty() => Some(Asked::Continue),
        "compact" => Some(Asked::Compact(rest.to_owned())),
        "context" if rest.is_empty() => Some(Asked::Context),
        "cost" if rest.is_empty() => Some(Asked::Cost),
        "undo" if rest.is_empty() => Some(Asked::Undo),
        "redo" if rest.is_empty() => Some(Asked::Redo),
        "permissions" if rest.is_empty() => Some(Asked::Permissions),
        "rewind" if rest.is_empty() => Some(Asked::Rewind(None)),
        "rewind" => Some(match rest.parse() {
            Ok(number) => Asked::Rewind(Some(number)),
            Err(_) => Asked::Say(format!("`{rest}` is not the number of a message.")),
        }),
        "mode" if rest.is_empty() => {
            let modes = settings.modes.iter().map(|mode| (&*mode.id, &*mode.description));
            Some(Asked::Say(format!(
                "The mode is `{}`.\n\n{}",
                settings.mode,
                choices(modes, settings.mode.as_str())
            )))
        }
        "mode" => Some(match settings.find_mode(rest) {
            Some(mode) => Asked::SetMode(mode.clone()),
            None => Asked::Say(format!(
                "There is no mode `{rest}`. There are {}.",
                list(settings.modes.iter().map(|mode| &*mode.id), "")
            )),
        }),
        "model" if rest.is_empty() => {
            let models = settings.models.iter().map(|model| (model.id.as_str(), &*model.name));
            Some(Asked::Say(format!(
                "The model is `{}`.\n\n{}",
                settings.model,
                choices(models, settings.model.as_str())
            )))
        }
        "model" => Some(match settings.models.iter().find(|choice| choice.id.as_str() == rest) {
            Some(choice) => Asked::SetModel(choice.id.clone()),
            None => Asked::Say(no_model(rest, settings)),
        }),
        _ => None,
    }
}

/// Reads a prompt as a command that is work for the model, and returns what the model is told.
#[must_use]
pub fn work(prompt: &Prompt, settings: &Settings) -> Option<Prompt> {
    let (name, rest) = words(prompt)?;
    let text = prompt_commands::expand(name, rest, settings.mode())?;
    // What else was sent, such as files, stays with it.
    let mut work = prompt.clone();
    work.blocks[0] = Block::Text(text);
    Some(work)
}

/// Returns the name of a command and what stands behind it.
fn words(prompt: &Prompt) -> Option<(&str, &str)> {
    let line = prompt.blocks.first()?.as_text()?.trim().strip_prefix('/')?;
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    Some((name, rest.trim()))
}

/// Says that there is no such command, if a prompt looks like one that nobody knows. A path and a sentence do not: they
/// are for the model.
#[must_use]
pub fn unknown(prompt: &Prompt, more: &[SlashCommand]) -> Option<String> {
    let text = prompt.blocks.first()?.as_text()?.trim();
    let line = text.strip_prefix('/')?;
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_:".contains(c);
    if word.is_empty() || word.len() > 64 || !word.chars().all(is_word) {
        return None;
    }
    let known: Vec<&str> = COMMANDS.iter().chain(more).map(|command| &*command.name).collect();
    if known.contains(&word) {
        return None;
    }
    let small = word.to_ascii_lowercase();
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|name| (how_far(&small, &name.to_ascii_lowercase()), *name))
        .filter(|(far, _)| *far <= 2)
        .collect();
    near.sort_unstable();
    near.truncate(3);
    // A sentence is for the model, unless a slip of the finger made one of a command.
    if is_sentence(rest) && near.first().is_none_or(|(far, _)| *far > 1) {
        return None;
    }
    let hint = match near.is_empty() {
        true => "`/help` lists those there are.".to_owned(),
        false => format!("Did you mean {}?", list(near.iter().map(|(_, name)| *name), "/")),
    };
    Some(format!("{} {hint} To say it to the model, put a word in front.", no_such(word)))
}

/// Says that there is no such command: how [`unknown`] begins.
#[must_use]
pub fn no_such(name: &str) -> String {
    format!("There is no command `/{name}`.")
}

/// Returns the name of the command that a text may be.
#[must_use]
pub fn name(text: &str) -> Option<&str> {
    text.trim().strip_prefix('/')?.split_whitespace().next()
}

/// Tells whether what stands behind a word makes a sentence of it, rather than being one argument.
fn is_sentence(rest: &str) -> bool {
    rest.split_whitespace().nth(1).is_some() || rest.trim_end().ends_with(['.', '?', '!', ','])
}

/// How far a word is from a name; the beginning of a name is near.
fn how_far(word: &str, name: &str) -> usize {
    match word.len() >= 3 && name.starts_with(word) {
        true => 1,
        false => distance(word, name),
    }
}

fn help(settings: &Settings, more: &[SlashCommand]) -> String {
    let mut text = String::from("Commands:\n");
    for command in COMMANDS.iter().chain(more) {
        text.push_str(&format!("- `/{}`: {}\n", command.name, command.description));
    }
    text.push_str("\nModes:\n");
    for mode in settings.modes.iter() {
        text.push_str(&format!("- `{}`: {}\n", mode.id, mode.description));
    }
    text.push_str("\nModels:\n");
    for choice in settings.models.iter() {
        text.push_str(&format!("- `{}`: {}\n", choice.id, choice.name));
    }
    text
}

/// How many models are named where none was meant exactly. There may be hundreds.
const NEAR: usize = 5;

fn no_model(wanted: &str, settings: &Settings) -> String {
    let ids = || settings.models.iter().map(|choice| choice.id.as_str());
    let small = wanted.to_ascii_lowercase();
    let mut near: Vec<&str> =
        ids().filter(|id| id.to_ascii_lowercase().contains(&small)).take(NEAR).collect();
    if near.is_empty() {
        near.extend(nearest(wanted, ids()));
    }
    let hint = match near.is_empty() {
        true => "`/model` lists those there are.".to_owned(),
        false => format!("Did you mean {}?", list(near.into_iter(), "")),
    };
    format!("There is no model `{wanted}`. {hint}")
}

/// Lists ids and what they are; the one in use is marked.
fn choices<'a>(all: impl Iterator<Item = (&'a str, &'a str)>, now: &str) -> String {
    all.map(|(id, what)| match id == now {
        true => format!("- **`{id}`: {what}** (in use)\n"),
        false => format!("- `{id}`: {what}\n"),
    })
    .collect()
}

fn list<'a>(ids: impl Iterator<Item = &'a str>, sign: &str) -> String {
    let quoted: Vec<String> = ids.map(|id| format!("`{sign}{id}`")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Option<Asked> {
        parse(&Prompt::from(vec![Block::Text(text.into())]), &Settings::for_tests(), &[])
    }

    #[test]
    fn commands_are_told_from_text() {
        assert!(matches!(ask("/help"), Some(Asked::Say(text)) if text.contains("`/mode`")));
        assert!(matches!(ask("/mode architect"), Some(Asked::SetMode(mode)) if mode.id == "plan"));
        assert!(
            matches!(ask("/mode nonsense"), Some(Asked::Say(text)) if text.contains("no mode `nonsense`"))
        );
        let Some(Asked::Say(modes)) = ask("/mode") else { panic!("/mode says what there is") };
        assert!(modes.contains("\n- **`build`: ") && modes.contains("\n- `plan`: "), "{modes}");
        assert!(matches!(ask("/model"), Some(Asked::Say(text)) if text.contains("(in use)")));
        let Settings { model, .. } = Settings::for_tests();
        let (part, slip) = (&model.as_str()[1..], format!("{model}x"));
        for wanted in [part, &slip] {
            let Some(Asked::Say(text)) = ask(&format!("/model {wanted}")) else {
                panic!("{wanted}")
            };
            assert!(text.ends_with(&format!("Did you mean `{model}`?")), "{text}");
        }
        let Some(Asked::Say(text)) = ask("/model nothing/like-it") else { panic!("no model") };
        assert!(text.ends_with("`/model` lists those there are."), "{text}");
        assert_eq!(ask("/rewind 3"), Some(Asked::Rewind(Some(3))));
        assert_eq!(ask("/undo what you did"), None);
        assert_eq!(ask("/usr/bin/env is a path"), None);
        assert_eq!(ask("help"), None);
        assert_eq!(ask("/permissions"), Some(Asked::Permissions));
    }

    // R: P5
    #[test]
    fn a_word_that_nobody_knows_is_told_from_a_path_and_a_sentence() {
        let said = |text: &str| unknown(&Prompt::from(vec![Block::Text(text.into())]), &[]);
        let hint = |text: &str| said(text).unwrap_or_else(|| panic!("{text} is for the model"));
        assert!(hint("/modle").contains("`/mode`, `/model`"), "{}", hint("/modle"));
        assert!(hint("/perm").contains("`/permissions`"), "{}", hint("/perm"));
        assert!(hint("/undp the last one").contains("`/undo`"));
        assert!(hint("/frobnicate").contains("`/help` lists"));
        assert!(hint("/HELP").contains("Did you mean `/help`?"), "{}", hint("/HELP"));
        assert!(hint("/Modle x/y").contains("`/mode`, `/model`"), "{}", hint("/Modle x/y"));
        assert!(hint("/MODEL gpt of any kind").contains("`/model`"));
        assert!(hint("/UNKNOWN x").contains("no command `/UNKNOWN`. `/help` lists"));
        for text in [
            "/usr/bin",
            "/etc/passwd is a file",
            "/tmp fills up, why?",
            "/tmp full?",
            "/UNKNOWN words are said",
            "/",
            "no",
            "/help me",
            "/a.rs",
        ] {
            assert_eq!(said(text), None, "{text}");
        }
    }

    #[test]
    fn some_commands_are_work_for_the_model() {
        let told = |text: &str| {
            let prompt = Prompt::from(vec![Block::Text(text.into()), Block::Text("more".into())]);
            work(&prompt, &Settings::for_tests()).map(|work| work.text())
        };
        let review = told(" /review the parser ").unwrap();
        assert!(review.starts_with("Review the parser. "), "{review}");
        assert!(review.ends_with("\nmore"), "{review}");
        assert!(told("/init").is_some());
        assert_eq!(told("/initial thoughts"), None);
        assert_eq!(told("/help"), None);
    }
}
