//! Profiles: how long the instructions for a model are, and how many tools it is offered.

use serde::{Deserialize, Serialize};

/// How long the instructions for a model are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Everything, for models that can use it.
    Full,
    /// Few tools with short descriptions, for small models and windows.
    Brief,
}

/// A model of at most this many billion parameters is small.
const SMALL_MODEL: f64 = 8.0;
/// A window of at most this many tokens is small.
const SMALL_WINDOW: u64 = 16_384;

impl Profile {
    /// Chooses a profile by what is known of a model: its name and its context window.
    #[must_use]
    pub fn of(model: &str, window: u64) -> Profile {
        let is_small = billions(model).is_some_and(|size| size <= SMALL_MODEL);
        if is_small || window <= SMALL_WINDOW { Profile::Brief } else { Profile::Full }
    }
}

/// Returns how many billion parameters a model has, if its name says so: `qwen2.5-coder:7b`, `Llama-3.2-3B`. The largest number is
/// taken, because `30b-a3b` has 30 and uses 3 at a time.
fn billions(model: &str) -> Option<f64> {
    let words =
        model.split(|character: char| !character.is_ascii_alphanumeric() && character != '.');
    let sizes = words.filter_map(|word| {
        let number = word.strip_suffix(['b', 'B'])?.trim_start_matches(['e', 'E']);
        number.parse::<f64>().ok()
    });
    sizes.fold(None, |most: Option<f64>, size| Some(most.map_or(size, |most| most.max(size))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_models_and_windows_get_the_brief_profile() {
        for small in [
            "llamacpp/qwen2.5-coder-1.5b-instruct.gguf",
            "ollama/qwen2.5-coder:7b",
            "lmstudio/Llama-3.2-3B-Instruct",
            "ollama/gemma3n:e4b",
        ] {
            assert_eq!(Profile::of(small, 128_000), Profile::Brief, "{small}");
        }
        for large in [
            "anthropic/claude-sonnet-4-5",
            "openai/gpt-5-mini",
            "ollama/qwen3:30b-a3b",
            "groq/llama-3.3-70b-versatile",
            "x/web",
        ] {
            assert_eq!(Profile::of(large, 128_000), Profile::Full, "{large}");
            assert_eq!(Profile::of(large, 8_192), Profile::Brief, "{large}");
        }
    }
}
