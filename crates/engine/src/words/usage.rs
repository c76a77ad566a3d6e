//! Token usage, prices, thinking levels, and why a turn ended.

use serde::{Deserialize, Serialize};

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// The model was done.
    EndTurn,
    /// The model's answer reached its length limit.
    MaxTokens,
    /// The turn reached its limit of requests.
    MaxTurnRequests,
    /// The model refused.
    Refusal,
    /// The user stopped it.
    Cancelled,
}

impl StopReason {
    /// Returns its name in the protocol.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            StopReason::EndTurn => "end_turn",
            StopReason::MaxTokens => "max_tokens",
            StopReason::MaxTurnRequests => "max_turn_requests",
            StopReason::Refusal => "refusal",
            StopReason::Cancelled => "cancelled",
        }
    }
}

/// How a turn ended, and the tokens of all its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnReport {
    /// Why it ended.
    pub stop: StopReason,
    /// What it used.
    pub usage: Usage,
}

/// The tokens of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that were not cached.
    pub input: u64,
    /// Output tokens, thinking included.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
}

impl Usage {
    /// Adds the tokens of another answer.
    pub fn add(&mut self, other: &Usage) {
        for (sum, more) in [
            (&mut self.input, other.input),
            (&mut self.output, other.output),
            (&mut self.cache_read, other.cache_read),
            (&mut self.cache_write, other.cache_write),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// Returns the tokens that were added since an earlier count.
    #[must_use]
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            input: self.input.saturating_sub(earlier.input),
            output: self.output.saturating_sub(earlier.output),
            cache_read: self.cache_read.saturating_sub(earlier.cache_read),
            cache_write: self.cache_write.saturating_sub(earlier.cache_write),
        }
    }

    /// Returns how many tokens of the context are in use after the answer.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.input, self.output, self.cache_read, self.cache_write]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// The price of a model, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Price {
    /// Input.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Read from the cache.
    pub cache_read: f64,
    /// Written to the cache.
    pub cache_write: f64,
}

impl Price {
    /// Returns the cost of an answer, in US dollars.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> f64 {
        let dollars = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        dollars(usage.input, self.input)
            + dollars(usage.output, self.output)
            + dollars(usage.cache_read, self.cache_read)
            + dollars(usage.cache_write, self.cache_write)
    }
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Thinking {
    /// The model's default.
    #[default]
    Default,
    /// Not at all, or as little as it can.
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// A lot.
    High,
}

impl Thinking {
    /// Every level, with its id and its name for the user.
    pub const ALL: [(Thinking, &'static str, &'static str); 5] = [
        (Thinking::Default, "default", "Default"),
        (Thinking::Off, "off", "Off"),
        (Thinking::Low, "low", "Low"),
        (Thinking::Medium, "medium", "Medium"),
        (Thinking::High, "high", "High"),
    ];

    /// Finds a level by its id.
    #[must_use]
    pub fn find(id: &str) -> Option<Thinking> {
        Thinking::ALL.iter().find(|(_, known, _)| *known == id).map(|(level, _, _)| *level)
    }

    /// Returns the level's id.
    #[must_use]
    pub fn id(self) -> &'static str {
        Thinking::ALL.iter().find(|(level, _, _)| *level == self).map_or("default", |row| row.1)
    }
}
