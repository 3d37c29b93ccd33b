//! The keys of a limiter with leases: which are leased, and that each is exact.

use std::time::Duration;

use redisson_rate_limiter::{
    Error, FailurePolicy, KeyedRateLimiter, Lease, LimiterOptions, Rate, RedissonClient, Rule,
    Verdict,
};
use tokio::time::{sleep, timeout};

use crate::clients::{PATIENCE, patient};
use crate::fixture::HOUR;
use crate::keys;
use crate::proxy::Proxy;
use crate::support::Server;

/// The longest time that a test waits for an event before it fails.
const AT_LAST: Duration = Duration::from_secs(20);

fn minute() -> Lease {
    Lease::up_to(Duration::from_secs(60))
}

fn per_hour(permits: u64) -> Rate {
    Rate::overall(permits, HOUR)
}

/// A limiter with leases, and another client that sees what is left of alice's permits in Redis.
struct Keyed {
    client: RedissonClient,
    leased: KeyedRateLimiter,
    peer: KeyedRateLimiter,
    /// How many of alice's permits were granted.
    taken: u64,
}

fn keyed(client: &RedissonClient, permits: u64) -> KeyedRateLimiter {
    let rate = per_hour(permits);
    client.keyed_rate_limiter("{api}:", rate).unwrap()
}

impl Keyed {
    async fn on(server: &Server, permits: u64) -> Self {
        Self::over(patient(&server.url()).await, server, permits).await
    }

    async fn over(client: RedissonClient, server: &Server, permits: u64) -> Self {
        Self {
            leased: keyed(&client, permits).leased(minute()),
            client,
            peer: keyed(&patient(&server.url()).await, permits),
            taken: 0,
        }
    }

    async fn take(&mut self) -> bool {
        let is_granted = self.leased.check("alice", 1).await.unwrap().is_granted();
        self.taken += u64::from(is_granted);
        is_granted
    }

    /// The permits left in Redis.
    async fn left(&self) -> u64 {
        let alice = self.peer.rate_limiter("alice");
        alice.available_permits().await.unwrap()
    }

    /// Takes permits until this many are left in leases.
    async fn lease(&mut self, permits: u64) {
        let leasing = async {
            loop {
                assert!(self.take().await);
                // In this order a lease whose answer is on its way counts as none.
                let left = self.left().await;
                let alice = self.leased.rate_limiter("alice");
                let all = alice.available_permits().await.unwrap();
                if all >= left + permits {
                    return;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(AT_LAST, leasing).await.expect("a lease");
    }

    async fn until_left(&self, permits: u64) {
        let waiting = async {
            while self.left().await != permits {
                sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(AT_LAST, waiting).await.is_err() {
            panic!("{} left, not {permits}", self.left().await);
        }
    }

    /// Drops the handle, so that its leases end.
    fn end_leases(&mut self) {
        self.leased = self.peer.clone();
    }
}

#[tokio::test]
async fn a_request_for_a_hot_key_makes_no_call() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = patient(&proxy.url()).await;
    let mut keyed = Keyed::over(client, &server, 10_000).await;
    keyed.lease(20).await;
    let (left, limiter) = (keyed.left().await, keyed.leased.clone());
    proxy.take_seen();
    let granted = limiter.check("alice", 3).await.unwrap();
    assert_eq!((granted.is_granted(), granted.limit()), (true, 10_000));
    limiter.acquire("alice", 1).await.unwrap();
    assert!(limiter.try_acquire("alice", 1).await.unwrap());
    let same = limiter.check_with_rate("alice", 1, per_hour(10_000));
    assert!(same.await.unwrap().is_granted());
    let plain = self::keyed(&keyed.client, 10_000);
    assert!(plain.check("alice", 1).await.unwrap().is_granted());
    let alice = keyed.client.rate_limiter("{api}:alice");
    let alice = alice.with_rate(per_hour(10_000)).unwrap();
    assert!(alice.try_acquire(1).await.unwrap());
    let peeked = limiter.peek("alice", 1).await.unwrap();
    assert_eq!(peeked.remaining() + 6, granted.remaining()); // as five are taken, and it would take one
    assert_eq!(proxy.take_names(), Vec::<String>::new());
    assert_eq!(keyed.left().await, left);
}

#[tokio::test]
async fn a_rule_that_applies_alone_asks_as_its_limiter_does() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = patient(&proxy.url()).await;
    let mut keyed = Keyed::over(client, &server, 10_000).await;
    keyed.lease(20).await;
    let rule = Rule::new(keyed.leased.clone()).by(["user"]);
    let rules = keyed.client.rules([rule]).unwrap();
    proxy.take_seen();
    let verdict = rules.check(&[("user", "alice")]).await.unwrap();
    assert!(matches!(verdict, Verdict::Granted(_)));
    assert_eq!(proxy.take_names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_key_that_is_asked_for_once_is_not_leased() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 10_000).await;
    keyed.lease(20).await;
    for user in 0..200 {
        let key = format!("user {user}");
        assert!(keyed.leased.check(&key, 1).await.unwrap().is_granted());
    }
    for user in 0..200 {
        let user = keyed.peer.rate_limiter(&format!("user {user}"));
        assert_eq!(user.available_permits().await.unwrap(), 9_999);
    }
}

#[tokio::test]
async fn a_key_with_fewer_requests_than_a_lease_saves_is_not_leased() {
    let server = Server::start();
    let keyed = Keyed::on(&server, 10_000).await;
    for user in 0..20 {
        let key = format!("user {user}");
        for _ in 0..16 {
            assert!(keyed.leased.check(&key, 1).await.unwrap().is_granted());
        }
        let user = keyed.peer.rate_limiter(&key);
        assert_eq!(user.available_permits().await.unwrap(), 9_984);
    }
}

#[tokio::test]
async fn all_permits_of_a_hot_key_can_be_taken_and_no_more() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 1_000).await;
    while keyed.take().await {}
    assert_eq!((keyed.taken, keyed.left().await), (1_000, 0));
}

#[tokio::test]
async fn what_leases_of_hot_keys_have_left_comes_back_with_the_last_handle() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 10_000).await;
    keyed.lease(10).await;
    let clone = keyed.leased.clone();
    keyed.end_leases();
    assert!(keyed.left().await < 10_000 - keyed.taken);
    drop(clone);
    keyed.until_left(10_000 - keyed.taken).await;
}

#[tokio::test]
async fn what_leases_of_hot_keys_have_left_is_back_when_the_client_is_closed() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 10_000).await;
    keyed.lease(10).await;
    assert!(keyed.client.close(Duration::from_secs(60)).await);
    assert_eq!(keyed.left().await, 10_000 - keyed.taken);
    let refused = keyed.leased.check("alice", 1).await;
    assert!(matches!(refused, Err(Error::Closed)));
}

#[tokio::test]
async fn a_grant_of_a_hot_key_goes_back_to_its_lease() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 10_000).await;
    keyed.lease(20).await;
    let granted = keyed.leased.check("alice", 3).await.unwrap();
    let grant = granted.into_grant().expect("it is granted");
    let alice = keyed.leased.rate_limiter("alice");
    assert_eq!(alice.refund(grant).await.unwrap(), 3);
    keyed.end_leases();
    keyed.until_left(10_000 - keyed.taken).await;
}

#[tokio::test]
async fn a_lowered_rate_holds_at_once_for_hot_keys() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 1_000).await;
    let plain = self::keyed(&keyed.client, 1_000);
    keyed.leased = plain.clone().leased(minute());
    keyed.lease(20).await;
    plain.set_rate(per_hour(500)).unwrap();
    keyed.until_left(1_000 - keyed.taken).await; // what was leased by the rate before goes back
    while keyed.take().await {}
    assert_eq!(keyed.taken, 500);
}

#[tokio::test]
async fn what_is_leased_by_another_rate_is_granted_to_nobody() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 1_000).await;
    keyed.lease(20).await;
    let small_plan = || keyed.leased.check_with_rate("alice", 1, per_hour(500));
    while small_plan().await.unwrap().is_granted() {
        keyed.taken += 1;
    }
    assert!(keyed.taken <= 500, "{}", keyed.taken);
    keyed.end_leases();
    keyed.until_left(500 - keyed.taken).await;
}

#[tokio::test]
async fn a_request_with_another_rate_than_the_lease_sets_it() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 1_000).await;
    keyed.lease(20).await;
    let asked = keyed.leased.check_with_rate("alice", 1, per_hour(500));
    assert!(asked.await.unwrap().is_granted());
    let config = keyed.peer.rate_limiter("alice").config().await.unwrap();
    assert_eq!(config.unwrap().permits(), 500);
}

#[tokio::test]
async fn a_hot_key_that_is_reset_has_no_lease() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 1_000).await;
    keyed.lease(20).await;
    assert!(keyed.leased.reset("alice").await.unwrap());
    keyed.taken = 0;
    while keyed.take().await {}
    assert_eq!(keyed.taken, 1_000);
}

/// Asks for a key until a lease of it is asked for.
async fn make_hot(limiter: &KeyedRateLimiter, key: &str) {
    for _ in 0..17 {
        assert!(limiter.check(key, 1).await.unwrap().is_granted());
    }
}

#[tokio::test]
async fn hot_keys_that_are_deleted_while_they_are_being_leased_stay_deleted() {
    let server = Server::start();
    let client = patient(&server.url()).await;
    let leased = keyed(&client, 1_000).leased(minute());
    for key in (0..100).map(|number| number.to_string()) {
        make_hot(&leased, &key).await;
        assert!(leased.rate_limiter(&key).delete().await.unwrap());
    }
    assert!(client.close(PATIENCE).await);
    let names = keys::names(&mut server.connection().await).await;
    let left = names.into_iter().filter(|it| !it.ends_with(":call"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<String>::new());
}

#[tokio::test]
async fn a_hot_key_that_is_being_leased_keeps_the_rate_that_is_set() {
    let server = Server::start();
    let client = patient(&server.url()).await;
    let leased = keyed(&client, 1_000).leased(minute());
    for key in (0..100).map(|number| number.to_string()) {
        make_hot(&leased, &key).await;
        leased.set_rate(per_hour(500)).unwrap();
        assert!(leased.check(&key, 1).await.unwrap().is_granted());
        leased.set_rate(per_hour(1_000)).unwrap();
    }
    assert!(client.close(PATIENCE).await);
    let peer = patient(&server.url()).await;
    for key in 0..100 {
        let limiter = peer.rate_limiter(&format!("{{api}}:{key}"));
        let config = limiter.config().await.unwrap().unwrap();
        assert_eq!(config.permits(), 500);
        assert_eq!(limiter.available_permits().await.unwrap(), 482);
    }
}

#[tokio::test]
async fn after_a_lowered_rate_a_request_waits_for_what_was_leased_before() {
    let server = Server::start();
    let client = patient(&server.url()).await;
    let leased = keyed(&client, 1_000).leased(minute());
    for key in (0..200).map(|number| number.to_string()) {
        make_hot(&leased, &key).await;
        leased.set_rate(per_hour(20)).unwrap();
        assert!(leased.check(&key, 1).await.unwrap().is_granted(), "{key}");
        leased.set_rate(per_hour(1_000)).unwrap();
    }
}

#[tokio::test]
async fn an_invalid_request_is_refused_for_hot_keys_too() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 10_000).await;
    keyed.lease(20).await;
    let limiter = keyed.leased;
    let empty = limiter.check("", 1).await;
    assert!(matches!(empty, Err(Error::InvalidName { .. })));
    let nothing = limiter.check("alice", 0).await;
    assert!(matches!(nothing, Err(Error::InvalidArgument { .. })));
    let peeked = limiter.peek("alice", 0).await;
    assert!(matches!(peeked, Err(Error::InvalidArgument { .. })));
    let too_much = limiter.check("alice", 10_001).await;
    assert!(matches!(too_much, Err(Error::ExceedsLimit { .. })));
}

#[tokio::test]
async fn a_lease_of_a_hot_key_grants_in_an_outage_until_it_is_used_up() {
    let server = Server::start();
    let options = LimiterOptions::new().failure_policy(FailurePolicy::Deny);
    let builder = RedissonClient::builder().default_options(options);
    let client = builder.connect(&server.url()).await.unwrap();
    let mut keyed = Keyed::over(client, &server, 10_000).await;
    keyed.lease(20).await;
    let leased = 10_000 - keyed.taken - keyed.left().await;
    server.signal("KILL");
    drop(server);
    let mut granted = 0;
    let denied = loop {
        let decision = keyed.leased.check("alice", 1).await.unwrap();
        if !decision.is_granted() {
            break decision;
        }
        assert!(!decision.is_by_failure_policy());
        granted += 1;
    };
    assert!(denied.is_by_failure_policy());
    assert!(granted > 0 && granted <= leased, "{granted} of {leased}");
}

#[tokio::test]
async fn a_limiter_without_a_keep_alive_is_leased_and_stays_without_one() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 10_000).await;
    let alice = keyed.peer.rate_limiter("alice");
    alice.set_rate(per_hour(10_000)).await.unwrap();
    keyed.lease(20).await;
    assert_eq!(alice.config().await.unwrap(), Some(per_hour(10_000)));
}

#[tokio::test]
async fn a_limiter_that_others_use_without_leases_is_leased_beside_them() {
    let server = Server::start();
    let mut keyed = Keyed::on(&server, 10_000).await;
    assert!(keyed.peer.check("alice", 1).await.unwrap().is_granted());
    keyed.taken += 1;
    keyed.lease(20).await;
    assert!(keyed.peer.check("alice", 1).await.unwrap().is_granted());
    let alice = keyed.peer.rate_limiter("alice");
    let longer = per_hour(10_000).keep_alive(HOUR + Duration::from_secs(60));
    assert_eq!(alice.config().await.unwrap(), Some(longer));
}
