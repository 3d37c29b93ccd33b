//! On a cluster the keys of all limiters of a joint decision must be in one slot.

use redisson_rate_limiter::{
    Decision, Error, FixedWindow, LeakyBucket, Limiter, Rate, TokenBucket,
};

use crate::clients::patient;
use crate::every_policy::every_policy;
use crate::fixture::{HOUR, SECOND};
use crate::support::cluster::Cluster;

#[tokio::test]
async fn other_mixes_of_tags_are_refused_before_anything_is_sent() {
    let cluster = Cluster::start();
    let urls = cluster.urls().join(",");
    let client = patient(&urls).await;
    let user = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(2))
        .unwrap();
    let address = client.policy_limiter(FixedWindow::new(3, HOUR)).unwrap();
    let application = client.rate_limiter("{shop}:application");
    application.set_rate(Rate::overall(5, HOUR)).await.unwrap();

    let ask = async |user_key: &str, address_key: &str| {
        let charges = [
            user.charge(user_key, 1)?,
            address.charge(address_key, 1)?,
            application.charge(1)?,
        ];
        Ok::<_, Error>(client.check_all(charges).await?.is_granted())
    };
    let refused = ask("user:1", "{shop}:address").await;
    let Err(Error::InvalidName { reason, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("one hash tag"), "{reason}");
    assert!(ask("{shop}:user:1", "{shop}:address").await.unwrap());
    assert!(ask("{shop}:user:1", "{shop}:address").await.unwrap());
    assert!(!ask("{shop}:user:1", "{shop}:address").await.unwrap());
    assert_eq!(application.available_permits().await.unwrap(), 3);
}

#[tokio::test]
async fn prefixes_but_no_keys_that_spread_state_over_slots_are_refused() {
    let cluster = Cluster::start();
    let url = cluster.nodes()[0].url();
    let client = patient(&url).await;
    let leaky = client
        .policy_limiter(LeakyBucket::new(1, SECOND).with_capacity(5))
        .unwrap();
    for bad in ["a}b:", "{a", "x{}y:"] {
        let keyed = client.keyed_rate_limiter(bad, Rate::overall(1, HOUR));
        let limiters: [&dyn Limiter; 2] = [&leaky.clone().with_prefix(bad), &keyed.unwrap()];
        for limiter in limiters {
            let refused = limiter.check("key", 1).await;
            assert!(
                matches!(refused, Err(Error::InvalidName { .. })),
                "{bad} {refused:?}"
            );
        }
    }
    // In a key no brace spreads anything.
    let keyed = client.keyed_rate_limiter("k:", Rate::overall(1, HOUR));
    let limiters: [&dyn Limiter; 2] = [&leaky, &keyed.unwrap()];
    for limiter in limiters {
        for good in ["a", "user:1", "a}b", "{a", "x{}y"] {
            assert!(limiter.check(good, 1).await.unwrap().is_granted());
        }
    }
}

#[tokio::test]
async fn each_policy_has_its_state_in_one_slot_or_refuses_the_name() {
    let cluster = Cluster::start();
    let client = patient(&cluster.nodes()[0].url()).await;
    for (policy, unit) in every_policy(5) {
        let name = policy.algorithm();
        let limiter = client.policy_limiter(policy).unwrap();
        let limiter = limiter.with_penalty(HOUR).unwrap();
        for bad in ["a}b:", "{a", "x{}y:"] {
            let decision = limiter.clone().with_prefix(bad).check(name, unit).await;
            let is_refused = matches!(decision, Err(Error::InvalidName { .. }));
            let is_granted = decision.as_ref().is_ok_and(Decision::is_granted);
            assert!(is_refused || is_granted, "{name} {bad} {decision:?}");
        }
        for good in ["a", "{a}:b", "a}b", "{a", "x{}y"] {
            let key = format!("{name}:{good}");
            assert!(
                limiter.check(&key, unit).await.unwrap().is_granted(),
                "{key}"
            );
        }
    }
}
