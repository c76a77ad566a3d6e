//! Which code an input reaches: counters that the compiler adds to every branch when it is given the flags of `cargo xtask fuzz`.
//!
//! In an ordinary build nothing is registered, and nothing is measured.

#![expect(
    unsafe_code,
    reason = "the counters are memory that the compiler has laid out; only `cargo xtask fuzz` has any"
)]

use std::sync::{Mutex, PoisonError};

/// The counters of the program, by address and number. The linker merges those of all crates, so most registrations are the same.
static COUNTERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Registers counters. Called by code that the compiler adds, before `main`.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
    let place = (start as usize, (end as usize).saturating_sub(start as usize));
    let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    if place.1 > 0 && !counters.contains(&place) {
        counters.push(place);
    }
}

/// What was reached so far.
pub(crate) struct Coverage {
    places: Vec<(usize, usize)>,
    /// For each counter, a bit for each range of values that it had.
    seen: Vec<u8>,
    /// How many counters were reached.
    pub(crate) reached: usize,
}

impl Coverage {
    /// Returns `None` in an ordinary build.
    pub(crate) fn new() -> Option<Coverage> {
        let places = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let number = places.iter().map(|place| place.1).sum();
        (number > 0).then(|| Coverage { places, seen: vec![0; number], reached: 0 })
    }

    /// Sets all counters to zero.
    pub(crate) fn clear(&self) {
        for (start, number) in &self.places {
            // SAFETY: the compiler has laid out these counters, which live as long as the program. Other threads may count meanwhile, which
            // makes a count wrong and nothing else.
            unsafe { std::ptr::write_bytes(*start as *mut u8, 0, *number) };
        }
    }

    /// Adds what was reached since the counters were cleared, and tells whether any of it is new.
    pub(crate) fn add(&mut self) -> bool {
        let mut is_new = false;
        let mut index = 0;
        for (start, number) in &self.places {
            // SAFETY: as above.
            let counters = unsafe { std::slice::from_raw_parts(*start as *const u8, *number) };
            for chunk in counters.chunks(64) {
                // Most of the program is not reached.
                if chunk.iter().any(|count| *count > 0) {
                    for (count, seen) in chunk.iter().zip(&mut self.seen[index..]) {
                        let range = range_of(*count);
                        if *seen & range != range {
                            self.reached += usize::from(*seen == 0);
                            *seen |= range;
                            is_new = true;
                        }
                    }
                }
                index += chunk.len();
            }
        }
        is_new
    }
}

/// Returns a bit for the range that a count is in: one more round of a long loop is nothing new.
fn range_of(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}
