//! The settings of a session: mode, model and thinking level.

use std::sync::Arc;

use super::error::Error;
use super::model::Model;
use crate::words::{MODES, Mode, ModeId, ModelId, Price, Profile, Thinking, nearest};

/// The settings of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The mode in use.
    pub mode: ModeId,
    /// The available modes.
    pub modes: Arc<[Mode]>,
    /// The model in use.
    pub model: ModelId,
    /// The available models.
    pub models: Arc<[ModelChoice]>,
    /// How much the model should think.
    pub thinking: Thinking,
}

/// A model that a session can use.
#[derive(Clone)]
pub struct ModelChoice {
    /// Its id.
    pub id: ModelId,
    /// Its name for the user.
    pub name: String,
    /// The size of its context window in tokens, as configured or assumed. [`ModelChoice::window`] is the one in effect.
    pub context_size: u64,
    /// Its price, if known.
    pub price: Option<Price>,
    /// Whether its thinking level can be set.
    pub can_think: bool,
    /// The profile that the user chose, if any. [`ModelChoice::profile`] is the one in effect.
    pub profile: Option<Profile>,
    /// The model itself.
    pub model: Arc<dyn Model>,
}

impl ModelChoice {
    /// Returns the size of the context window in tokens: what the server told, else `context_size`.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.model.window().unwrap_or(self.context_size)
    }

    /// Returns the profile in effect: the user's choice, else the one that suits its name and its window.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.profile.unwrap_or_else(|| Profile::of(self.id.as_str(), self.window()))
    }
}

impl PartialEq for ModelChoice {
    fn eq(&self, other: &ModelChoice) -> bool {
        self.id == other.id
    }
}

impl std::fmt::Debug for ModelChoice {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ModelChoice({})", self.id)
    }
}

impl Settings {
    /// Returns the settings of a new session: the default mode and the first model.
    ///
    /// # Errors
    /// Fails if there is no model at all.
    pub fn new(models: Arc<[ModelChoice]>) -> Result<Settings, Error> {
        let Some(first) = models.first() else {
            return Err(Error::NoSuchModel(ModelId::new("(none configured)")));
        };
        Ok(Settings {
            mode: MODES[0].mode_id(),
            modes: Mode::with(&[]),
            model: first.id.clone(),
            models,
            thinking: Thinking::default(),
        })
    }

    /// Returns the mode in use.
    #[must_use]
    pub fn mode(&self) -> &Mode {
        self.find_mode(self.mode.as_str()).unwrap_or(&MODES[0])
    }

    /// Finds a mode by its id or an alias.
    #[must_use]
    pub fn find_mode(&self, id: &str) -> Option<&Mode> {
        self.modes
            .iter()
            .find(|mode| mode.id == id)
            .or_else(|| self.modes.iter().find(|mode| mode.is(id)))
    }

    /// Changes the mode, and the model with it if the mode's agent prefers an available one. Tells whether the mode changed.
    pub(crate) fn begin(&mut self, mode: &Mode) -> bool {
        let wanted = mode.agent.as_ref().and_then(|agent| agent.model.as_ref());
        if let Some(choice) = wanted.and_then(|wanted| self.find_model(wanted)) {
            self.model = choice.id.clone();
        }
        std::mem::replace(&mut self.mode, mode.mode_id()) != mode.mode_id()
    }

    /// Finds a model by its id, or by a word of it, such as `sonnet`: then the first one.
    fn find_model(&self, wanted: &ModelId) -> Option<&ModelChoice> {
        let has_word = |choice: &&ModelChoice| {
            let mut words = choice.id.as_str().split(|c: char| !c.is_ascii_alphanumeric());
            words.any(|word| word == wanted.as_str())
        };
        let exact = self.models.iter().find(|choice| choice.id == *wanted);
        exact.or_else(|| self.models.iter().find(has_word))
    }

    /// Returns the settings of a turn with another mode or model; `None` if neither exists.
    pub(crate) fn with(&self, mode: Option<&ModeId>, model: Option<&ModelId>) -> Option<Settings> {
        let mode = mode.and_then(|id| self.find_mode(id.as_str()));
        let model = model.and_then(|id| self.find_model(id)).map(|choice| &choice.id);
        let mut during = self.clone();
        if let Some(mode) = mode {
            during.begin(mode);
        }
        if let Some(model) = model {
            during.model = model.clone();
        }
        (mode.is_some() || model.is_some()).then_some(during)
    }

    /// Tells whether mode and model are the same.
    pub(crate) fn is_like(&self, other: &Settings) -> bool {
        (&self.mode, &self.model) == (&other.mode, &other.model)
    }

    /// Describes a model that is not available, and which one may be meant, as the end of a sentence; `None` if it is
    /// available.
    pub(crate) fn lacks(&self, model: &ModelId) -> Option<String> {
        if self.find_model(model).is_some() {
            return None;
        }
        let known = self.models.iter().map(|choice| choice.id.as_str());
        let meant = nearest(model.as_str(), known).map(|near| format!(" (did you mean `{near}`?)"));
        let meant = meant.unwrap_or_default();
        Some(format!(
            "the model `{model}`, which is not available{meant}; the session's model is used"
        ))
    }

    /// Returns the model in use.
    #[must_use]
    pub fn choice(&self) -> Option<&ModelChoice> {
        self.models.iter().find(|choice| choice.id == self.model)
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Settings {
        let model = ModelChoice {
            id: ModelId::new("script/test"),
            name: "Test".to_owned(),
            context_size: 1000,
            price: None,
            can_think: false,
            profile: None,
            model: Arc::new(crate::script::ScriptedModel::parse("").unwrap()),
        };
        Settings::new(vec![model].into()).unwrap()
    }
}
