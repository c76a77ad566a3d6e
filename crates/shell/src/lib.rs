//! What a shell command needs permission for: every simple command, every file it opens, every variable it sets.
//!
//! Runs nothing and changes nothing. The text is parsed with the grammar of bash. Programs that only read are listed with
//! their harmless options; everything else, and everything that cannot be analysed, needs permission. `tools::bash` maps
//! needs to permission rules, `process::sandbox` is what the kernel enforces.

mod analyse;
mod auto_run;
mod awk;
mod context;
mod git;
mod grammar;
mod items;
mod known;
mod need;
mod opaque;
mod options;
mod parse;
mod paths;
mod prefix;
mod programs;
mod recursive_reads;
mod repository;
mod resolve;
mod secret;
mod sed;
mod small_programs;
mod wildcard;
mod word;
mod wrappers;

pub use analyse::needs;
pub use auto_run::{AUTO_RUN, is_auto_run, is_auto_run_name};
pub use context::Context;
pub use need::{Always, Form, Need, NeedKind, Verdict, require_extra};
pub use repository::{config_problem, submodules};
pub use resolve::{clean, is_in_git, is_narrow, real};
pub use secret::is_secret;
