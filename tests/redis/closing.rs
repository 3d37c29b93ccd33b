//! Closing a client waits for what is to be given back.

use redisson_rate_limiter::{
    AnyPolicy, Clock, Error, FixedWindow, PolicyLimiter, Rate, RedissonClient,
};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::by_hand::poll_once;
use crate::every_policy::{every_policy, gives_turns};
use crate::fixture::{Fixture, HOUR, NAME, PERMITS, SECOND, VALUE, ms};
use crate::keys;
use crate::proxy::{Fate, Held, Proxy};

const PATIENT: std::time::Duration = std::time::Duration::from_secs(60);

/// A client over a proxy, and its server, with a limiter of 5 permits an hour.
async fn behind_proxy() -> (RedissonClient, Proxy, Fixture) {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let builder = RedissonClient::builder().response_timeout(3 * SECOND);
    let client = builder.connect(&proxy.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    // From here on the server knows the scripts.
    let grant = limiter.check(1).await.unwrap().into_grant().unwrap();
    limiter.refund(grant).await.unwrap();
    (client, proxy, fixture)
}

/// Drops a request for 3 permits whose acquire is held, as its refund will be. Returns the acquire.
async fn dropped_request(client: &RedissonClient, proxy: &mut Proxy) -> Held {
    let limiter = client.rate_limiter(NAME);
    proxy.next("EVALSHA", Fate::Held); // the acquire
    proxy.next("EVALSHA", Fate::Held); // its refund
    let mut request = Box::pin(limiter.try_acquire(3));
    assert!(poll_once(&mut request).is_none());
    proxy.held().await
}

#[tokio::test]
async fn closing_waits_until_what_a_dropped_request_was_granted_is_given_back() {
    let (client, mut proxy, mut fixture) = behind_proxy().await;
    let acquire = dropped_request(&client, &mut proxy).await;
    assert!(!client.close(ms(1)).await, "the time is up before");
    let mut closing = Box::pin(client.close(PATIENT));
    assert!(poll_once(&mut closing).is_none());
    acquire.let_through().await;
    let refund = proxy.held().await;
    assert!(poll_once(&mut closing).is_none());
    let raw = &mut fixture.raw;
    assert_eq!(keys::left_and_used(raw, VALUE, PERMITS).await, (Some(2), 3));
    refund.let_through().await;
    assert!(closing.await);
    assert_eq!(keys::left_and_used(raw, VALUE, PERMITS).await, (Some(5), 0));
}

#[tokio::test]
async fn closing_waits_until_what_a_dropped_joint_decision_took_is_back() {
    let (client, mut proxy, mut fixture) = behind_proxy().await;
    let limiter = client.rate_limiter(NAME);
    let other = client.rate_limiter("other");
    other.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    // From here on the server knows the script.
    let charges = || [limiter.charge(3).unwrap(), other.charge(2).unwrap()];
    let decision = client.check_all(charges()).await.unwrap();
    assert_eq!(client.refund_all(decision).await.unwrap(), 5);

    proxy.next("EVALSHA", Fate::Held);
    let mut request = Box::pin(client.check_all(charges()));
    assert!(poll_once(&mut request).is_none());
    let call = proxy.held().await;
    drop(request);
    let mut closing = Box::pin(client.close(PATIENT));
    assert!(poll_once(&mut closing).is_none());
    call.let_through().await;
    assert!(closing.await);
    let raw = &mut fixture.raw;
    assert_eq!(keys::left_and_used(raw, VALUE, PERMITS).await, (Some(5), 0));
    let others = keys::left_and_used(raw, "{other}:value", "{other}:permits").await;
    assert_eq!(others, (Some(5), 0));
}

#[tokio::test]
async fn what_a_lost_joint_decision_took_is_missing_for_its_longest_window() {
    let (client, proxy, _fixture) = behind_proxy().await;
    let windows = [HOUR, ms(1)].map(|window| {
        let limiter = client.policy_limiter(FixedWindow::new(5, window)).unwrap();
        limiter.with_prefix(format!("{window:?}:"))
    });
    let charges = || windows.each_ref().map(|it| it.charge("key", 1).unwrap());
    // From here on the server knows the script.
    assert!(client.check_all(charges()).await.unwrap().is_granted());
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    let mut request = Box::pin(client.check_all(charges()));
    assert!(poll_once(&mut request).is_none());
    drop(request);
    for _ in 0..2 {
        assert!(!client.close(PATIENT).await);
        sleep(ms(2)).await; // the shorter window passes
    }
}

/// Makes requests of which most are dropped, each after a different number of polls, and returns
/// how many were granted and delivered.
async fn delivered<F>(ask: impl Fn() -> F) -> u32
where
    F: Future<Output = redisson_rate_limiter::Result<bool>>,
{
    let mut delivered = 0;
    for polls in 0..150 {
        let mut request = Box::pin(ask());
        if polls % 3 == 0 {
            assert!(request.await.unwrap());
            delivered += 1;
            continue;
        }
        for _ in 0..polls % 40 {
            if let Some(is_granted) = poll_once(&mut request) {
                assert!(is_granted.unwrap());
                delivered += 1;
                break;
            }
            yield_now().await;
        }
    }
    delivered
}

const AMPLE: u32 = 20_000;

/// A limiter of each algorithm that gives back everything while no time passes, and the unit.
fn that_give_back(client: &RedissonClient) -> Vec<(PolicyLimiter<AnyPolicy>, u32)> {
    let each = every_policy(AMPLE).filter(|(policy, _)| !gives_turns(policy));
    let each = each.map(|(policy, unit)| {
        let prefix = format!("{}:", policy.algorithm());
        let limiter = client.policy_limiter(policy).unwrap();
        (limiter.with_prefix(prefix), unit)
    });
    each.collect()
}

/// A client for which no time passes.
async fn at_one_time(url: &str) -> RedissonClient {
    let builder = RedissonClient::builder().response_timeout(PATIENT);
    let builder = builder.clock(Clock::from_fn(|| 1_700_000_000_000));
    builder.connect(url).await.unwrap()
}

async fn charged(limiter: &PolicyLimiter<AnyPolicy>, unit: u32) -> u64 {
    let left = limiter.peek("key", unit).await.unwrap().remaining() + u64::from(unit);
    u64::from(AMPLE) - left / u64::from(unit)
}

#[tokio::test]
async fn decisions_dropped_at_any_moment_keep_only_what_was_delivered() {
    let fixture = Fixture::start().await;
    let client = at_one_time(&fixture.server.url()).await;
    let mut all = Vec::new();
    for (limiter, unit) in that_give_back(&client) {
        let ask = || async { Ok(limiter.check("key", unit).await?.is_granted()) };
        all.push(delivered(ask).await);
    }
    assert!(client.close(PATIENT).await);
    let client = at_one_time(&fixture.server.url()).await;
    for ((limiter, unit), delivered) in that_give_back(&client).iter().zip(all) {
        assert_eq!(
            charged(limiter, *unit).await,
            delivered.into(),
            "{limiter:?}"
        );
    }
}

#[tokio::test]
async fn joint_decisions_dropped_at_any_moment_keep_only_what_was_delivered() {
    let mut fixture = Fixture::start().await;
    let client = at_one_time(&fixture.server.url()).await;
    let rate = client.rate_limiter(NAME);
    let ample = Rate::overall(AMPLE.into(), HOUR);
    rate.set_rate(ample).await.unwrap();
    let limiters = that_give_back(&client);
    let ask = || {
        let policies = limiters
            .iter()
            .map(|(it, unit)| it.charge("key", *unit).unwrap());
        let charges: Vec<_> = policies.chain([rate.charge(1).unwrap()]).collect();
        let asking = client.check_all(charges);
        async move { Ok(asking.await?.is_granted()) }
    };
    let delivered = delivered(ask).await;
    assert!(client.close(PATIENT).await);
    let left = keys::left_and_used(&mut fixture.raw, VALUE, PERMITS).await;
    let delivered = i64::from(delivered);
    assert_eq!(left, (Some(i64::from(AMPLE) - delivered), delivered));
    let client = at_one_time(&fixture.server.url()).await;
    for (limiter, unit) in that_give_back(&client) {
        assert_eq!(
            charged(&limiter, unit).await,
            delivered as u64,
            "{limiter:?}"
        );
    }
}

#[test]
fn closing_waits_for_a_decision_at_most_until_its_deadline() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (idle, other) = (runtime(), runtime());
    let (client, _fixture) = other.block_on(async {
        let fixture = Fixture::start().await;
        let builder = RedissonClient::builder().response_timeout(3 * SECOND);
        let client = builder.connect(&fixture.server.url()).await;
        (client.unwrap(), fixture)
    });
    let window = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    // The runtime of the call is never polled again.
    idle.block_on(async {
        assert!(window.check("key", 1).await.unwrap().is_granted());
        let mut request = Box::pin(window.check("key", 1));
        assert!(poll_once(&mut request).is_none());
    });
    let closing = async { timeout(PATIENT, client.close(HOUR)).await };
    assert_eq!(other.block_on(closing), Ok(false), "it may be charged");
}

#[tokio::test]
async fn closing_waits_for_refunds_of_waiters_and_dropped_requests_in_a_call() {
    let (client, mut proxy, mut fixture) = behind_proxy().await;
    let limiter = client.rate_limiter(NAME);
    proxy.next("EVALSHA", Fate::Held); // a call of the first's own
    proxy.next("EVALSHA", Fate::Held); // one for the others
    let mut requests: Vec<_> = [1, 1, 1].map(|it| Box::pin(limiter.try_acquire(it))).into();
    for request in &mut requests {
        assert!(poll_once(request).is_none());
    }
    proxy.held().await.let_through().await;
    let together = proxy.held().await;
    drop(requests.pop());
    let mut closing = Box::pin(client.close(PATIENT));
    assert!(poll_once(&mut closing).is_none());
    together.let_through().await;
    for request in requests {
        assert!(request.await.unwrap(), "a call in flight is answered");
    }
    assert!(closing.await);
    let raw = &mut fixture.raw;
    assert_eq!(keys::left_and_used(raw, VALUE, PERMITS).await, (Some(3), 2));
}

#[tokio::test]
async fn closing_reports_permits_that_could_not_be_given_back() {
    let (client, mut proxy, _fixture) = behind_proxy().await;
    let acquire = dropped_request(&client, &mut proxy).await;
    acquire.let_through().await;
    let _refund = proxy.held().await;
    drop(proxy); // it leads nowhere from here on
    assert!(!client.close(PATIENT).await);
    assert!(
        !client.close(PATIENT).await,
        "the permits are still missing"
    );
}

#[tokio::test]
async fn closing_reports_a_charge_that_could_not_be_given_back() {
    let (client, mut proxy, _fixture) = behind_proxy().await;
    let window = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let charges = || ["alice", "bob"].map(|key| window.charge(key, 1).unwrap());
    // From here on the server knows the scripts.
    let decision = client.check_all(charges()).await.unwrap();
    assert_eq!(client.refund_all(decision).await.unwrap(), 2);

    proxy.next("EVALSHA", Fate::Held); // the decision
    proxy.next("EVALSHA", Fate::Held); // a refund
    let mut request = Box::pin(client.check_all(charges()));
    assert!(poll_once(&mut request).is_none());
    let call = proxy.held().await;
    drop(request);
    call.let_through().await;
    let _refund = proxy.held().await;
    drop(proxy); // it leads nowhere from here on
    assert!(!client.close(PATIENT).await);
}

#[tokio::test]
async fn closing_reports_a_charge_whose_answer_never_came() {
    let (client, mut proxy, _fixture) = behind_proxy().await;
    let window = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    proxy.next("EVALSHA", Fate::Held);
    let charges = ["alice", "bob"].map(|key| window.charge(key, 1).unwrap());
    let mut request = Box::pin(client.check_all(charges));
    assert!(poll_once(&mut request).is_none());
    let _call = proxy.held().await;
    drop(request);
    drop(proxy); // it leads nowhere from here on
    assert!(!client.close(PATIENT).await);
}

#[tokio::test]
async fn closing_gives_back_a_reservation_that_somebody_waits_for() {
    let (client, _proxy, mut fixture) = behind_proxy().await;
    let limiter = client.rate_limiter(NAME);
    assert!(limiter.try_acquire(5).await.unwrap());
    let reservation = limiter.reserve(3, HOUR).await.unwrap();
    let mut waiting = Box::pin(reservation.expect("within an hour").ready());
    assert!(poll_once(&mut waiting).is_none());
    assert!(client.close(PATIENT).await);
    let raw = &mut fixture.raw;
    assert_eq!(keys::left_and_used(raw, VALUE, PERMITS).await, (Some(0), 5));
    assert!(matches!(waiting.await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_request_that_would_begin_to_wait_after_closing_does_not_wait() {
    let (client, mut proxy, _fixture) = behind_proxy().await;
    let limiter = client.rate_limiter(NAME);
    assert!(limiter.try_acquire(5).await.unwrap());
    proxy.next("EVALSHA", Fate::Held); // its first call, which is denied
    let mut waiting = Box::pin(limiter.acquire(1));
    assert!(poll_once(&mut waiting).is_none());
    let first_call = proxy.held().await;
    assert!(client.close(PATIENT).await);
    first_call.let_through().await;
    let ended = timeout(PATIENT, waiting).await.expect("it does not wait");
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
}

#[tokio::test]
async fn waiters_that_are_ended_while_permits_come_back_keep_none() {
    for round in 0..20 {
        let fixture = Fixture::start().await;
        let url = fixture.server.url();
        let client = RedissonClient::builder().response_timeout(10 * SECOND);
        let client = client.connect(&url).await.unwrap();
        let limiter = client.rate_limiter(NAME);
        limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..30 {
            let limiter = limiter.clone();
            waiting.spawn(async move { limiter.acquire(1).await });
        }
        // The client is closed at a different moment in each round.
        while limiter.waiters() == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..round * 5 {
            tokio::task::yield_now().await;
        }
        assert!(client.close(PATIENT).await);
        let ended = waiting.join_all().await;
        let granted = ended.iter().filter(|it| it.is_ok()).count() as u64;
        let left = limiter.available_permits().await.unwrap();
        assert_eq!(left + granted, 10, "{round}: {ended:?}");
    }
}
