//! A key holds one kind of limiter's state at a time.

use redisson_rate_limiter::{Error, Limiter, RRateLimiter, Rate, SlidingLog, TokenBucket};

use crate::fixture::{Fixture, HOUR};

pub async fn another_kinds_state_is_an_error_and_stays_as_it_is(fixture: Fixture) {
    let client = fixture.client("client").await;
    let key = fixture.name();
    let log = client.limiter(SlidingLog::new(5, HOUR)).unwrap();
    let bucket = client.limiter(TokenBucket::new(5, 1)).unwrap();
    let keyed = client
        .keyed_rate_limiter("", Rate::overall(5, HOUR))
        .unwrap();
    let limiter = client.rate_limiter(key);
    assert!(log.decide(key, 5).await.unwrap().is_granted());
    let others: [&dyn Limiter; 2] = [&bucket, &keyed];
    for other in others {
        let refused = other.decide(key, 1).await;
        assert!(
            matches!(refused, Err(Error::BadState { .. })),
            "{refused:?}"
        );
    }
    let refused = limiter.try_acquire(1).await;
    assert!(
        matches!(refused, Err(Error::BadState { .. })),
        "{refused:?}"
    );
    assert!(!log.decide(key, 1).await.unwrap().is_granted());
}

pub async fn an_rratelimiters_state_is_none_for_the_others(fixture: Fixture) {
    let client = fixture.client("client").await;
    let key = fixture.name();
    let limiter = client.rate_limiter(key);
    limiter.try_set_rate(Rate::overall(5, HOUR)).await.unwrap();
    let log = client.limiter(SlidingLog::new(5, HOUR)).unwrap();
    let bucket = client.limiter(TokenBucket::new(5, 1)).unwrap();
    let others: [&dyn Limiter; 2] = [&bucket, &log];
    for other in others {
        let refused = other.decide(key, 1).await;
        assert!(
            matches!(refused, Err(Error::BadState { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    assert!(limiter.delete().await.unwrap());
    assert!(log.decide(key, 5).await.unwrap().is_granted());
}
