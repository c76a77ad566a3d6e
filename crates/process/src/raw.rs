//! The few calls into the system that Rust cannot check. Nothing else in the program is unsafe.

#![expect(
    unsafe_code,
    reason = "signals, descriptors and the moment between fork and exec have no safe form"
)]

use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What a child does between fork and exec.
#[derive(Debug, Default)]
pub(crate) struct BeforeExec {
    /// Ignores the polite signal: for a wrapper that must outlive the program inside it while that one cleans up.
    pub(crate) ignore_term: bool,
    /// A descriptor that the program gets, although it is closed for all others.
    pub(crate) handed_down: Option<RawFd>,
}

/// Makes the child the leader of a session of its own, without a terminal, and does the rest of `before`.
pub(crate) fn lead_session(command: &mut Command, before: BeforeExec) {
    let prepare = move || {
        rustix::process::setsid()?;
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
