//! Attempts on the kernel: namespaces, mounts, and system calls that bypass checks.

use std::path::Path;

use crate::attempts::Attempt;
use crate::system::{address, c_path, call, errno, text, works};

/// A call that fails for its arguments got past the check; one that is refused did not.
fn is_refused() -> bool {
    matches!(errno(), libc::EPERM | libc::ENOSYS | libc::EACCES)
}

fn reaches(number: libc::c_long, arguments: &[libc::c_long]) -> bool {
    call(number, arguments) >= 0 || !is_refused()
}

fn mounts() -> bool {
    let (kind, place) = (c_path(Path::new("tmpfs")), c_path(Path::new("/mnt")));
    let is_done = works(libc::SYS_mount, &[text(&kind), text(&place), text(&kind), 0, 0]);
    if is_done {
        // Unmounted again: without a sandbox every run would leave a mount on the machine.
        works(libc::SYS_umount2, &[text(&place), libc::c_long::from(libc::MNT_DETACH)]);
    }
    is_done
}

fn clones_by_new_call() -> bool {
    let mut arguments = [0_u64; 11];
    arguments[0] = libc::CLONE_NEWUSER as u64;
    arguments[4] = libc::SIGCHLD as u64;
    let child =
        call(libc::SYS_clone3, &[address(&arguments), size_of_val(&arguments) as libc::c_long]);
    if child == 0 {
        std::process::exit(0);
    }
    child > 0 || clones()
}

fn clones() -> bool {
    let flags = libc::c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
    let child = call(libc::SYS_clone, &[flags, 0, 0, 0, 0]);
    if child == 0 {
        std::process::exit(0);
    }
    child > 0
}

/// Runs a program from memory, without a file.
#[expect(clippy::disallowed_methods, reason = "an escape starts what it can")]
fn runs_from_memory() -> bool {
    let name = c_path(Path::new("escape"));
    let file = call(libc::SYS_memfd_create, &[text(&name), 0]);
    let path = format!("/proc/self/fd/{file}");
    let copied = std::fs::read("/bin/true").and_then(|program| std::fs::write(&path, program));
    file >= 0
        && copied.is_ok()
        && std::process::Command::new(path).status().is_ok_and(|status| status.success())
}

fn opens_queue() -> bool {
    let name = c_path(Path::new("escape"));
    let flags = libc::c_long::from(libc::O_CREAT | libc::O_RDWR);
    works(libc::SYS_mq_open, &[text(&name), flags, 0o600, 0])
        && works(libc::SYS_mq_unlink, &[text(&name)])
}

pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("E43", "io_uring", |_| {
        let parameters = [0_u8; 120];
        works(libc::SYS_io_uring_setup, &[1, address(&parameters)])
    }),
    ("E44", "new user namespace", |_| works(libc::SYS_unshare, &[libc::CLONE_NEWUSER.into()])),
    ("E45", "clone into a new user namespace", |_| clones_by_new_call()),
    ("E46", "mount", |_| mounts()),
    ("E47", "open_tree", |_| {
        let root = c_path(Path::new("/"));
        // OPEN_TREE_CLONE
        works(libc::SYS_open_tree, &[libc::AT_FDCWD.into(), text(&root), 1])
    }),
    ("E48", "fsopen", |_| {
        let kind = c_path(Path::new("tmpfs"));
        works(libc::SYS_fsopen, &[text(&kind), 0])
    }),
    ("E49", "chroot", |_| {
        let root = c_path(Path::new("/"));
        works(libc::SYS_chroot, &[text(&root)])
    }),
    ("E50", "open_by_handle_at", |_| {
        let handle = [8_u32, 1, 0, 0];
        reaches(libc::SYS_open_by_handle_at, &[libc::AT_FDCWD.into(), address(&handle), 0])
    }),
    ("E56", "keyctl", |_| works(libc::SYS_keyctl, &[0, -3, 1])),
    ("E57", "bpf", |_| {
        let attributes = [1_u32, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        works(libc::SYS_bpf, &[0, address(&attributes), 64])
    }),
    ("E58", "perf_event_open", |_| {
        let mut attributes = [0_u64; 16];
        attributes[0] = (128 << 32) | 1;
        works(libc::SYS_perf_event_open, &[address(&attributes), -1, 0, -1, 0])
    }),
    ("E59", "userfaultfd", |_| works(libc::SYS_userfaultfd, &[0])),
    ("E60", "inject keystrokes into the terminal (TIOCSTI)", |_| {
        let key = *b"x";
        let request = libc::TIOCSTI as libc::c_long;
        works(libc::SYS_ioctl, &[0, request, address(&key)])
    }),
    ("E62", "run a program from memory", |_| runs_from_memory()),
    ("E64", "use System V shared memory", |_| {
        let segment = call(libc::SYS_shmget, &[0x0E5C, 4096, (libc::IPC_CREAT | 0o600).into()]);
        segment >= 0 && works(libc::SYS_shmctl, &[segment, libc::IPC_RMID.into(), 0])
    }),
    ("E65", "open a POSIX message queue", |_| opens_queue()),
    ("E77", "change the host name", |_| {
        // To the name that it has.
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let length = name.trim_end().len() as libc::c_long;
        works(libc::SYS_sethostname, &[name.as_ptr() as libc::c_long, length])
    }),
    ("E78", "reboot", |_| reaches(libc::SYS_reboot, &[0, 0, 0])),
    ("E79", "read the kernel's log", |_| works(libc::SYS_syslog, &[10, 0, 0])),
    ("E80", "fanotify", |_| works(libc::SYS_fanotify_init, &[0, 0])),
    ("E97", "unload a kernel module", |_| reaches(libc::SYS_delete_module, &[0, 0])),
    ("E98", "set the clock", |_| reaches(libc::SYS_clock_settime, &[0, 0])),
    ("E99", "enter a namespace of the agent", |w| {
        let path = c_path(Path::new(&format!("/proc/{}/ns/mnt", w.agent())));
        let space = call(libc::SYS_openat, &[libc::AT_FDCWD.into(), text(&path), 0, 0]);
        space >= 0 && works(libc::SYS_setns, &[space, 0])
    }),
];
