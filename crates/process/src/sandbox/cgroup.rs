//! Limits for all processes of a command together, where the system lets us set them: as root.
//!
//! Root is exempt from the limit of processes that users have, so without this a fork bomb of root's has no end.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::profile::Limits;

const V1: [(&str, &str); 2] =
    [("/sys/fs/cgroup/pids", "pids.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];
const V2: &str = "/sys/fs/cgroup";

/// Groups that are removed when this value is dropped, which must be after the last process in them ended.
#[derive(Debug, Default)]
pub(super) struct Groups {
    folders: Vec<PathBuf>,
    joins: Vec<File>,
}

impl Groups {
    /// Makes what groups can be made; none is no error, the other limits hold all the same.
    pub(super) fn make(limits: &Limits) -> Groups {
        let mut groups = Groups::default();
        if !rustix::process::geteuid().is_root() {
            return groups;
        }
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("confine-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let wanted =
            |file: &str| if file.starts_with("pids") { limits.processes } else { limits.memory };
        for (parent, file) in V1 {
            groups.join(&Path::new(parent).join(&name), &[(file, wanted(file))]);
        }
        if groups.folders.is_empty() && is_unified() {
            let files = ["pids.max", "memory.max"].map(|file| (file, wanted(file)));
            groups.join(&Path::new(V2).join(&name), &files);
        }
        groups
    }

    fn join(&mut self, folder: &Path, limits: &[(&str, u64)]) {
        // The parent must be a real controller: a plain folder would take everything and enforce nothing.
        let Some(parent) = folder.parent().filter(|parent| parent.join("cgroup.procs").exists())
        else {
            return;
        };
        if std::fs::create_dir(parent.join(folder)).is_err() {
            return;
        }
        self.folders.push(folder.to_owned());
        for (file, most) in limits {
            std::fs::write(folder.join(file), most.to_string()).ok();
        }
        self.joins.extend(File::options().write(true).open(folder.join("cgroup.procs")));
    }

    /// Returns the descriptors that a process writes `0` to in order to join.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        self.joins.iter().map(File::as_raw_fd).collect()
    }

    /// Kills whatever is left in the groups, and says whether there was anything.
    fn kill(&self) -> bool {
        let mut found = false;
        for folder in &self.folders {
            let list = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            let pids = list.lines().filter_map(|line| line.parse().ok());
            for pid in pids.filter_map(rustix::process::Pid::from_raw) {
                found = true;
                // It may have ended since.
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
        }
        found
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // A process that forks faster than we read is caught in the next round.
        for _ in 0..100 {
            if !self.kill() {
                break;
            }
        }
        for folder in &self.folders {
            std::fs::remove_dir(folder).ok();
        }
    }
}

fn is_unified() -> bool {
    std::fs::read_to_string(Path::new(V2).join("cgroup.subtree_control"))
        .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "pids"))
}
