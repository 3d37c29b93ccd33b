//! Waits that a signal ends, so that what they took meanwhile can be given back, and commands that
//! get it too.

use std::fs::File;
use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a program whose terminal has hung up.
pub(crate) const HANGUP: u8 = 128 + 1;

/// The output of `wait`, or the exit code of a program that a signal has ended.
pub(crate) async fn or_signal<T>(wait: impl Future<Output = T>) -> io::Result<Result<T, u8>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(tokio::select! {
        output = wait => Ok(output),
        _ = hangup.recv() => Err(HANGUP),
        _ = interrupt.recv() => Err(128 + 2),
        _ = quit.recv() => Err(128 + 3),
        _ = terminate.recv() => Err(128 + 15),
    })
}

/// Waits for a command. What ends this program ends the command too: from a terminal it gets an
/// interrupt by itself, and everything else from here.
pub(crate) async fn wait_for(mut child: Child) -> io::Result<ExitStatus> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        let signal = tokio::select! {
            status = child.wait() => return status,
            _ = hangup.recv() => Signal::HUP,
            _ = interrupt.recv() => Signal::INT,
            _ = quit.recv() => Signal::QUIT,
            _ = terminate.recv() => Signal::TERM,
        };
        if matches!(signal, Signal::INT | Signal::QUIT) && is_in_the_foreground() {
            continue;
        }
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(id) = id.and_then(Pid::from_raw) {
            kill_process(id, signal)?;
        }
    }
}

/// Whether keys that interrupt or quit on a terminal reach this program and its commands.
fn is_in_the_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    let foreground = terminal.ok().and_then(|it| tcgetpgrp(it).ok());
    foreground == Some(getpgrp())
}
