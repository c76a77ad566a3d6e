//! System calls without a safe interface. The only unsafe code of the program.

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
    /// Ignores SIGTERM: for a wrapper that must outlive the program inside it while that cleans up.
    pub(crate) ignore_term: bool,
    /// A descriptor that only this program inherits.
    pub(crate) handed_down: Option<RawFd>,
    /// The `cgroup.procs` of groups to join. That one cannot be joined is no error: the other limits apply.
    pub(crate) joined: Vec<OwnedFd>,
}

/// Gives the child its own session, without a terminal, and applies the rest of `before`.
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
            // SAFETY: changes a flag of a descriptor that the parent keeps open meanwhile.
            let changed = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
            if changed == -1 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `prepare` only makes system calls: no allocation, and no lock that another thread may hold.
    unsafe { command.pre_exec(prepare) };
}

/// Restores the default actions of the signals that the agent or the helper ignores.
#[cfg(target_os = "linux")]
pub(crate) fn restore_signals() {
    for signal in [libc::SIGTERM, libc::SIGXFSZ] {
        // SAFETY: sets a disposition, with no handler that could run.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Hardens the agent, which has keys in its memory: no other process of this user can read it, it leaves no core dump, and what the
/// dynamic loader was told is not passed on. A file that grows beyond the user's limit is an error and not the end.
///
/// Must be called before the first thread is started.
pub fn harden() {
    // SAFETY: sets a disposition, with no handler that could run.
    #[cfg(unix)]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN)
    };
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{
            DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit,
        };
        // Neither can fail with these values.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).ok();
    }
    let is_for_loader = |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(b"LD_");
    for name in std::env::vars_os().map(|(name, _)| name).filter(is_for_loader) {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::remove_var(name) };
    }
}

/// Ignores SIGTERM.
#[cfg(target_os = "linux")]
pub(crate) fn ignore_term() {
    // SAFETY: sets a disposition, with no handler that could run.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}

/// Closes every descriptor except the standard three at the next exec.
#[cfg(target_os = "linux")]
pub(crate) fn close_at_exec() -> std::io::Result<()> {
    // SAFETY: only changes flags of descriptors; none is closed while in use.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes to an inherited descriptor and closes it.
#[cfg(target_os = "linux")]
pub(crate) fn write_once(fd: RawFd, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::fd::FromRawFd;
    // SAFETY: our parent passed the number for this purpose, and nothing else here owns it.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.write_all(bytes)
}

/// Forks. Returns the child in the parent, `None` in the child.
#[cfg(target_os = "linux")]
pub(crate) fn fork() -> std::io::Result<Option<rustix::process::Pid>> {
    // SAFETY: only the helper calls this, which has one thread, so no lock can stay locked in the child.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        pid => Ok(rustix::process::Pid::from_raw(pid)),
    }
}

/// Moves this process to new namespaces.
#[cfg(target_os = "linux")]
pub(crate) fn unshare(flags: rustix::thread::UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the table of open files stays shared, which is all that another thread could miss.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Mounts are not propagated between this namespace and the machine's.
#[cfg(target_os = "linux")]
pub(crate) const PRIVATE: u64 = libc::MS_PRIVATE;

/// Adds attributes to a mount and all mounts below it.
#[cfg(target_os = "linux")]
pub(crate) fn set_mount(
    directory: std::os::fd::BorrowedFd<'_>,
    path: &str,
    attributes: rustix::mount::MountAttrFlags,
    propagation: u64,
) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd;
    /// The kernel's `struct mount_attr`.
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
    // SAFETY: both pointers are valid until the call returns, and the size is that of the second value.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            directory.as_raw_fd(),
            path.as_ptr(),
            libc::AT_RECURSIVE | libc::AT_EMPTY_PATH,
            std::ptr::from_ref(&wanted),
            size_of::<Wanted>(),
        )
    };
    if done == -1 { Err(last_errno()) } else { Ok(()) }
}

/// Activates the loopback interface of a new network namespace.
#[cfg(target_os = "linux")]
pub(crate) fn raise_loopback() -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all zeros is a valid value of this structure.
    let mut wanted: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in wanted.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    wanted.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the call reads one such structure, which is valid until it returns.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const wanted) };
    if done == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(target_os = "linux")]
fn last_errno() -> rustix::io::Errno {
    let last = std::io::Error::last_os_error();
    last.raw_os_error().map_or(rustix::io::Errno::INVAL, rustix::io::Errno::from_raw_os_error)
}

/// Makes all threads share the main heap. By default glibc reserves 64 MiB of address space for each thread that allocates, which
/// fails under `ulimit -v`; our threads are too idle to get in each other's way.
pub fn share_one_heap() {
    // SAFETY: only sets a number inside the allocator.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}
