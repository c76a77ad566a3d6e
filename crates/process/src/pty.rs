//! A pseudo terminal as the output of a program: it is asked for its size, shows colours and writes line by line.
//!
//! Its input is empty, and it is not the controlling terminal: a program that wants to ask somebody for a password fails at once
//! instead of waiting for an answer that cannot come.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{ChildStdout, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize,
};

use crate::spawn::TerminalSize;

/// Gives both outputs of a program a new terminal, and returns the other end of it.
pub(crate) fn attach(command: &mut Command, size: TerminalSize) -> io::Result<ChildStdout> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = open(&ptsname(&ours, Vec::new())?)?;
    let mut modes = tcgetattr(&theirs)?;
    // A line feed stays one: whoever reads the output wants its text.
    modes.output_modes.remove(OutputModes::OPOST);
    modes.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&theirs, OptionalActions::Now, &modes)?;
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&theirs, size)?;
    command.stdin(Stdio::null()).stdout(theirs.try_clone()?).stderr(theirs);
    Ok(ours.into())
}

fn open(path: &std::ffi::CStr) -> io::Result<File> {
    let path = std::str::from_utf8(path.to_bytes()).map_err(io::Error::other)?;
    File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path)
}
