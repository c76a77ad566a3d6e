//! What a model is asked to spend, what it used, what that cost, and why its turn ended.

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model had nothing more to do.
    EndTurn,
    /// The model's answer was cut at its limit.
    MaxTokens,
    /// The turn had asked the model as often as it may.
    MaxTurnRequests,
    /// The model declined.
    Refusal,
    /// The user stopped it.
    Cancelled,
}

impl StopReason {
    /// Returns the word that the protocol has for it.
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

/// Tokens of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens the model read anew.
    pub input: u64,
    /// Tokens the model wrote, thinking included.
    pub output: u64,
    /// Tokens the model read from its cache.
    pub cache_read: u64,
    /// Tokens the model read and put into its cache.
    pub cache_write: u64,
}

impl Usage {
    /// Adds another answer's.
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

    /// Returns how many tokens of the context are in use after the answer.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.input, self.output, self.cache_read, self.cache_write]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// What a model costs, in US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Price {
    /// Read anew.
    pub input: f64,
    /// Written.
    pub output: f64,
    /// Read from the cache.
    pub cache_read: f64,
    /// Put into the cache.
    pub cache_write: f64,
}

impl Price {
    /// Returns what an answer cost, in US dollars.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thinking {
    /// As the model is used to.
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
    /// Every level: its id and what people call it.
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
