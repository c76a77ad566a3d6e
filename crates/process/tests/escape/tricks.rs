//! Attempts by other ways to the same ends: newer calls, descriptors instead of paths, other names of the same thing.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::attempts::{Attempt, World};
use crate::system::{address, address_mut, c_path, call, errno, text, works};

const HERE: libc::c_long = libc::AT_FDCWD as libc::c_long;

fn opens(path: &Path, flags: libc::c_int) -> libc::c_long {
    call(libc::SYS_openat, &[HERE, text(&c_path(path)), flags.into(), 0o600])
}

/// Exchanges two names in one step.
fn exchanges(world: &World, name: &str, with: &Path) -> bool {
    let own = world.inside(name);
    fs::create_dir_all(own.join("hooks")).ok();
    let flag = libc::c_long::from(libc::RENAME_EXCHANGE);
    works(libc::SYS_renameat2, &[HERE, text(&c_path(&own)), HERE, text(&c_path(with)), flag])
}

/// Opens a file read-only and opens the descriptor again for writing.
fn reopens(path: &Path) -> bool {
    let file = opens(path, libc::O_RDONLY);
    let again = opens(Path::new(&format!("/proc/self/fd/{file}")), libc::O_RDWR);
    let data = *b"escaped";
    file >= 0 && again >= 0 && call(libc::SYS_pwrite64, &[again, address(&data), 7, 0]) > 0
}

/// Gives a file a second name by its descriptor.
fn links_by_descriptor(world: &World) -> bool {
    let file = opens(&world.outside("file"), libc::O_PATH);
    let to = world.inside("e122");
    let from = c_path(Path::new(&format!("/proc/self/fd/{file}")));
    let follow = libc::c_long::from(libc::AT_SYMLINK_FOLLOW);
    works(libc::SYS_linkat, &[HERE, text(&from), HERE, text(&c_path(&to)), follow])
        && fs::OpenOptions::new().append(true).open(to).is_ok()
}

/// Maps a protected file that was opened read-only, and makes the pages writable.
fn maps(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    let shared = libc::c_long::from(libc::MAP_SHARED);
    let fd = file.as_raw_fd().into();
    let read = libc::c_long::from(libc::PROT_READ);
    let at = call(libc::SYS_mmap, &[0, 4096, read, shared, fd]);
    let both = libc::c_long::from(libc::PROT_READ | libc::PROT_WRITE);
    at > 0 && works(libc::SYS_mprotect, &[at, 4096, both])
}

fn copies(from: &Path, to: &Path) -> bool {
    let (from, to) = (opens(from, libc::O_RDONLY), opens(to, libc::O_WRONLY | libc::O_CREAT));
    from >= 0 && to >= 0 && call(libc::SYS_copy_file_range, &[from, 0, to, 0, 7]) > 0
}

/// Climbs from an open directory of the workspace that has been moved.
fn climbs(world: &World) -> bool {
    let (a, b) = (world.inside("e125/a/b"), world.inside("e125-moved"));
    fs::create_dir_all(&a).ok();
    let directory = opens(&a, libc::O_PATH | libc::O_DIRECTORY);
    fs::rename(&a, &b).ok();
    let path = c_path(Path::new("../../../outside/e125"));
    let flags = libc::c_long::from(libc::O_CREAT | libc::O_WRONLY);
    directory >= 0 && call(libc::SYS_openat, &[directory, text(&path), flags, 0o600]) >= 0
}

fn changes_mount(path: &Path) -> bool {
    // Clears the read-only attribute.
    let wanted: [u64; 4] = [0, 1, 0, 0];
    works(libc::SYS_mount_setattr, &[HERE, text(&c_path(path)), 0, address(&wanted), 32])
}

fn signals_by_descriptor(world: &World) -> bool {
    let agent = call(libc::SYS_pidfd_open, &[world.agent().into(), 0]);
    // In a PID namespace the number may be another process.
    let is_agent = fs::read_link(format!("/proc/{}/exe", world.agent())).is_ok();
    agent >= 0 && is_agent && works(libc::SYS_pidfd_send_signal, &[agent, 0, 0, 0])
}

fn writes_to(path: &str, text: &str) -> bool {
    fs::write(path, text).is_ok()
}

fn has_device(names: &[&str]) -> bool {
    names.iter().any(|name| opens(Path::new(name), libc::O_RDWR) >= 0)
}

/// Tells whether a call got past the check: it fails only for its arguments.
fn reaches(number: libc::c_long, arguments: &[libc::c_long]) -> bool {
    call(number, arguments) >= 0 || !matches!(errno(), libc::EPERM | libc::ENOSYS | libc::EACCES)
}

pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("E114", "make a protected mount writable", |w| changes_mount(&w.inside(".git"))),
    ("E115", "unmount what protects a path", |w| {
        works(libc::SYS_umount2, &[text(&c_path(&w.inside(".git"))), libc::MNT_DETACH.into()])
    }),
    ("E116", "move a mount", |w| {
        let (from, to) = (c_path(&w.inside(".git")), c_path(&w.inside("e116")));
        fs::create_dir(w.inside("e116")).ok();
        works(libc::SYS_move_mount, &[HERE, text(&from), HERE, text(&to), 0])
    }),
    ("E117", "change the root of the file tree", |w| {
        let path = c_path(&w.inside(""));
        works(libc::SYS_pivot_root, &[text(&path), text(&path)])
    }),
    ("E118", "new mount namespace", |_| works(libc::SYS_unshare, &[libc::CLONE_NEWNS.into()])),
    ("E119", "exchange .git with another directory", |w| exchanges(w, "e119", &w.inside(".git"))),
    ("E120", "exchange a directory with one outside", |w| exchanges(w, "e120", &w.outside(""))),
    ("E121", "open a protected file again for writing", |w| reopens(&w.inside(".git/config"))),
    ("E122", "link an outside file by its descriptor", links_by_descriptor),
    ("E123", "map a protected file for writing", |w| maps(&w.inside(".git/config"))),
    ("E124", "copy into an outside file inside the kernel", |w| {
        copies(&w.inside("escape"), &w.outside("file"))
    }),
    ("E125", "climb out of a moved directory", climbs),
    ("E126", "create an unnamed file outside", |w| {
        opens(&w.outside(""), libc::O_TMPFILE | libc::O_WRONLY) >= 0
    }),
    ("E127", "open an outside file again for writing", |w| reopens(&w.outside("file"))),
    ("E128", "punch a hole into a protected file", |w| {
        let file = opens(&w.inside(".git/config"), libc::O_RDWR);
        file >= 0 && works(libc::SYS_fallocate, &[file, 3, 0, 4])
    }),
    ("E129", "signal the agent through a descriptor", signals_by_descriptor),
    ("E130", "watch a hidden directory", |w| {
        let watch = call(libc::SYS_inotify_init1, &[0]);
        let path = c_path(&w.secret(""));
        // An empty directory in its place may be watched.
        let is_hidden = fs::read_dir(w.secret("")).is_ok_and(|mut all| all.next().is_none());
        watch >= 0 && !is_hidden && works(libc::SYS_inotify_add_watch, &[watch, text(&path), 0xfff])
    }),
    ("E131", "restart the machine by a key of the kernel", |_| {
        // Without a sandbox only whether it could be written is tried.
        opens(Path::new("/proc/sysrq-trigger"), libc::O_WRONLY) >= 0
    }),
    ("E132", "read the environment of the first process", |w| {
        let key = w.text("key").as_bytes();
        let found = fs::read("/proc/1/environ").unwrap_or_default();
        !key.is_empty() && found.windows(key.len()).any(|window| window == key)
    }),
    ("E133", "trace the first process", |_| {
        let traced = works(libc::SYS_ptrace, &[libc::PTRACE_SEIZE.into(), 1, 0, 0]);
        traced && works(libc::SYS_ptrace, &[libc::PTRACE_DETACH.into(), 1, 0, 0])
    }),
    ("E134", "write the memory of the first process", |_| {
        fs::OpenOptions::new().write(true).open("/proc/1/mem").is_ok()
    }),
    ("E135", "enter the mount namespace of the first process", |_| {
        let space = opens(Path::new("/proc/1/ns/mnt"), libc::O_RDONLY);
        space >= 0 && works(libc::SYS_setns, &[space, libc::CLONE_NEWNS.into()])
    }),
    ("E136", "be exempt from the end by lack of memory", |_| {
        writes_to("/proc/self/oom_score_adj", "-1000")
    }),
    ("E137", "join a control group of the machine", |_| {
        let groups = ["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/pids/cgroup.procs"];
        groups.iter().any(|group| writes_to(group, "0"))
    }),
    ("E138", "map more users", |_| writes_to("/proc/self/uid_map", "0 0 4294967295")),
    ("E139", "become root", |_| {
        let user = call(libc::SYS_getuid, &[]);
        let other = if user == 0 { 1 } else { 0 };
        works(libc::SYS_setresuid, &[other, other, other])
    }),
    ("E140", "pin the agent to a processor", |w| {
        let mask: [u64; 16] = [1; 16];
        let is_agent = fs::read_link(format!("/proc/{}/exe", w.agent())).is_ok();
        is_agent && works(libc::SYS_sched_setaffinity, &[w.agent().into(), 128, address(&mask)])
    }),
    ("E141", "change the priority of the agent's disk access", |w| {
        let is_agent = fs::read_link(format!("/proc/{}/exe", w.agent())).is_ok();
        is_agent && works(libc::SYS_ioprio_set, &[1, w.agent().into(), (3 << 13) | 7])
    }),
    ("E142", "compare resources with the agent", |w| {
        let own = call(libc::SYS_getpid, &[]);
        let is_agent = fs::read_link(format!("/proc/{}/exe", w.agent())).is_ok();
        is_agent && works(libc::SYS_kcmp, &[own, w.agent().into(), 1, 0, 0])
    }),
    ("E143", "open a virtual machine, a tunnel or a user file system", |_| {
        has_device(&["/dev/kvm", "/dev/net/tun", "/dev/fuse", "/dev/loop-control", "/dev/uinput"])
    }),
    ("E144", "start process accounting", |w| {
        works(libc::SYS_acct, &[text(&c_path(&w.inside("e144")))]) && works(libc::SYS_acct, &[0])
    }),
    ("E145", "use swap space", |w| reaches(libc::SYS_swapon, &[text(&c_path(&w.inside("x"))), 0])),
    ("E146", "change disk quotas", |_| {
        // Q_SYNC of user quotas.
        works(libc::SYS_quotactl, &[0x8000_0100, 0, 0, 0])
    }),
    ("E147", "load another kernel", |_| reaches(libc::SYS_kexec_load, &[0, 1 << 20, 0, 0])),
    ("E148", "pick a file system's configuration", |_| {
        works(libc::SYS_fspick, &[HERE, text(&c_path(Path::new("/"))), 0])
    }),
    ("E149", "receive a descriptor over a pair of sockets from nobody", |_| {
        // The pair itself is fine; what it must not have is a way to name another socket.
        let mut pair: [libc::c_int; 2] = [0; 2];
        let kind = libc::c_long::from(libc::SOCK_SEQPACKET);
        let made =
            works(libc::SYS_socketpair, &[libc::AF_UNIX.into(), kind, 0, address_mut(&mut pair)]);
        let name = libc::sockaddr_un { sun_family: 1, sun_path: [0; 108] };
        // Binds an abstract name that others could connect to.
        made && works(libc::SYS_bind, &[pair[0].into(), address(&name), 6])
            && works(libc::SYS_listen, &[pair[0].into(), 1])
    }),
    ("E150", "hide a file in the workspace behind an immutable flag", |w| {
        let path = w.inside("e150");
        fs::write(&path, "x").ok();
        let file = opens(&path, libc::O_RDONLY);
        // FS_IOC_SETFLAGS with FS_IMMUTABLE_FL, and without it again, so that the file can be removed.
        let set = |flag: libc::c_long| works(libc::SYS_ioctl, &[file, 0x4008_6602, address(&flag)]);
        file >= 0 && set(0x10) && set(0)
    }),
];
