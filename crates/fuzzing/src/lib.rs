//! A small fuzzer for parsers and decoders, on the stable toolchain and without dependencies. For tests only.
//!
//! A target is a test named `fuzz_NAME` that calls [`run`]. Its inputs are made from the files in `corpus/NAME` by random changes.
//! By default each target gets a few hundred inputs, always the same ones; `PURLIN_FUZZ_SECONDS` makes it run for so long, with different ones
//! each time. `cargo xtask fuzz` also builds with counters for every branch (`coverage`): an input that reaches something new is changed further,
//! and a short one is written to the corpus. So is an input that makes the target panic. Every later run tries all of them first.

#![expect(clippy::print_stderr, reason = "tests report on stderr; `cargo xtask attack` reads it")]

mod coverage;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coverage::Coverage;

/// How many inputs a target gets in the ordinary tests.
const INPUTS: u64 = 400;
/// The largest input that is written to the corpus because it reaches something new, and the most of them for a target.
const LARGEST_SAVED: usize = 512;
const MOST_SAVED: usize = 40;
/// The most inputs that are changed further.
const MOST_KNOWN: usize = 20_000;
/// The largest input.
const LARGEST: usize = 64 * 1024;
/// An input that takes longer has found something. Far more than a slow machine needs.
const TOO_SLOW: Duration = Duration::from_secs(20);

/// Runs a target: first on its corpus, then on changed inputs. `words` are pieces of its language.
///
/// # Panics
/// If the target panics or is too slow; says where the input was written.
pub fn run(name: &str, words: &[&str], target: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut corpus = read_corpus(&directory);
    assert!(!corpus.is_empty(), "{} has no files", directory.display());
    let end = seconds().map(|seconds| Instant::now() + seconds);
    let mut random = Random(end.map_or(0x9e37_79b9, |_| from_clock()));
    let mut count = 0;
    let mut slowest = Duration::ZERO;
    let mut coverage = Coverage::new();
    let mut try_one = |input: &[u8]| {
        coverage.iter().for_each(Coverage::clear);
        let start = Instant::now();
        let is_fine = catch_unwind(AssertUnwindSafe(|| target(input))).is_ok();
        let took = start.elapsed();
        slowest = slowest.max(took);
        if !is_fine || took > TOO_SLOW {
            let file = save(&directory, "found", input);
            let why = if is_fine { "is too slow" } else { "panics" };
            panic!("{name} {why} on {}", file.display());
        }
        count += 1;
        coverage.as_mut().is_some_and(Coverage::add)
    };
    let mut saved = corpus.len();
    for input in &corpus {
        try_one(input);
    }
    let mut made = 0;
    while end.map_or(made < INPUTS, |end| Instant::now() < end) {
        let input = random.change(&corpus, words);
        if try_one(&input) && corpus.len() < MOST_KNOWN {
            if input.len() <= LARGEST_SAVED && saved < MOST_SAVED {
                save(&directory, "reaches", &input);
                saved += 1;
            }
            corpus.push(input);
        }
        made += 1;
    }
    let reached =
        coverage.map(|found| format!(", branches {}, inputs {}", found.reached, corpus.len()));
    let (reached, slowest) = (reached.unwrap_or_default(), slowest.as_micros());
    eprintln!("fuzz {name}: attempts: {count}, slowest {slowest} µs{reached}");
}

/// Returns how long each target runs, if that is asked for.
fn seconds() -> Option<Duration> {
    #[expect(clippy::disallowed_methods, reason = "only tests use this crate")]
    let seconds = std::env::var("PURLIN_FUZZ_SECONDS").ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

fn from_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Zero would stay zero.
    (now.as_nanos() as u64) | 1
}

fn read_corpus(directory: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files.iter().filter_map(|file| std::fs::read(file).ok()).collect()
}

fn save(directory: &Path, why: &str, input: &[u8]) -> PathBuf {
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let file = directory.join(format!("{why}-{hash:016x}"));
    if let Err(err) = std::fs::write(&file, input) {
        eprintln!("{} cannot be written: {err}", file.display());
    }
    file
}

/// How many inputs are the last ones.
const RECENT: usize = 20;

/// A small generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`; 0 if that is 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 1).unwrap_or(0).checked_rem(end).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// Makes an input from those of the corpus.
    fn change(&mut self, corpus: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
        // Often one of those that were the last to reach something new.
        let recent = corpus.len().saturating_sub(RECENT);
        let from = if self.next().is_multiple_of(3) { &corpus[recent..] } else { corpus };
        let mut input = self.pick(from).cloned().unwrap_or_default();
        for _ in 0..=self.below(8) {
            self.change_once(&mut input, corpus, words);
        }
        input.truncate(LARGEST);
        input
    }

    fn change_once(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str]) {
        let at = self.below(input.len() + 1);
        let to = (at + self.below(32)).min(input.len());
        match self.below(9) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << (self.next() % 8);
                }
            }
            1 => drop(input.drain(at..to)),
            2 => {
                let part = input[at..to].to_vec();
                let times = 1 + self.below(20);
                input.splice(at..at, part.repeat(times));
            }
            3 | 4 => {
                let word = self.pick(words).map(|word| word.as_bytes().to_vec());
                input.splice(at..at, word.unwrap_or_default());
            }
            5 => {
                let bytes: Vec<u8> = (0..self.below(8)).map(|_| self.next() as u8).collect();
                input.splice(at..to, bytes);
            }
            6 => input.truncate(at),
            7 => {
                let other = self.pick(corpus).cloned().unwrap_or_default();
                let from = self.below(other.len() + 1);
                input.splice(at.., other[from..].iter().copied());
            }
            _ => {
                // Texts with characters of several bytes, and some that are none.
                let odd = ["\u{0}", "\u{feff}", "é", "🎉", "\u{202e}", "\r\n", "\u{7f}", "\\ud83d"];
                let word = self.pick(&odd).copied().unwrap_or_default();
                input.splice(at..to, word.bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_differ_and_stay_small() {
        let corpus = vec![b"hello world".to_vec(), b"{\"a\": [1, 2]}".to_vec()];
        let mut random = Random(1);
        let made: std::collections::HashSet<Vec<u8>> =
            (0..1000).map(|_| random.change(&corpus, &["word"])).collect();
        assert!(made.len() > 800, "{}", made.len());
        assert!(made.iter().all(|input| input.len() <= LARGEST));
    }

    /// A fuzzer that finds nothing must be able to find something.
    #[test]
    fn panic_is_found_and_its_input_is_saved() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/self");
        let target = |input: &[u8]| assert!(!input.windows(3).any(|part| part == b"bad"));
        let found = catch_unwind(|| run("self", &["bad"], target));
        let why = *found.unwrap_err().downcast::<String>().unwrap();
        let file = why.strip_prefix("self panics on ").unwrap();
        assert!(std::fs::read(file).unwrap().windows(3).any(|part| part == b"bad"));
        std::fs::remove_file(file).unwrap();
        assert!(directory.join("start").exists());
    }
}
