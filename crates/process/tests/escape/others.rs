//! Attempts on other processes, and on living longer than allowed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::attempts::{Attempt, World};
use crate::system::{address, address_mut, call, fork, works};

fn of_agent(world: &World, file: &str) -> bool {
    let found = fs::read(format!("/proc/{}/{file}", world.agent())).unwrap_or_default();
    // In a PID namespace the number may be another process.
    let mark = if file == "environ" { world.text("key") } else { "drive" };
    found.windows(mark.len().max(1)).any(|window| window == mark.as_bytes())
}

fn reads_memory(world: &World) -> bool {
    let maps = fs::read_to_string(format!("/proc/{}/maps", world.agent())).unwrap_or_default();
    let Some(start) = maps.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok())
    else {
        return false;
    };
    fs::File::open(format!("/proc/{}/mem", world.agent())).is_ok_and(|file| {
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut [0; 4], start).is_ok()
    })
}

/// Returns whether the agent's process id means the agent here, too. In a PID namespace it means no process, or another one.
fn sees_agent(world: &World) -> bool {
    fs::read_link(format!("/proc/{}/exe", world.agent())).is_ok() || of_agent(world, "cmdline")
}

fn reads_memory_directly(world: &World) -> bool {
    let mut byte = [0_u8; 4];
    let here = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 4 };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(0x1000), iov_len: 4 };
    // The kernel checks access before it checks the address, so EFAULT means that access was granted.
    let read = call(
        libc::SYS_process_vm_readv,
        &[world.agent().into(), address(&here), 1, address(&there), 1],
    );
    sees_agent(world) && (read >= 0 || crate::system::errno() == libc::EFAULT)
}

fn steals_descriptor(world: &World) -> bool {
    let agent = call(libc::SYS_pidfd_open, &[world.agent().into(), 0]);
    agent >= 0 && sees_agent(world) && works(libc::SYS_pidfd_getfd, &[agent, 1, 0])
}

/// Leaves a process behind that creates a file after the command has ended; the driver checks for it.
fn leaves_daemon(world: &World) -> bool {
    let mark = world.inside("survivor");
    let command = format!("/proc/{}", call(libc::SYS_getppid, &[]));
    if fork() == 0 {
        works(libc::SYS_setsid, &[]);
        if fork() == 0 {
            while std::path::Path::new(&command).exists() {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            // By now everything left behind should have been killed.
            std::thread::sleep(std::time::Duration::from_millis(300));
            fs::write(mark, "alive").ok();
        }
        std::process::exit(0);
    }
    false
}

fn sets_limit(world: &World) -> bool {
    let agent = world.agent().into();
    sees_agent(world) && works(libc::SYS_prlimit64, &[agent, libc::RLIMIT_CORE.into(), 0, 0])
}

fn sets_priority(world: &World) -> bool {
    let agent = world.agent().into();
    sees_agent(world) && works(libc::SYS_setpriority, &[0, agent, 0])
}

/// Runs a set-uid program of root and checks whether it has gained privileges. Only root can create one.
#[expect(clippy::disallowed_methods, reason = "an escape starts what it can")]
fn gains_privileges(world: &World) -> bool {
    let program = world.outside("../raise");
    if fs::metadata(&program).is_ok_and(|file| file.uid() == 0) {
        return Command::new(&program).arg("privileged").status().is_ok_and(|code| code.success());
    }
    call(libc::SYS_prctl, &[libc::PR_GET_NO_NEW_PRIVS.into(), 0, 0, 0, 0]) == 0
}

pub(crate) fn has_capability() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines().filter(|line| line.starts_with("CapEff"));
    lines.any(|line| !line.ends_with("0000000000000000"))
}

pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("E22", "read the agent's environment", |w| of_agent(w, "environ")),
    ("E23", "read the agent's command line", |w| of_agent(w, "cmdline")),
    ("E24", "read the agent's memory", reads_memory),
    ("E25", "trace the agent", |w| {
        let agent = w.agent().into();
        sees_agent(w) && works(libc::SYS_ptrace, &[libc::PTRACE_SEIZE.into(), agent, 0, 0])
    }),
    ("E26", "read the agent's memory with process_vm_readv", reads_memory_directly),
    ("E27", "copy a file descriptor of the agent", steals_descriptor),
    ("E28", "signal the agent", |w| sees_agent(w) && works(libc::SYS_kill, &[w.agent().into(), 0])),
    ("E55", "gain privileges with a set-uid program", gains_privileges),
    ("E63", "leave a process running", leaves_daemon),
    ("E74", "signal all processes", |_| works(libc::SYS_kill, &[-1, 0])),
    ("E75", "change the agent's priority", sets_priority),
    ("E76", "change the agent's limits", sets_limit),
    ("E90", "have a capability", |_| has_capability()),
    ("E91", "write the agent's oom score", |w| {
        let file = format!("/proc/{}/oom_score_adj", w.agent());
        sees_agent(w) && fs::read(&file).is_ok_and(|now| fs::write(&file, now).is_ok())
    }),
    ("E92", "write a core dump", |_| {
        let mut limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
        let asked =
            call(libc::SYS_prlimit64, &[0, libc::RLIMIT_CORE.into(), 0, address_mut(&mut limit)]);
        asked == 0 && limit.rlim_max > 0
    }),
];
