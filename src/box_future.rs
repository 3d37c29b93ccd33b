//! The future of a trait's method.

use std::pin::Pin;

/// What an asynchronous method of a [`Limiter`](crate::Limiter) returns: the same type as
/// `BoxFuture` of the crate futures.
///
/// ```
/// use redisson_rate_limiter::{BoxFuture, Decision, Denied, Limiter, Result};
/// use std::time::Duration;
///
/// #[derive(Debug)]
/// struct Closed;
///
/// impl Limiter for Closed {
///     fn check<'a>(&'a self, _key: &'a str, _cost: u32) -> BoxFuture<'a, Result<Decision>> {
///         Box::pin(async { Ok(Denied::new(Duration::from_secs(3600)).into()) })
///     }
/// }
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// assert!(!Closed.check("user:123", 1).await?.is_granted());
/// # Ok(()) }
/// ```
// Not by async-trait: its bounds on lifetimes have the compiler prove for each method anew that all
// it holds is `Send`, which took a third of the time to compile this crate.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
