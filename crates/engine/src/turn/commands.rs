//! Built-in slash commands: what a prompt that starts with `/` can name.

use super::prompt_commands;
use super::resume::no_session;
use crate::ports::Settings;
use crate::words::{Block, Mode, ModelId, Prompt, SlashCommand, distance, nearest};

/// The built-in commands. Extensions of a session may add more.
pub static COMMANDS: [SlashCommand; 16] = [
    SlashCommand::new("help", "List commands, modes and models", None),
    SlashCommand::new("mode", "Show or change the mode", Some("build, plan or ask")),
    SlashCommand::new("model", "Show or change the model", Some("a model id")),
    SlashCommand::new(
        "compact",
        "Replace the older conversation with a summary",
        Some("what to focus on"),
    ),
    SlashCommand::new(
        "context",
        "Show what the model sees and how full its context window is",
        None,
    ),
    SlashCommand::new("cost", "Show tokens used and cost of this session", None),
    SlashCommand::new("continue", "Resume an interrupted turn", None),
    SlashCommand::new(
        "init",
        "Look at the project and write AGENTS.md",
        Some("what else it should cover"),
    ),
    SlashCommand::new(
        "review",
        "Review uncommitted changes, or what you name",
        Some("a commit, a branch, files"),
    ),
    SlashCommand::new("undo", "Undo the last message: its file changes and the conversation", None),
    SlashCommand::new("redo", "Redo what was undone", None),
    SlashCommand::new("clear", "Start over: the model no longer sees the messages above", None),
    SlashCommand::new("new", "The same as /clear", None),
    SlashCommand::new(
        "resume",
        "Continue the conversation of an earlier session here, or list the sessions",
        Some("the number of a session"),
    ),
    SlashCommand::new("permissions", "Show the permission rules of this session", None),
    SlashCommand::new(
        "rewind",
        "Undo a message and all after it, or list the messages",
        Some("the number of a message"),
    ),
];

/// What a built-in command does.
#[derive(Debug, PartialEq)]
pub enum Builtin {
    /// Answer with this text.
    Say(String),
    /// Ask the model again, without a new message.
    Continue,
    /// Compact the conversation, perhaps with a focus.
    Compact(String),
    /// Show what the model sees.
    Context,
    /// Show what the session has used.
    Cost,
    /// Undo the last turn.
    Undo,
    /// Redo a turn.
    Redo,
    /// Undo the turn of this message and all after it; without a number, list the messages.
    Rewind(Option<usize>),
    /// Drop the conversation so far from what the model sees.
    Clear {
        /// Whether the user asked for a new session.
        is_new: bool,
    },
    /// Continue the conversation of the session with this number or id; without one, list the sessions.
    Resume(Option<String>),
    /// Show the permission rules.
    Permissions,
    /// Change the mode.
    SetMode(Mode),
    /// Change the model.
    SetModel(ModelId),
}

/// Reads a prompt as a built-in command. `None` means that it is something else: a path or a sentence may start with `/`.
/// `known` are all commands of the session.
#[must_use]
pub fn parse(prompt: &Prompt, settings: &Settings, known: &[SlashCommand]) -> Option<Builtin> {
    let (name, rest) = prompt.slash_command()?;
    match name {
        "help" => Some(Builtin::Say(help(settings, known))),
        "continue" if rest.is_empty() => Some(Builtin::Continue),
        "compact" => Some(Builtin::Compact(rest.to_owned())),
        "context" if rest.is_empty() => Some(Builtin::Context),
        "cost" if rest.is_empty() => Some(Builtin::Cost),
        "undo" if rest.is_empty() => Some(Builtin::Undo),
        "redo" if rest.is_empty() => Some(Builtin::Redo),
        "permissions" if rest.is_empty() => Some(Builtin::Permissions),
        "clear" | "new" if rest.is_empty() => Some(Builtin::Clear { is_new: name == "new" }),
        "resume" if rest.is_empty() => Some(Builtin::Resume(None)),
        "resume" if !rest.contains(char::is_whitespace) => {
            Some(Builtin::Resume(Some(rest.to_owned())))
        }
        "rewind" if rest.is_empty() => Some(Builtin::Rewind(None)),
        "rewind" => Some(match rest.parse() {
            Ok(number) => Builtin::Rewind(Some(number)),
            Err(_) => Builtin::Say(format!("{} `/rewind` lists the messages.", no_number(rest))),
        }),
        "mode" if rest.is_empty() => {
            let modes = settings.modes.iter().map(|mode| (&*mode.id, &*mode.description));
            Some(Builtin::Say(format!(
                "The mode is `{}`.\n\n{}",
                settings.mode,
                choices(modes, settings.mode.as_str())
            )))
        }
        "mode" => Some(match settings.find_mode(rest) {
            Some(mode) => Builtin::SetMode(mode.clone()),
            None => Builtin::Say(format!(
                "{} The modes are {}.",
                no_mode(rest),
                list(settings.modes.iter().map(|mode| &*mode.id), "")
            )),
        }),
        "model" if rest.is_empty() => {
            let models = settings.models.iter().map(|model| (model.id.as_str(), &*model.name));
            Some(Builtin::Say(format!(
                "The model is `{}`.\n\n{}",
                settings.model,
                choices(models, settings.model.as_str())
            )))
        }
        "model" => Some(match settings.models.iter().find(|choice| choice.id.as_str() == rest) {
            Some(choice) => Builtin::SetModel(choice.id.clone()),
            None => Builtin::Say(no_model(rest, settings)),
        }),
        _ => None,
    }
}

/// Reads a prompt as a command that the model carries out, and returns the prompt for the model.
#[must_use]
pub(crate) fn for_model(prompt: &Prompt, settings: &Settings) -> Option<Prompt> {
    let (name, rest) = prompt.slash_command()?;
    let text = prompt_commands::expand(name, rest, settings.mode())?;
    // Everything else that was sent, such as files, stays with it.
    let mut expanded = prompt.clone();
    expanded.blocks[0] = Block::Text(text);
    Some(expanded)
}

/// Explains that a command is unknown, if a prompt looks like one. Paths and sentences do not: they are for the model.
#[must_use]
pub fn unknown(prompt: &Prompt, commands: &[SlashCommand]) -> Option<String> {
    let (word, rest) = prompt.slash_command()?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_:".contains(c);
    if word.is_empty() || word.len() > 64 || !word.chars().all(is_word) {
        return None;
    }
    let known: Vec<&str> = commands.iter().map(|command| &*command.name).collect();
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
    // A sentence is for the model, unless its first word is almost a command.
    if is_sentence(rest) && near.first().is_none_or(|(far, _)| *far > 1) {
        return None;
    }
    let hint = match near.is_empty() {
        true => "`/help` lists the commands.".to_owned(),
        false => format!("Did you mean {}?", list(near.iter().map(|(_, name)| *name), "/")),
    };
    Some(format!("{} {hint} To send this as a message, do not start it with `/`.", no_such(word)))
}

/// Tells whether an answer says that the command in `text` is unknown or has an invalid argument.
#[must_use]
pub fn is_refusal(text: &str, answer: &str) -> bool {
    let Some((name, rest)) = SlashCommand::split(text) else { return false };
    let starts = [
        no_such(name),
        no_number(rest),
        no_message(rest),
        no_mode(rest),
        no_such_model(rest),
        no_session(rest),
    ];
    starts.iter().any(|start| answer.starts_with(start))
}

fn no_such(name: &str) -> String {
    format!("Unknown command `/{name}`.")
}

fn no_number(word: &str) -> String {
    format!("`{word}` is not a message number.")
}

/// Says that no message has this number.
pub(crate) fn no_message(number: impl std::fmt::Display) -> String {
    format!("Message {number} not found.")
}

fn no_mode(name: &str) -> String {
    format!("Unknown mode `{name}`.")
}

fn no_such_model(id: &str) -> String {
    format!("Unknown model `{id}`.")
}

/// Tells whether the words after a command make a sentence rather than one argument.
fn is_sentence(rest: &str) -> bool {
    rest.split_whitespace().nth(1).is_some() || rest.ends_with(['.', '?', '!', ','])
}

/// Returns how far a word is from a name. The beginning of a name is close.
fn how_far(word: &str, name: &str) -> usize {
    match word.len() >= 3 && name.starts_with(word) {
        true => 1,
        false => distance(word, name),
    }
}

fn help(settings: &Settings, commands: &[SlashCommand]) -> String {
    let mut text = String::from("Commands:\n");
    for command in commands {
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

/// How many similar models are suggested. There may be hundreds.
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
        true => "`/model` lists the models.".to_owned(),
        false => format!("Did you mean {}?", list(near.into_iter(), "")),
    };
    format!("{} {hint}", no_such_model(wanted))
}

/// Lists ids with descriptions; the one in use is marked.
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

    fn ask(text: &str) -> Option<Builtin> {
        parse(&Prompt::from(vec![Block::Text(text.into())]), &Settings::for_tests(), &COMMANDS)
    }

    #[test]
    fn commands_are_distinguished_from_text() {
        assert!(matches!(ask("/help"), Some(Builtin::Say(text)) if text.contains("`/mode`")));
        assert!(
            matches!(ask("/mode architect"), Some(Builtin::SetMode(mode)) if mode.id == "plan")
        );
        assert!(
            matches!(ask("/mode nonsense"), Some(Builtin::Say(text)) if text.contains("Unknown mode `nonsense`"))
        );
        let Some(Builtin::Say(modes)) = ask("/mode") else { panic!("/mode lists the modes") };
        assert!(modes.contains("\n- **`build`: ") && modes.contains("\n- `plan`: "), "{modes}");
        assert!(matches!(ask("/model"), Some(Builtin::Say(text)) if text.contains("(in use)")));
        let Settings { model, .. } = Settings::for_tests();
        let (part, slip) = (&model.as_str()[1..], format!("{model}x"));
        for wanted in [part, &slip] {
            let Some(Builtin::Say(text)) = ask(&format!("/model {wanted}")) else {
                panic!("{wanted}")
            };
            assert!(text.ends_with(&format!("Did you mean `{model}`?")), "{text}");
        }
        let Some(Builtin::Say(text)) = ask("/model nothing/like-it") else { panic!("no model") };
        assert!(text.ends_with("`/model` lists the models."), "{text}");
        assert_eq!(ask("/rewind 3"), Some(Builtin::Rewind(Some(3))));
        assert_eq!(ask("/undo what you did"), None);
        assert_eq!(ask("/usr/bin/env is a path"), None);
        assert_eq!(ask("help"), None);
        assert_eq!(ask("/permissions"), Some(Builtin::Permissions));
        assert_eq!(ask("/clear"), Some(Builtin::Clear { is_new: false }));
        assert_eq!(ask("/new"), Some(Builtin::Clear { is_new: true }));
        assert_eq!(ask("/resume 2"), Some(Builtin::Resume(Some("2".to_owned()))));
        assert_eq!(ask("/resume the work on the parser"), None);
    }

    // R: P5
    #[test]
    fn unknown_command_is_distinguished_from_a_path_and_a_sentence() {
        let said = |text: &str| unknown(&Prompt::from(vec![Block::Text(text.into())]), &COMMANDS);
        let hint = |text: &str| said(text).unwrap_or_else(|| panic!("{text} is for the model"));
        assert!(hint("/modle").contains("`/mode`, `/model`"), "{}", hint("/modle"));
        assert!(hint("/perm").contains("`/permissions`"), "{}", hint("/perm"));
        assert!(hint("/undp the last one").contains("`/undo`"));
        assert!(hint("/frobnicate").contains("`/help` lists"));
        assert!(hint("/HELP").contains("Did you mean `/help`?"), "{}", hint("/HELP"));
        assert!(hint("/Modle x/y").contains("`/mode`, `/model`"), "{}", hint("/Modle x/y"));
        assert!(hint("/MODEL gpt of any kind").contains("`/model`"));
        assert!(hint("/UNKNOWN x").contains("Unknown command `/UNKNOWN`. `/help` lists"));
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
    fn some_commands_become_prompts_for_the_model() {
        let prompt = |text: &str| {
            let prompt = Prompt::from(vec![Block::Text(text.into()), Block::Text("more".into())]);
            for_model(&prompt, &Settings::for_tests()).map(|prompt| prompt.text())
        };
        let review = prompt(" /review the parser ").unwrap();
        assert!(review.starts_with("Review the parser. "), "{review}");
        assert!(review.ends_with("\nmore"), "{review}");
        assert!(prompt("/init").is_some());
        assert_eq!(prompt("/initial thoughts"), None);
        assert_eq!(prompt("/help"), None);
    }
}
