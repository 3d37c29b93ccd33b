//! The wait for the turn that a leaky bucket gives a granted request: which requests wait, until
//! when, and what happens when one is dropped.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redisson_rate_limiter::{
    Decision, Error, Event, Granted, JointDecision, LeakyBucket, Limiter, PolicyLimiter, Rate,
    RedissonClient, RequestResult, Rule, Verdict,
};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, advance};

use crate::fixture::{Fixture, HOUR, SECOND, fields, ms};
use crate::stopped_time::{at_once, until};

pub type Bucket = PolicyLimiter<LeakyBucket>;

/// Its first request proceeds at once, and the next ones a period apart. All keys of a fixture are
/// in one slot of a cluster.
pub fn bucket(client: &RedissonClient, fixture: &Fixture, period: Duration) -> Bucket {
    let policy = LeakyBucket::new(1, period).with_capacity(9);
    let limiter = client.policy_limiter(policy).unwrap();
    limiter.with_prefix(format!("{{{}}}:{}:", fixture.name(), period.as_millis()))
}

pub async fn is_used(bucket: &Bucket, key: &str) {
    let decision = bucket.check(key, 1).await.unwrap();
    assert_eq!(delay(&decision), Duration::ZERO);
}

fn delay(decision: &Decision) -> Duration {
    match decision {
        Decision::Granted(Granted { delay, .. }) => *delay,
        Decision::Denied(_) => panic!("{decision:?}"),
    }
}

/// Polls all tasks until those whose answers are there wait for their turn.
async fn proceed() {
    for _ in 0..50 {
        yield_now().await;
    }
}

/// Makes a request, and waits until the store has granted it.
async fn ask<T: Send + 'static>(
    bucket: &Bucket,
    key: &str,
    request: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let left = async || bucket.peek(key, 1).await.unwrap().remaining();
    let before = left().await;
    let request = tokio::spawn(request);
    until("it is charged", async || left().await < before).await;
    let _ = left().await; // answered after the request
    proceed().await;
    request
}

/// Asserts that a request has its turn after this time, and not earlier.
async fn has_its_turn<T>(request: JoinHandle<T>, after: Duration) -> T {
    advance(after - ms(1)).await;
    proceed().await;
    assert!(!request.is_finished());
    advance(ms(2)).await; // a timer may be late by a millisecond
    at_once(request).await.unwrap()
}

pub async fn a_check_returns_when_its_request_may_proceed(fixture: Fixture) {
    let client = fixture.client("client").await;
    let bucket = bucket(&client, &fixture, SECOND);
    let _stopped = fixture.stop_time();
    is_used(&bucket, "a").await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let limiter = bucket.clone();
        let check = async move { limiter.check("a", 1).await.unwrap() };
        waiting.push(ask(&bucket, "a", check).await);
    }
    // One that is denied does not wait.
    let denied = at_once(bucket.check("a", 9)).await.unwrap();
    assert_eq!(fields(&denied), (false, 7, Some(2_000), 3_000));
    for ((waiting, remaining), after) in waiting.into_iter().zip([8, 7]).zip([SECOND, ms(999)]) {
        let decision = has_its_turn(waiting, after).await;
        assert_eq!(delay(&decision), Duration::ZERO);
        // What the decision states about the bucket is true at that time.
        assert_eq!(fields(&decision), (true, remaining, None, 1_000));
    }
}

pub async fn a_check_without_waiting_returns_the_delay_at_once(fixture: Fixture) {
    let client = fixture.client("client").await;
    let bucket = bucket(&client, &fixture, SECOND);
    let _stopped = fixture.stop_time();
    let by_trait: &dyn Limiter = &bucket;
    for seconds in 0..4 {
        let peeked = at_once(bucket.peek("a", 1)).await.unwrap();
        assert_eq!(delay(&peeked), seconds * SECOND);
        let decision = match seconds % 2 {
            0 => at_once(bucket.check_without_waiting("a", 1)).await,
            _ => at_once(by_trait.check_without_waiting("a", 1)).await,
        };
        assert_eq!(delay(&decision.unwrap()), seconds * SECOND);
    }
    let keyed = client.keyed_rate_limiter("{a}", Rate::overall(1, HOUR));
    let decision = Limiter::check_without_waiting(&keyed.unwrap(), fixture.name(), 1).await;
    assert!(decision.unwrap().is_granted());
}

pub async fn a_request_dropped_before_its_turn_leaves_its_place_taken(fixture: Fixture) {
    let client = fixture.client("client").await;
    let bucket = bucket(&client, &fixture, HOUR);
    let _stopped = fixture.stop_time();
    is_used(&bucket, "a").await;
    let limiter = bucket.clone();
    let waiting = ask(&bucket, "a", async move { limiter.check("a", 2).await }).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    // Those behind it know when they may proceed.
    let behind = bucket.check_without_waiting("a", 1).await.unwrap();
    assert_eq!((delay(&behind), behind.remaining()), (3 * HOUR, 6));
}

/// Two buckets, and a limiter of two permits.
struct Three {
    client: RedissonClient,
    second: Bucket,
    minute: Bucket,
    rate: redisson_rate_limiter::RateLimiter,
}

impl Three {
    async fn on(fixture: &Fixture) -> Self {
        let client = fixture.client("client").await;
        let rate = client.rate_limiter(&format!("{{{}}}:rate", fixture.name()));
        rate.set_rate(Rate::overall(2, HOUR)).await.unwrap();
        let three = Self {
            second: bucket(&client, fixture, SECOND).with_name("second"),
            minute: bucket(&client, fixture, 60 * SECOND).with_name("minute"),
            rate,
            client,
        };
        is_used(&three.second, "a").await;
        is_used(&three.minute, "a").await;
        three
    }

    /// A request to all three that waits for its turn.
    async fn ask(&self) -> JoinHandle<JointDecision> {
        let charges = [
            self.second.charge("a", 1).unwrap(),
            self.minute.charge("a", 1).unwrap(),
            self.rate.charge(2).unwrap(),
        ];
        let client = self.client.clone();
        let check = async move { client.check_all(charges).await.unwrap() };
        ask(&self.minute, "a", check).await
    }
}

pub async fn a_joint_check_returns_when_the_last_of_its_turns_has_come(fixture: Fixture) {
    let three = Three::on(&fixture).await;
    let _stopped = fixture.stop_time();
    let waiting = three.ask().await;
    let decision = has_its_turn(waiting, 60 * SECOND).await;
    assert!(decision.is_granted());
    assert_eq!(decision.deciding().0, "minute");
    let [second, minute, rate] = decision.decisions() else {
        panic!("{decision:?}");
    };
    assert_eq!([second, minute, rate].map(delay), [Duration::ZERO; 3]);
    assert_eq!(
        [second, minute, rate].map(Decision::reset),
        [Duration::ZERO, 60 * SECOND, HOUR - 60 * SECOND]
    );
    assert_eq!(three.client.refund_all(decision).await.unwrap(), 2);
}

pub async fn a_joint_check_dropped_before_its_turn_gives_permits_back(fixture: Fixture) {
    let three = Three::on(&fixture).await;
    let _stopped = fixture.stop_time();
    let waiting = three.ask().await;
    assert_eq!(three.rate.available_permits().await.unwrap(), 0);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let are_back = async || three.rate.available_permits().await.unwrap() == 2;
    until("they are back", are_back).await;
}

pub async fn rules_grant_a_request_when_it_may_proceed(fixture: Fixture) {
    let three = Three::on(&fixture).await;
    let _stopped = fixture.stop_time();
    let rule = |limiter: &Bucket, name| Rule::new(limiter.clone()).by([name]);
    // One rule applies, or both do.
    let rules = [rule(&three.minute, "one"), rule(&three.second, "other")];
    let rules = Arc::new(three.client.rules(rules).unwrap());
    let requests = [[("one", "a"), ("", "")], [("one", "a"), ("other", "a")]];
    for (request, deciding) in requests.into_iter().zip(1..) {
        let rules = Arc::clone(&rules);
        let check = async move { rules.check(&request).await.unwrap() };
        let waiting = ask(&three.minute, "a", check).await;
        fixture.pass(60 * SECOND); // the bucket's own time
        let verdict = has_its_turn(waiting, 60 * SECOND).await;
        let Verdict::Granted(granted) = verdict else {
            panic!("{verdict:?}");
        };
        let decision = granted.into_decision().unwrap();
        assert_eq!(decision.decisions().len(), deciding);
        assert_eq!(delay(decision.deciding().1), Duration::ZERO);
    }
    // Nothing is enforced, and so no request is held up.
    rules.set_shadow(true);
    for request in requests {
        let verdict = at_once(rules.check(&request)).await.unwrap();
        assert_eq!(verdict.decision(), None);
    }
}

pub async fn the_wait_for_a_turn_is_part_of_the_reported_time(fixture: Fixture) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let builder = RedissonClient::builder().response_timeout(60 * SECOND);
    let builder = builder.on_event(move |event| {
        if let Event::Request { result, took, .. } = event {
            telling.lock().unwrap().push((*result, *took));
        }
    });
    let client = fixture.build(builder).await;
    let bucket = bucket(&client, &fixture, SECOND);
    let _stopped = fixture.stop_time();
    is_used(&bucket, "a").await;
    let start = Instant::now();
    let limiter = bucket.clone();
    let check = async move { limiter.check("a", 1).await };
    let waiting = ask(&bucket, "a", check).await;
    let _ = bucket.check_without_waiting("a", 1).await.unwrap();
    let decision = has_its_turn(waiting, SECOND).await.unwrap();
    let waited = start.elapsed();
    assert!(decision.is_granted() && waited >= SECOND);
    let limiter = bucket.clone();
    let dropped = ask(&bucket, "a", async move { limiter.check("a", 1).await }).await;
    dropped.abort();
    let _ = dropped.await;
    let granted = RequestResult::Granted(decision.source());
    let expected = [
        (granted, Duration::ZERO),
        (granted, Duration::ZERO), // without waiting
        (granted, waited),
        (RequestResult::Cancelled, Duration::ZERO),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
}

pub async fn a_request_that_was_granted_has_its_turn_though_its_client_is_closed(fixture: Fixture) {
    let client = fixture.client("client").await;
    let bucket = bucket(&client, &fixture, SECOND);
    let _stopped = fixture.stop_time();
    is_used(&bucket, "a").await;
    let limiter = bucket.clone();
    let waiting = ask(&bucket, "a", async move { limiter.check("a", 1).await }).await;
    assert!(at_once(client.close(SECOND)).await);
    let decision = has_its_turn(waiting, SECOND).await.unwrap();
    assert!(decision.is_granted());
    assert!(matches!(bucket.check("a", 1).await, Err(Error::Closed)));
}
