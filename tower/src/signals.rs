//! The signals of the operating system that end a service, and that make it read its rules again.
//!
//! Each function installs its handlers before it returns, so a signal that comes before the future
//! is first polled is not lost.

use std::io;

/// Waits for a signal to end the service: SIGTERM or SIGINT on Unix, elsewhere Ctrl-C. Meant for a
/// graceful shutdown such as axum's.
///
/// ```
/// use redisson_rate_limiter_tower::signals;
/// use std::time::Duration;
/// use tokio::time::timeout;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let end = signals::end()?;
/// // axum::serve(listener, app).with_graceful_shutdown(end).await?;
/// assert!(timeout(Duration::from_millis(1), end).await.is_err()); // nobody has sent one
/// # Ok(()) }
/// ```
///
/// # Errors
/// If the system refuses the handler.
///
/// # Panics
/// Outside of a tokio runtime.
///
/// # Cancel safety
/// Dropping the future loses a signal that has already come. After the call, these signals no
/// longer end the process, even when the future is dropped.
#[cfg(unix)]
pub fn end() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Waits for Ctrl-C to end the service. Meant for a graceful shutdown such as axum's.
///
/// # Errors
/// None on this system.
#[cfg(not(unix))]
pub fn end() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    Ok(async {
        // If the system refuses the handler, the signal ends the process itself.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

/// Calls `reload` at each SIGHUP, in a task of the current runtime, one call after the other.
/// Exists on Unix only.
///
/// ```no_run
/// use redisson_rate_limiter::{RedissonClient, RulesConfig};
/// use redisson_rate_limiter_tower::{RateLimitLayer, signals};
/// use std::sync::Arc;
///
/// # async fn start(client: RedissonClient) -> Result<(), Box<dyn std::error::Error>> {
/// let rules = Arc::new(client.rules_from(&RulesConfig::from_file("rules.toml")?)?);
/// let layer = RateLimitLayer::by_rules(Arc::clone(&rules));
/// let read_again = move || rules.replace_from(&RulesConfig::from_file("rules.toml")?);
/// signals::on_hangup(move || match read_again() {
///     Ok(change) => println!("read the rules again: {change}"),
///     Err(error) => println!("kept the rules: {error}"),
/// })?;
/// # drop(layer);
/// # Ok(()) }
/// ```
///
/// # Errors
/// If the system refuses the handler.
///
/// # Panics
/// Outside of a tokio runtime.
#[cfg(unix)]
pub fn on_hangup(reload: impl Fn() + Send + 'static) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            reload();
        }
    });
    Ok(())
}
