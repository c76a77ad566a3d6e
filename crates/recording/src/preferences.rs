//! The user's preferences, and the answers that are stored for a project.

use std::sync::Arc;

use engine::permission::rules::Rule;
use engine::ports::{AnswerStore, ModelChoice, Preferences, Settings};
use engine::words::{ModelId, Thinking};

use crate::tape::Tape;

impl Tape {
    /// Wraps the preferences.
    #[must_use]
    pub fn preferences(&self, inner: Arc<dyn Preferences>) -> Arc<dyn Preferences> {
        Arc::new(TapedPreferences { tape: self.clone(), inner: Some(inner) })
    }

    /// Makes the preferences of a replay.
    #[must_use]
    pub fn played_preferences(&self) -> Arc<dyn Preferences> {
        Arc::new(TapedPreferences { tape: self.clone(), inner: None })
    }

    /// Wraps the answers of a project.
    #[must_use]
    pub fn answers(&self, session: &str, inner: Arc<dyn AnswerStore>) -> Arc<dyn AnswerStore> {
        let key = format!("answers {session}");
        Arc::new(TapedAnswers { tape: self.clone(), key, inner: Some(inner) })
    }

    pub(crate) fn played_answers(&self, session: &str) -> Arc<dyn AnswerStore> {
        let key = format!("answers {session}");
        Arc::new(TapedAnswers { tape: self.clone(), key, inner: None })
    }
}

struct TapedPreferences {
    tape: Tape,
    inner: Option<Arc<dyn Preferences>>,
}

impl Preferences for TapedPreferences {
    fn model(&self) -> Option<ModelId> {
        self.tape.state("preferred model", || self.inner.as_ref()?.model())
    }

    fn thinking(&self) -> Option<Thinking> {
        self.tape.state("preferred thinking", || self.inner.as_ref()?.thinking())
    }

    fn save(&self, model: &ModelId, thinking: Thinking) {
        if let Some(inner) = &self.inner {
            inner.save(model, thinking);
        }
    }

    fn small_model(&self, settings: &Settings) -> Option<ModelChoice> {
        let real = self.inner.as_ref().and_then(|inner| inner.small_model(settings));
        let id =
            self.tape.state("small model", || real.as_ref().map(|choice| choice.id.clone()))?;
        // The session's models are wrapped, so the choice is taken from them.
        settings.models.iter().find(|choice| choice.id == id).cloned().or(real)
    }
}

struct TapedAnswers {
    tape: Tape,
    key: String,
    inner: Option<Arc<dyn AnswerStore>>,
}

impl AnswerStore for TapedAnswers {
    fn rules(&self) -> Vec<Rule> {
        let read = || self.inner.as_ref().map(|inner| inner.rules()).unwrap_or_default();
        self.tape.state(&self.key, read)
    }

    fn add(&self, rule: &Rule) -> Result<(), String> {
        let add = || self.inner.as_ref().map_or(Ok(()), |inner| inner.add(rule));
        self.tape.next(&format!("{} add", self.key), add)
    }
}
