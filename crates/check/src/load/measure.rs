//! Measures: percentiles, and CPU and memory of a process with everything it started.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde::Serialize;

/// How often the processes are looked at.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// The kernel counts CPU time in hundredths of a second on every Linux that Rust supports.
const TICKS: f64 = 100.0;

/// Percentiles of a list of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half of the times are shorter.
    pub p50: f64,
    /// Nineteen of twenty are shorter.
    pub p95: f64,
    /// All but one of a hundred are shorter.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Percentiles {
    /// Computes them. All are 0 for an empty list.
    #[must_use]
    pub fn of(mut times: Vec<f64>) -> Percentiles {
        times.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let rank = (part * times.len() as f64).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Percentiles { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1.0) }
    }
}

/// CPU and memory at one time.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// CPU seconds since the start.
    pub cpu: f64,
    /// Memory in MB.
    pub memory: f64,
}

/// Samples a process and its descendants. On systems without `/proc` it finds nothing.
#[derive(Debug)]
pub struct Sampler {
    root: Option<u32>,
    start: Instant,
    cpu_before: f64,
    own_before: f64,
    /// What was found.
    pub samples: Vec<Sample>,
}

impl Sampler {
    /// Prepares to sample a process.
    #[must_use]
    pub fn new(root: Option<u32>) -> Sampler {
        let start = Instant::now();
        Sampler { root, start, cpu_before: 0.0, own_before: 0.0, samples: Vec::new() }
    }

    /// Starts to measure.
    pub fn begin(&mut self) {
        self.start = Instant::now();
        self.cpu_before = self.totals().0;
        self.own_before = own_cpu();
    }

    /// Adds a sample.
    pub fn sample(&mut self) {
        let (cpu, memory) = self.totals();
        let at = self.start.elapsed().as_secs_f64();
        self.samples.push(Sample { at, cpu: (cpu - self.cpu_before).max(0.0), memory });
    }

    pub(super) fn cpu(&self) -> f64 {
        self.samples.iter().map(|sample| sample.cpu).fold(0.0, f64::max)
    }

    pub(super) fn own_cpu(&self) -> f64 {
        own_cpu() - self.own_before
    }

    pub(super) fn peak(&self) -> f64 {
        self.samples.iter().map(|sample| sample.memory).fold(0.0, f64::max)
    }

    /// Returns CPU seconds and memory in MB of the process and its descendants.
    fn totals(&self) -> (f64, f64) {
        let Some(root) = self.root else { return (0.0, 0.0) };
        let all = processes();
        let mut tree = HashSet::from([root]);
        // A child may be listed before its parent.
        while all.iter().any(|it| tree.contains(&it.parent) && tree.insert(it.id)) {}
        let of_tree = all.iter().filter(|it| tree.contains(&it.id));
        of_tree.fold((0.0, 0.0), |(cpu, memory), it| (cpu + it.cpu, memory + it.memory))
    }
}

struct Process {
    id: u32,
    parent: u32,
    cpu: f64,
    memory: f64,
}

fn processes() -> Vec<Process> {
    let directories = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = directories.filter_map(|directory| directory.file_name().to_str()?.parse().ok());
    ids.filter_map(read_process).collect()
}

fn read_process(id: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name is in parentheses and may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
    let pages = number(21)?;
    Some(Process {
        id,
        parent: fields.get(1)?.parse().ok()?,
        cpu: (number(11)? + number(12)?) / TICKS,
        memory: pages * 4096.0 / 1e6,
    })
}

/// Returns the CPU seconds of this program.
fn own_cpu() -> f64 {
    read_process(std::process::id()).map_or(0.0, |own| own.cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_of_the_list() {
        let times: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let found = Percentiles::of(times);
        assert_eq!(found, Percentiles { p50: 50.0, p95: 95.0, p99: 99.0, max: 100.0 });
        assert_eq!(Percentiles::of(vec![7.0]).p50, 7.0);
        assert_eq!(Percentiles::of(Vec::new()).max, 0.0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn own_process_is_sampled() {
        let mut sampler = Sampler::new(Some(std::process::id()));
        sampler.begin();
        sampler.sample();
        assert!(sampler.peak() > 0.1, "{:?}", sampler.samples);
    }
}
