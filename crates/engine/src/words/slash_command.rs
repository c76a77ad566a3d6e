//! A slash command as clients list it. The built-in ones are in `turn::commands`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A command as clients list it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlashCommand {
    /// Its name, without the slash.
    pub name: Cow<'static, str>,
    /// What it does.
    pub description: Cow<'static, str>,
    /// What argument it takes, for the input field.
    pub hint: Option<Cow<'static, str>>,
}

impl SlashCommand {
    /// Splits a text that starts with `/` into the name of a command and its arguments. Says nothing about whether such a
    /// command exists: a path starts with `/`, too.
    #[must_use]
    pub fn split(text: &str) -> Option<(&str, &str)> {
        let line = text.trim().strip_prefix('/')?;
        let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Some((name, arguments.trim()))
    }

    /// Makes a command from fixed strings.
    pub(crate) const fn new(
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
