//! The tools as a session uses them: planned, asked for, run; on a real disk and with a client that serves files.

mod client;
mod desk;
mod faults;
mod paths;
mod race;
mod search;
