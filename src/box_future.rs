//! The future of a trait's method.

use std::pin::Pin;

/// What an asynchronous method of a [`Limiter`](crate::Limiter) returns: the same type as
/// `BoxFuture` of the crate futures.
///
/// ```
/// use redisson_rate_limiter::BoxFuture;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let number: BoxFuture<'_, u32> = Box::pin(async { 5 });
/// assert_eq!(number.await, 5);
/// # }
/// ```
// Not made by async-trait: because of its lifetime bounds, the compiler proves anew for each method
// that all it holds is `Send`, which took a third of the time to compile this crate.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
