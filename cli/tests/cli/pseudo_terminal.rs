//! The program on a terminal, as a person uses it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

pub struct PseudoTerminal {
    keys: File,
    child: Child,
    written: Receiver<Vec<u8>>,
    /// All that the program has written so far.
    pub output: String,
    /// How much of its letters was found.
    found: usize,
}

fn size(width: u16, height: u16) -> Winsize {
    Winsize {
        ws_col: width,
        ws_row: height,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

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
            .open(name)
            .unwrap();
        let mut with_terminal = Command::new("setsid");
        with_terminal
            .args(["--ctty", "--wait"])
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
        let keys = File::from(terminal);
        let mut output = keys.try_clone().unwrap();
        let (sender, written) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end is an error: nobody has the other end open.
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                let _ = sender.send(bytes[..read].to_vec());
            }
        });
        Self {
            keys,
            child,
            written,
            output: String::new(),
            found: 0,
        }
    }

    pub fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, width: u16, height: u16) {
        tcsetwinsize(&self.keys, size(width, height)).unwrap();
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
            let Ok(bytes) = self.written.recv() else {
                panic!("it ended without {text:?}: {:?}", self.output);
            };
            self.output += &String::from_utf8_lossy(&bytes);
        }
    }

    /// Reads to the end. Returns the exit code.
    pub fn ended(&mut self) -> Option<i32> {
        while let Ok(bytes) = self.written.recv() {
            self.output += &String::from_utf8_lossy(&bytes);
        }
        self.child.wait().unwrap().code()
    }
}

/// A test that fails ends the program too.
impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.keys.write_all(b"\x03");
            let _ = self.child.kill();
        }
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
