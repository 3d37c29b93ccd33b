//! Whose clock scores the grants.

use redisson_rate_limiter::{Clock, Rate, RedissonClient};

use crate::clients::patient;
use crate::fixture::{Fixture, HOUR, NAME, PERMITS, ms};
use crate::keys;
use crate::proxy::Proxy;

#[tokio::test]
async fn by_default_grants_are_scored_with_the_servers_time_and_no_time_is_sent() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = patient(&proxy.url()).await;
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    for _ in 0..5 {
        proxy.take_seen();
        fixture.run(&["DEL", PERMITS]).await;
        let before = keys::time(&mut fixture.raw).await;
        assert!(limiter.try_acquire(1).await.unwrap());
        let after = keys::time(&mut fixture.raw).await;
        let (score, _) = fixture.grants().await[0];
        assert!(
            (before..=after).contains(&score),
            "{score} is not in {before}..={after}"
        );
        // So the clock of this machine does not matter.
        assert_eq!(proxy.take_seen()[0].script_argument(5), b"");
    }
}

#[tokio::test]
async fn on_request_grants_are_scored_with_this_machines_time() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let builder = RedissonClient::builder().clock(Clock::system());
    let limiter = builder
        .connect(&proxy.url())
        .await
        .unwrap()
        .rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    fixture.run(&["DEL", PERMITS]).await;
    proxy.take_seen();
    let before = std::time::SystemTime::now();
    assert!(limiter.try_acquire(1).await.unwrap());
    let after = std::time::SystemTime::now();
    let (score, _) = fixture.grants().await[0];
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
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, HOUR)).await;
    for now in [-7_200_000, -1, 0, 1 << 52] {
        fixture.at(now);
        assert!(limiter.try_acquire(1).await.unwrap());
        assert_eq!(fixture.grants().await.last(), Some(&(now, 1)), "{now}");
    }
}

#[tokio::test]
async fn a_clock_set_back_grants_nothing_before_the_last_grants_have_expired() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, ms(1_000))).await;
    fixture.at(50_000);
    assert!(limiter.try_acquire(8).await.unwrap());
    fixture.at(20_000); // what is left can be taken, and the rest comes back by its score
    assert!(limiter.try_acquire(2).await.unwrap());
    for (now, is_granted) in [(20_999, false), (50_999, false), (51_000, true)] {
        fixture.at(now);
        assert_eq!(limiter.try_acquire(8).await.unwrap(), is_granted, "{now}");
    }
    assert_eq!(fixture.value().await.as_deref(), Some("2"));
}

#[tokio::test]
async fn a_clock_moved_forward_gives_back_all_at_once_but_at_most_the_rate() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, ms(1_000))).await;
    assert!(limiter.try_acquire(10).await.unwrap());
    fixture.at(3_600_000);
    assert!(limiter.try_acquire(10).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(fixture.grants().await, [(3_600_000, 10)]);
}
