//! Keys that hold another kind of limiter's state, as far as type and fields show.

use redis::AsyncCommands;
use redisson_rate_limiter::{AnyPolicy, Chargeable, Error, FixedWindow, Rate, RedissonClient};

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR};

const KEY: &str = "key";

/// Each kind whose state stands under the target's own name, and the type of that key.
async fn limiters(
    fixture: &mut Fixture,
    client: &RedissonClient,
) -> Vec<(String, Box<dyn Chargeable>)> {
    let rate = AnyPolicy::from(Rate::overall(5, HOUR));
    let mut limiters: Vec<(_, Box<dyn Chargeable>)> = Vec::new();
    for policy in every_policy(5).map(|(policy, _)| policy).chain([rate]) {
        fixture.run(&["FLUSHALL"]).await;
        let limiter = client.policy_limiter(policy).unwrap();
        assert!(limiter.check(KEY, 1).await.unwrap().is_granted());
        let own_type: String = fixture.raw.key_type(KEY).await.unwrap();
        if own_type != "none" {
            limiters.push((own_type, Box::new(limiter)));
        }
    }
    fixture.run(&["FLUSHALL"]).await;
    limiters
}

#[tokio::test]
async fn what_one_kind_left_is_a_bad_state_for_the_others_and_nothing_changes() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().await;
    let limiters = limiters(&mut fixture, &client).await;
    for (own, (own_type, limiter)) in limiters.iter().enumerate() {
        fixture.run(&["FLUSHALL"]).await;
        assert!(limiter.check(KEY, 1).await.unwrap().is_granted());
        let before = fixture.everything().await;
        for (other, (other_type, refused)) in limiters.iter().enumerate() {
            // Strings look alike; hashes differ by their fields.
            if own == other || (own_type == other_type && *own_type == "string") {
                continue;
            }
            let error = refused.check(KEY, 1).await;
            let Err(Error::BadState { name, .. }) = &error else {
                panic!("{own} {other}: {error:?}");
            };
            assert_eq!(name, KEY);
            assert_eq!(fixture.everything().await, before, "{own} {other}");
        }
    }
}

#[tokio::test]
async fn of_several_limiters_a_bad_state_of_one_charges_nobody() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().await;
    let limiters = limiters(&mut fixture, &client).await;
    fixture.run(&["RPUSH", "list", "x"]).await;
    let before = fixture.everything().await;
    let good = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    for (_, bad) in limiters {
        for first in [true, false] {
            let mut charges = [
                good.charge("counter", 1).unwrap(),
                bad.charge("list", 1).unwrap(),
            ];
            if first {
                charges.reverse();
            }
            let refused = client.check_all(charges).await;
            assert!(
                matches!(refused, Err(Error::BadState { .. })),
                "{bad:?} {refused:?}"
            );
            assert_eq!(fixture.everything().await, before);
        }
    }
}
