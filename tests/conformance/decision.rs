//! What `check` returns.

use redisson_rate_limiter::{Decision, Denied, Error, Granted, Rate};

use crate::fixture::{Fixture, SECOND, fields};

pub async fn a_grant_states_its_permits_the_limit_and_what_remains(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(10, SECOND))
        .await
        .unwrap();
    for (at, permits, remains) in [(1_000, 3, 7), (1_400, 1, 6), (1_999, 6, 0)] {
        fixture.at(at);
        let Decision::Granted(Granted {
            grant,
            limit,
            remaining,
            ..
        }) = limiter.check(permits).await.unwrap()
        else {
            panic!("{permits} were denied at {at}");
        };
        assert_eq!(grant.permits(), permits);
        assert_eq!((limit, remaining), (10, remains));
    }
}

pub async fn a_denial_states_the_limit_what_remains_and_when_the_oldest_is_back(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(10, SECOND))
        .await
        .unwrap();
    fixture.at(1_000);
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.at(1_300);
    assert!(limiter.try_acquire(4).await.unwrap());
    for (at, wait, back_in) in [(1_300, 700, 1_000), (1_500, 500, 800), (1_999, 1, 301)] {
        fixture.at(at);
        let decision = limiter.check(3).await.unwrap();
        assert_eq!(
            fields(&decision),
            (false, 2, Some(wait), back_in),
            "at {at}"
        );
        let Decision::Denied(Denied { limit, .. }) = decision else {
            panic!("it was granted");
        };
        assert_eq!(limit, 10);
    }
    fixture.at(2_000);
    let decision = limiter.check(7).await.unwrap();
    assert_eq!(fields(&decision), (false, 6, Some(300), 300));
}

pub async fn a_denial_takes_nothing(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(5, SECOND))
        .await
        .unwrap();
    assert!(limiter.try_acquire(3).await.unwrap());
    for _ in 0..3 {
        assert!(!limiter.check(3).await.unwrap().is_granted());
        assert!(!limiter.try_acquire(3).await.unwrap());
    }
    assert_eq!(limiter.available_permits().await.unwrap(), 2);
    assert!(limiter.try_acquire(2).await.unwrap());
}

pub async fn more_permits_than_the_rate_are_an_error_and_take_nothing(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(5, SECOND))
        .await
        .unwrap();
    let error = limiter.check(6).await.unwrap_err();
    let Error::ExceedsLimit {
        name,
        requested,
        limit,
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!((name.as_str(), *requested, *limit), (fixture.name(), 6, 5));
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    assert!(limiter.try_acquire(5).await.unwrap());
    // Also if nothing is left: a request that can never be granted is an error and not a denial.
    assert!(matches!(
        limiter.try_acquire(6).await,
        Err(Error::ExceedsLimit { .. })
    ));
    assert!(matches!(
        limiter.acquire(u32::MAX).await,
        Err(Error::ExceedsLimit { .. })
    ));
}

pub async fn a_limiter_without_a_rate_is_an_error_for_all_that_needs_one(fixture: Fixture) {
    let other = fixture
        .client("client")
        .await
        .rate_limiter(&format!("{}:other", fixture.name()));
    other.try_set_rate(Rate::overall(1, SECOND)).await.unwrap();
    let Decision::Granted(Granted { grant, .. }) = other.check(1).await.unwrap() else {
        panic!("it was denied");
    };
    let limiter = fixture.limiter().await;
    let errors = [
        limiter.try_acquire(1).await.map(|_| ()),
        limiter.try_acquire_timeout(1, SECOND).await.map(|_| ()),
        limiter.acquire(1).await,
        limiter.check(1).await.map(|_| ()),
        limiter.release(1).await,
        limiter.available_permits().await.map(|_| ()),
    ];
    for error in errors {
        let Err(Error::NotInitialized { name }) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(name, fixture.name());
    }
    // Nothing is in use, so there is nothing to give back.
    assert_eq!(limiter.refund(grant).await.unwrap(), 0);
    assert!(!limiter.exists().await.unwrap());
}

pub async fn rates_up_to_2_to_the_53_count_exactly(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let rate = 1_u64 << 53;
    limiter
        .try_set_rate(Rate::overall(rate, SECOND))
        .await
        .unwrap();
    let decision = limiter.check(u32::MAX).await.unwrap();
    let left = rate - u64::from(u32::MAX);
    assert_eq!(fields(&decision), (true, left, None, 1000));
    let decision = limiter.check(1).await.unwrap();
    assert_eq!(fields(&decision), (true, left - 1, None, 1000));
    assert_eq!(limiter.available_permits().await.unwrap(), left - 1);
    fixture.pass(SECOND);
    assert_eq!(limiter.available_permits().await.unwrap(), rate);
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(limiter.available_permits().await.unwrap(), rate - 1);
}
