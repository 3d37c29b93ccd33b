//! Limits for what a test waits for: after a time that no busy machine needs, the test fails with
//! what was seen.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Hundreds of times what the slowest test takes on a machine of its own.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Kills a process that has not ended in time.
struct Watchdog {
    ended: Sender<()>,
    watching: JoinHandle<bool>,
}

impl Watchdog {
    fn over(id: u32, has_group: bool) -> Self {
        let (ended, waits) = channel::<()>();
        let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
        let watching = thread::spawn(move || {
            let is_late = waits.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
            if is_late {
                let _ = match has_group {
                    true => kill_process_group(id, Signal::KILL),
                    false => kill_process(id, Signal::KILL),
                };
            }
            is_late
        });
        Self { ended, watching }
    }

    /// Whether it was late.
    fn end(self) -> bool {
        drop(self.ended);
        self.watching.join().unwrap()
    }
}

/// Runs a command to its end. All that it starts is in a group of its own.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn output(command: &mut Command) -> Output {
    use std::os::unix::process::CommandExt;
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    output_of(command.spawn().unwrap(), command)
}

/// Waits for the end of a process that leads a group, and for all that it prints.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn output_of(child: Child, what: &impl Debug) -> Output {
    let watchdog = Watchdog::over(child.id(), true);
    let output = child.wait_with_output().unwrap();
    assert!(
        !watchdog.end(),
        "{what:?} did not end; it had printed {output:?}"
    );
    output
}

#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn ended(child: &mut Child) -> ExitStatus {
    let watchdog = Watchdog::over(child.id(), false);
    let status = child.wait().unwrap();
    assert!(!watchdog.end(), "it did not end: {child:?}");
    status
}

/// Polls until the condition holds.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn until<T: Debug>(mut look: impl FnMut() -> T, is_so: impl Fn(&T) -> bool) -> T {
    let start = Instant::now();
    loop {
        let seen = look();
        if is_so(&seen) {
            return seen;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "it is not so in the end: {seen:?}"
        );
        thread::yield_now();
    }
}

/// The lines that a process prints, as they come.
pub struct Lines {
    lines: Receiver<String>,
    seen: Vec<String>,
}

#[allow(dead_code, reason = "each test file uses what it needs")]
impl Lines {
    pub fn of(output: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Reads until the test has dropped the receiver.
            for line in lines {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let seen = Vec::new();
        Self { lines, seen }
    }

    /// `None` at the end.
    pub fn next(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no more lines after {:?}", self.seen),
        }
    }
}
