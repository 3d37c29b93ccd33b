//! On a cluster the keys of a target must be in one slot, and those of a joint decision may be in
//! several.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redisson_rate_limiter::{
    Clock, Decision, Error, Event, FixedWindow, LeakyBucket, Limiter, Rate, RedissonClient,
    RedissonClientBuilder, SlidingWindowLog,
};
use tokio::sync::Notify;

use crate::clients::patient;
use crate::every_policy::every_policy;
use crate::fixture::{HOUR, SECOND};
use crate::support::cluster::Cluster;

/// Settings of a client whose clock goes back to 1 ms after its start whenever a peek is answered.
fn clock_back_after_peeks() -> (Arc<AtomicI64>, RedissonClientBuilder) {
    let now = Arc::new(AtomicI64::new(1_000_000));
    let (shown, moved) = (Arc::clone(&now), Arc::clone(&now));
    let builder = RedissonClient::builder()
        .response_timeout(60 * SECOND)
        .clock(Clock::from_fn(move || shown.load(Ordering::SeqCst)))
        .on_event(move |event| {
            if matches!(
                event,
                Event::Call {
                    script: "joint",
                    requests: 0,
                    ..
                }
            ) {
                moved.store(1_000_001, Ordering::SeqCst);
            }
        });
    (now, builder)
}

#[tokio::test]
async fn what_a_slot_took_is_given_back_if_a_later_one_denies() {
    let cluster = Cluster::start();
    let (now, builder) = clock_back_after_peeks();
    let client = builder.connect(&cluster.urls().join(",")).await.unwrap();
    let application = client.rate_limiter("application");
    application.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    let addresses = client
        .policy_limiter(FixedWindow::new(5, 9_000 * HOUR))
        .unwrap();
    let users = client.policy_limiter(SlidingWindowLog::new(9, SECOND));
    let users = users.unwrap();
    assert!(users.check("user", 9).await.unwrap().is_granted());
    // The peeks read a clock that is a minute later, by which all grant. When the user's slot
    // decides, the clock is back.
    now.store(1_060_000, Ordering::SeqCst);
    let charges = [
        users.charge("user", 1).unwrap(),
        application.charge(2).unwrap(),
        addresses.charge("address", 2).unwrap(),
    ];
    let denied = client.check_all(charges).await.unwrap();
    assert!(!denied.is_granted());
    let [user, spared, address] = denied.decisions() else {
        panic!("{denied:?}");
    };
    assert_eq!(user.retry_after(), Some(Duration::from_millis(999)));
    for spared in [spared, address] {
        assert_eq!(
            (spared.retry_after(), spared.remaining()),
            (Some(Duration::ZERO), 5)
        );
    }
    assert_eq!(application.available_permits().await.unwrap(), 5);
    assert_eq!(addresses.check("address", 1).await.unwrap().remaining(), 4);
}

#[tokio::test]
async fn what_a_slot_took_is_given_back_if_the_future_is_dropped() {
    let cluster = Cluster::start();
    let decided = Arc::new(Notify::new());
    let noted = Arc::clone(&decided);
    let builder = RedissonClient::builder().response_timeout(60 * SECOND);
    let builder = builder.on_event(move |event| {
        if matches!(event, Event::Call { requests: 1.., .. }) {
            noted.notify_one();
        }
    });
    let urls = cluster.urls().join(",");
    let client = builder.connect(&urls).await.unwrap();
    let application = client.rate_limiter("application");
    application.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    let users = client.policy_limiter(FixedWindow::new(9, HOUR)).unwrap();
    let charges = [
        users.charge("user", 1).unwrap(),
        application.charge(2).unwrap(),
    ];
    tokio::select! {
        biased;
        () = decided.notified() => {}
        decision = client.check_all(charges) => panic!("{decision:?}"),
    }
    assert!(client.close(60 * SECOND).await);
    assert_eq!(application.available_permits().await.unwrap(), 5);
    let client = patient(&urls).await;
    let users = client.policy_limiter(FixedWindow::new(9, HOUR)).unwrap();
    assert_eq!(users.check("user", 1).await.unwrap().remaining(), 8);
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
    // A brace in a key does not spread state over slots.
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
