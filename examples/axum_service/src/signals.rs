//! Signals of the operating system.

use std::future::Future;
use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Calls `reload` at each SIGHUP.
pub fn on_hangup(reload: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            reload();
        }
    });
    Ok(())
}

/// Waits for SIGINT or SIGTERM.
pub fn end() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
    })
}
