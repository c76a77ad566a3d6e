//! Calls into the system that have no safe form, for the attempts.

#![expect(unsafe_code, reason = "escapes are tried with the calls that an attacker would use")]

use std::ffi::CString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{c_int, c_long};

/// Runs something in a child and returns whether it said yes. A child that dies or hangs said no.
pub(crate) fn in_a_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: this program has one thread, so a forked child may do whatever its parent may.
    match unsafe { libc::fork() } {
        -1 => false,
        0 => {
            // SAFETY: asks for a signal later, and leaves without running anybody's destructors.
            unsafe { libc::alarm(5) };
            let code = i32::from(!work());
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child that was just made.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

/// Makes a system call with up to five numbers.
pub(crate) fn call(number: c_long, arguments: &[c_long]) -> c_long {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: pointers among the arguments are made from values that live until the call returns.
    unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4)) }
}

/// Tells whether a system call with these numbers worked.
pub(crate) fn works(number: c_long, arguments: &[c_long]) -> bool {
    call(number, arguments) >= 0
}

/// Returns why the last call failed.
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Writes a path as the system wants it.
pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// Returns the address of something, as an argument.
pub(crate) fn address<T>(value: &T) -> c_long {
    std::ptr::from_ref(value) as c_long
}

/// Returns the address of something that the call changes, as an argument.
pub(crate) fn address_mut<T>(value: &mut T) -> c_long {
    std::ptr::from_mut(value) as c_long
}

/// Makes a child; 0 in the child.
pub(crate) fn fork() -> c_int {
    // SAFETY: this program has one thread, so a forked child may do whatever its parent may.
    unsafe { libc::fork() }
}

/// Returns the address of a string, as an argument.
pub(crate) fn text(value: &CString) -> c_long {
    value.as_ptr() as c_long
}

/// Makes a socket, or returns a negative number.
pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    call(libc::SYS_socket, &[family.into(), kind.into(), protocol.into()]) as c_int
}

/// Prints a line at once.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).ok();
}
