//! Ids. Each kind has its own type, so that two kinds cannot be mixed up.

use std::fmt;
use std::sync::Arc;

/// Makes a newtype for an id, so that no two kinds of id can be mixed up.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Makes the id from its text.
            pub fn new(text: impl Into<Arc<str>>) -> $name {
                $name(text.into())
            }

            /// Returns the id's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the id's text without copying it.
            #[must_use]
            pub fn to_shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A conversation, as the client names it.
    SessionId
);
id!(
    /// One use of a tool inside a turn, as the model names it.
    ToolCallId
);
impl ToolCallId {
    /// Stands between what the provider calls it and our number. No provider's own ids have it.
    const MARK: char = '·';

    /// Makes the id of another call that the provider gave the same one.
    #[must_use]
    pub fn again(&self, number: usize) -> ToolCallId {
        ToolCallId::new(format!("{self}{}{number}", Self::MARK))
    }

    /// Returns what the provider calls it.
    #[must_use]
    pub fn given(&self) -> &str {
        self.0.split(Self::MARK).next().unwrap_or_default()
    }
}

id!(
    /// One message of the agent: its chunks belong together.
    MessageId
);
id!(
    /// A model, as `provider/model`.
    ModelId
);
id!(
    /// A way of working, such as `build` or `plan`.
    ModeId
);
id!(
    /// A terminal that the client runs for us.
    TerminalId
);

id!(
    /// What a file held, by its hash.
    ContentId
);
