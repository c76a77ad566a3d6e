//! Reads the tree of a project, which may be hostile: a clone can contain links to devices, pipes and endless files.
//!
//! [`beneath`] opens and changes files without following links, [`read`] reads them up to a limit, [`walk`] lists directories as `rg` does. Decides
//! nothing about permission; `tools::scope` does.

pub mod beneath;
pub mod read;
mod rules;
pub mod walk;

pub use read::{NotRead, read, read_beneath, read_linked};
pub use walk::{Skipped, WalkOptions, walk};
