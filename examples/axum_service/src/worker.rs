//! A worker that sends orders to a partner, whose quota all instances of the service share.

use std::time::Duration;

use redisson_rate_limiter::{Error, RateLimiter};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Sends orders until there will be no more, or the client is closed, and returns those that were
/// not sent.
pub async fn send_orders(
    quota: RateLimiter,
    mut orders: mpsc::Receiver<String>,
    send: impl Fn(&str),
) -> Vec<String> {
    let mut worker = quota.worker();
    loop {
        match worker.next(orders.recv()).await {
            Ok(Some(order)) => {
                send(&order);
                order.done(); // or `again_after`, as long as the partner's `Retry-After` says
            }
            Ok(None) | Err(Error::Closed) => break,
            Err(error) => {
                // A retry may mend it, such as a missing permission of the Redis user.
                eprintln!("orders wait: {error}");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
    orders.close();
    let not_sent = std::iter::from_fn(|| orders.try_recv().ok());
    worker.into_job().into_iter().chain(not_sent).collect()
}

#[cfg(test)]
mod tests {
    use redisson_rate_limiter::{Rate, RedissonClient};
    use tokio::task::{JoinHandle, yield_now};
    use tokio::time::{Instant, advance};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The worker, a channel for its orders, and one of the seconds at which they are sent.
    fn start(
        quota: RateLimiter,
    ) -> (
        JoinHandle<Vec<String>>,
        mpsc::Sender<String>,
        mpsc::UnboundedReceiver<u64>,
    ) {
        let (orders, received) = mpsc::channel(100);
        let (sent, times) = mpsc::unbounded_channel();
        let start = Instant::now();
        let send = move |_: &str| sent.send(start.elapsed().as_secs()).unwrap();
        (
            tokio::spawn(send_orders(quota, received, send)),
            orders,
            times,
        )
    }

    async fn order(orders: &mpsc::Sender<String>, count: usize) {
        for _ in 0..count {
            orders.send("an order".to_owned()).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_was_idle_keeps_to_the_quota() {
        let quota = RedissonClient::in_memory().rate_limiter("partner-api");
        let quota = quota.with_rate(Rate::overall(10, SECOND)).unwrap();
        let (worker, orders, mut times) = start(quota.clone());
        yield_now().await;
        advance(5 * SECOND).await;
        assert_eq!(quota.available_permits().await.unwrap(), 10);
        order(&orders, 11).await;
        drop(orders);
        assert!(worker.await.unwrap().is_empty());
        let mut sent = Vec::new();
        times.recv_many(&mut sent, 100).await;
        assert_eq!(sent, [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_makes_orders_wait_and_loses_none() {
        let quota = RedissonClient::in_memory().rate_limiter("partner-api"); // without a rate
        let (worker, orders, mut times) = start(quota.clone());
        order(&orders, 2).await;
        advance(3 * SECOND).await;
        assert!(!worker.is_finished());
        quota.set_rate(Rate::overall(10, SECOND)).await.unwrap();
        drop(orders);
        assert!(worker.await.unwrap().is_empty());
        let mut sent = Vec::new();
        times.recv_many(&mut sent, 100).await;
        assert_eq!(sent.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_client_ends_the_worker_and_keeps_no_permit() {
        let client = RedissonClient::in_memory();
        let quota = client.rate_limiter("partner-api");
        let quota = quota.with_rate(Rate::overall(2, SECOND)).unwrap();
        let (worker, orders, _times) = start(quota.clone());
        order(&orders, 5).await;
        yield_now().await;
        assert!(client.close(SECOND).await);
        assert_eq!(worker.await.unwrap().len(), 3);
        advance(SECOND).await;
        assert_eq!(quota.available_permits().await.unwrap(), 2);
    }
}
