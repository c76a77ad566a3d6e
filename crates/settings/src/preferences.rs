//! What the user chose last, in a file of the state folder: the model and the thinking of new sessions, and whether
//! OpenCode's keys may be used. What cannot be read counts as not chosen.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::ports::Habits;
use engine::session::{ModelChoice, Settings};
use engine::words::{ModelId, Thinking};
use serde::{Deserialize, Serialize};

use crate::env;
use crate::ladder::Ladder;

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Choices {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    /// Whether OpenCode's keys may be used; nothing if that was never asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) opencode_keys: Option<bool>,
}

impl Choices {
    /// Reads what was chosen.
    pub(crate) fn load() -> Choices {
        file().map_or_else(Choices::default, |file| Choices::load_from(&file))
    }

    fn load_from(file: &Path) -> Choices {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Changes what is kept.
    pub(crate) fn change(change: impl FnOnce(&mut Choices)) -> anyhow::Result<()> {
        let Some(file) = file() else {
            anyhow::bail!("there is no home folder to keep choices in");
        };
        let mut choices = Choices::load_from(&file);
        change(&mut choices);
        write_whole(&file, &serde_json::to_vec_pretty(&choices)?)
    }
}

fn file() -> Option<PathBuf> {
    Some(env::state_folder()?.join("choices.json"))
}

/// Writes a file beside the old one and puts it in its place: it is whole at any time.
pub(crate) fn write_whole(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let Some(folder) = file.parent() else {
        anyhow::bail!("{} has no folder", file.display());
    };
    std::fs::create_dir_all(folder)?;
    let draft = file.with_extension(format!("json.{}", std::process::id()));
    let written = std::fs::write(&draft, bytes).and_then(|()| std::fs::rename(&draft, file));
    if written.is_err() {
        // What is left of it is of no use.
        drop(std::fs::remove_file(&draft));
    }
    Ok(written?)
}

/// The habits of the user of this program.
pub(crate) struct UserHabits {
    /// Where models come from.
    pub(crate) ladder: Arc<Ladder>,
    /// Whether configuration or command line name the model: then the last choice does not count.
    pub(crate) is_model_given: bool,
    /// The model for small work, as the configuration names it.
    pub(crate) small_model: Option<String>,
}

impl Habits for UserHabits {
    fn model(&self) -> Option<ModelId> {
        if self.is_model_given {
            return None;
        }
        Choices::load().model.map(ModelId::new)
    }

    fn thinking(&self) -> Option<Thinking> {
        Thinking::find(&Choices::load().thinking?)
    }

    fn keep(&self, model: &ModelId, thinking: Thinking) {
        let kept = Choices::change(|choices| {
            choices.model = Some(model.as_str().to_owned());
            choices.thinking = Some(thinking.id().to_owned());
        });
        if let Err(err) = kept {
            tracing::warn!("the choice of {model} is not kept: {err:#}");
        }
    }

    fn small_model(&self, settings: &Settings) -> Option<ModelChoice> {
        match &self.small_model {
            Some(id) => self.ladder.model(id),
            None => self.ladder.small_model_beside(&settings.model),
        }
    }
}
