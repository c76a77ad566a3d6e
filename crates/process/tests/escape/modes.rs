//! Attempts to leave a program in the workspace that runs as its owner for every user of the machine, with each call that sets modes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::attempts::{Attempt, World};
use crate::system::{address, c_path, call, text};

const MODE: libc::c_long = 0o4755;

/// Makes a file without the bit, lets `set` add it, and tells whether it is there.
fn gains(world: &World, name: &str, set: impl FnOnce(&PathBuf)) -> bool {
    let path = world.inside(name);
    fs::write(&path, "x").ok();
    set(&path);
    has_bit(&path)
}

fn has_bit(path: &PathBuf) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o4000 != 0)
}

/// Lets `make` make a file, and tells whether it has the bit.
fn makes(world: &World, name: &str, make: impl FnOnce(libc::c_long)) -> bool {
    let path = world.inside(name);
    make(text(&c_path(&path)));
    has_bit(&path)
}

fn opened(path: &Path) -> libc::c_long {
    let flags = libc::c_long::from(libc::O_RDWR);
    call(libc::SYS_openat, &[libc::AT_FDCWD.into(), text(&c_path(path)), flags, 0])
}

pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("E102", "set the set-uid bit with fchmodat", |w| {
        gains(w, "e102", |path| {
            call(libc::SYS_fchmodat, &[libc::AT_FDCWD.into(), text(&c_path(path)), MODE]);
        })
    }),
    ("E103", "set the set-uid bit with fchmod", |w| {
        gains(w, "e103", |path| {
            call(libc::SYS_fchmod, &[opened(path), MODE]);
        })
    }),
    ("E104", "set the set-uid bit with fchmodat2", |w| {
        gains(w, "e104", |path| {
            call(452, &[libc::AT_FDCWD.into(), text(&c_path(path)), MODE, 0]);
        })
    }),
    ("E105", "create a set-uid file with openat", |w| {
        makes(w, "e105", |path| {
            let flags = (libc::O_CREAT | libc::O_WRONLY).into();
            call(libc::SYS_openat, &[libc::AT_FDCWD.into(), path, flags, MODE]);
        })
    }),
    ("E106", "create a set-uid file with openat2", |w| {
        makes(w, "e106", |path| {
            let how = [(libc::O_CREAT | libc::O_WRONLY) as u64, MODE as u64, 0];
            call(libc::SYS_openat2, &[libc::AT_FDCWD.into(), path, address(&how), 24]);
        })
    }),
    ("E107", "create a set-uid file with mknodat", |w| {
        makes(w, "e107", |path| {
            let mode = libc::c_long::from(libc::S_IFREG) | MODE;
            call(libc::SYS_mknodat, &[libc::AT_FDCWD.into(), path, mode, 0]);
        })
    }),
    #[cfg(target_arch = "x86_64")]
    ("E108", "set the set-uid bit with chmod", |w| {
        gains(w, "e108", |path| {
            call(libc::SYS_chmod, &[text(&c_path(path)), MODE]);
        })
    }),
    #[cfg(target_arch = "x86_64")]
    ("E109", "create a set-uid file with creat", |w| {
        makes(w, "e109", |path| {
            call(libc::SYS_creat, &[path, MODE]);
        })
    }),
    #[cfg(target_arch = "x86_64")]
    ("E110", "create a set-uid file with open", |w| {
        makes(w, "e110", |path| {
            call(libc::SYS_open, &[path, (libc::O_CREAT | libc::O_WRONLY).into(), MODE]);
        })
    }),
    #[cfg(target_arch = "x86_64")]
    ("E111", "create a set-uid file with mknod", |w| {
        makes(w, "e111", |path| {
            call(libc::SYS_mknod, &[path, libc::c_long::from(libc::S_IFREG) | MODE, 0]);
        })
    }),
    ("E112", "name an unnamed set-uid file", |w| {
        let directory = c_path(&w.inside(""));
        let flags = (libc::O_TMPFILE | libc::O_WRONLY).into();
        let file = call(libc::SYS_openat, &[libc::AT_FDCWD.into(), text(&directory), flags, MODE]);
        let from = c_path(&PathBuf::from(format!("/proc/self/fd/{file}")));
        let to = c_path(&w.inside("e112"));
        let follow = libc::c_long::from(libc::AT_SYMLINK_FOLLOW);
        let here = libc::AT_FDCWD.into();
        call(libc::SYS_linkat, &[here, text(&from), here, text(&to), follow]);
        has_bit(&w.inside("e112"))
    }),
    ("E113", "give a file a capability", |w| {
        let path = w.inside("e113");
        fs::write(&path, "x").ok();
        // Version 2, all permitted and effective.
        let value: [u32; 5] = [0x0200_0001, u32::MAX, 0, u32::MAX, 0];
        let (file, name) = (c_path(&path), c_path(&PathBuf::from("security.capability")));
        call(libc::SYS_setxattr, &[text(&file), text(&name), address(&value), 20, 0]) >= 0
    }),
];
