//! How much of a request's time its event tells as spent in a queue, over a store whose calls take
//! 10 ms.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{advance, sleep, timeout};

use crate::store::memory::Faults;
use crate::{
    Event, FailurePolicy, FixedWindow, LeakyBucket, LimiterOptions, MemoryStore, Rate, RateLimiter,
    RedissonClient, RedissonClientBuilder, Rule,
};

const SECOND: Duration = Duration::from_secs(1);
const ROUND_TRIP: Duration = Duration::from_millis(10);

/// The result of each request, and its time in the queue and in all, in ms.
type Told = Receiver<(&'static str, u128, u128)>;

fn telling() -> (RedissonClientBuilder, Told) {
    let (sender, told) = mpsc::channel();
    let builder = RedissonClient::builder().on_event(move |event| {
        if let Event::Request {
            result,
            queued,
            took,
            ..
        } = event
        {
            let times = (queued.as_millis(), took.as_millis());
            sender.send((result.as_str(), times.0, times.1)).unwrap();
        }
    });
    (builder, told)
}

fn distant(options: LimiterOptions) -> (RedissonClient, Faults, Told) {
    let ((builder, told), faults) = (telling(), Faults::new());
    faults.network().set_round_trip(ROUND_TRIP);
    let builder = builder.default_options(options);
    let client = builder.in_memory_with_faults(&MemoryStore::new(), &faults);
    (client, faults, told)
}

async fn of_rate(client: &RedissonClient, permits: u64) -> RateLimiter {
    let limiter = client.rate_limiter("limiter");
    limiter
        .set_rate(Rate::overall(permits, 10 * SECOND))
        .await
        .unwrap();
    limiter
}

fn all(told: &Told) -> Vec<(&'static str, u128, u128)> {
    told.try_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_goes_out_at_once_is_in_no_queue() {
    let (client, _, told) = distant(LimiterOptions::new());
    let limiter = of_rate(&client, 9).await;
    let keyed = client.keyed_rate_limiter("keyed:", Rate::overall(9, SECOND));
    let keyed = keyed.unwrap();
    let policy = client.policy_limiter(FixedWindow::new(9, SECOND)).unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    limiter.acquire(1).await.unwrap();
    assert!(limiter.check(1).await.unwrap().is_granted());
    assert!(keyed.check("alice", 1).await.unwrap().is_granted());
    keyed.acquire("alice", 1).await.unwrap();
    assert!(policy.check("alice", 1).await.unwrap().is_granted());
    let charges = [policy.charge("a", 1), keyed.charge("a", 1)];
    let charges = charges.map(|charge| charge.unwrap());
    assert!(client.check_all(charges).await.unwrap().is_granted());
    let reserved = limiter.reserve(1, SECOND).await.unwrap();
    assert!(reserved.is_some());
    assert_eq!(all(&told), [("granted", 0, 10); 8]);
}

#[tokio::test(start_paused = true)]
async fn those_behind_a_call_in_flight_are_queued_until_the_next_one() {
    let (client, _, told) = distant(LimiterOptions::new());
    let limiter = of_rate(&client, 9).await;
    let policy = client.policy_limiter(FixedWindow::new(9, SECOND)).unwrap();
    let after = |millis| sleep(Duration::from_millis(millis));
    let second = async {
        after(1).await;
        limiter.try_acquire(1).await
    };
    let others = async {
        after(4).await;
        tokio::join!(limiter.try_acquire(1), limiter.try_acquire(1))
    };
    let _ = tokio::join!(limiter.try_acquire(1), second, others);
    // Two calls may be in flight. The others, at 4 ms, wait for the end of the second one at 11 ms.
    let expected = [
        ("granted", 0, 10),
        ("granted", 0, 10),
        ("granted", 7, 17),
        ("granted", 7, 17),
    ];
    assert_eq!(all(&told), expected);
    let second = async {
        after(1).await;
        policy.check("alice", 1).await
    };
    let others = async {
        after(4).await;
        tokio::join!(policy.check("alice", 1), policy.check("bob", 1))
    };
    let _ = tokio::join!(policy.check("alice", 1), second, others);
    // Another key has calls of its own.
    let expected = [
        ("granted", 0, 10),
        ("granted", 0, 10),
        ("granted", 0, 10),
        ("granted", 7, 17),
    ];
    assert_eq!(all(&told), expected);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_queued_until_the_call_that_grants_its_permits() {
    let (client, _, told) = distant(LimiterOptions::new());
    let limiter = of_rate(&client, 1).await;
    limiter.acquire(1).await.unwrap();
    limiter.acquire(1).await.unwrap();
    let told = all(&told);
    assert_eq!(told[0], ("granted", 0, 10));
    let (result, queued, took) = told[1];
    assert_eq!((result, took - queued), ("granted", 10));
    assert!(queued >= 9_990, "{queued}");
}

#[tokio::test(start_paused = true)]
async fn who_gets_what_another_one_was_granted_was_queued_until_that_call() {
    let (client, faults, told) = distant(LimiterOptions::new());
    let limiter = of_rate(&client, 2).await;
    assert!(limiter.try_acquire(2).await.unwrap());
    let waiting = || {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire(1).await })
    };
    let (leaving, staying) = (waiting(), waiting());
    sleep(10 * SECOND - ROUND_TRIP).await;
    faults.network().take_calls();
    while faults.network().take_calls() == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    // The call that grants both is in flight.
    let late = waiting();
    yield_now().await;
    leaving.abort();
    staying.await.unwrap().unwrap();
    late.await.unwrap().unwrap();
    let told = all(&told);
    let [first, left, stayed, late] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((first.0, left.0), ("granted", "cancelled"));
    assert_eq!((stayed.0, stayed.2 - stayed.1), ("granted", 10));
    assert_eq!((late.0, late.1), ("granted", 0));
    assert!(late.2 > 0, "it came in time: {late:?}");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_was_queued_unless_a_call_carried_it() {
    let (client, faults, told) = distant(LimiterOptions::new());
    let limiter = of_rate(&client, 1).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    for time in [SECOND, SECOND / 2] {
        assert!(timeout(time, limiter.acquire(1)).await.is_err());
    }
    assert!(!limiter.try_acquire_timeout(1, SECOND).await.unwrap());
    faults.stall();
    assert!(timeout(SECOND, limiter.try_acquire(1)).await.is_err());
    faults.end();
    let expected = [
        ("granted", 0, 10),
        ("cancelled", 1_000, 1_000),
        ("cancelled", 500, 500),
        ("timed_out", 1_000, 1_000),
        ("cancelled", 0, 1_000),
    ];
    assert_eq!(all(&told), expected);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_redis_is_no_part_of_it() {
    let (client, faults, told) = distant(LimiterOptions::new());
    let limiter = of_rate(&client, 9).await;
    let policy = client.policy_limiter(FixedWindow::new(9, SECOND)).unwrap();
    faults.stall();
    limiter.try_acquire(1).await.unwrap_err();
    policy.check("alice", 1).await.unwrap_err();
    assert_eq!(all(&told), [("indeterminate", 0, 3_000); 2]);
}

#[tokio::test(start_paused = true)]
async fn without_a_call_all_of_the_time_until_the_decision_is() {
    let allow = LimiterOptions::new().failure_policy(FailurePolicy::Allow);
    let remembering = allow.clone().remember_denials(SECOND);
    let (client, faults, told) = distant(remembering);
    let limiter = of_rate(&client, 1).await;
    for _ in 0..3 {
        let _ = limiter.check(1).await.unwrap();
    }
    faults.lose_store();
    advance(2 * SECOND).await;
    limiter.acquire(1).await.unwrap();
    let expected = [
        ("granted", 0, 10),
        ("denied", 0, 10),
        ("denied", 0, 0), // remembered
        ("granted", 0, 0),
    ];
    assert_eq!(all(&told), expected);

    // In memory; a turn is waited for after the decision.
    let (builder, told) = telling();
    let client = builder.in_memory(&MemoryStore::new());
    let bucket = client.policy_limiter(LeakyBucket::new(1, SECOND)).unwrap();
    let rule = Rule::new(bucket.clone()).by(["key"]);
    let rules = client.rules([rule]).unwrap();
    for _ in 0..2 {
        assert!(bucket.check("a", 1).await.unwrap().is_granted());
    }
    let _ = rules.check(&[("key", "a")]).await.unwrap();
    let charges = [bucket.charge("a", 1).unwrap()];
    assert!(client.check_all(charges).await.unwrap().is_granted());
    let limiter = of_rate(&client, 1).await;
    limiter.acquire(1).await.unwrap();
    limiter.acquire(1).await.unwrap();
    let expected = [
        ("granted", 0, 0),
        ("granted", 0, 1_000),
        ("granted", 0, 1_000),
        ("granted", 0, 1_000),
        ("granted", 0, 0),
        ("granted", 10_003, 10_003),
    ];
    assert_eq!(all(&told), expected);
}
