//! Limits for all processes of a command together, where the system lets us set them: as root.
//!
//! Root is exempt from the limit of processes that users have, so without this a fork bomb of root's has no end. To make,
//! join and remove groups takes the kernel up to ten milliseconds each, so `spare` does that ahead of time; the agent only
//! ends what is left in them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use super::profile::Limits;

/// Where groups are made, in the older way one for each kind of limit.
const V1: [&str; 2] = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"];
const V2: &str = "/sys/fs/cgroup";
/// The files that limit processes and memory; each kind of group has some of them.
const PROCESSES: &str = "pids.max";
const MEMORY: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];

/// What the names of our groups begin with; the number of the process that named it follows.
const NAME: &str = "confine-";

/// Groups of commands that have ended, for the next spare to remove.
static LEFT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Tells whether groups can be made here. Tried once, with those removed that an agent left behind that is gone.
pub(super) fn are_here() -> bool {
    static ARE_HERE: LazyLock<bool> = LazyLock::new(|| {
        if !rustix::process::geteuid().is_root() {
            return false;
        }
        sweep(|maker| !is_alive(maker));
        let name = fresh_name();
        let made = make(&name);
        remove(&name);
        !made.is_empty()
    });
    *ARE_HERE
}

/// Returns a name that was never used before.
pub(super) fn fresh_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{NAME}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Makes what groups of a name can be made; none is no error, the other limits hold all the same.
pub(super) fn make(name: &str) -> Vec<PathBuf> {
    // The parent must be a real controller: a plain folder would take everything and enforce nothing.
    let is_real = |parent: &&&str| Path::new(parent).join("cgroup.procs").exists();
    let make_in = |parent: &&str| {
        let folder = Path::new(parent).join(name);
        std::fs::create_dir(&folder).is_ok().then_some(folder)
    };
    let made: Vec<PathBuf> = V1.iter().filter(is_real).filter_map(make_in).collect();
    if made.is_empty() && is_unified() { make_in(&V2).into_iter().collect() } else { made }
}

/// Joins groups. That one is gone is no reason not to go on.
pub(super) fn join<'a>(folders: impl Iterator<Item = &'a Path>) {
    for folder in folders {
        std::fs::write(folder.join("cgroup.procs"), "0").ok();
    }
}

/// Limits groups.
pub(super) fn limit(folders: &[PathBuf], processes: u64, memory: u64) {
    let files = MEMORY.iter().map(|file| (*file, memory)).chain([(PROCESSES, processes)]);
    for (file, most) in files {
        for folder in folders {
            // A file that is not there cannot be made there either.
            std::fs::write(folder.join(file), most.to_string()).ok();
        }
    }
}

/// Removes the groups of a name. The kernel refuses while anybody is in them.
pub(super) fn remove(name: &str) {
    for folder in places(name) {
        std::fs::remove_dir(folder).ok();
    }
}

/// Returns the names of groups whose commands have ended, once.
pub(super) fn take_left() -> Vec<String> {
    std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Removes the groups whose maker this is true of, if nobody is in them; returns how many could not be.
pub(super) fn sweep(is_over: impl Fn(u32) -> bool) -> usize {
    let mut left = 0;
    for parent in V1.iter().chain([&V2]) {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_str().and_then(maker_of).is_some_and(&is_over) {
                left += usize::from(std::fs::remove_dir(entry.path()).is_err());
            }
        }
    }
    left
}

/// Returns who made groups of a name, if it is one of ours.
pub(super) fn maker_of(name: &str) -> Option<u32> {
    name.strip_prefix(NAME)?.split_once('-')?.0.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn places(name: &str) -> impl Iterator<Item = PathBuf> {
    V1.iter().chain([&V2]).map(move |parent| Path::new(parent).join(name))
}

/// The groups of a command that runs. All that is left in them is killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Groups(String);

impl Groups {
    pub(super) fn of(name: String) -> Groups {
        Groups(name)
    }

    /// Returns who is in the groups.
    fn inside(&self) -> Vec<Pid> {
        let read = |folder: PathBuf| std::fs::read_to_string(folder.join("cgroup.procs")).ok();
        let lists: Vec<String> = places(&self.0).filter_map(read).collect();
        let pids = lists.iter().flat_map(|list| list.lines()).filter_map(|line| line.parse().ok());
        pids.filter_map(Pid::from_raw).collect()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let mut killed: Vec<Pid> = Vec::new();
        // A process that forks faster than we read is caught in the next round; one that only needs time to end is not
        // waited for.
        for _ in 0..100 {
            let found = self.inside();
            if found.iter().all(|pid| killed.contains(pid)) {
                break;
            }
            for pid in &found {
                // It may have ended since.
                kill_process(*pid, Signal::KILL).ok();
            }
            killed = found;
        }
        let name = std::mem::take(&mut self.0);
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    }
}

fn is_unified() -> bool {
    std::fs::read_to_string(Path::new(V2).join("cgroup.subtree_control"))
        .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "pids"))
}

/// What a spare is told when it is to go: how much its groups may use.
pub(super) fn to_bytes(limits: &Limits) -> [u8; 16] {
    let both = u128::from(limits.processes) << 64 | u128::from(limits.memory);
    both.to_be_bytes()
}

/// Reads it back: processes and memory.
pub(super) fn from_bytes(bytes: [u8; 16]) -> (u64, u64) {
    let both = u128::from_be_bytes(bytes);
    ((both >> 64) as u64, both as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that no process has.
    const NOBODY: u32 = u32::MAX - 1;

    #[test]
    fn groups_of_the_dead_are_swept_and_those_of_the_living_stay() {
        if !are_here() {
            // Then none can be made, and that is known.
            assert!(make(&fresh_name()).is_empty());
            return;
        }
        let (dead, living) = (format!("{NAME}{NOBODY}-test"), fresh_name());
        let (dead_groups, living_groups) = (make(&dead), make(&living));
        assert!(sweep(|maker| maker == NOBODY && !is_alive(maker)) == 0);
        sweep(|maker| !is_alive(maker));
        assert!(!dead_groups.is_empty() && !dead_groups.iter().any(|group| group.exists()));
        assert!(!living_groups.is_empty() && living_groups.iter().all(|group| group.exists()));
        remove(&living);
        assert!(!living_groups.iter().any(|group| group.exists()));
    }

    #[test]
    fn limits_are_told_and_understood() {
        let limits = Limits { processes: 7, memory: u64::MAX - 1, ..Limits::default() };
        assert_eq!(from_bytes(to_bytes(&limits)), (7, u64::MAX - 1));
    }
}
