//! What the server holds of a limiter.

use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::clients::patient;
use crate::keys;
use crate::support::Server;

/// A limiter's keys.
pub struct State<'a> {
    name: &'a str,
    rate: u64,
}

impl<'a> State<'a> {
    pub fn of(name: &'a str, rate: u64) -> Self {
        Self { name, rate }
    }

    fn value(&self) -> String {
        format!("{{{}}}:value", self.name)
    }

    fn permits(&self) -> String {
        format!("{{{}}}:permits", self.name)
    }

    /// The permits of all members. With the permits left they are the rate, which is never
    /// exceeded.
    pub async fn used(&self, redis: &mut MultiplexedConnection) -> i64 {
        let (left, used) = keys::left_and_used(redis, &self.value(), &self.permits()).await;
        let left = left.unwrap_or(self.rate as i64);
        let name = self.name;
        assert!(left >= 0, "{name}: {left} left");
        assert_eq!(
            left + used,
            self.rate as i64,
            "{name}: {left} left, {used} used"
        );
        used
    }

    /// One interval after the last grant, a client that knows nothing can take all permits at once.
    pub async fn assert_is_whole_after(&self, interval: std::time::Duration, server: &Server) {
        let mut redis = server.connection().await;
        let members = keys::members(&mut redis, &self.permits()).await;
        let last = members.last().map_or(0, |member| member.score);
        let whole_at = last + interval.as_millis() as i64;
        while keys::time(&mut redis).await < whole_at {
            sleep(std::time::Duration::from_millis(1)).await;
        }
        let client = patient(&server.url()).await;
        let limiter = client.rate_limiter(self.name);
        assert!(
            limiter.try_acquire(self.rate as u32).await.unwrap(),
            "{}: not all {} permits came back",
            self.name,
            self.rate
        );
    }
}
