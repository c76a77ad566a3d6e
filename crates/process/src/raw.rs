//! The few calls into the system that Rust cannot check. Nothing else in the program is unsafe.

#![expect(
    unsafe_code,
    reason = "signals, descriptors and the moment between fork and exec have no safe form"
)]

use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What a child does between fork and exec.
#[derive(Debug, Default)]
pub(crate) struct BeforeExec {
    /// Ignores the polite signal: for a wrapper that must outlive the program inside it while that one cleans up.
    pub(crate) ignore_term: bool,
    /// A descriptor that the program gets, although it is closed for all others.
    pub(crate) handed_down: Option<RawFd>,
    /// The `cgroup.procs` of groups to join. That one cannot be joined is no error: the other limits apply.
    pub(crate) joined: Vec<OwnedFd>,
}

/// Makes the child the leader of a session of its own, without a terminal, and does the rest of `before`.
pub(crate) fn lead_session(command: &mut Command, before: BeforeExec) {
    let prepare = move || {
        rustix::process::setsid()?;
        for group in &before.joined {
            // Stands for the process that writes it.
            rustix::io::write(group, b"0").ok();
        }
        if before.ignore_term {
            // SAFETY: sets a disposition, with no handler that could run.
            unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
        }
        if let Some(fd) = before.handed_down {
            // SAFETY: changes a flag of a descriptor that the parent holds open meanwhile.
            let changed = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
            if changed == -1 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `prepare` makes system calls only: no allocation, no lock, nothing another thread may have held.
    unsafe { command.pre_exec(prepare) };
}

/// Lets the polite signal end this process again, as it does by default.
#[cfg(target_os = "linux")]
pub(crate) fn mind_term() {
    // SAFETY: sets a disposition, with no handler that could run.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_DFL) };
}

/// Lets the polite signal pass by this process.
#[cfg(target_os = "linux")]
pub(crate) fn ignore_term() {
    // SAFETY: sets a disposition, with no handler that could run.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}

/// Closes every descriptor above the standard three at the next exec.
#[cfg(target_os = "linux")]
pub(crate) fn close_at_exec() -> std::io::Result<()> {
    // SAFETY: changes flags of descriptors only; none is closed under anybody's feet.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes to a descriptor that was handed down, and closes it.
#[cfg(target_os = "linux")]
pub(crate) fn write_once(fd: RawFd, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::fd::FromRawFd;
    // SAFETY: the number came on the command line from whoever started us for this purpose; nobody else here owns it.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.write_all(bytes)
}

/// Makes a second process that goes on from here, with all that this one has; returns it, or nothing in itself.
#[cfg(target_os = "linux")]
pub(crate) fn fork() -> std::io::Result<Option<rustix::process::Pid>> {
    // SAFETY: only the helper calls this, which has one thread: nothing is held that nobody would release.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        pid => Ok(rustix::process::Pid::from_raw(pid)),
    }
}

/// Leaves namespaces.
#[cfg(target_os = "linux")]
pub(crate) fn unshare(flags: rustix::thread::UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the table of open files stays shared; that is the only thing that another thread would miss.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Keeps mounts and those of the machine from each other.
#[cfg(target_os = "linux")]
pub(crate) const PRIVATE: u64 = libc::MS_PRIVATE;

/// Adds attributes to a mount and all that is mounted in it.
#[cfg(target_os = "linux")]
pub(crate) fn set_mount(
    folder: std::os::fd::BorrowedFd<'_>,
    path: &str,
    attributes: rustix::mount::MountAttrFlags,
    propagation: u64,
) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd;
    /// As the kernel reads it.
    #[repr(C)]
    struct Wanted {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let set = u64::from(attributes.bits());
    let wanted = Wanted { set, clear: 0, propagation, user_namespace: 0 };
    let path = std::ffi::CString::new(path).map_err(|_| rustix::io::Errno::INVAL)?;
    // SAFETY: both pointers lead to values that live until the call has ended, and the size is that of the second.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            folder.as_raw_fd(),
            path.as_ptr(),
            libc::AT_RECURSIVE | libc::AT_EMPTY_PATH,
            std::ptr::from_ref(&wanted),
            size_of::<Wanted>(),
        )
    };
    if done == -1 { Err(last_errno()) } else { Ok(()) }
}

/// Turns on the loopback of a network that is new.
#[cfg(target_os = "linux")]
pub(crate) fn raise_loopback() -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all zeros is a value of this plain structure.
    let mut wanted: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in wanted.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    wanted.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the call reads one such structure, which lives until it has ended.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const wanted) };
    if done == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(target_os = "linux")]
fn last_errno() -> rustix::io::Errno {
    let last = std::io::Error::last_os_error();
    last.raw_os_error().map_or(rustix::io::Errno::INVAL, rustix::io::Errno::from_raw_os_error)
}
