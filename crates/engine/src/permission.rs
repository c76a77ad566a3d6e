//! Permission: which rule applies, what a session decides, and the question to the user.
//!
//! `permission::rules` finds the rule, `permission::policy` decides for a session, `permission::question` writes the
//! question. The values they work with are in [`words`](crate::words).

pub mod policy;
mod question;
pub mod rules;

pub use crate::words::access::{Access, Answer, Choice, Decision, Question, UNANALYSED};
pub use crate::words::permission_key::PermissionKey;
pub use policy::{AnswerScope, Asked};
pub use question::{about, always_words};
