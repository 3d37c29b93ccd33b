//! Joint decisions over a store whose targets lie in several slots.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::box_future::BoxFuture;
use crate::clock::Clock;
use crate::decision::Granted;
use crate::keys::Keys;
use crate::lock::Lock;
use crate::policies::call::{Answers, Call};
use crate::quota::Quota;
use crate::store::memory::{MemoryClient, MemoryStore};
use crate::store::{GivingBack, LimiterStore};
use crate::{
    FailurePolicy, FixedWindow, LeakyBucket, LimiterOptions, PolicyLimiter, RedissonClient,
};

const HOUR: Duration = Duration::from_secs(3600);

/// The key on the server that is away.
const LOST: &str = "lost";

/// The key on the server that is lost before it decides.
const FAILS: &str = "fails";

/// The key for which another request is charged just before the decision.
const RACED: &str = "raced";

/// The key whose charges take a second to go back.
const SLOW: &str = "slow";

#[derive(Debug)]
struct InSlots {
    memory: MemoryClient,
    /// Whether it is known to be a cluster: from the first call on.
    is_known: AtomicBool,
    /// The keys of the calls that decided, in their order.
    decided: Decided,
}

type Decided = Arc<Lock<Vec<String>>>;

impl Store for InSlots {
    fn is_cluster(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    fn give_back_in_background(&self, mut task: GivingBack) {
        let at_once = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if at_once.is_pending() {
            tokio::spawn(task);
        }
    }

    fn limiter(&self, keys: Arc<Keys>) -> Arc<dyn LimiterStore> {
        self.memory.limiter(keys)
    }

    fn check<'a>(
        &'a self,
        call: &'a Arc<Call>,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<Answers>> {
        Box::pin(async move {
            self.is_known.store(true, Ordering::Relaxed);
            let keys = call.limiters.iter().map(|it| it.key.to_string());
            let keys: Vec<_> = keys.collect();
            if let [name, _, ..] = &keys[..] {
                let (name, reason) = (name.clone(), "spreads keys over slots");
                return Err(Error::InvalidName { name, reason });
            }
            if keys == [LOST] {
                return Err(Error::Indeterminate { source: None });
            }
            if call.purpose == Purpose::Decide {
                if keys == [FAILS] {
                    return Err(Error::Indeterminate { source: None });
                }
                if keys == [RACED] {
                    let (limiters, costs) = (call.limiters.clone(), call.costs.clone());
                    let of_other = Call::with_purpose(Purpose::Decide, limiters, costs);
                    self.memory.check_call(&of_other)?;
                }
                self.decided.lock().extend(keys);
            }
            self.memory.check_call(call)
        })
    }

    fn undo<'a>(&'a self, call: &'a Arc<Call>, _deadline: Instant) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move {
            if &*call.limiters[0].key == SLOW {
                sleep(Duration::from_secs(1)).await;
            }
            self.memory.undo_call(call)
        })
    }

    fn call_deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(3)
    }
}

/// A client, and what its store was asked to decide. It may be known that there are several slots.
fn client(is_known: bool) -> (RedissonClient, Decided) {
    let decided = Decided::default();
    let store = InSlots {
        memory: MemoryClient::new(&MemoryStore::new(), Clock::server()),
        is_known: AtomicBool::new(is_known),
        decided: Arc::clone(&decided),
    };
    (RedissonClient::builder().build(store), decided)
}

fn window(client: &RedissonClient, limit: u32) -> PolicyLimiter<FixedWindow> {
    client
        .policy_limiter(FixedWindow::new(limit, HOUR))
        .unwrap()
}

/// The same limiter, which allows what the store does not answer.
fn lenient(limiter: &PolicyLimiter<FixedWindow>) -> PolicyLimiter<FixedWindow> {
    let options = LimiterOptions::new().failure_policy(FailurePolicy::Allow);
    limiter.clone().with_options(options)
}

#[tokio::test(start_paused = true)]
async fn the_slot_that_could_grant_the_fewest_further_requests_decides_first() {
    let (client, decided) = client(true);
    let charges = [
        window(&client, 9).charge("eight", 1).unwrap(),
        window(&client, 20).charge("four", 4).unwrap(),
        window(&client, 7).charge("six", 1).unwrap(),
    ];
    assert!(client.check_all(charges).await.unwrap().is_granted());
    assert_eq!(*decided.lock(), ["four", "six", "eight"]);
}

#[tokio::test(start_paused = true)]
async fn of_slots_that_could_grant_as_many_one_that_keeps_charges_is_last() {
    let (client, decided) = client(true);
    let bucket = LeakyBucket::new(1, HOUR).with_capacity(5);
    let bucket = client.policy_limiter(bucket).unwrap();
    let charges = || {
        [
            bucket.charge("bucket", 1).unwrap(),
            window(&client, 6).charge("window", 1).unwrap(),
        ]
    };
    let peeked = client.peek_all(charges()).await.unwrap();
    let left: Vec<_> = peeked.decisions().iter().map(Decision::remaining).collect();
    assert_eq!(left, [5, 5]);
    assert!(client.check_all(charges()).await.unwrap().is_granted());
    assert_eq!(*decided.lock(), ["window", "bucket"]);
}

#[tokio::test(start_paused = true)]
async fn all_slots_that_would_deny_set_their_penalties_and_no_other_is_charged() {
    let (client, decided) = client(true);
    let limiter = window(&client, 1).with_penalty(9 * HOUR).unwrap();
    for key in ["first", "second"] {
        assert!(limiter.check(key, 1).await.unwrap().is_granted());
    }
    decided.lock().clear();
    let charges = ["spared", "first", "second"].map(|key| limiter.charge(key, 1).unwrap());
    assert!(!client.check_all(charges).await.unwrap().is_granted());
    assert_eq!(*decided.lock(), ["first", "second"]);
    for key in ["first", "second"] {
        let peeked = limiter.peek(key, 1).await.unwrap();
        assert_eq!(peeked.retry_after(), Some(9 * HOUR), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_slots_have_charged_goes_back_if_a_later_one_does_not_grant() {
    for (last, expected) in [(RACED, "denied"), (FAILS, "failed")] {
        let (client, decided) = client(true);
        let limiter = window(&client, 1);
        let charges = ["first", last].map(|key| limiter.charge(key, 1).unwrap());
        let was = match client.check_all(charges).await {
            Ok(decision) if decision.is_granted() => "granted",
            Ok(_) => "denied",
            Err(_) => "failed",
        };
        assert_eq!(was, expected);
        assert_eq!(decided.lock()[0], "first");
        assert!(limiter.check("first", 1).await.unwrap().is_granted());
    }
}

#[tokio::test(start_paused = true)]
async fn what_slots_have_charged_goes_back_though_the_caller_leaves() {
    let (client, _) = client(true);
    let limiter = window(&client, 1);
    let charges = [SLOW, RACED].map(|key| limiter.charge(key, 1).unwrap());
    let left = timeout(Duration::from_millis(500), client.check_all(charges));
    assert!(left.await.is_err());
    sleep(Duration::from_secs(1)).await;
    assert!(limiter.check(SLOW, 1).await.unwrap().is_granted());
}

#[tokio::test(start_paused = true)]
async fn a_decision_in_turn_is_by_the_failure_policy_if_that_of_a_slot_is() {
    let (client, _) = client(true);
    let limiter = window(&client, 9);
    let lenient = lenient(&limiter);
    for (key, is_by_policy) in [("other", false), (LOST, true)] {
        let charges = [
            limiter.charge("key", 1).unwrap(),
            lenient.charge(key, 1).unwrap(),
        ];
        let decision = client.check_all(charges).await.unwrap();
        let by_policy = decision.decisions().iter();
        let by_policy: Vec<_> = by_policy.map(Decision::is_by_failure_policy).collect();
        assert_eq!(by_policy, [false, is_by_policy]);
        assert_eq!(decision.is_by_failure_policy(), is_by_policy);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_allows_what_another_slot_denies_has_all_left() {
    let (client, _) = client(true);
    let limiter = window(&client, 9);
    let lenient = lenient(&limiter);
    assert!(limiter.check("key", 9).await.unwrap().is_granted());
    let charges = [
        limiter.charge("key", 2).unwrap(),
        lenient.charge(LOST, 2).unwrap(),
    ];
    let decision = client.check_all(charges).await.unwrap();
    assert!(!decision.is_granted());
    let left: Vec<_> = decision
        .decisions()
        .iter()
        .map(Decision::remaining)
        .collect();
    assert_eq!(left, [0, 9]);
}

#[tokio::test(start_paused = true)]
async fn slots_that_become_known_by_the_first_call_decide_in_turn() {
    for is_peek in [false, true] {
        let (client, decided) = client(false);
        let limiter = window(&client, 9);
        let charges = ["first", "second"].map(|key| limiter.charge(key, 1).unwrap());
        let decision = match is_peek {
            true => client.peek_all(charges).await,
            false => client.check_all(charges).await,
        };
        assert!(decision.unwrap().is_granted());
        let expected: &[&str] = if is_peek { &[] } else { &["first", "second"] };
        assert_eq!(*decided.lock(), expected);
    }
}

/// A call that was granted before may find what was given back since.
#[test]
fn a_limiter_that_was_not_charged_has_no_more_left_than_its_limit() {
    let granted = Granted::new(3).with_quota(Quota::new(5, HOUR));
    let denied = Decision::from(Denied::new(HOUR));
    for (remaining, left) in [(1, 4), (2, 5), (3, 5)] {
        let granted = granted.clone().with_remaining(remaining);
        let slots = [granted.into(), denied.clone()].into_iter().enumerate();
        let slots = slots.map(|(place, decision)| Slot {
            requests: Arc::new([]),
            places: vec![place],
            decisions: vec![decision],
        });
        let joined = joined(slots.collect());
        assert_eq!(joined[0].remaining(), left);
        assert_eq!(joined[0].retry_after(), Some(Duration::ZERO));
        assert_eq!(joined[1], denied);
    }
}
