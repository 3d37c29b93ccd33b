//! What a peer, an eviction or an operator did to one key and not to the other is corrected by the
//! next call. The invariant: value + permits of all grants = rate.

use redisson_rate_limiter::Rate;

use crate::fixture::{Fixture, NAME, PERMITS, SECOND, VALUE};
use crate::keys::member;

#[tokio::test]
async fn lost_grants_are_back_at_once() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert!(limiter.try_acquire(9).await.unwrap());
    fixture.run(&["DEL", PERMITS]).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert!(limiter.try_acquire(4).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("6"));
    assert_eq!(fixture.grants().await, [(1_000, 4)]);
}

#[tokio::test]
async fn a_lost_value_is_the_rate_less_what_is_in_use() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.run(&["DEL", VALUE]).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 6);
    assert!(!limiter.try_acquire(7).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("6"));
    fixture.run(&["DEL", VALUE]).await;
    assert!(limiter.try_acquire(6).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("0"));
    assert_eq!(
        fixture
            .grants()
            .await
            .iter()
            .map(|(_, permits)| permits)
            .sum::<u32>(),
        10
    );
}

#[tokio::test]
async fn a_lost_value_counts_only_what_is_live() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.at(1_500);
    assert!(limiter.try_acquire(3).await.unwrap());
    fixture.run(&["DEL", VALUE]).await;
    fixture.at(2_000);
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("6"));
    assert_eq!(fixture.grants().await, [(1_500, 3), (2_000, 1)]);
}

#[tokio::test]
async fn a_refund_after_the_value_was_lost_loses_nothing() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    let redisson_rate_limiter::Decision::Granted(redisson_rate_limiter::Granted { grant, .. }) =
        limiter.check(4).await.unwrap()
    else {
        panic!("it was denied");
    };
    assert!(limiter.try_acquire(3).await.unwrap());
    fixture.run(&["DEL", VALUE]).await;
    assert_eq!(limiter.refund(grant).await.unwrap(), 4);
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
    assert!(limiter.try_acquire(7).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn a_value_above_the_rate_is_the_rate() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    fixture.run(&["SET", VALUE, "25"]).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert!(limiter.try_acquire(10).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("0"));
}

#[tokio::test]
async fn a_value_above_the_rate_becomes_the_rate_and_ends_live_grants() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.run(&["SET", VALUE, "25"]).await;
    let limiter = {
        drop(limiter);
        fixture.limiter().await
    };
    fixture.at(1_100);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert!(limiter.try_acquire(10).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("0"));
    assert_eq!(fixture.grants().await, [(1_100, 10)]);
}

#[tokio::test]
async fn a_negative_value_is_corrected_from_the_grants() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.run(&["SET", VALUE, "-7"]).await;
    let limiter = {
        drop(limiter);
        fixture.limiter().await
    };
    assert_eq!(limiter.available_permits().await.unwrap(), 6);
    assert!(limiter.try_acquire(6).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("0"));
}

#[tokio::test]
async fn a_value_left_by_an_expired_limiter_is_not_used_under_the_next_rate() {
    let mut fixture = Fixture::start().await;
    fixture.run(&["SET", VALUE, "2"]).await;
    fixture.run(&["SET", "{limiter}:value:client", "1"]).await;
    fixture.add(999, &member(&[7; 16], 3)).await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert_eq!(crate::keys::names(&mut fixture.raw).await, [NAME]);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert!(limiter.try_acquire(10).await.unwrap());
    limiter
        .set_rate(Rate::per_client(10, SECOND))
        .await
        .unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

#[tokio::test]
async fn permits_lost_by_a_peers_retry_are_found_again() {
    // Redisson's retry after a lost answer adds one member, but takes two permits off the value.
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(100, SECOND)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    fixture.run(&["DECRBY", VALUE, "1"]).await;
    assert_eq!(fixture.value().await.as_deref(), Some("98"));
    let limiter = {
        drop(limiter);
        fixture.limiter().await
    };
    assert_eq!(limiter.available_permits().await.unwrap(), 99);
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("98"));
    assert_eq!(fixture.grants().await, [(1_000, 1), (1_000, 1)]);
    assert!(limiter.try_acquire(98).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn permits_lost_by_a_peers_retry_are_found_again_once_none_is_in_use() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(100, SECOND)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    fixture.run(&["DECRBY", VALUE, "50"]).await;
    fixture.at(2_000);
    assert!(limiter.try_acquire(100).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("0"));
}

#[tokio::test]
async fn permits_a_peer_released_can_be_taken_and_do_not_come_back_again() {
    // Redisson's release raises the value and leaves the grants as they are.
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.at(1_300);
    assert!(limiter.try_acquire(3).await.unwrap());
    fixture.run(&["SET", VALUE, "8"]).await; // 5 released
    let limiter = {
        drop(limiter);
        fixture.limiter().await
    };
    fixture.at(1_500);
    assert_eq!(limiter.available_permits().await.unwrap(), 8);
    assert!(limiter.try_acquire(1).await.unwrap());
    // The 5 came out of the oldest.
    assert_eq!(fixture.value().await.as_deref(), Some("7"));
    assert_eq!(fixture.grants().await, [(1_300, 2), (1_500, 1)]);
    fixture.at(2_000);
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
    fixture.at(2_300);
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
    fixture.at(2_500);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

#[tokio::test]
async fn what_a_peer_released_beyond_the_rate_is_ignored() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert!(limiter.try_acquire(3).await.unwrap());
    fixture.run(&["SET", VALUE, "13"]).await;
    let limiter = {
        drop(limiter);
        fixture.limiter().await
    };
    fixture.at(1_999);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert!(limiter.try_acquire(10).await.unwrap());
    fixture.at(2_000);
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    assert!(!limiter.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn a_peers_release_not_yet_noticed_fills_no_window_above_the_rate() {
    // 50 of 100 are 900 ms old when this client audits; right after that a peer releases them, and
    // they are taken again.
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(100, SECOND)).await;
    fixture.add(1_000, &member(&[7; 16], 50)).await;
    fixture.run(&["SET", VALUE, "50"]).await;
    fixture.at(1_900);
    assert!(limiter.try_acquire(1).await.unwrap());
    fixture.run(&["SET", VALUE, "99"]).await; // 50 released
    assert!(limiter.try_acquire(99).await.unwrap());
    // 100 were taken at 1900, so nothing is available before 2900.
    fixture.at(2_000);
    assert!(!limiter.try_acquire(1).await.unwrap());
    fixture.at(2_899);
    assert!(!limiter.try_acquire(1).await.unwrap());
    fixture.at(2_900);
    assert!(limiter.try_acquire(100).await.unwrap());
}

#[tokio::test]
async fn members_with_8_random_bytes_count_as_those_with_16() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    fixture.add(1_000, &member(&[1; 8], 3)).await;
    fixture.add(1_500, &member(&[2; 16], 2)).await;
    fixture.run(&["SET", VALUE, "5"]).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    fixture.at(2_000);
    assert!(limiter.try_acquire(8).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(fixture.grants().await, [(1_500, 2), (2_000, 8)]);
}

#[tokio::test]
async fn a_member_with_8_random_bytes_shrinks_into_one_with_the_same_8() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    fixture.add(1_000, &member(&[1; 8], 3)).await;
    fixture.run(&["SET", VALUE, "7"]).await;
    limiter.release(1).await.unwrap();
    let members = crate::keys::members(&mut fixture.raw, PERMITS).await;
    assert_eq!(members.len(), 1);
    assert_eq!((members[0].score, members[0].permits), (1_000, 2));
    assert_eq!(members[0].random, [1; 8]);
}

#[tokio::test]
async fn malformed_members_count_nothing_and_go_after_their_window() {
    let before_3_17: &[u8] = &[&8_u64.to_le_bytes()[..], &[9; 8], &3_u32.to_le_bytes()].concat();
    let before_3_16: &[u8] = &[&0.5_f32.to_le_bytes()[..], &3_u32.to_le_bytes()].concat();
    for malformed in [
        b"".as_slice(),
        b"x",
        b"spoilt",
        &[16; 20],
        &[255; 300],
        before_3_17,
        before_3_16,
    ] {
        let mut fixture = Fixture::start().await;
        let limiter = fixture.with(Rate::overall(10, SECOND)).await;
        fixture.add(1_000, malformed).await;
        fixture.at(1_200);
        assert_eq!(
            limiter.available_permits().await.unwrap(),
            10,
            "{malformed:?}"
        );
        assert!(limiter.try_acquire(4).await.unwrap());
        assert_eq!(limiter.available_permits().await.unwrap(), 6);
        limiter.release(1).await.unwrap();
        assert_eq!(limiter.available_permits().await.unwrap(), 7);
        fixture.at(2_000);
        assert!(limiter.try_acquire(1).await.unwrap());
        assert_eq!(
            fixture.grants().await,
            [(1_200, 3), (2_000, 1)],
            "{malformed:?}"
        );
        assert_eq!(fixture.value().await.as_deref(), Some("6"));
        fixture.at(2_200);
        assert_eq!(limiter.available_permits().await.unwrap(), 9);
    }
}

#[tokio::test]
async fn members_without_permits_from_redissons_try_acquire_0_are_removed_too() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    for i in 0..20 {
        fixture.add(1_000, &member(&[i; 16], 0)).await;
    }
    assert!(limiter.try_acquire(10).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    fixture.at(2_000);
    assert!(limiter.try_acquire(10).await.unwrap());
    assert_eq!(fixture.grants().await, [(2_000, 10)]);
}

#[tokio::test]
async fn a_rate_that_a_peer_lowered_in_the_hash_holds_from_the_next_call() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert!(limiter.try_acquire(2).await.unwrap());
    fixture.run(&["HSET", NAME, "rate", "3"]).await;
    assert!(limiter.try_acquire(3).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("0"));
}
