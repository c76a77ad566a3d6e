//! The terminal client: shows a conversation with any ACP agent, inline, with the terminal's own scrollback.
//!
//! `app` is a pure state machine: events in, commands and lines out. `talk` carries out its commands, `screen` turns lines into
//! bytes, `tty` is the terminal, and `run` connects them; `plain` does the same without moving the cursor. Below are pure modules that turn untrusted text into styled lines, which
//! other commands use too: [`clean`] removes what could control a terminal, [`markdown`] renders an answer while it arrives, [`diff`] a
//! change of a file, [`highlight`] a line of code; [`style`] is what they produce, [`text`] measures and wraps it, and [`color`]
//! decides which colours a terminal gets.

pub mod app;
pub mod clean;
pub mod color;
pub mod complete;
pub mod conversation;
pub mod diff;
pub mod editor;
pub mod files;
pub mod form;
pub mod highlight;
pub mod history;
pub mod image;
pub mod keymap;
pub mod keys;
pub mod markdown;
pub mod permission;
pub mod picker;
#[cfg(unix)]
mod plain;
#[cfg(unix)]
mod run;
pub mod screen;
pub mod style;
pub mod talk;
pub mod text;
pub mod tool_view;
#[cfg(unix)]
mod tty;

pub use clean::{Cleaner, clean, one_line};
pub use color::{ColorChoice, ColorEnvironment, ColorLevel};
pub use image::ImageProtocol;
pub use keymap::KeyMap;
pub use markdown::Markdown;
#[cfg(unix)]
pub use run::{ChatOptions, run};
pub use style::{Color, Line, Span, Style, Theme};
pub use talk::{AgentAddress, TalkOptions, Token};
