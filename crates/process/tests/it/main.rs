//! The sandbox from outside: escape attempts and faults.

#![cfg_attr(
    target_os = "linux",
    expect(
        clippy::unwrap_used,
        clippy::disallowed_methods,
        reason = "helpers of tests are tests, too, which clippy does not see; the programs under test are no children of an agent"
    )
)]

#[cfg(target_os = "linux")]
mod container_escapes;
#[cfg(target_os = "linux")]
mod escapes;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod place;
#[cfg(target_os = "linux")]
mod tree;
