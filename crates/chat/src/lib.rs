//! The terminal client: shows a conversation with any ACP agent.
//!
//! The modules here are pure and turn untrusted text into styled lines. [`clean`] removes what could control a terminal,
//! [`markdown`] renders an answer while it arrives, [`diff`] a change of a file, [`highlight`] a line of code; [`style`] is what
//! they produce, [`text`] measures and wraps it, and [`color`] decides which colours a terminal gets.

pub mod clean;
pub mod color;
pub mod diff;
pub mod highlight;
pub mod markdown;
pub mod style;
pub mod text;

pub use clean::{Cleaner, clean, one_line};
pub use color::{ColorChoice, ColorEnvironment, ColorLevel};
pub use markdown::Markdown;
pub use style::{Color, Line, Span, Style, Theme};
