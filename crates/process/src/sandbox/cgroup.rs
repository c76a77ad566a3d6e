//! Limits for all processes of a command together, where the system lets us set them: as root.
//!
//! Root is exempt from the limit of processes that users have, so without this a fork bomb as root would not end. The agent
//! makes the groups, the command joins them before it runs, and processes left in them are killed when it has ended.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use super::profile::Limits;

/// Where groups are made; cgroup v1 has a tree for each kind of limit.
const V1: [&str; 2] = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"];
const V2: &str = "/sys/fs/cgroup";
/// The files that limit processes and memory; each kind of group has some of them.
const PROCESSES: &str = "pids.max";
const MEMORY: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];

/// What the names of our groups begin with; the number of the process that made it follows.
const NAME: &str = "confine-";

/// Groups of ended commands that still had processes; removed with the next ones.
static LEFT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The groups of a command. All that is left in them is killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Groups(Vec<PathBuf>);

impl Groups {
    /// Makes groups with these limits; `None` where none can be made.
    pub(super) fn make(limits: &Limits) -> Option<Groups> {
        if !are_supported() {
            return None;
        }
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|directory| !is_removed(directory));
        drop(left);
        let groups = Groups(make(&fresh_name()));
        let memory = MEMORY.iter().map(|file| (*file, limits.memory));
        for (file, most) in memory.chain([(PROCESSES, limits.processes)]) {
            for directory in &groups.0 {
                // A group has only the files of its kind.
                std::fs::write(directory.join(file), most.to_string()).ok();
            }
        }
        Some(groups)
    }

    /// Opens what a process writes to in order to join.
    pub(super) fn open(&self) -> Vec<OwnedFd> {
        let open = |directory: &PathBuf| {
            std::fs::File::options().write(true).open(directory.join("cgroup.procs")).ok()
        };
        self.0.iter().filter_map(open).map(OwnedFd::from).collect()
    }

    /// Returns who is in the groups.
    fn inside(&self) -> Vec<Pid> {
        let read =
            |directory: &PathBuf| std::fs::read_to_string(directory.join("cgroup.procs")).ok();
        let lists: Vec<String> = self.0.iter().filter_map(read).collect();
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
        let left = self.0.drain(..).filter(|directory| !is_removed(directory));
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
    }
}

/// Tells whether groups can be made here. Tried once; removes those of agents that were killed.
fn are_supported() -> bool {
    static ARE_SUPPORTED: LazyLock<bool> = LazyLock::new(|| {
        if !rustix::process::geteuid().is_root() {
            return false;
        }
        sweep(|maker| !is_alive(maker));
        let made = make(&fresh_name());
        !made.is_empty() && made.iter().all(|directory| is_removed(directory))
    });
    *ARE_SUPPORTED
}

/// Returns a name that was never used before.
fn fresh_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{NAME}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Makes what groups of a name can be made.
fn make(name: &str) -> Vec<PathBuf> {
    // The parent must be a real controller: a plain directory would take everything and enforce nothing.
    let is_real = |parent: &&&str| Path::new(parent).join("cgroup.procs").exists();
    let make_in = |parent: &&str| {
        let directory = Path::new(parent).join(name);
        std::fs::create_dir(&directory).is_ok().then_some(directory)
    };
    let made: Vec<PathBuf> = V1.iter().filter(is_real).filter_map(make_in).collect();
    if made.is_empty() && is_unified() { make_in(&V2).into_iter().collect() } else { made }
}

/// Removes a group. The kernel refuses while anybody is in it.
fn is_removed(directory: &Path) -> bool {
    std::fs::remove_dir(directory).is_ok() || !directory.exists()
}

/// Removes the groups whose maker this is true of, if they have no processes.
fn sweep(is_over: impl Fn(u32) -> bool) {
    for parent in V1.iter().chain([&V2]) {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_str().and_then(maker_of).is_some_and(&is_over) {
                std::fs::remove_dir(entry.path()).ok();
            }
        }
    }
}

/// Returns which process made the groups of a name, if it is one of our own.
fn maker_of(name: &str) -> Option<u32> {
    name.strip_prefix(NAME)?.split_once('-')?.0.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn is_unified() -> bool {
    std::fs::read_to_string(Path::new(V2).join("cgroup.subtree_control"))
        .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "pids"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that no process has.
    const NOBODY: u32 = u32::MAX - 1;

    #[test]
    fn groups_of_dead_agents_are_removed_and_those_of_living_ones_stay() {
        if !are_supported() {
            assert!(Groups::make(&Limits::default()).is_none());
            return;
        }
        let (dead, living) = (make(&format!("{NAME}{NOBODY}-test")), make(&fresh_name()));
        sweep(|maker| !is_alive(maker));
        assert!(!dead.is_empty() && !dead.iter().any(|group| group.exists()));
        assert!(!living.is_empty() && living.iter().all(|group| group.exists()));
        assert!(living.iter().all(|group| is_removed(group)));
    }

    #[test]
    fn groups_go_with_their_command() {
        let Some(groups) = Groups::make(&Limits::default()) else { return };
        let directories = groups.0.clone();
        assert!(!groups.open().is_empty());
        drop(groups);
        assert!(!directories.iter().any(|directory| directory.exists()));
    }
}
