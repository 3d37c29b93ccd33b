//! Whose clock scores the grants.

use redisson_rate_limiter::{Clock, RRateLimiter, Rate, RedissonClient};

use crate::keys;
use crate::proxy::Proxy;
use crate::stage::{HOUR, NAME, PERMITS, Stage};

#[tokio::test]
async fn by_default_grants_are_scored_with_the_servers_time_and_no_time_is_sent() {
    let mut stage = Stage::set().await;
    let proxy = Proxy::to(stage.server.port()).await;
    let client = RedissonClient::connect(&proxy.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    for _ in 0..5 {
        proxy.take_seen();
        stage.run(&["DEL", PERMITS]).await;
        let before = keys::time(&mut stage.raw).await;
        assert!(limiter.try_acquire(1).await.unwrap());
        let after = keys::time(&mut stage.raw).await;
        let (score, _) = stage.grants().await[0];
        assert!(
            (before..=after).contains(&score),
            "{score} is not in {before}..={after}"
        );
        // So this machine's clock may show what it likes.
        assert_eq!(proxy.take_seen()[0].script_argument(5), b"");
    }
}

#[tokio::test]
async fn on_request_grants_are_scored_with_this_machines_time() {
    let mut stage = Stage::set().await;
    let proxy = Proxy::to(stage.server.port()).await;
    let builder = RedissonClient::builder().clock(Clock::system());
    let limiter = builder
        .connect(&proxy.url())
        .await
        .unwrap()
        .rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    stage.run(&["DEL", PERMITS]).await;
    proxy.take_seen();
    let before = std::time::SystemTime::now();
    assert!(limiter.try_acquire(1).await.unwrap());
    let after = std::time::SystemTime::now();
    let (score, _) = stage.grants().await[0];
    let millis = |time: std::time::SystemTime| {
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap();
        since.as_millis() as i64
    };
    assert!((millis(before)..=millis(after)).contains(&score));
    assert_eq!(
        proxy.take_seen()[0].script_argument(5),
        score.to_string().as_bytes()
    );
}

#[tokio::test]
async fn a_clock_that_is_passed_in_scores_with_what_it_shows_also_before_1970() {
    let mut stage = Stage::set().await;
    let limiter = stage.with(Rate::overall(10, HOUR)).await;
    for now in [-7_200_000, -1, 0, 1 << 52] {
        stage.at(now);
        assert!(limiter.try_acquire(1).await.unwrap());
        assert_eq!(stage.grants().await.last(), Some(&(now, 1)), "{now}");
    }
}
