//! Refunds of single grants.

use redisson_rate_limiter::{Decision, Grant, Granted, Limiter, PermitsInUse, Rate, RateLimiter};

use tokio::task::JoinSet;

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, SECOND, granted, ms};

async fn ten(fixture: &Fixture) -> RateLimiter {
    let limiter = fixture.limiter().await;
    assert!(
        limiter
            .try_set_rate(Rate::overall(10, SECOND))
            .await
            .unwrap()
    );
    limiter
}

async fn take(limiter: &RateLimiter, permits: u32) -> Grant {
    match limiter.check(permits).await.unwrap() {
        Decision::Granted(Granted { grant, .. }) => grant,
        denied => panic!("{denied:?}"),
    }
}

pub async fn a_refunded_grant_is_back_at_once_and_leaves_the_others_as_they_are(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    fixture.at(1_000);
    take(&limiter, 2).await;
    fixture.at(1_300);
    let second = take(&limiter, 3).await;
    fixture.at(1_600);
    take(&limiter, 4).await;
    assert_eq!(limiter.refund(second).await.unwrap(), 3);
    for (at, available) in [(1_600, 4), (2_000, 6), (2_300, 6), (2_599, 6), (2_600, 10)] {
        fixture.at(at);
        assert_eq!(
            limiter.available_permits().await.unwrap(),
            available,
            "at {at}"
        );
    }
}

pub async fn a_refunded_grant_is_not_there_twice_once_its_window_has_passed(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let grant = take(&limiter, 3).await;
    assert_eq!(limiter.refund(grant).await.unwrap(), 3);
    fixture.pass(SECOND);
    assert_eq!(granted(&limiter, 14).await, 10);
}

pub async fn a_grant_whose_window_has_passed_gives_nothing_back(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    fixture.at(1_000);
    let early = take(&limiter, 3).await;
    let late = take(&limiter, 4).await;
    fixture.at(1_999);
    assert_eq!(limiter.refund(early).await.unwrap(), 3);
    fixture.at(2_000);
    assert_eq!(limiter.refund(late).await.unwrap(), 0);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert_eq!(granted(&limiter, 11).await, 10);
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

pub async fn a_grant_of_which_part_was_released_gives_back_the_rest_only(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let grant = take(&limiter, 5).await;
    limiter.release(2).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
    assert_eq!(limiter.refund(grant).await.unwrap(), 3);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

pub async fn a_grant_that_was_released_as_a_whole_gives_nothing_back(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let old = take(&limiter, 5).await;
    fixture.pass(ms(1));
    let young = take(&limiter, 5).await;
    limiter.release(5).await.unwrap(); // out of the older one
    assert_eq!(limiter.refund(old).await.unwrap(), 0);
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    assert_eq!(limiter.refund(young).await.unwrap(), 5);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

pub async fn a_grant_from_before_a_reset_of_the_state_gives_nothing_back(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let grant = take(&limiter, 5).await;
    limiter.set_rate(Rate::overall(10, SECOND)).await.unwrap();
    assert!(limiter.try_acquire(5).await.unwrap());
    assert_eq!(limiter.refund(grant).await.unwrap(), 0);
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
}

pub async fn a_grant_outlives_a_change_of_the_rate_that_keeps_the_state(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let grant = take(&limiter, 5).await;
    limiter
        .set_rate_with(Rate::overall(20, SECOND), PermitsInUse::Keep)
        .await
        .unwrap();
    assert_eq!(limiter.refund(grant).await.unwrap(), 5);
    assert_eq!(limiter.available_permits().await.unwrap(), 20);
}

pub async fn a_refund_does_not_lift_the_permits_above_a_rate_that_was_lowered(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let grant = take(&limiter, 8).await;
    limiter
        .set_rate_with(Rate::overall(5, SECOND), PermitsInUse::Keep)
        .await
        .unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    assert_eq!(limiter.refund(grant).await.unwrap(), 8);
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    assert_eq!(granted(&limiter, 6).await, 5);
}

pub async fn a_grant_can_be_refunded_through_another_handle_and_another_client(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let (one, two) = (take(&limiter, 1).await, take(&limiter, 2).await);
    assert_eq!(limiter.clone().refund(one).await.unwrap(), 1);
    assert_eq!(
        fixture.limiter_of("other").await.refund(two).await.unwrap(),
        2
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

pub async fn of_many_grants_of_the_same_millisecond_each_is_found_by_itself(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let mut grants = Vec::new();
    for permits in 1..=4 {
        grants.push(take(&limiter, permits).await);
    }
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    let mut available = 0;
    for grant in grants {
        let permits = grant.permits();
        assert_eq!(limiter.refund(grant).await.unwrap(), permits);
        available += u64::from(permits);
        assert_eq!(limiter.available_permits().await.unwrap(), available);
    }
}

pub async fn of_a_grant_and_its_clones_one_is_given_back(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    // On a server, those that ask together share a call, and a member.
    let mut asking = JoinSet::new();
    for _ in 0..5 {
        let limiter = limiter.clone();
        asking.spawn(async move { limiter.check(2).await.unwrap() });
    }
    let decisions = asking.join_all().await;
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    let mut left = 0;
    for decision in decisions {
        let clones = [decision.clone(), decision.clone(), decision];
        assert_eq!(clones[0], clones[2]);
        let mut given_back = Vec::new();
        for clone in clones {
            let grant = clone.into_grant().unwrap();
            given_back.push(limiter.refund(grant).await.unwrap());
        }
        left += 2;
        assert_eq!(given_back, [2, 0, 0]);
        assert_eq!(limiter.available_permits().await.unwrap(), left);
    }
}

pub async fn of_a_part_of_a_grant_no_more_than_the_part_is_given_back(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    // The grants of callers that are served together share one member of the state.
    let (first, second) = tokio::join!(take(&limiter, 5), take(&limiter, 4));
    let clone = first.clone();
    assert_eq!(limiter.refund(first.part(2)).await.unwrap(), 2);
    assert_eq!(limiter.refund(clone.clone()).await.unwrap(), 0);
    assert_eq!(limiter.refund(clone.part(5)).await.unwrap(), 0);
    assert_eq!(limiter.available_permits().await.unwrap(), 3);
    let whole = second.part(9);
    assert_eq!(whole.permits(), 4);
    assert_eq!(limiter.refund(whole.part(0)).await.unwrap(), 0);
    assert_eq!(limiter.available_permits().await.unwrap(), 3);
}

pub async fn a_grant_of_another_key_gives_nothing_back(fixture: Fixture) {
    let client = fixture.client("client").await;
    for (policy, unit) in every_policy(6) {
        let algorithm = policy.algorithm();
        let limiter = client.policy_limiter(policy).unwrap();
        let limiter = limiter.with_prefix(format!("{}:{algorithm}:", fixture.name()));
        let took = async |key, units: u32| {
            let decision = limiter.check_without_waiting(key, units * unit).await;
            decision.unwrap().into_grant().unwrap()
        };
        let (alices, _) = (took("alice", 3).await, took("bob", 3).await);
        let left = async || limiter.peek("bob", unit).await.unwrap().remaining();
        let before = left().await;
        let limiter: &dyn Limiter = &limiter;
        assert_eq!(
            limiter.refund("bob", alices).await.unwrap(),
            0,
            "{algorithm}"
        );
        assert_eq!(left().await, before, "{algorithm}");
    }
}
