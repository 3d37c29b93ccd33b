//! Redisson's availablePermits and ours are the same number at every point of a long sequence on
//! one limiter.

use std::time::Duration;

use compat_tests::{Both, Peer, random::Random, redisson::Version};
use redisson_rate_limiter::Rate;

const SECOND: i64 = 1000;

#[tokio::test]
async fn both_clients_say_the_same_at_every_point_of_a_sequence() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        let rate = |permits| Rate::overall(permits, Duration::from_secs(400));
        assert!(limiter.try_set_rate(Peer::Java, rate(12)).await);
        // The same on every run; random sequences are for the differential test.
        let mut random = Random::new(1);
        let mut seen = Vec::new();
        for _ in 0..150 {
            let by = Peer::ALL[random.below(2) as usize];
            let permits = 1 + random.below(6) as u32;
            match random.below(10) {
                0 => limiter.set_rate(by, rate(8 + random.below(8))).await,
                1 => limiter.rust.release(permits).await.unwrap(),
                // No two grants end up as far apart as an interval is long but for the time this
                // takes.
                2 | 3 => both.age("n", 99 * SECOND).await,
                _ => drop(limiter.try_acquire(by, permits).await),
            }
            seen.push(limiter.available_permits().await);
        }
        for number in 0..12 {
            assert!(seen.contains(&number), "no point had {number}: {seen:?}");
        }
    })
    .await;
}
