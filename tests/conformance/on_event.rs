//! What a client tells its handler of events about requests.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};

use redisson_rate_limiter::{
    FixedWindow, LeakyBucket, Limiter, Rate, RateLimiter, RedissonClient, RedissonClientBuilder,
    Rule,
};

use crate::fixture::{Fixture, HOUR, SECOND, ms};
use crate::told::Told;

/// Settings of a client whose calls do not fail on a busy machine.
fn builder() -> RedissonClientBuilder {
    RedissonClient::builder().response_timeout(60 * SECOND)
}

async fn told_by(fixture: &Fixture) -> (Told, RedissonClient) {
    let told = Told::default();
    let client = fixture.build(told.by(builder())).await;
    (told, client)
}

/// Polls a request once, and drops it.
fn poll_once<T>(request: impl Future<Output = T>) {
    let _ = pin!(request).poll(&mut Context::from_waker(Waker::noop()));
}

pub async fn each_request_of_a_limiter_is_reported_once_with_its_result(fixture: Fixture) {
    let (told, client) = told_by(&fixture).await;
    let limiter = client.rate_limiter(fixture.name());
    limiter.try_acquire(1).await.unwrap_err();
    limiter.set_rate(Rate::overall(4, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    limiter.acquire(1).await.unwrap();
    assert!(limiter.try_acquire_timeout(1, HOUR).await.unwrap());
    assert!(limiter.check(1).await.unwrap().is_granted());
    assert!(!limiter.try_acquire(2).await.unwrap());
    assert!(!limiter.try_acquire_timeout(2, ms(0)).await.unwrap());
    assert!(!limiter.try_acquire_timeout(2, ms(1)).await.unwrap());
    assert!(!limiter.check(2).await.unwrap().is_granted());
    limiter.check(5).await.unwrap_err();
    limiter.acquire(0).await.unwrap_err();
    assert!(client.close(60 * SECOND).await);
    limiter.acquire(1).await.unwrap_err();
    let expected = [
        "1: not_initialized",
        "1: granted by store",
        "1: granted by store",
        "1: granted by store",
        "1 granted: granted by store",
        "2: denied by store",
        "2: denied by store",
        "2: timed_out",
        "2 denied: denied by store",
        "5: exceeds_limit",
        "0: invalid_argument",
        "1: closed",
    ];
    let expected = expected.map(|end| format!("*{} {end}", fixture.name()));
    assert_eq!(told.take_requests(), expected);
}

pub async fn requests_by_key_are_reported_by_prefix_and_never_by_key(fixture: Fixture) {
    let (told, client) = told_by(&fixture).await;
    let hour = Rate::overall(3, HOUR);
    let prefix = format!("{}-mail:", fixture.name());
    let keyed = client.keyed_rate_limiter(&prefix, hour).unwrap();
    assert!(keyed.check("alice", 1).await.unwrap().is_granted());
    assert!(keyed.try_acquire("alice", 1).await.unwrap());
    keyed.acquire("alice", 1).await.unwrap();
    assert!(!keyed.try_acquire_timeout("alice", 1, ms(1)).await.unwrap());
    let other = keyed.check_with_rate("bob", 1, hour).await.unwrap();
    assert!(other.is_granted());
    let none = Rate::overall(0, HOUR);
    keyed.check_with_rate("bob", 1, none).await.unwrap_err();
    keyed.acquire("bob", 4).await.unwrap_err();
    assert!(keyed.rate_limiter("bob").try_acquire(1).await.unwrap());
    let charge = keyed.rate_limiter("bob").charge(1).unwrap();
    assert!(client.check_all([charge]).await.unwrap().is_granted());
    let expected = [
        "1 granted: granted by store",
        "1 granted: granted by store",
        "1: granted by store",
        "1: timed_out",
        "1 granted: granted by store",
        "1: invalid_argument",
        "4: exceeds_limit",
        "1: granted by store",
        "1 granted: granted by store",
    ];
    let expected = expected.map(|end| format!("*{prefix} {end}"));
    assert_eq!(told.take_requests(), expected);

    let prefix = format!("{}-login:", fixture.name());
    let policy = client.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
    let policy = policy.with_prefix(&*prefix);
    let by_trait: &dyn Limiter = &policy;
    assert!(by_trait.check("alice", 1).await.unwrap().is_granted());
    let at_once = policy.check_without_waiting("alice", 1).await.unwrap();
    assert!(at_once.is_granted());
    assert!(!policy.check("alice", 1).await.unwrap().is_granted());
    policy.check("alice", 3).await.unwrap_err();
    let expected = [
        "1 granted: granted by store",
        "1 granted: granted by store",
        "1 denied: denied by store",
        "3: exceeds_limit",
    ];
    let expected = expected.map(|end| format!("*{prefix} {end}"));
    assert_eq!(told.take_requests(), expected);
}

/// Settling a bucket that gives turns requests the missing permits, as far as the bucket has them.
pub async fn settling_a_grant_is_not_reported_as_another_request(fixture: Fixture) {
    let (told, client) = told_by(&fixture).await;
    let prefix = format!("{}-", fixture.name());
    let window = client.policy_limiter(FixedWindow::new(9, HOUR)).unwrap();
    let bucket = LeakyBucket::new(1, HOUR).with_capacity(9);
    let bucket = client.policy_limiter(bucket).unwrap();
    let shared = client.keyed_rate_limiter(&format!("{prefix}shared:"), Rate::overall(9, HOUR));
    let limiters: [Box<dyn Limiter>; 3] = [
        Box::new(window.with_prefix(format!("{prefix}window:"))),
        Box::new(bucket.with_prefix(format!("{prefix}bucket:"))),
        Box::new(shared.unwrap()),
    ];
    for limiter in limiters {
        for used in [1, 2, 5, 20] {
            let key = format!("used {used}");
            let asked = limiter.check_without_waiting(&key, 2).await.unwrap();
            let estimate = asked.into_grant().unwrap();
            limiter.settle(&key, estimate, used).await.unwrap();
        }
        let expected = format!("*{} 2 granted: granted by store", limiter.name());
        assert_eq!(told.take_requests(), vec![expected; 4]);
    }
}

pub async fn a_joint_decision_is_reported_once_with_each_of_its_limiters(fixture: Fixture) {
    let (told, client) = told_by(&fixture).await;
    let slot = format!("{{{}}}", fixture.name());
    let fixed = |limit, name: &str| {
        let limiter = client
            .policy_limiter(FixedWindow::new(limit, HOUR))
            .unwrap();
        limiter.with_prefix(format!("{slot}{name}:"))
    };
    let (users, addresses) = (fixed(9, "users"), fixed(2, "addresses"));
    let whole = client.rate_limiter(&format!("{slot}whole"));
    whole.set_rate(Rate::overall(9, HOUR)).await.unwrap();
    let ask = async |user: u32| {
        let charges = [
            users.charge("alice", user)?,
            addresses.charge("::1", 1)?,
            whole.charge(1)?,
        ];
        client.check_all(charges).await
    };
    for user in [1, 1, 1] {
        let _ = ask(user).await.unwrap();
    }
    client.check_all([]).await.unwrap_err();
    let asked = |[a, b, c]: [&str; 3], end| {
        let names = ["users:", "addresses:", "whole"];
        let each = [a, b, c].into_iter().zip(names);
        let each: Vec<_> = each
            .map(|(said, name)| match said.strip_prefix('*') {
                Some(said) => format!("*{slot}{name} {said}"),
                None => format!("{slot}{name} {said}"),
            })
            .collect();
        format!("{}: {end}", each.join(", "))
    };
    let granted = asked(["*1 granted"; 3], "granted by store");
    let denied = asked(["1 denied", "*1 denied", "1 denied"], "denied by store");
    let expected = [
        granted.clone(),
        granted,
        denied,
        ": invalid_argument".to_owned(),
    ];
    assert_eq!(told.take_requests(), expected);

    // Rules: none applies, one does, two do, and the cost of one is above its limit.
    let rules = client.rules([
        Rule::new(users).by(["user"]).cost_from("users"),
        Rule::new(whole_by_key(&client, &slot).with_name("keys"))
            .by(["key"])
            .cost_from("keys"),
    ]);
    let rules = rules.unwrap();
    for request in [
        &[][..],
        &[("user", "bob"), ("users", "2")],
        &[("user", "bob"), ("key", "a"), ("keys", "3")],
    ] {
        let _ = rules.check(&request).await.unwrap();
    }
    let too_much = [("user", "bob"), ("users", "0"), ("key", "a"), ("keys", "4")];
    rules.check(&too_much).await.unwrap_err();
    let expected = [
        format!("*{slot}users: 2 granted: granted by store"),
        format!("*{slot}users: 1 granted, *keys 3 granted: granted by store"),
        "*keys 4: exceeds_limit".to_owned(),
    ];
    assert_eq!(told.take_requests(), expected);
}

fn whole_by_key(client: &RedissonClient, slot: &str) -> redisson_rate_limiter::KeyedRateLimiter {
    let prefix = format!("{slot}keys:");
    client
        .keyed_rate_limiter(&prefix, Rate::overall(3, HOUR))
        .unwrap()
}

pub async fn a_request_whose_future_is_dropped_is_reported_as_cancelled(fixture: Fixture) {
    let (told, client) = told_by(&fixture).await;
    let limiter = client.rate_limiter(fixture.name());
    limiter.set_rate(Rate::overall(1, HOUR)).await.unwrap();
    limiter.acquire(1).await.unwrap();
    told.take_requests();
    poll_once(limiter.acquire(1));
    drop(limiter.acquire(1)); // it has not begun
    let expected = format!("*{} 1: cancelled", fixture.name());
    assert_eq!(told.take_requests(), [expected]);
}

pub async fn a_handler_that_panics_harms_no_request(fixture: Fixture) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let panicking = builder().on_event(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        panic_any(()); // without a message
    });
    let client = fixture.build(panicking).await;
    let limiter = client.rate_limiter(fixture.name());
    limiter.set_rate(Rate::overall(2, HOUR)).await.unwrap();
    assert!(limiter.check(1).await.unwrap().is_granted());
    limiter.acquire(1).await.unwrap();
    let caller = catch_unwind(AssertUnwindSafe(|| {
        let mut waiting = Box::pin(limiter.acquire(1));
        let _ = waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        panic_any(()); // drops it
    }));
    assert!(caller.is_err() && calls.load(Ordering::Relaxed) >= 3);
    limiter.release(2).await.unwrap();
    let policy = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let key = format!("{}-fixed", fixture.name());
    assert!(policy.check(&key, 1).await.unwrap().is_granted());
}

pub async fn a_handler_may_use_the_client_and_its_limiters(fixture: Fixture) {
    let handles = Arc::new(OnceLock::<(RedissonClient, RateLimiter)>::new());
    let (used, is_using) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let (of_handler, counted) = (Arc::clone(&handles), Arc::clone(&used));
    let using = builder().on_event(move |_| {
        let Some((client, limiter)) = of_handler.get() else {
            return;
        };
        if is_using.swap(true, Ordering::SeqCst) {
            return; // its own requests are events too
        }
        let _ = (
            client.health(),
            limiter.waiters(),
            limiter.estimated_wait(1),
        );
        poll_once(limiter.acquire(1));
        poll_once(limiter.check(1));
        poll_once(limiter.release(1));
        counted.fetch_add(1, Ordering::SeqCst);
        is_using.store(false, Ordering::SeqCst);
    });
    let client = fixture.connect(using).await;
    let limiter = client.rate_limiter(fixture.name());
    limiter
        .set_rate(Rate::overall(1_000, SECOND))
        .await
        .unwrap();
    handles.set((client.clone(), limiter.clone())).unwrap();
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire(300).await })
        })
        .collect();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert!(used.load(Ordering::SeqCst) >= 5);
}
