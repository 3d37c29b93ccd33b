//! Sends orders to a partner, whose quota all instances of the service share.

use redisson_rate_limiter::{Error, RateLimiter};
use tokio::sync::mpsc::Receiver;

/// Ends when the client is closed, and returns how many orders were not sent.
pub(crate) async fn send_orders(quota: RateLimiter, mut orders: Receiver<String>) -> usize {
    loop {
        match quota.acquire(1).await {
            Ok(()) => {}
            Err(Error::Closed) => return orders.len(),
            // Redis is away: the calls themselves wait before they fail.
            Err(error) => {
                println!("the partner's quota: {error}");
                continue;
            }
        }
        match orders.recv().await {
            Some(order) => println!("sent {order}"),
            None => return 0,
        }
    }
}
