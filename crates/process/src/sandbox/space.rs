//! Mount, PID and network namespaces of the command's own, made by the helper itself.
//!
//! The tree is made read-only in a mount namespace, and what differs is mounted over it. What must stay visible (the workspace,
//! devices) is cloned first, before anything is changed. There are three processes: the helper, which waits outside; the first
//! process of the PID namespace, with which all others end; and the one that becomes the command. None of them has privileges when
//! the command starts.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, symlink};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags as Attr, MountFlags, MoveMountFlags, OpenTreeFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, move_mount, open_tree,
};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus, getgid, getuid, set_dumpable_behavior,
    set_parent_process_death_signal, wait,
};
use rustix::thread::UnshareFlags;

use super::helper_spec::Space;
use super::limits;
use super::tree::What;
use crate::raw;

/// The devices that a command has, besides its own terminals.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("pts/ptmx", "/dev/ptmx"),
];

/// How many files a private directory can hold. They take memory that no process limit includes.
const MAX_FILES: &str = "262144";

/// Which of the three processes this is.
pub(super) enum Place {
    /// The one that becomes the command.
    Inside,
    /// One that waited for it, with its exit status.
    Watching(WaitStatus),
}

/// Makes the namespaces and enters them.
///
/// # Errors
/// Fails if the system does not allow namespaces, or part of the tree cannot be mounted.
pub(super) fn enter(space: &Space) -> Result<Place, String> {
    make_namespaces(space)?;
    make_tree(space)
        .map_err(|(path, err)| format!("{} cannot be mounted: {err}", path.display()))?;
    let (watched, watching) = std::io::pipe().map_err(|err| err.to_string())?;
    if let Some(first) = fork()? {
        limits::drop_privileges()?;
        let ended = end_of(first)?;
        // Open until here: when it is closed too early, the first process knows that this one died.
        drop(watching);
        return Ok(Place::Watching(ended));
    }
    drop(watching);
    let readable = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", readable, None)
        .map_err(|err| format!("/proc cannot be mounted: {err}"))?;
    // The old working directory is hidden by the new mounts.
    std::env::set_current_dir(&space.cwd)
        .map_err(|err| format!("{} cannot be entered: {err}", space.cwd.display()))?;
    limits::drop_privileges()?;
    // The first process ends with the helper, and all others with the first. None can inspect it.
    set_parent_process_death_signal(Some(Signal::KILL))
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable))
        .map_err(|err| format!("the first process cannot be protected: {err}"))?;
    let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&no_time)) != Ok(0) {
        return Err("the helper has ended".to_owned());
    }
    Ok(match fork()? {
        Some(command) => Place::Watching(end_of(command)?),
        None => Place::Inside,
    })
}

fn fork() -> Result<Option<Pid>, String> {
    raw::fork().map_err(|err| format!("cannot fork: {err}"))
}

/// Waits for a child, and meanwhile reaps orphans; returns the child's exit status.
fn end_of(child: Pid) -> Result<WaitStatus, String> {
    loop {
        let ended = match wait(WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => continue,
            ended => ended.map_err(|err| format!("the exit status cannot be read: {err}"))?,
        };
        if let Some((_, status)) = ended.filter(|(pid, _)| *pid == child) {
            return Ok(status);
        }
    }
}

/// Makes new namespaces. User and group ids stay the same.
fn make_namespaces(space: &Space) -> Result<(), String> {
    let failed = |err| format!("namespaces cannot be created: {err}");
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let mut flags = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    flags.set(UnshareFlags::NEWNET, space.own_network);
    raw::unshare(flags).map_err(|err| failed(err.into()))?;
    let files = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    for (path, text) in files {
        std::fs::write(path, text).map_err(failed)?;
    }
    // No more namespaces may be made inside. If this fails, seccomp still refuses it.
    std::fs::write("/proc/sys/user/max_user_namespaces", "0").ok();
    if space.own_network {
        raw::raise_loopback().map_err(failed)?;
    }
    Ok(())
}

/// The path where it failed, and the error.
type Failed = (PathBuf, std::io::Error);

fn make_tree(space: &Space) -> Result<(), Failed> {
    let at = |path: &str| {
        let path = PathBuf::from(path);
        move |err: rustix::io::Errno| (path, err.into())
    };
    raw::set_mount(CWD, "/", Attr::empty(), raw::PRIVATE).map_err(at("/"))?;
    let guarded = Attr::MOUNT_ATTR_NOSUID | Attr::MOUNT_ATTR_NODEV;
    let read_only = guarded | Attr::MOUNT_ATTR_RDONLY;
    // The root itself cannot be mounted over, so it is either writable or not.
    let is_all = |path: &Path| path == Path::new("/");
    let mut parts = Vec::new();
    for (path, what) in space.mounts.iter().filter(|(path, _)| !is_all(path)) {
        let part = match what {
            What::Private => match &space.temporary {
                Some(shared) => copy(shared, guarded),
                None => empty(space.size, "1777"),
            },
            What::HideDirectory => empty(space.size, "755"),
            What::HideFile => copy(Path::new("/dev/null"), read_only),
            What::Write => copy(path, guarded),
            What::Protect => copy(path, read_only),
        };
        parts.push((path, part.map_err(|err| (path.clone(), err.into()))?));
    }
    let devices = DEVICES.map(|name| {
        let path = Path::new("/dev").join(name);
        // Writing to a device does not change its directory.
        let still = Attr::MOUNT_ATTR_NOSUID | Attr::MOUNT_ATTR_NOEXEC | Attr::MOUNT_ATTR_RDONLY;
        let device = copy(&path, still);
        (path, device)
    });
    let is_writable = space.mounts.iter().any(|(path, what)| is_all(path) && *what == What::Write);
    let rest = if is_writable { guarded } else { read_only };
    raw::set_mount(CWD, "/", rest, 0).map_err(at("/"))?;
    make_devices(space, devices)?;
    for (path, part) in parts {
        attach(&part, path, is_in_empty(path, &space.mounts)).map_err(|err| (path.clone(), err))?;
    }
    Ok(())
}

/// Tells whether a path is inside a private directory, where it can be created.
fn is_in_empty(path: &Path, mounts: &[(PathBuf, What)]) -> bool {
    let around =
        mounts.iter().filter(|(directory, _)| path != directory && path.starts_with(directory));
    let closest = around.max_by_key(|(directory, _)| directory.components().count());
    closest.is_some_and(|(_, what)| matches!(what, What::Private | What::HideDirectory))
}

fn make_devices(
    space: &Space,
    devices: [(PathBuf, rustix::io::Result<OwnedFd>); 6],
) -> Result<(), Failed> {
    let directory = PathBuf::from("/dev");
    let failed = |err: rustix::io::Errno| (directory.clone(), err.into());
    let tree = empty(space.size, "755").map_err(failed)?;
    attach(&tree, &directory, false).map_err(|err| (directory.clone(), err))?;
    for (path, device) in devices {
        let attached = device.map_err(Into::into).and_then(|device| attach(&device, &path, true));
        attached.map_err(|err| (path, err))?;
    }
    for (target, link) in DEVICE_LINKS {
        symlink(target, link).map_err(failed)?;
    }
    for name in ["shm", "pts"] {
        std::fs::create_dir(directory.join(name)).map_err(|err| (directory.clone(), err))?;
    }
    let terminals = CString::new("newinstance,ptmxmode=0666,mode=620").ok();
    mount(
        "devpts",
        "/dev/pts",
        "devpts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        terminals.as_deref(),
    )
    .map_err(failed)
}

/// Returns a new empty tmpfs.
fn empty(size: u64, mode: &str) -> rustix::io::Result<OwnedFd> {
    let made = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(made.as_fd(), "size", size.to_string())?;
    fsconfig_set_string(made.as_fd(), "nr_inodes", MAX_FILES)?;
    fsconfig_set_string(made.as_fd(), "mode", mode)?;
    fsconfig_create(made.as_fd())?;
    let guarded = Attr::MOUNT_ATTR_NOSUID | Attr::MOUNT_ATTR_NODEV;
    fsmount(made.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, guarded)
}

/// Clones a path with all mounts below it. Follows no link, since one may have been put there since the path was checked.
fn copy(path: &Path, attributes: Attr) -> rustix::io::Result<OwnedFd> {
    let place = open(path)?;
    let tree = open_tree(
        place,
        "",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE,
    )?;
    raw::set_mount(tree.as_fd(), "", attributes, 0)?;
    Ok(tree)
}

/// Mounts a tree at a path, which is created first if it is inside a private directory.
fn attach(tree: &OwnedFd, path: &Path, may_make: bool) -> std::io::Result<()> {
    let place = match open(path) {
        Err(rustix::io::Errno::NOENT) if may_make => {
            if is_directory(tree) {
                std::fs::create_dir_all(path)?;
            } else {
                path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                std::fs::File::create_new(path)?;
            }
            open(path)?
        }
        place => place?,
    };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", place, "", flags)?)
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

fn is_directory(tree: &OwnedFd) -> bool {
    fstat(tree).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
}
