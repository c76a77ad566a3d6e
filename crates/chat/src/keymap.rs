//! The key map: which key does what in the input. Pure.
//!
//! Each action has a default key. A key that the user maps to an action stands for the default key of that action, so
//! the rest of the client knows default keys only. In dialogs and lists keys are never mapped.

use crate::keys::{Key, KeyCode};

const fn shift(code: KeyCode) -> Key {
    Key { code, ctrl: false, alt: false, shift: true }
}

/// The actions by name, each with its default key and what it does.
pub(crate) const ACTIONS: [(&str, Key, &str); 26] = [
    ("send", Key::plain(KeyCode::Enter), "send; during a turn: add to it"),
    ("complete", Key::plain(KeyCode::Tab), "complete; during a turn: send after it"),
    ("new-line", Key::ctrl('j'), "new line"),
    ("next-mode", shift(KeyCode::Tab), "next mode"),
    ("cancel", Key::plain(KeyCode::Esc), "cancel the turn; twice: clear the input"),
    ("interrupt", Key::ctrl('c'), "cancel, clear, or twice: quit"),
    ("quit", Key::ctrl('d'), "quit"),
    ("up", Key::plain(KeyCode::Up), "line above, past prompts, prompts that wait"),
    ("down", Key::plain(KeyCode::Down), "line below, newer prompts"),
    ("search", Key::ctrl('r'), "search past prompts"),
    ("expand", Key::ctrl('o'), "show what was cut, last first"),
    ("editor", Key::ctrl('g'), "write in $EDITOR"),
    ("left", Key::ctrl('b'), "left"),
    ("right", Key::ctrl('f'), "right"),
    ("line-start", Key::ctrl('a'), "start of the line"),
    ("line-end", Key::ctrl('e'), "end of the line"),
    ("word-left", Key::alt(KeyCode::Char('b')), "word left"),
    ("word-right", Key::alt(KeyCode::Char('f')), "word right"),
    ("delete-word", Key::ctrl('w'), "delete the word before the cursor"),
    ("delete-to-start", Key::ctrl('u'), "delete to the start of the line"),
    ("delete-to-end", Key::ctrl('k'), "delete to the end of the line"),
    ("insert-deleted", Key::ctrl('y'), "insert what was deleted"),
    ("undo", Key::ctrl('_'), "undo"),
    ("redo", Key::alt(KeyCode::Char('_')), "redo"),
    ("clear", Key::ctrl('l'), "clear the screen"),
    ("suspend", Key::ctrl('z'), "suspend"),
];

/// The keys that the user has mapped.
#[derive(Debug, Default)]
pub struct KeyMap {
    /// `None` for a key that does nothing.
    mapped: Vec<(Key, Option<Key>)>,
}

impl KeyMap {
    /// Reads pairs of a key, such as `ctrl-t`, and an action or `none`. What is wrong is left out and reported.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> (KeyMap, Vec<String>) {
        let (mut map, mut problems) = (KeyMap::default(), Vec::new());
        for (name, action) in pairs {
            let Some(key) = key_of(name) else {
                problems.push(format!("`chat.keys`: `{name}` is not a key, such as `ctrl-t`."));
                continue;
            };
            let found = ACTIONS.iter().find(|(known, ..)| *known == action);
            match (found, action) {
                (Some((_, default, _)), _) => map.mapped.push((key, Some(*default))),
                (None, "none") => map.mapped.push((key, None)),
                (None, _) => {
                    let names: Vec<&str> = ACTIONS.iter().map(|(name, ..)| *name).collect();
                    problems.push(format!(
                        "`chat.keys`: `{action}` is not an action. Use `none` or one of {}.",
                        names.join(", ")
                    ));
                }
            }
        }
        (map, problems)
    }

    /// Returns the key that this one stands for; `None` if it does nothing.
    #[must_use]
    pub fn resolve(&self, key: Key) -> Option<Key> {
        let mapped = self.mapped.iter().rev().find(|(from, _)| *from == key);
        mapped.map_or(Some(key), |(_, to)| *to)
    }

    /// Returns each action with the keys that do it.
    #[must_use]
    pub fn list(&self) -> Vec<(String, &'static str)> {
        let keys_of = |default: Key| {
            let mapped = self.mapped.iter().filter(|(_, to)| *to == Some(default));
            let own = Some(default).filter(|key| self.resolve(*key) == Some(default));
            let names: Vec<String> =
                own.into_iter().chain(mapped.map(|(from, _)| *from)).map(name_of).collect();
            names.join(", ")
        };
        ACTIONS.iter().map(|(_, default, what)| (keys_of(*default), *what)).collect()
    }
}

const NAMED: [(&str, KeyCode); 15] = [
    ("enter", KeyCode::Enter),
    ("tab", KeyCode::Tab),
    ("esc", KeyCode::Esc),
    ("space", KeyCode::Char(' ')),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("page-up", KeyCode::PageUp),
    ("page-down", KeyCode::PageDown),
    ("minus", KeyCode::Char('-')),
];

/// Reads a name such as `ctrl-t`, `alt-enter` or `page-up`.
fn key_of(name: &str) -> Option<Key> {
    let name = name.trim().to_lowercase();
    let mut rest = name.as_str();
    let mut key = Key::plain(KeyCode::Esc);
    loop {
        let (held, after) = rest.split_once('-').unwrap_or((rest, ""));
        match held {
            "ctrl" if !after.is_empty() => key.ctrl = true,
            "alt" | "meta" if !after.is_empty() => key.alt = true,
            "shift" if !after.is_empty() => key.shift = true,
            _ => break,
        }
        rest = after;
    }
    let mut chars = rest.chars();
    key.code = match NAMED.iter().find(|(known, _)| *known == rest) {
        Some((_, code)) => *code,
        None => KeyCode::Char(chars.next().filter(|_| chars.next().is_none())?),
    };
    // Terminals send upper case for a letter with shift, and cannot tell a plain letter from text.
    match key.code {
        KeyCode::Char(_) if !key.ctrl && !key.alt => None,
        _ => Some(key),
    }
}

fn name_of(key: Key) -> String {
    let code = NAMED.iter().find(|(_, code)| *code == key.code);
    let code = match (code, key.code) {
        (Some((name, _)), _) => (*name).to_owned(),
        (None, KeyCode::Char(char)) => char.to_string(),
        (None, _) => String::new(),
    };
    let held = [(key.ctrl, "ctrl-"), (key.alt, "alt-"), (key.shift, "shift-")];
    let held: String = held.iter().filter(|(is_held, _)| *is_held).map(|(_, name)| *name).collect();
    format!("{held}{code}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: C1
    #[test]
    fn mapped_keys_stand_for_the_keys_of_their_actions() {
        let pairs = [("ctrl-t", "editor"), ("Ctrl-G", "none"), ("alt-enter", "send")];
        let (map, problems) = KeyMap::parse(pairs);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(map.resolve(Key::ctrl('t')), Some(Key::ctrl('g')));
        assert_eq!(map.resolve(Key::ctrl('g')), None);
        assert_eq!(map.resolve(Key::alt(KeyCode::Enter)), Some(Key::plain(KeyCode::Enter)));
        assert_eq!(map.resolve(Key::ctrl('o')), Some(Key::ctrl('o')));
        let list = map.list();
        assert!(list.contains(&("ctrl-t".to_owned(), "write in $EDITOR")), "{list:?}");
        assert!(list.contains(&("enter, alt-enter".to_owned(), ACTIONS[0].2)), "{list:?}");
    }

    #[test]
    fn wrong_names_are_reported_and_left_out() {
        let (map, problems) = KeyMap::parse([("x", "send"), ("ctrl-", "send"), ("ctrl-t", "fly")]);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[2].contains("`fly` is not an action"), "{problems:?}");
        assert_eq!(map.resolve(Key::ctrl('t')), Some(Key::ctrl('t')));
    }

    #[test]
    fn every_default_key_can_be_named() {
        for (name, key, _) in ACTIONS {
            assert_eq!(key_of(&name_of(key)), Some(key), "{name}");
        }
    }
}
