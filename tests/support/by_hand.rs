//! Futures that the test polls itself.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A future of the limiter's, boxed.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Polls a future once, and returns its answer if it has one. Nobody is woken for it.
pub fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}
