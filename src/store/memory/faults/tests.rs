//! Each kind of request to a client whose store is lost, stalls or denies.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use super::store::FaultyStore;
use super::*;
use crate::clock::Clock;
use crate::error::ErrorKind;
use crate::keys::Keys;
use crate::store::memory::{MemoryClient, MemoryStore};
use crate::store::{AcquireCall, LimiterChange, LimiterStore, Store};
use crate::window::{Requests, Settings};
use crate::{
    BreakerState, Decision, DecisionSource, Event, FailurePolicy, FixedWindow, KeyedRateLimiter,
    Lease, LimiterOptions, LocalShare, PolicyLimiter, Rate, RateLimiter, RedissonClient, Rule,
    Rules,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// When a request that was denied without the store is worth another try.
const RETRY_AFTER: Duration = Duration::from_millis(400);

/// How a service asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Acquire,
    Keyed,
    Policy,
    Joint,
    Rules,
}

const WAYS: [Way; 5] = [
    Way::Acquire,
    Way::Keyed,
    Way::Policy,
    Way::Joint,
    Way::Rules,
];

/// How a request ended.
#[derive(Debug, PartialEq)]
enum Ended {
    Granted(DecisionSource),
    Denied(DecisionSource, Duration),
    TimedOut,
    Failed(ErrorKind),
}

use DecisionSource::{FailurePolicy as ByPolicy, Store as ByStore};
use Ended::{Denied, Failed, Granted, TimedOut};

/// A service that asks limiters of 10 in a minute.
struct Service {
    client: RedissonClient,
    orders: RateLimiter,
    users: KeyedRateLimiter,
    visitors: KeyedRateLimiter,
    addresses: PolicyLimiter<FixedWindow>,
    rules: Rules,
}

impl Service {
    fn new(faults: &Faults, policy: FailurePolicy) -> Self {
        let options = LimiterOptions::new().failure_policy(policy);
        let builder = RedissonClient::builder().default_options(options);
        Self::of(builder.in_memory_with_faults(&MemoryStore::new(), faults))
    }

    fn of(client: RedissonClient) -> Self {
        let rate = Rate::overall(10, MINUTE);
        let keyed = |prefix| client.keyed_rate_limiter(prefix, rate).unwrap();
        let addresses = client.policy_limiter(FixedWindow::new(10, MINUTE)).unwrap();
        let (callers, addresses) = (keyed("caller:"), addresses.with_prefix("address:"));
        let rule = Rule::new(callers).by(["caller"]);
        Self {
            orders: client.rate_limiter("orders").with_rate(rate).unwrap(),
            users: keyed("user:"),
            visitors: keyed("visitor:"),
            rules: client.rules([rule]).unwrap(),
            addresses,
            client,
        }
    }

    async fn ask(&self, way: Way) -> Ended {
        let decision = match way {
            Way::Acquire => return self.acquire().await,
            Way::Keyed => self.users.check("alice", 1).await,
            Way::Policy => self.addresses.check("::1", 1).await,
            Way::Joint => {
                let charges = [
                    self.users.charge("bob", 1).unwrap(),
                    self.visitors.charge("bob", 1).unwrap(),
                ];
                let decided = self.client.check_all(charges).await;
                decided.map(|it| it.deciding().1.clone())
            }
            Way::Rules => {
                let verdict = self.rules.check(&[("caller", "carol")]).await;
                verdict.map(|verdict| {
                    let joint = verdict.decision().expect("a rule applies");
                    joint.deciding().1.clone()
                })
            }
        };
        match decision {
            Ok(Decision::Granted(granted)) => Granted(granted.source),
            Ok(Decision::Denied(denied)) => Denied(denied.source, denied.retry_after),
            Err(error) => Failed(error.kind()),
        }
    }

    /// Waits for a permit, for a second beyond the response timeout.
    async fn acquire(&self) -> Ended {
        let until = Instant::now() + RESPONSE_TIMEOUT + SECOND;
        match self.orders.wait_for_anyone(1, Some(until)).await {
            Ok(Some(crate::grant::Origin::Store)) => Granted(ByStore),
            Ok(Some(_)) => Granted(ByPolicy),
            Ok(None) => TimedOut,
            Err(error) => Failed(error.kind()),
        }
    }

    /// The permits that requests of this kind have in use.
    async fn charged(&self, way: Way) -> u64 {
        let remaining = match way {
            Way::Acquire => self.orders.available_permits().await.unwrap(),
            Way::Keyed => self.users.peek("alice", 1).await.unwrap().remaining() + 1,
            Way::Policy => self.addresses.peek("::1", 1).await.unwrap().remaining() + 1,
            Way::Joint => {
                let user = self.users.peek("bob", 1).await.unwrap().remaining();
                let visitor = self.visitors.peek("bob", 1).await.unwrap().remaining();
                assert_eq!(user, visitor);
                user + 1
            }
            Way::Rules => {
                let caller = self.client.rate_limiter("caller:carol");
                match caller.exists().await.unwrap() {
                    true => caller.available_permits().await.unwrap(),
                    false => 10,
                }
            }
        };
        10 - remaining
    }
}

fn one_of(clients: u32) -> FailurePolicy {
    FailurePolicy::Local(LocalShare::one_of(clients.try_into().unwrap()))
}

#[tokio::test(start_paused = true)]
async fn without_faults_the_store_decides() {
    let service = Service::new(&Faults::new(), FailurePolicy::Error);
    for way in WAYS {
        for charged in 1..10 {
            assert_eq!(service.ask(way).await, Granted(ByStore), "{way:?}");
            assert_eq!(service.charged(way).await, charged, "{way:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_lost_each_request_ends_by_its_failure_policy() {
    for way in WAYS {
        let cases = [
            (FailurePolicy::Deny, Denied(ByPolicy, RETRY_AFTER)),
            (FailurePolicy::Allow, Granted(ByPolicy)),
            (one_of(2), Granted(ByPolicy)),
        ];
        for (policy, expected) in cases {
            let waits = way == Way::Acquire && policy == FailurePolicy::Deny;
            let expected = if waits { TimedOut } else { expected };
            let faults = Faults::new();
            let service = Service::new(&faults, policy.clone());
            assert_eq!(service.ask(way).await, Granted(ByStore));
            faults.lose_store();
            let start = Instant::now();
            assert_eq!(service.ask(way).await, expected, "{way:?}, {policy:?}");
            if !waits {
                assert_eq!(start.elapsed(), Duration::ZERO);
            }
            faults.end();
            assert_eq!(service.ask(way).await, Granted(ByStore));
            assert_eq!(service.charged(way).await, 2, "{way:?}, {policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_store_is_an_error_after_the_response_timeout_and_then_at_once() {
    for way in WAYS {
        let faults = Faults::new();
        let service = Service::new(&faults, FailurePolicy::Error);
        faults.lose_store();
        let start = Instant::now();
        for _ in 0..2 {
            let lost = Failed(ErrorKind::StoreUnavailable);
            assert_eq!(service.ask(way).await, lost, "{way:?}");
            assert_eq!(start.elapsed(), RESPONSE_TIMEOUT, "{way:?}");
        }
        faults.end();
        assert_eq!(service.ask(way).await, Granted(ByStore));
        assert_eq!(service.charged(way).await, 1, "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_store_that_comes_back_within_their_time() {
    for way in WAYS {
        for switch in [Faults::lose_store, Faults::stall] {
            let faults = Faults::new();
            let service = Service::new(&faults, FailurePolicy::Error);
            switch(&faults);
            let start = Instant::now();
            let back = async {
                sleep(2 * SECOND).await;
                faults.end();
            };
            let (ended, ()) = tokio::join!(service.ask(way), back);
            assert_eq!(ended, Granted(ByStore), "{way:?}");
            assert!(start.elapsed() <= 2 * SECOND + Duration::from_millis(50));
            assert_eq!(service.charged(way).await, 1, "{way:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_request_ends_at_its_response_timeout_and_is_never_executed() {
    for way in WAYS {
        let faults = Faults::new();
        let service = Service::new(&faults, FailurePolicy::Error);
        faults.stall();
        let start = Instant::now();
        let indeterminate = Failed(ErrorKind::Indeterminate);
        assert_eq!(service.ask(way).await, indeterminate, "{way:?}");
        assert_eq!(start.elapsed(), RESPONSE_TIMEOUT, "{way:?}");
        faults.end();
        yield_now().await;
        assert_eq!(service.charged(way).await, 0, "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_request_that_is_dropped_keeps_no_permit() {
    for way in WAYS {
        for policy in [FailurePolicy::Error, FailurePolicy::Deny, one_of(1)] {
            let faults = Faults::new();
            let service = Service::new(&faults, policy.clone());
            faults.stall();
            assert!(timeout(SECOND, service.ask(way)).await.is_err());
            faults.end();
            sleep(SECOND).await;
            assert_eq!(service.charged(way).await, 0, "{way:?} {policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn denied_requests_learn_when_to_retry_and_are_charged_nowhere() {
    for way in WAYS {
        let faults = Faults::new();
        // The failure policy has no part in it.
        let service = Service::new(&faults, FailurePolicy::Allow);
        assert_eq!(service.ask(way).await, Granted(ByStore));
        faults.deny(7 * SECOND, |_| true);
        let expected = match way {
            Way::Acquire => TimedOut,
            _ => Denied(ByStore, 7 * SECOND),
        };
        assert_eq!(service.ask(way).await, expected, "{way:?}");
        faults.end();
        assert_eq!(service.charged(way).await, 1, "{way:?}");
        assert_eq!(service.ask(way).await, Granted(ByStore));
    }
}

#[tokio::test(start_paused = true)]
async fn a_joint_decision_is_denied_if_one_of_its_limiters_denies() {
    let faults = Faults::new();
    let service = Service::new(&faults, FailurePolicy::Error);
    let charges = || {
        [
            service.users.charge("alice", 3).unwrap(),
            service.addresses.charge("::1", 4).unwrap(),
        ]
    };
    for (denied, remaining) in [("user:alice", [0, 10]), ("address:::1", [10, 0])] {
        faults.deny(SECOND, move |name| name == denied);
        for decision in [
            service.client.peek_all(charges()).await.unwrap(),
            service.client.check_all(charges()).await.unwrap(),
        ] {
            let of_each = decision.decisions().iter();
            let found: Vec<_> = of_each.map(Decision::remaining).collect();
            assert_eq!(found, remaining, "{denied}");
            assert_eq!(decision.deciding().1.retry_after(), Some(SECOND));
        }
    }
    faults.deny(SECOND, |name| name == "user:bob");
    let others = service.client.check_all(charges()).await.unwrap();
    assert!(others.is_granted());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_was_denied_is_served_when_that_ends() {
    let faults = Faults::new();
    let service = Service::new(&faults, FailurePolicy::Error);
    faults.deny(MINUTE, |name| name == "orders");
    let waiting = tokio::spawn({
        let orders = service.orders.clone();
        async move { orders.acquire(1).await }
    });
    sleep(10 * SECOND).await;
    assert!(!waiting.is_finished());
    faults.end();
    let start = Instant::now();
    waiting.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_granted_fails_even_while_all_are_denied() {
    let faults = Faults::new();
    let service = Service::new(&faults, FailurePolicy::Error);
    faults.deny(SECOND, |_| true);
    let errors = [
        service.orders.check(11).await.map(drop),
        service.users.check("alice", 11).await.map(drop),
        service.addresses.check("::1", 11).await.map(drop),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::ExceedsLimit);
    }
    let without_rate = service.client.rate_limiter("none").check(1).await;
    assert_eq!(without_rate.unwrap_err().kind(), ErrorKind::NotInitialized);
}

#[tokio::test(start_paused = true)]
async fn the_application_is_told_of_a_lost_store_and_of_its_return() {
    let (sender, events) = mpsc::channel();
    let builder = RedissonClient::builder().on_event(move |event| {
        if let Event::BreakerChanged { server, state, .. } = event {
            sender.send((server.to_string(), *state)).unwrap();
        }
    });
    let faults = Faults::new();
    let service = Service::of(builder.in_memory_with_faults(&MemoryStore::new(), &faults));
    faults.lose_store();
    faults.lose_store(); // the second time changes nothing
    let mut servers = service.client.health().servers;
    let open = servers.remove(0);
    assert_eq!(open.breaker, BreakerState::Open);
    assert_eq!(
        service.ask(Way::Keyed).await,
        Failed(ErrorKind::StoreUnavailable)
    );
    faults.end();
    assert_eq!(service.ask(Way::Keyed).await, Granted(ByStore));
    assert!(service.client.health().is_healthy());
    let states = [
        BreakerState::Open,
        BreakerState::HalfOpen,
        BreakerState::Closed,
    ];
    let expected = states.map(|state| ("memory".to_owned(), state));
    assert_eq!(events.try_iter().collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_made_while_the_store_is_lost_is_unhealthy() {
    let faults = Faults::new();
    faults.lose_store();
    let service = Service::new(&faults, FailurePolicy::Allow);
    assert_eq!(service.ask(Way::Keyed).await, Granted(ByPolicy));
    assert!(!service.client.health().is_healthy());
}

/// A limiter of 10 in a minute.
async fn limiter() -> Arc<dyn LimiterStore> {
    let client = MemoryClient::new(&MemoryStore::new(), Clock::server());
    let faults = Faults::new();
    let store = FaultyStore::new(client, &faults, RESPONSE_TIMEOUT, Arc::default());
    let limiter = store.limiter(Arc::new(Keys::new("limiter", "client")));
    let rate = Settings::of(Rate::overall(10, MINUTE));
    let change = LimiterChange::SetRate(rate);
    limiter.change(change).await.unwrap();
    limiter
}

#[tokio::test(start_paused = true)]
async fn a_call_that_two_runtimes_make_is_granted_once() {
    let limiter = limiter().await;
    let call = AcquireCall::new(Requests::one(3));
    let one = limiter
        .acquire(&call, limiter.call_deadline())
        .await
        .unwrap();
    let other = limiter
        .acquire(&call, limiter.call_deadline())
        .await
        .unwrap();
    assert_eq!(one.grant(call.id, 3), other.grant(call.id, 3));
    assert_eq!(call.requests.taken(&other), 3);
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_callers_are_gone_gives_back_what_it_took() {
    let limiter = limiter().await;
    for is_executed in [true, false] {
        let call = Arc::new(AcquireCall::new(Requests::one(3)));
        if is_executed {
            limiter
                .acquire(&call, limiter.call_deadline())
                .await
                .unwrap();
        }
        Arc::clone(&limiter).reclaim(Arc::clone(&call), Box::new(|| {}));
        assert_eq!(limiter.available_permits().await.unwrap(), 10);
        if !is_executed {
            let late = limiter.acquire(&call, limiter.call_deadline()).await;
            late.unwrap_err();
            assert_eq!(limiter.available_permits().await.unwrap(), 10);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_answer_is_lost_gives_back_what_it_took() {
    let faults = Faults::new();
    let client = RedissonClient::builder().in_memory_with_faults(&MemoryStore::new(), &faults);
    let orders = client.rate_limiter("orders");
    let hour = 60 * MINUTE;
    orders.set_rate(Rate::overall(1_000, hour)).await.unwrap();
    let leased = orders.clone().leased(Lease::up_to(MINUTE));
    faults.network().set_round_trip(Duration::from_millis(10));
    faults.network().take_calls();
    let (mut used, mut calls) = (0, 0);
    while calls == used {
        assert!(leased.try_acquire(1).await.unwrap());
        used += 1;
        yield_now().await; // a call for a lease is made then
        calls += faults.network().take_calls();
    }
    faults.network().set_loss(Loss::OfAnswers);
    sleep(SECOND).await;
    faults.network().set_loss(Loss::None);
    let taken = async || 1_000 - orders.available_permits().await.unwrap() as usize;
    assert!(taken().await > used, "it is executed");
    sleep(RESPONSE_TIMEOUT).await;
    assert_eq!(taken().await, used);
}

#[tokio::test(start_paused = true)]
async fn a_client_is_closed_once_its_leases_are_given_back() {
    let (store, faults) = (MemoryStore::new(), Faults::new());
    let client = RedissonClient::builder().in_memory_with_faults(&store, &faults);
    let orders = client.rate_limiter("orders");
    orders.set_rate(Rate::overall(1_000, MINUTE)).await.unwrap();
    let leased = orders.leased(Lease::up_to(MINUTE));
    let other = RedissonClient::builder().in_memory(&store);
    let other = other.rate_limiter("orders");
    let mut used = 0;
    while 1_000 - other.available_permits().await.unwrap() <= used {
        assert!(leased.try_acquire(1).await.unwrap());
        used += 1;
        sleep(Duration::from_millis(1)).await;
    }
    faults.stall();
    assert!(!client.close(SECOND).await);
    faults.end();
    assert!(client.close(SECOND).await);
    assert_eq!(1_000 - other.available_permits().await.unwrap(), used);
}

/// Whether each of 13 requests made at the same time is granted.
async fn granted_at_the_same_time(service: &Arc<Service>, way: Way) -> Vec<bool> {
    let mut asked = Vec::new();
    for _ in 0..13 {
        let service = Arc::clone(service);
        asked.push(tokio::spawn(async move { service.ask(way).await }));
    }
    let mut granted = Vec::new();
    for asked in asked {
        granted.push(matches!(asked.await.unwrap(), Granted(ByStore)));
    }
    granted
}

#[tokio::test(start_paused = true)]
async fn requests_of_the_same_time_are_decided_in_order_also_with_faults() {
    let first_ten: Vec<bool> = (0..13).map(|place| place < 10).collect();
    for way in WAYS {
        let faults = Faults::new();
        let plain = Service::of(RedissonClient::in_memory());
        let with_faults = Service::new(&faults, FailurePolicy::Error);
        for (kind, service) in [("plain", plain), ("with faults", with_faults)] {
            let granted = granted_at_the_same_time(&Arc::new(service), way).await;
            assert_eq!(granted, first_ten, "{way:?} {kind}");
        }
        for (kind, fault) in [
            ("stalled", Faults::stall as fn(&Faults)),
            ("lost", Faults::lose_store),
        ] {
            let service = Arc::new(Service::new(&faults, FailurePolicy::Error));
            fault(&faults);
            let end = async {
                sleep(Duration::from_millis(700)).await; // no call checks its deadline then
                faults.end();
            };
            let asking = granted_at_the_same_time(&service, way);
            let (granted, ()) = tokio::join!(asking, end);
            assert_eq!(granted, first_ten, "{way:?} {kind}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn permits_that_no_task_could_give_back_are_missing() {
    let client = MemoryClient::new(&MemoryStore::new(), Clock::server());
    let store = FaultyStore::new(client, &Faults::new(), RESPONSE_TIMEOUT, Arc::default());
    store.give_back_in_background(Box::pin(async { Duration::ZERO }));
    assert!(store.given_back().await);
    store.give_back_in_background(Box::pin(async { Duration::MAX }));
    assert!(!store.given_back().await);
}
