//! All attempts, each in its own process, so that a failed one does not affect the next.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::system;
use crate::{files, kernel, modes, network, others, tricks};

/// What an attempt knows about the outside.
pub(crate) struct World {
    facts: BTreeMap<String, String>,
}

impl World {
    /// Reads `name=value` words.
    pub(crate) fn read(words: &[&str]) -> World {
        let pairs = words.iter().filter_map(|word| word.split_once('='));
        World { facts: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect() }
    }

    /// A fact as text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.facts.get(name).map_or("", String::as_str)
    }

    /// A fact as a number.
    pub(crate) fn number(&self, name: &str) -> i32 {
        self.text(name).parse().unwrap_or(-1)
    }

    /// A path in the workspace.
    pub(crate) fn inside(&self, path: &str) -> PathBuf {
        PathBuf::from(self.text("inside")).join(path)
    }

    /// A visible path next to the workspace.
    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        PathBuf::from(self.text("outside")).join(path)
    }

    /// A path that is hidden.
    pub(crate) fn secret(&self, path: &str) -> PathBuf {
        PathBuf::from(self.text("secret")).join(path)
    }

    /// The process that acts as the agent.
    pub(crate) fn agent(&self) -> i32 {
        self.number("agent")
    }
}

/// Something that must not be possible, and how it is tried. `true` means that it worked.
pub(crate) type Attempt = (&'static str, &'static str, fn(&World) -> bool);

/// Tries everything and prints a line for each.
pub(crate) fn try_all(world: &World) -> ExitCode {
    let lists = [
        files::ATTEMPTS,
        others::ATTEMPTS,
        network::ATTEMPTS,
        kernel::ATTEMPTS,
        modes::ATTEMPTS,
        tricks::ATTEMPTS,
    ];
    let mut attempts: Vec<&Attempt> = lists.iter().flat_map(|list| list.iter()).collect();
    attempts.sort_by_key(|(id, _, _)| (id.len(), *id));
    for (id, what, attempt) in attempts {
        let verdict = if system::in_a_child(|| attempt(world)) { "open" } else { "no" };
        system::say(&format!("{id}\t{what}\t{verdict}"));
    }
    ExitCode::SUCCESS
}
