//! Signals: they end waits, so that permits can be given back, and are passed on to a command that
//! this program runs.

use std::fs::File;
use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a program that SIGHUP has ended.
pub(crate) const HANGUP: u8 = 128 + 1;

/// Returns the output of `wait`, or, if a signal comes first, the exit code for it.
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

/// Waits for a command, and passes on the signals that would end this program. SIGINT and SIGQUIT
/// from a terminal reach the command directly, so they are not passed on.
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

/// Whether this program and its commands are the terminal's foreground group, which gets SIGINT and
/// SIGQUIT from its keys.
fn is_in_the_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    let foreground = terminal.ok().and_then(|it| tcgetpgrp(it).ok());
    foreground == Some(getpgrp())
}
