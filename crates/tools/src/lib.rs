//! The built-in tools, one file each, and the one place that says which paths they may touch.

pub mod scope;
