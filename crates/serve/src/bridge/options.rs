//! Modes, models and thinking levels for the client, as lists that fit into one message.
//!
//! A list that is too long loses its end, never the entry in use, and says so.

use std::sync::Arc;

use engine::ports::{ModelChoice, Settings};
use engine::words::{Mode, Thinking};
use wire::acp::models::{ModelInfo, ModelState};
use wire::acp::schema;

use super::size::{json_length, shorten_text};

/// The longest id that is listed; ids cannot be shortened.
const MAX_ID: usize = 512;
/// The most bytes of a name and of a description.
const MAX_NAME: usize = 256;
const MAX_DESCRIPTION: usize = 1024;
/// The size of an entry that is never listed, unless it is in use.
const NEVER: usize = 1 << 32;
/// What an entry has besides its strings.
const ENTRY: usize = 96;

/// The entries of a list that fit, and how many there are.
struct Listed<'a, T> {
    shown: Vec<&'a T>,
    all: usize,
}

impl<T> Listed<'_, T> {
    /// Says how much is missing and how to choose it.
    fn note(&self, advice: &str) -> Option<String> {
        let shown = self.shown.len();
        (shown < self.all).then(|| format!("{shown} of {} are listed. {advice}", self.all))
    }
}

/// Chooses the entries that fit into `room` bytes: the one in use, then the first.
fn listed<T>(
    all: &[T],
    room: usize,
    size: impl Fn(&T) -> usize,
    is_in_use: impl Fn(&T) -> bool,
) -> Listed<'_, T> {
    let in_use: usize = all.iter().filter(|entry| is_in_use(entry)).map(&size).sum();
    let mut left = room.saturating_sub(in_use);
    let fits = |entry: &&T| {
        let size = size(entry);
        let fits = is_in_use(entry) || size <= left;
        left -= if fits && !is_in_use(entry) { size } else { 0 };
        fits
    };
    Listed { shown: all.iter().filter(fits).collect(), all: all.len() }
}

fn modes(settings: &Settings, room: usize) -> Listed<'_, Mode> {
    let size = |mode: &Mode| match json_length(&mode.id) {
        id if id > MAX_ID => NEVER,
        id => {
            let description = json_length(&mode.description).min(MAX_DESCRIPTION);
            id + json_length(&mode.name).min(MAX_NAME) + description + ENTRY
        }
    };
    listed(&settings.modes, room, size, |mode| mode.mode_id() == settings.mode)
}

fn models(settings: &Settings, room: usize) -> Listed<'_, ModelChoice> {
    let size = |choice: &ModelChoice| match json_length(choice.id.as_str()) {
        id if id > MAX_ID => NEVER,
        id => id + json_length(&choice.name).min(MAX_NAME) + ENTRY,
    };
    listed(&settings.models, room, size, |choice| choice.id == settings.model)
}

const OTHER_MODELS: &str = "Set `model` in purlin.json to use another";
const OTHER_MODES: &str = "Remove agents that you do not need to list the others";

/// Converts the modes, for clients without config options, within a quarter of `most` bytes.
pub(crate) fn modes_out(settings: &Settings, most: usize) -> schema::SessionModeState {
    let modes = modes(settings, most / 4).shown.into_iter().map(|mode| {
        let id = schema::SessionModeId::new(mode.id.as_ref());
        schema::SessionMode::new(id, shorten_text(&mode.name, MAX_NAME))
            .description(shorten_text(&mode.description, MAX_DESCRIPTION))
    });
    schema::SessionModeState::new(
        schema::SessionModeId::new(settings.mode.to_shared()),
        modes.collect(),
    )
}

/// Converts the models, for clients without config options, within a quarter of `most` bytes.
pub(crate) fn models_out(settings: &Settings, most: usize) -> ModelState {
    let models = models(settings, most / 4).shown.into_iter().map(|choice| ModelInfo {
        model_id: choice.id.to_string(),
        name: shorten_text(&choice.name, MAX_NAME),
        description: None,
    });
    ModelState { current_model_id: settings.model.to_string(), available_models: models.collect() }
}

/// Converts mode, model and thinking level to config options, within half of `most` bytes: always the complete list of
/// options.
pub(crate) fn options_out(settings: &Settings, most: usize) -> Vec<schema::SessionConfigOption> {
    let value = |id: &str| schema::SessionConfigValueId::new(Arc::from(id));
    let listed_modes = modes(settings, most / 5);
    let modes: Vec<_> = listed_modes
        .shown
        .iter()
        .map(|mode| {
            let name = shorten_text(&mode.name, MAX_NAME);
            schema::SessionConfigSelectOption::new(value(&mode.id), name)
                .description(shorten_text(&mode.description, MAX_DESCRIPTION))
        })
        .collect();
    let listed_models = models(settings, most / 4);
    let models: Vec<_> = listed_models
        .shown
        .iter()
        .map(|choice| {
            let name = shorten_text(&choice.name, MAX_NAME);
            schema::SessionConfigSelectOption::new(value(choice.id.as_str()), name)
        })
        .collect();
    let (mode, model) = (value(settings.mode.as_str()), value(settings.model.as_str()));
    let mut options = vec![
        schema::SessionConfigOption::select("mode", "Mode", mode, modes)
            .category(schema::SessionConfigOptionCategory::Mode)
            .description(listed_modes.note(OTHER_MODES)),
        schema::SessionConfigOption::select("model", "Model", model, models)
            .category(schema::SessionConfigOptionCategory::Model)
            .description(listed_models.note(OTHER_MODELS)),
    ];
    if settings.choice().is_some_and(|choice| choice.can_think) {
        let levels: Vec<_> = Thinking::ALL
            .iter()
            .map(|(_, id, name)| schema::SessionConfigSelectOption::new(value(id), *name))
            .collect();
        let now = value(settings.thinking.id());
        options.push(
            schema::SessionConfigOption::select("thinking", "Thinking", now, levels)
                .category(schema::SessionConfigOptionCategory::ThoughtLevel),
        );
    }
    options
}
