//! The store from outside: every backend by one suite, sessions through crashes, files that were damaged.

mod backends;
mod faults;
mod folder;
mod sessions;
