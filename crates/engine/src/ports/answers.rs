//! Where the user's "always" answers are stored.

use crate::words::Rule;

/// Stores the user's answers for a project, beyond one session.
pub trait AnswerStore: Send + Sync {
    /// Returns the stored rules. Read anew each time: another process may have changed them.
    fn rules(&self) -> Vec<Rule>;

    /// Stores one more rule.
    ///
    /// # Errors
    /// Says why it could not be stored, for the user.
    fn add(&self, rule: &Rule) -> Result<(), String>;
}

/// What rules deny, for tools that find files by themselves.
pub trait Denied: Send + Sync {
    /// Tells whether nothing is denied.
    fn is_empty(&self) -> bool;

    /// Tells whether this access is denied.
    fn has(&self, access: &crate::words::Access) -> bool;
}

/// No rule denies anything.
#[derive(Debug)]
pub struct NothingDenied;

impl Denied for NothingDenied {
    fn is_empty(&self) -> bool {
        true
    }

    fn has(&self, _: &crate::words::Access) -> bool {
        false
    }
}
