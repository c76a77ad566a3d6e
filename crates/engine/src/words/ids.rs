//! Ids. Each kind has its own type, so that two kinds cannot be mixed up.

use std::fmt;
use std::sync::Arc;

/// Makes a newtype for an id, so that no two kinds of id can be mixed up.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
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
    /// A session.
    SessionId
);
id!(
    /// A tool call.
    ToolCallId
);
impl ToolCallId {
    /// Separates the provider's id from our number. Providers do not use it in their ids.
    const MARK: char = '·';

    /// Makes a new id for a call whose id the provider has used before.
    #[must_use]
    pub fn again(&self, number: usize) -> ToolCallId {
        ToolCallId::new(format!("{self}{}{number}", Self::MARK))
    }

    /// Returns the provider's id.
    #[must_use]
    pub fn given(&self) -> &str {
        self.0.split(Self::MARK).next().unwrap_or_default()
    }
}

id!(
    /// A message. All of its chunks have the same id.
    MessageId
);
id!(
    /// A model, as `provider/model`.
    ModelId
);
id!(
    /// A mode, such as `build` or `plan`.
    ModeId
);
id!(
    /// A terminal of the client.
    TerminalId
);

id!(
    /// The saved content of a file, by its hash.
    ContentId
);
