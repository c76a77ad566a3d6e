//! The terminal itself: its mode, its size, its bytes. The only module that touches it.
//!
//! Everything is undone when [`Tty`] is dropped, however the program ends short of SIGKILL.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags};
use rustix::termios::{self, OptionalActions, Termios};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Stores the window's title, and switches on bracketed paste and keys that can be told apart. Terminals ignore what they do not know.
const ENTER: &str = "\u{1b}[22;0t\u{1b}[?2004h\u{1b}[>1u";
const LEAVE: &str = "\u{1b}[<u\u{1b}[?2004l\u{1b}[?25h\u{1b}[23;0t";

/// Asks for the background colour.
pub(crate) const ASK_BACKGROUND: &str = "\u{1b}]11;?\u{1b}\\";

/// Asks what the terminal can do.
pub(crate) const ASK_ATTRIBUTES: &str = "\u{1b}[c";

/// Asks for the last row and column: the cursor goes there, is reported, and returns.
pub(crate) const ASK_SIZE: &str = "\u{1b}7\u{1b}[9999;9999H\u{1b}[6n\u{1b}8";

/// A terminal, in raw mode or as it was.
#[derive(Debug)]
pub(crate) struct Tty {
    input: AsyncFd<std::os::fd::OwnedFd>,
    output: io::Stdout,
    before: Termios,
    is_raw: bool,
}

impl Tty {
    /// Takes over the terminal on stdin and stdout. Needs a tokio runtime.
    pub(crate) fn open() -> io::Result<Tty> {
        let mut tty = Tty::plain()?;
        tty.enter()?;
        Ok(tty)
    }

    /// Uses the terminal on stdin and stdout as it is: it edits lines itself.
    pub(crate) fn plain() -> io::Result<Tty> {
        let stdin = io::stdin();
        let before = termios::tcgetattr(&stdin)?;
        let input = stdin.as_fd().try_clone_to_owned()?;
        #[expect(deprecated, reason = "sound with an owned descriptor; its successor is unsafe")]
        let input = AsyncFd::with_interest(input, Interest::READABLE)?;
        Ok(Tty { input, output: io::stdout(), before, is_raw: false })
    }

    /// Switches to raw mode.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        termios::tcsetattr(self.input.get_ref(), OptionalActions::Now, &raw)?;
        self.is_raw = true;
        self.write(ENTER)
    }

    /// Restores the terminal as it was.
    pub(crate) fn restore(&mut self) -> io::Result<()> {
        if !self.is_raw {
            return Ok(());
        }
        self.is_raw = false;
        let written = self.write(LEAVE);
        termios::tcsetattr(self.input.get_ref(), OptionalActions::Now, &self.before)?;
        written
    }

    /// Returns columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(self.input.get_ref()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => (80, 24),
        }
    }

    /// Writes everything at once.
    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        // Not through `Stdout`, which writes line by line: a frame must arrive as a whole.
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match rustix::io::write(&self.output, rest) {
                Ok(count) => rest = &rest[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    let mut polled = [PollFd::new(&self.output, PollFlags::OUT)];
                    rustix::event::poll(&mut polled, None)?;
                }
                Err(err) => return Err(err.into()),
            }
        }
        Ok(())
    }

    /// Waits for bytes; none mean that the terminal is gone. Cancel safe.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.input.readable().await?;
            // The descriptor is in blocking mode, which it shares with the shell: never read without asking first.
            let read = ready.try_io(|input| {
                if !is_readable(input.get_ref())? {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(rustix::io::read(input.get_ref(), &mut *buffer)?)
            });
            match read {
                Ok(Err(err)) if err.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return done,
                Err(_would_block) => {}
            }
        }
    }
}

fn is_readable(input: &std::os::fd::OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(input, PollFlags::IN)];
    let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(rustix::event::poll(&mut polled, Some(&none))? > 0)
}

impl Drop for Tty {
    fn drop(&mut self) {
        if let Err(err) = self.restore() {
            tracing::debug!(%err, "cannot restore the terminal");
        }
    }
}
