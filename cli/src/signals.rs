//! Waits that a signal ends, so that what they took meanwhile can be given back, and commands that get it too.

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// The output of `wait`, or the exit code of a program that a signal has ended.
pub(crate) async fn or_signal<T>(wait: impl Future<Output = T>) -> io::Result<Result<T, u8>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(tokio::select! {
        output = wait => Ok(output),
        _ = hangup.recv() => Err(128 + 1),
        _ = interrupt.recv() => Err(128 + 2),
        _ = terminate.recv() => Err(128 + 15),
    })
}

/// Waits for a command. What ends this program ends the command too: from a terminal it gets an interrupt by itself, and the
/// others from here.
pub(crate) async fn wait_for(mut child: Child) -> io::Result<ExitStatus> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        let signal = tokio::select! {
            status = child.wait() => return status,
            _ = hangup.recv() => Signal::HUP,
            _ = terminate.recv() => Signal::TERM,
        };
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(id) = id.and_then(Pid::from_raw) {
            kill_process(id, signal)?;
        }
    }
}
