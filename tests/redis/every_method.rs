//! Calls each method once.

use std::time::SystemTime;

use redisson_rate_limiter::{
    Decision, Error, Granted, PermitsInUse, Rate, RateLimiter, RedissonClient, Result,
};

use crate::fixture::{HOUR, SECOND};

/// The error of each method, all of which must fail.
pub async fn errors(limiter: &RateLimiter) -> Vec<Error> {
    let results = results(limiter).await.into_iter();
    results
        .map(|(method, result)| match result {
            Err(error) => error,
            Ok(()) => panic!("{method} did not fail"),
        })
        .collect()
}

/// The result of each method.
pub async fn results(limiter: &RateLimiter) -> Vec<(&'static str, Result<()>)> {
    let elsewhere = RedissonClient::in_memory().rate_limiter("elsewhere");
    let rate = Rate::overall(5, SECOND);
    elsewhere.set_rate(rate).await.unwrap();
    let Decision::Granted(Granted { grant, .. }) = elsewhere.check(1).await.unwrap() else {
        panic!("it was denied");
    };
    [
        ("try_set_rate", limiter.try_set_rate(rate).await.map(|_| ())),
        ("set_rate", limiter.set_rate(rate).await),
        (
            "set_rate_with",
            limiter.set_rate_with(rate, PermitsInUse::Keep).await,
        ),
        (
            "update_rate",
            limiter
                .update_rate(rate, PermitsInUse::Keep)
                .await
                .map(|_| ()),
        ),
        ("config", limiter.config().await.map(|_| ())),
        ("try_acquire", limiter.try_acquire(1).await.map(|_| ())),
        (
            "try_acquire_timeout",
            limiter.try_acquire_timeout(1, SECOND).await.map(|_| ()),
        ),
        ("acquire", limiter.acquire(1).await),
        ("check", limiter.check(1).await.map(|_| ())),
        ("peek", limiter.peek(1).await.map(|_| ())),
        ("refund", limiter.refund(grant).await.map(|_| ())),
        ("release", limiter.release(1).await),
        (
            "available_permits",
            limiter.available_permits().await.map(|_| ()),
        ),
        ("exists", limiter.exists().await.map(|_| ())),
        ("expire", limiter.expire(HOUR).await.map(|_| ())),
        (
            "expire_at",
            limiter
                .expire_at(SystemTime::now() + HOUR)
                .await
                .map(|_| ()),
        ),
        (
            "expire_if_set",
            limiter.expire_if_set(HOUR).await.map(|_| ()),
        ),
        (
            "expire_if_not_set",
            limiter.expire_if_not_set(HOUR).await.map(|_| ()),
        ),
        (
            "expire_if_greater",
            limiter.expire_if_greater(HOUR).await.map(|_| ()),
        ),
        (
            "expire_if_less",
            limiter.expire_if_less(HOUR).await.map(|_| ()),
        ),
        ("clear_expire", limiter.clear_expire().await.map(|_| ())),
        (
            "remain_time_to_live",
            limiter.remain_time_to_live().await.map(|_| ()),
        ),
        ("reset", limiter.reset().await.map(|_| ())),
        ("delete", limiter.delete().await.map(|_| ())),
    ]
    .into()
}
