//! Taking as much as there is.

use redisson_rate_limiter::{Decision, Error, FixedWindow, Limiter, Rate, Result};

use crate::fixture::{Fixture, SECOND};

/// How much a key of any limiter was charged.
async fn charged(limiter: &dyn Limiter, cost: u32) -> Result<Option<u32>> {
    let decision = limiter.check_up_to("key", cost).await?;
    Ok(decision.into_grant().map(|it| it.permits()))
}

pub async fn as_many_permits_are_taken_as_there_are_and_none_twice(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter.set_rate(Rate::overall(10, SECOND)).await.unwrap();
    for (wanted, expected) in [(4, 4), (4, 4), (4, 2), (4, 0), (1, 0)] {
        assert_eq!(limiter.try_acquire_up_to(wanted).await.unwrap(), expected);
    }
    fixture.pass(SECOND);
    assert_eq!(limiter.try_acquire_up_to(1_000).await.unwrap(), 10);
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

pub async fn what_was_taken_can_be_given_back_as_a_whole(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter.set_rate(Rate::overall(3, SECOND)).await.unwrap();
    let decision = limiter.check_up_to("", 9).await.unwrap();
    let Decision::Granted(granted) = decision else {
        panic!("{decision:?}")
    };
    assert_eq!((granted.grant.permits(), granted.remaining), (3, 0));
    assert_eq!(limiter.refund(granted.grant).await.unwrap(), 3);
}

pub async fn a_policy_is_charged_as_much_as_it_has_left(fixture: Fixture) {
    let client = fixture.client("a").await;
    let limiter = client.policy_limiter(FixedWindow::new(5, SECOND)).unwrap();
    let limiter = limiter.with_prefix(fixture.name());
    for (wanted, expected) in [(3, Some(3)), (u32::MAX, Some(2)), (1, None)] {
        assert_eq!(charged(&limiter, wanted).await.unwrap(), expected);
    }
    let nothing = charged(&limiter, 0).await;
    assert!(matches!(nothing, Err(Error::InvalidArgument { .. })));
}
