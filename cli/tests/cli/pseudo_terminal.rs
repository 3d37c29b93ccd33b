//! The program on a terminal, as a person uses it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::watchdog::{PATIENCE, ended};

#[allow(dead_code, reason = "each test file uses what it needs")]
pub struct PseudoTerminal {
    /// What the person types, and sees. `None` once it has hung up.
    person: Option<File>,
    child: Child,
    /// The file that the program has open.
    name: String,
    /// All that the program has written so far.
    pub output: String,
    /// How many of its letters, without blanks and escape sequences, were searched.
    found: usize,
    size: (u16, u16),
}

fn size_of(cells: u16) -> std::num::NonZero<u16> {
    cells.try_into().unwrap()
}

fn size(width: u16, height: u16) -> Winsize {
    Winsize {
        ws_col: width,
        ws_row: height,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

#[allow(dead_code, reason = "each test file uses what it needs")]
impl PseudoTerminal {
    /// Runs a command with a terminal of this size that controls it.
    pub fn start(command: &Command, width: u16, height: u16) -> Self {
        let terminal =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        tcsetwinsize(&terminal, size(width, height)).unwrap();
        let name = ptsname(&terminal, Vec::new())
            .unwrap()
            .into_string()
            .unwrap();
        let other_end = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&name)
            .unwrap();
        let mut with_terminal = Command::new("setsid");
        // A shell's background job ignores Ctrl-C, and so would all that it starts.
        with_terminal
            .args(["--ctty", "--wait", "env", "--default-signal=INT,QUIT"])
            .arg(command.get_program());
        with_terminal.args(command.get_args()).env("TERM", "xterm");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => with_terminal.env(name, value),
                None => with_terminal.env_remove(name),
            };
        }
        let child = with_terminal
            .stdin(other_end.try_clone().unwrap())
            .stdout(other_end.try_clone().unwrap())
            .stderr(other_end)
            .spawn()
            .unwrap();
        Self {
            person: Some(File::from(terminal)),
            child,
            name,
            output: String::new(),
            found: 0,
            size: (width, height),
        }
    }

    fn person(&mut self) -> &mut File {
        self.person.as_mut().expect("it has not hung up")
    }

    pub fn type_in(&mut self, keys: &str) {
        self.person().write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, width: u16, height: u16) {
        self.size = (width, height);
        tcsetwinsize(self.person(), size(width, height)).unwrap();
    }

    /// What the person sees and types, for a reader of its own, and the program.
    pub fn into_parts(self) -> (File, Child) {
        (self.person.expect("it has not hung up"), self.child)
    }

    /// Fills the terminal as if nobody read it, so that it takes no more output.
    pub fn fill(&self) {
        let mut full = OpenOptions::new().write(true).open(&self.name).unwrap();
        rustix::io::ioctl_fionbio(&full, true).unwrap();
        while full.write(&[b'x'; 100]).is_ok() {}
    }

    pub fn terminate(&self) {
        let child = Pid::from_child(&self.child);
        kill_process(child, Signal::TERM).unwrap();
    }

    /// Whether more was written; the end is an error, as nobody has the other end open.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let patience = Timespec::try_from(PATIENCE).unwrap();
        let mut person = [PollFd::new(self.person(), PollFlags::IN)];
        let is_ready = poll(&mut person, Some(&patience)).unwrap() > 0;
        assert!(is_ready, "it writes nothing more after {:?}", self.output);
        let Ok(read @ 1..) = self.person().read(&mut bytes) else {
            return false;
        };
        self.output += &String::from_utf8_lossy(&bytes[..read]);
        true
    }

    /// Reads until the program has written this text, behind what was found before.
    pub fn until(&mut self, text: &str) {
        // A picture's blanks are often not written: the cursor moves over them.
        let text = text.replace(' ', "");
        loop {
            let letters = without_sequences(&self.output);
            if let Some(at) = letters.get(self.found..).and_then(|it| it.find(&text)) {
                self.found += at + text.len();
                return;
            }
            assert!(self.read(), "it ended without {text:?}: {:?}", self.output);
        }
    }

    /// Reads until the screen shows this text: a picture is written in parts.
    pub fn until_seen(&mut self, text: &str) {
        let (mut read, mut screen) = (
            0,
            vt100::Parser::new(size_of(self.size.1), size_of(self.size.0), 0),
        );
        loop {
            screen.process(&self.output.as_bytes()[read..]);
            read = self.output.len();
            let seen = screen.screen().contents();
            if seen.contains(text) {
                return;
            }
            assert!(self.read(), "it ended without {text:?} in:\n{seen}");
        }
    }

    /// Reads to the end. Returns the exit code.
    pub fn ended(&mut self) -> Option<i32> {
        while self.read() {}
        ended(&mut self.child).code()
    }

    /// Waits for the end without reading.
    pub fn exit_code(&mut self) -> Option<i32> {
        ended(&mut self.child).code()
    }

    /// Closes the person's end, as when a connection is lost. Returns the exit code.
    pub fn hung_up(mut self) -> Option<i32> {
        self.person = None;
        ended(&mut self.child).code()
    }
}

/// The letters that were written, without blanks and escape sequences.
fn without_sequences(output: &str) -> String {
    let mut letters = String::new();
    let mut rest = output.chars();
    while let Some(it) = rest.next() {
        if it == '\x1b' {
            rest.by_ref().find(|it| it.is_ascii_alphabetic());
        } else if !it.is_whitespace() {
            letters.push(it);
        }
    }
    letters
}
