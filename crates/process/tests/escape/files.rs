//! Attempts on files outside the workspace, on hidden ones, and on protected ones inside.

use std::fs;
use std::os::fd::FromRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::attempts::{Attempt, World};
use crate::system::{address, c_path, call, text, works};

fn writes(path: impl AsRef<Path>) -> bool {
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .is_ok_and(|mut file| std::io::Write::write_all(&mut file, b"escaped").is_ok())
}

fn reads(path: impl AsRef<Path>) -> bool {
    fs::read(path).is_ok_and(|found| !found.is_empty())
}

fn through_link(world: &World, name: &str, target: &Path, rest: &str) -> bool {
    let link = world.inside(name);
    symlink(target, &link).ok();
    writes(if rest.is_empty() { link } else { link.join(rest) })
}

fn in_process(world: &World, process: &str, directory: &str) -> bool {
    let outside = world.outside("e08");
    let below_root = outside.strip_prefix("/").unwrap_or(&outside);
    let place = Path::new("/proc").join(process);
    if directory == "cwd" {
        return writes(place.join("cwd/e10"));
    }
    writes(place.join("root").join(below_root))
}

fn with_path(number: libc::c_long, path: &Path, rest: &[libc::c_long]) -> bool {
    let path = c_path(path);
    works(number, &[&[text(&path)], rest].concat())
}

fn at_path(number: libc::c_long, path: &Path, rest: &[libc::c_long]) -> bool {
    let path = c_path(path);
    works(number, &[&[libc::AT_FDCWD.into(), text(&path)], rest].concat())
}

fn leaked(world: &World, name: &str) -> Option<std::os::fd::OwnedFd> {
    let number = world.number(name);
    (works(libc::SYS_fcntl, &[number.into(), libc::F_GETFD.into()])).then(|| {
        #[expect(unsafe_code, reason = "whether it is open was asked just now")]
        // SAFETY: the descriptor is open and nothing else here uses it.
        unsafe {
            std::os::fd::OwnedFd::from_raw_fd(number)
        }
    })
}

#[expect(clippy::disallowed_methods, reason = "an escape starts what it can")]
fn runs(program: impl AsRef<Path>, argument: Option<&Path>) -> bool {
    let mut command = std::process::Command::new(program.as_ref());
    command.args(argument);
    command.output().is_ok_and(|output| output.status.success())
}

/// Loads a program that may not be run with the loader, which may.
fn by_loader(world: &World) -> bool {
    let loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    loaders.iter().any(|loader| runs(loader, Some(&world.secret("tool"))))
}

fn sets_attribute(path: &Path) -> bool {
    let path = c_path(path);
    let name = c_path(Path::new("user.escape"));
    let value = *b"x";
    works(libc::SYS_setxattr, &[text(&path), text(&name), address(&value), 1, 0])
}

fn removes_and_makes(path: &Path) -> bool {
    let aside = path.with_extension("aside");
    fs::rename(path, &aside).is_ok() && fs::create_dir(path).is_ok()
}

/// Makes a socket in the file system without a listener, which needs fewer rights than one.
fn binds(path: &Path) -> bool {
    UnixListener::bind(path).is_ok()
}

pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("E01", "write to an absolute path outside", |w| writes(w.outside("e01"))),
    ("E02", "write to ../ outside", |w| writes(w.inside("../outside/e02"))),
    ("E03", "write through a link to a file", |w| through_link(w, "e03", &w.outside("file"), "")),
    ("E04", "write through a link to a directory", |w| {
        through_link(w, "e04", &w.outside(""), "e04")
    }),
    ("E05", "hard link an outside file into the workspace and write", |w| {
        fs::hard_link(w.outside("file"), w.inside("e05")).is_ok() && writes(w.inside("e05"))
    }),
    ("E06", "move an outside file into the workspace", |w| {
        fs::rename(w.outside("to-move"), w.inside("e06")).is_ok()
    }),
    ("E07", "move a file out of the workspace", |w| {
        fs::write(w.inside("e07"), "x").is_ok()
            && fs::rename(w.inside("e07"), w.outside("e07")).is_ok()
    }),
    ("E08", "write via /proc/self/root", |w| in_process(w, "self", "root")),
    ("E09", "write via /proc/AGENT/root", |w| in_process(w, w.text("agent"), "root")),
    ("E10", "write via /proc/AGENT/cwd", |w| in_process(w, w.text("agent"), "cwd")),
    ("E11", "write through an inherited directory descriptor", |w| {
        let path = c_path(Path::new("e11"));
        let flags = (libc::O_CREAT | libc::O_WRONLY).into();
        call(libc::SYS_openat, &[w.number("leaked_folder").into(), text(&path), flags, 0o600]) >= 0
    }),
    ("E12", "truncate an outside file", |w| {
        with_path(libc::SYS_truncate, &w.outside("file"), &[0])
    }),
    ("E13", "change the mode of an outside file", |w| {
        fs::set_permissions(w.outside("file"), PermissionsExt::from_mode(0o600)).is_ok()
    }),
    ("E14", "change the times of an outside file", |w| {
        at_path(libc::SYS_utimensat, &w.outside("file"), &[0, 0])
    }),
    ("E15", "set an attribute of an outside file", |w| sets_attribute(&w.outside("file"))),
    ("E16", "change the owner of an outside file", |w| {
        let own = |number| call(number, &[]);
        let (user, group) = (own(libc::SYS_getuid), own(libc::SYS_getgid));
        at_path(libc::SYS_fchownat, &w.outside("file"), &[user, group, 0])
    }),
    ("E17", "remove an outside file", |w| fs::remove_file(w.outside("to-remove")).is_ok()),
    ("E18", "create a directory outside", |w| fs::create_dir(w.outside("e18")).is_ok()),
    ("E19", "create a named pipe outside", |w| {
        let mode = libc::S_IFIFO | 0o600;
        at_path(libc::SYS_mknodat, &w.outside("e19"), &[mode.into(), 0])
    }),
    ("E20", "bind a socket outside", |w| binds(&w.outside("e20"))),
    ("E21", "read a hidden file", |w| reads(w.secret("key"))),
    ("E51", "create a block device in the workspace", |w| {
        let mode = libc::S_IFBLK | 0o600;
        at_path(libc::SYS_mknodat, &w.inside("e51"), &[mode.into(), (8 << 8) | 1])
    }),
    ("E52", "open a disk", |_| {
        let disks = ["/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/mem", "/dev/kmsg"];
        disks.iter().any(|disk| fs::OpenOptions::new().write(true).open(disk).is_ok())
    }),
    ("E53", "set a kernel parameter", |_| {
        let parameter = "/proc/sys/kernel/core_pattern";
        fs::read(parameter).is_ok_and(|now| fs::write(parameter, now).is_ok())
    }),
    ("E54", "create a control group", |_| {
        let parents = ["/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"];
        parents.iter().any(|parent| {
            let directory = Path::new(parent).join("escape");
            fs::create_dir(&directory).is_ok_and(|()| fs::remove_dir(&directory).is_ok())
        })
    }),
    ("E66", "write a git hook", |w| writes(w.inside(".git/hooks/post-checkout"))),
    ("E67", "replace .git", |w| removes_and_makes(&w.inside(".git"))),
    ("E68", "write to /dev/shm", |_| writes("/dev/shm/escape-e68")),
    ("E69", "write to the shared temporary directory", |w| {
        writes(Path::new(w.text("shared")).join("escape-e69"))
    }),
    ("E70", "list a hidden directory", |w| {
        fs::read_dir(w.secret("")).is_ok_and(|mut entries| entries.next().is_some())
    }),
    ("E71", "learn that a hidden file exists", |w| w.secret("key").symlink_metadata().is_ok()),
    ("E72", "run a hidden script", |w| runs(w.secret("script"), None)),
    ("E73", "run a hidden program through the dynamic loader", by_loader),
    ("E81", "write through an inherited file descriptor", |w| {
        leaked(w, "leaked_file").is_some_and(|fd| {
            std::io::Write::write_all(&mut fs::File::from(fd), b"escaped").is_ok()
        })
    }),
    ("E82", "change the repository's configuration", |w| writes(w.inside(".git/config"))),
    ("E83", "rename a file over the repository's configuration", |w| {
        fs::write(w.inside("e83"), "x").is_ok()
            && fs::rename(w.inside("e83"), w.inside(".git/config")).is_ok()
    }),
    ("E84", "create a protected directory that does not exist", |w| {
        fs::create_dir_all(w.inside(".agent/rules")).is_ok()
    }),
    ("E85", "replace a protected path by a link", |w| {
        symlink(w.inside(""), w.inside(".agent")).is_ok()
    }),
    ("E86", "move a directory onto a protected path", |w| {
        fs::create_dir(w.inside("e86")).is_ok()
            && fs::rename(w.inside("e86"), w.inside(".agent")).is_ok()
            && fs::create_dir(w.inside(".agent/rules")).is_ok()
    }),
    ("E87", "remove a reserved protected path", |w| {
        fs::remove_dir(w.inside(".agent")).is_ok() && fs::create_dir(w.inside(".agent")).is_ok()
    }),
    ("E88", "write below /sys", |_| {
        let switch = "/sys/kernel/mm/ksm/run";
        fs::read(switch).is_ok_and(|now| fs::write(switch, now).is_ok())
    }),
    ("E89", "reach a hidden file via /proc/1/root", |w| {
        let below = w.secret("key");
        reads(Path::new("/proc/1/root").join(below.strip_prefix("/").unwrap_or(&below)))
    }),
];
