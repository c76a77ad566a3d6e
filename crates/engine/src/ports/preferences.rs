//! The user's preferences across sessions.

use super::settings::{ModelChoice, Settings};
use crate::words::{ModelId, Thinking};

/// What the user chose last, and the model for small tasks.
pub trait Preferences: Send + Sync {
    /// Returns the model that new sessions start with, if the user chose one. It may no longer exist.
    fn model(&self) -> Option<ModelId>;

    /// Returns the thinking level that new sessions start with, if the user chose one.
    fn thinking(&self) -> Option<Thinking>;

    /// Saves the user's choice.
    fn save(&self, model: &ModelId, thinking: Thinking);

    /// Returns the model for small tasks, such as naming a session.
    fn small_model(&self, settings: &Settings) -> Option<ModelChoice>;
}
