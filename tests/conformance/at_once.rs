//! Decisions without waiting for anything.

use std::time::Duration;

use redisson_rate_limiter::{Decision, FixedWindow, LeakyBucket, Limiter, Rate, Rule, Verdict};

use crate::fixture::{Fixture, SECOND};

pub async fn limiters_in_memory_decide_at_once_and_redis_is_not_asked(fixture: Fixture) {
    let client = fixture.client("a").await;
    let rate = Rate::overall(2, SECOND);
    let policy = client.policy_limiter(FixedWindow::new(2, SECOND)).unwrap();
    let limiters: [Box<dyn Limiter>; 3] = [
        Box::new(fixture.limiter().await.with_rate(rate).unwrap()),
        Box::new(client.keyed_rate_limiter(fixture.name(), rate).unwrap()),
        Box::new(policy.with_prefix(format!("{}:policy:", fixture.name()))),
    ];
    for limiter in limiters {
        for expected in [true, true, false] {
            let decided = limiter.check_now("alice", 1);
            assert_eq!(decided.is_some(), fixture.is_in_memory());
            if let Some(decision) = decided {
                assert_eq!(decision.unwrap().is_granted(), expected);
            }
        }
        let has_two = limiter.check("alice", 2).await.unwrap().is_granted();
        assert_eq!(has_two, !fixture.is_in_memory(), "nothing else is charged");
    }
}

pub async fn rules_in_memory_decide_at_once_if_none_gives_turns(fixture: Fixture) {
    let client = fixture.client("a").await;
    let window = client
        .policy_limiter(FixedWindow::new(2, 60 * SECOND))
        .unwrap();
    let window = window.with_prefix(format!("{}:window:", fixture.name()));
    let window = window.with_name("window");
    let bucket = client
        .policy_limiter(LeakyBucket::new(9, 60 * SECOND))
        .unwrap();
    let bucket = bucket.with_prefix(format!("{}:bucket:", fixture.name()));
    let alone = || vec![Rule::new(window.clone()).by(["user"])];
    let of = |user| [("user", user)];
    let rules = client.rules(alone()).unwrap();
    for expected in [true, true, false] {
        let decided = rules.check_now(&of("alice"));
        assert_eq!(decided.is_some(), fixture.is_in_memory());
        if let Some(verdict) = decided {
            assert_eq!(matches!(verdict.unwrap(), Verdict::Granted(_)), expected);
        }
    }
    // Nothing is charged if the request may have to wait for its turn.
    let mut both = alone();
    let waits = Rule::new(bucket.clone()).by(["user"]);
    both.push(waits.clone());
    for that_wait in [both, vec![waits]] {
        rules.replace(that_wait).unwrap();
        assert!(rules.check_now(&of("bob")).is_none());
    }
    rules.replace(alone()).unwrap();
    for (verdict, is_granted) in [(2, true), (1, false)] {
        for _ in 0..verdict {
            let verdict = rules.check(&of("bob")).await.unwrap();
            assert_eq!(matches!(verdict, Verdict::Granted(_)), is_granted);
        }
    }
    let Decision::Granted(first) = bucket.peek("bob", 1).await.unwrap() else {
        panic!("the bucket is empty")
    };
    assert_eq!(first.delay, Duration::ZERO);
}

pub async fn a_limiter_that_gives_turns_does_not_decide_at_once(fixture: Fixture) {
    let client = fixture.client("a").await;
    let limiter = client.policy_limiter(LeakyBucket::new(1, SECOND)).unwrap();
    let limiter = limiter.with_prefix(fixture.name());
    assert!(limiter.check_now("alice", 1).is_none());
    let peeked = limiter.peek("alice", 1).await.unwrap();
    assert_eq!(peeked.remaining() + 1, peeked.limit(), "nothing is charged");
}
