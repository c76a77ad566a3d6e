//! The process as the kernel reports it: memory, activity, sockets.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use super::{Agent, DEADLINE};

pub(crate) const KIB: u64 = 1024;
pub(crate) const MIB: u64 = 1024 * KIB;

impl Agent {
    /// Returns its current memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// Returns its peak memory, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * KIB
    }

    /// Waits until it is idle: for half a second no thread ran or was ready to run.
    pub(crate) fn wait_until_quiet(&self) {
        let end = Instant::now() + DEADLINE;
        let mut quiet = 0;
        let mut before = u64::MAX;
        while quiet < 10 {
            assert!(Instant::now() < end, "the program never came to rest");
            // Being idle is not an event, so it has to be polled.
            std::thread::sleep(Duration::from_millis(50));
            let (is_asleep, work) = self.work();
            quiet = if is_asleep && work == before { quiet + 1 } else { 0 };
            before = work;
        }
    }

    /// Returns whether all threads sleep, and how often they have run so far.
    fn work(&self) -> (bool, u64) {
        let mut is_asleep = true;
        let mut switches = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap() {
            // A thread may end while this reads.
            let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else {
                continue;
            };
            for line in status.lines() {
                match line.split_once(':') {
                    Some(("State", state)) => is_asleep &= state.trim().starts_with('S'),
                    Some((name, count)) if name.ends_with("ctxt_switches") => {
                        switches += count.trim().parse::<u64>().unwrap();
                    }
                    _ => {}
                }
            }
        }
        (is_asleep, switches)
    }

    /// Returns the sockets that others could connect to.
    pub(crate) fn listening_sockets(&self) -> Vec<String> {
        let pid = self.pid();
        let inodes: HashSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            .filter_map(|target| {
                let target = target.to_string_lossy().into_owned();
                Some(target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
            })
            .collect();
        let mut found = Vec::new();
        // The column of the inode differs between the tables, so all columns are compared.
        for table in ["tcp", "tcp6", "udp", "udp6", "unix"] {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
            found.extend(text.lines().skip(1).filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let is_ours = words.iter().any(|word| inodes.contains(*word));
                let is_open = match table {
                    // 0A is LISTEN; a udp socket receives without it.
                    "tcp" | "tcp6" => words.get(3) == Some(&"0A"),
                    "udp" | "udp6" => true,
                    // A socket with a name, or one that accepts connections.
                    _ => words.len() > 7 || words.get(3) == Some(&"00010000"),
                };
                (is_ours && is_open).then(|| format!("{table}: {line}"))
            }));
        }
        found
    }

    /// Returns the processes that it started and that still live.
    pub(crate) fn children(pid: u32) -> Vec<u32> {
        let parent = |status: &str| {
            status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse::<u32>().ok()
        };
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .filter(|other| {
                let status = fs::read_to_string(format!("/proc/{other}/status"));
                status.ok().as_deref().and_then(parent) == Some(pid)
            })
            .collect()
    }
}
