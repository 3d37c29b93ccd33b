//! The terminal, opened as a file of its own so that writes do not block forever when nobody reads
//! it. The file descriptors that the shell has opened stay unchanged.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::termios::{QueueSelector, tcflush, ttyname};

/// The time to wait for a terminal to accept more output, before the next try.
const TAKES: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// The most tries to write the sequence that restores the terminal.
const TRIES: u32 = 10;

/// Whether the terminal is to be restored: then a picture that it does not accept is given up.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaving(Arc<AtomicBool>);

impl Leaving {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

pub(super) struct Tty {
    file: File,
    leaving: Leaving,
}

/// A terminal that shows the picture. It is never dropped, because its `drop` shows the cursor, and
/// if that fails, prints to the standard error, which panics if the terminal has hung up.
type Entered = ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Tty>>>>;

impl Tty {
    /// The terminal of the standard output.
    pub(super) fn open(leaving: Leaving) -> io::Result<Self> {
        let name = ttyname(io::stdout(), Vec::new())?;
        let name = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let file = File::options().write(true).open(name)?;
        ioctl_fionbio(&file, true)?;
        Ok(Self { file, leaving })
    }

    pub(super) fn enter(&mut self) -> io::Result<Entered> {
        enable_raw_mode()?;
        execute!(self, EnterAlternateScreen)?;
        let writer = Self {
            file: self.file.try_clone()?,
            leaving: self.leaving.clone(),
        };
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(writer)))?;
        Ok(ManuallyDrop::new(terminal))
    }

    /// Restores the terminal's previous content and mode. If nobody reads it, pending output of the
    /// picture is discarded to make room.
    pub(super) fn leave(&mut self) {
        let _ = disable_raw_mode(); // needs no output
        let mut restores = Vec::new();
        let _ = execute!(restores, LeaveAlternateScreen, Show);
        for _ in 0..TRIES {
            match self.file.write(&restores) {
                Ok(written) if written == restores.len() => return,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return, // hung up
                _ => {}
            }
            if !self.takes_more() {
                let _ = tcflush(&self.file, QueueSelector::OFlush);
            }
        }
    }

    /// Waits up to `TAKES` for room for more output, and returns whether there is.
    fn takes_more(&self) -> bool {
        let mut file = [PollFd::new(&self.file, PollFlags::OUT)];
        poll(&mut file, Some(&TAKES)).is_ok_and(|ready| ready > 0)
    }
}

impl Write for Tty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
            if !self.takes_more() && self.leaving.0.load(Ordering::Acquire) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
