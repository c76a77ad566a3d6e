//! What the user chose last, in a file of the state directory: the model and the thinking level of new sessions, and
//! whether OpenCode's keys may be used. A file that cannot be read is treated as empty.

use std::path::{Path, PathBuf};

use engine::words::{ModelId, Thinking};
use serde::{Deserialize, Serialize};

use crate::Directories;
use crate::files::{self, Access};

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    /// Whether OpenCode's keys may be used; `None` if the user was never asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opencode_keys: Option<bool>,
}

impl Preferences {
    /// Reads the preferences.
    #[must_use]
    pub fn load(directories: &Directories) -> Preferences {
        file(directories).map_or_else(Preferences::default, |file| Preferences::load_from(&file))
    }

    fn load_from(file: &Path) -> Preferences {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Changes the preferences.
    ///
    /// # Errors
    /// Says why they cannot be written.
    pub fn change(
        directories: &Directories,
        change: impl FnOnce(&mut Preferences),
    ) -> anyhow::Result<()> {
        let Some(file) = file(directories) else {
            anyhow::bail!("no home directory to save preferences in");
        };
        let mut preferences = Preferences::load_from(&file);
        change(&mut preferences);
        files::replace(&file, &serde_json::to_vec_pretty(&preferences)?, Access::Shared)
    }

    /// Returns the model of new sessions.
    #[must_use]
    pub fn model(&self) -> Option<ModelId> {
        self.model.as_deref().map(ModelId::new)
    }

    /// Returns the thinking level of new sessions.
    #[must_use]
    pub fn thinking(&self) -> Option<Thinking> {
        Thinking::find(self.thinking.as_deref()?)
    }

    /// Sets what new sessions start with.
    pub fn set(&mut self, model: &ModelId, thinking: Thinking) {
        self.model = Some(model.as_str().to_owned());
        self.thinking = Some(thinking.id().to_owned());
    }
}

fn file(directories: &Directories) -> Option<PathBuf> {
    Some(directories.state.as_ref()?.join("choices.json"))
}
