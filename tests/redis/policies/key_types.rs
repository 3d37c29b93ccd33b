//! Keys that hold another kind of limiter's state, as far as type and fields show.

use redisson_rate_limiter::{Chargeable, Error, FixedWindow, Rate, RedissonClient};

use crate::fixture::{Fixture, HOUR};

const KEY: &str = "key";

/// Each kind whose state stands under the target's own name, and the type of that key.
fn limiters(client: &RedissonClient) -> Vec<(&'static str, Box<dyn Chargeable>)> {
    let keyed = client.keyed_rate_limiter("", Rate::overall(5, HOUR));
    let mut limiters: Vec<(_, Box<dyn Chargeable>)> = vec![("hash", Box::new(keyed.unwrap()))];
    each_policy!(|name, make, _unit| {
        let own_type = match name {
            "fixed_window" | "leaky_bucket" | "penalty_token_bucket" => Some("string"),
            "sliding_window_log" => Some("zset"),
            "token_bucket" | "quota_bucket" => Some("hash"),
            "sliding_window_counter" => None,
            other => panic!("which type has the key of {other}?"),
        };
        if let Some(own_type) = own_type {
            limiters.push((own_type, Box::new(client.limiter(make(5)).unwrap())));
        }
    });
    limiters
}

#[tokio::test]
async fn what_one_kind_left_is_a_bad_state_for_the_others_and_nothing_changes() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().await;
    let limiters = limiters(&client);
    for (own, (own_type, limiter)) in limiters.iter().enumerate() {
        fixture.run(&["FLUSHALL"]).await;
        assert!(limiter.check(KEY, 1).await.unwrap().is_granted());
        let before = fixture.everything().await;
        for (other, (other_type, refused)) in limiters.iter().enumerate() {
            // One string is like another; hashes have their fields.
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
    fixture.run(&["RPUSH", "list", "x"]).await;
    let before = fixture.everything().await;
    let good = client.limiter(FixedWindow::new(5, HOUR)).unwrap();
    for (_, bad) in limiters(&client) {
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
