//! Parts of a policy's windows that are taken ahead, used, and given back.

use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{
    AnyPolicy, Error, FailurePolicy, FixedWindow, Lease, LimiterOptions, PolicyLimiter,
    RedissonClient,
};
use tokio::time::{sleep, timeout};

use crate::clients::patient;
use crate::fixture::{HOUR, told};
use crate::proxy::{Fate, Proxy};
use crate::support::Server;
use crate::support::cluster::Cluster;

/// Within this time what a test waits for happens, or it fails.
const AT_LAST: Duration = Duration::from_secs(20);

const KEY: &str = "{window}:alice";

/// A limiter with leases of up to a minute, and what its counter has in Redis.
struct Windows {
    client: RedissonClient,
    leased: PolicyLimiter<FixedWindow>,
    counters: MultiplexedConnection,
    /// How many permits the handle was granted.
    taken: u64,
}

fn leased(client: &RedissonClient, limit: u32) -> PolicyLimiter<FixedWindow> {
    let limiter = client.policy_limiter(FixedWindow::new(limit, HOUR));
    let limiter = limiter.unwrap().with_prefix("{window}:");
    limiter
        .leased(Lease::up_to(Duration::from_secs(60)))
        .unwrap()
}

impl Windows {
    async fn on(server: &Server, limit: u32) -> Self {
        Self::over(patient(&server.url()).await, server, limit).await
    }

    async fn over(client: RedissonClient, server: &Server, limit: u32) -> Self {
        Self {
            leased: leased(&client, limit),
            client,
            counters: server.connection().await,
            taken: 0,
        }
    }

    async fn take(&mut self) -> bool {
        let is_granted = self.leased.check("alice", 1).await.unwrap().is_granted();
        self.taken += u64::from(is_granted);
        is_granted
    }

    async fn counted(&mut self) -> u64 {
        let count: Option<u64> = self.counters.get(KEY).await.unwrap();
        count.unwrap_or(0)
    }

    /// Takes permits until so many are left in leases.
    async fn lease(&mut self, permits: u64) {
        let leasing = async {
            while self.counted().await < self.taken + permits {
                assert!(self.take().await);
                sleep(Duration::from_millis(1)).await;
            }
            // An answer that is on its way has its lease in place when another request is granted by it.
            while !self.is_leased().await {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(AT_LAST, leasing).await.expect("a lease");
    }

    async fn is_leased(&mut self) -> bool {
        let before = self.counted().await;
        assert!(self.take().await);
        self.counted().await == before
    }

    async fn until_counted(&mut self, permits: u64) {
        let waiting = async {
            while self.counted().await != permits {
                sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(AT_LAST, waiting).await.is_err() {
            panic!("{} are counted, not {permits}", self.counted().await);
        }
    }

    /// Drops the handle, so that its leases end.
    fn end_leases(&mut self) {
        self.leased = leased(&self.client, self.leased.policy().limit());
    }
}

#[tokio::test]
async fn a_request_to_a_leased_window_makes_no_call() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = patient(&proxy.url()).await;
    let mut windows = Windows::over(client, &server, 10_000).await;
    windows.lease(20).await;
    let counted = windows.counted().await;
    proxy.take_seen();
    let before = windows.leased.check("alice", 1).await.unwrap();
    let granted = windows.leased.check("alice", 5).await.unwrap();
    assert!(granted.is_granted());
    assert_eq!(granted.limit(), 10_000);
    assert!(granted.reset() <= HOUR && granted.reset() > HOUR / 2);
    let peeked = windows.leased.peek("alice", 1).await.unwrap();
    assert_eq!(peeked.remaining() + 1, granted.remaining());
    assert_eq!(granted.remaining() + 5, before.remaining());
    assert_eq!(proxy.take_names(), Vec::<String>::new());
    assert_eq!(windows.counted().await, counted);
}

#[tokio::test]
async fn what_a_lease_of_a_window_has_left_comes_back_with_the_last_handle() {
    let server = Server::start();
    let mut windows = Windows::on(&server, 10_000).await;
    windows.lease(10).await;
    let clone = windows.leased.clone();
    windows.end_leases();
    assert!(windows.counted().await > windows.taken);
    drop(clone);
    windows.until_counted(windows.taken).await;
}

#[tokio::test]
async fn what_a_lease_of_a_window_has_left_is_back_when_the_client_is_closed() {
    let server = Server::start();
    let mut windows = Windows::on(&server, 10_000).await;
    windows.lease(10).await;
    assert!(windows.client.close(Duration::from_secs(60)).await);
    assert_eq!(windows.counted().await, windows.taken);
    let refused = windows.leased.check("alice", 1).await;
    assert!(matches!(refused, Err(Error::Closed)));
}

#[tokio::test]
async fn all_of_a_window_can_be_taken_and_no_more() {
    let server = Server::start();
    let mut windows = Windows::on(&server, 1_000).await;
    while windows.take().await {}
    assert_eq!(windows.taken, 1_000);
    assert_eq!(windows.counted().await, 1_000);
}

#[tokio::test]
async fn a_large_request_gets_what_the_lease_of_its_window_gives_back() {
    let server = Server::start();
    let mut windows = Windows::on(&server, 100).await;
    windows.lease(10).await;
    let rest = u32::try_from(100 - windows.taken).unwrap();
    assert!(
        windows
            .leased
            .check("alice", rest)
            .await
            .unwrap()
            .is_granted()
    );
    assert!(!windows.take().await);
    assert_eq!(windows.counted().await, 100);
}

#[tokio::test]
async fn a_lease_takes_at_most_half_of_what_its_window_has_left() {
    let server = Server::start();
    let mut windows = Windows::on(&server, 1_000).await;
    let peer = patient(&server.url()).await;
    let peer = peer.policy_limiter(FixedWindow::new(1_000, HOUR)).unwrap();
    while windows.taken < 600 {
        let left = 1_000 - windows.counted().await;
        assert!(windows.take().await);
        let leased = windows.counted().await.saturating_sub(1_000 - left);
        // The request itself, and two leases of which each finds what the one before has left.
        assert!(leased <= 1 + left / 2 + left / 4 + 1, "{leased} of {left}");
    }
    assert!(peer.check(KEY, 1).await.unwrap().is_granted());
}

#[tokio::test]
async fn however_its_answer_is_lost_what_was_not_used_comes_back_once() {
    let server = Server::start();
    for fate in [
        Fate::CutBeforeServer,
        Fate::CutBeforeAnswer,
        Fate::CutWithinAnswer,
    ] {
        let proxy = Proxy::to(server.port()).await;
        let client = patient(&proxy.url()).await;
        let mut windows = Windows::over(client, &server, 10_000).await;
        let _: () = windows.counters.del(KEY).await.unwrap();
        windows.lease(10).await;
        proxy.next("EVALSHA", fate);
        windows.end_leases();
        windows.until_counted(windows.taken).await;
        assert!(windows.client.close(Duration::from_secs(60)).await);
        assert_eq!(windows.counted().await, windows.taken);
    }
}

#[tokio::test]
async fn a_copy_of_what_gives_a_lease_back_gives_nothing_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = patient(&proxy.url()).await;
    let mut windows = Windows::over(client, &server, 10_000).await;
    windows.lease(10).await;
    proxy.take_seen();
    windows.end_leases();
    windows.until_counted(windows.taken).await;
    let seen = proxy.take_seen();
    // The script with three keys.
    let copies = seen
        .iter()
        .filter(|it| it.name() == "EVALSHA" && it.0[2] == b"3");
    let copies: Vec<_> = copies.collect();
    assert!(!copies.is_empty());
    for copy in copies {
        let mut again = redis::cmd("EVALSHA");
        for argument in &copy.0[1..] {
            again.arg(argument);
        }
        let given_back: u64 = again.query_async(&mut windows.counters).await.unwrap();
        assert!(given_back > 0, "it repeats its answer");
        assert_eq!(windows.counted().await, windows.taken);
    }
}

#[tokio::test]
async fn what_comes_too_late_goes_back_to_no_other_window() {
    let server = Server::start();
    let mut proxy = Proxy::to(server.port()).await;
    let client = patient(&proxy.url()).await;
    let mut windows = Windows::over(client, &server, 10_000).await;
    windows.lease(10).await;
    proxy.next("EVALSHA", Fate::Held);
    windows.end_leases();
    let held = proxy.held().await;
    // Half an hour later the next window begins, of the same length or of another one.
    let _: () = windows.counters.pset_ex(KEY, 500, 5_400_000).await.unwrap();
    held.let_through().await;
    assert_eq!(windows.counted().await, 500);
}

#[tokio::test]
async fn a_changed_policy_ends_the_leases_of_its_windows() {
    let server = Server::start();
    let mut windows = Windows::on(&server, 1_000).await;
    windows.lease(20).await;
    windows
        .leased
        .set_policy(FixedWindow::new(500, HOUR))
        .unwrap();
    while windows.take().await {}
    assert_eq!(windows.taken, 500);
    windows.until_counted(500).await;
}

#[tokio::test]
async fn what_was_leased_comes_back_though_windows_get_another_length() {
    let server = Server::start();
    let mut windows = Windows::on(&server, 1_000).await;
    for hours in [2, 3, 1, 2] {
        windows.lease(20).await;
        let policy = FixedWindow::new(1_000, hours * HOUR);
        windows.leased.set_policy(policy).unwrap();
        assert!(windows.take().await);
        assert_eq!(windows.counted().await, windows.taken);
    }
}

#[tokio::test]
async fn after_a_lowered_limit_a_request_waits_for_what_was_leased_before() {
    let server = Server::start();
    let leased = leased(&patient(&server.url()).await, 1_000);
    for key in (0..200).map(|number| number.to_string()) {
        for _ in 0..3 {
            assert!(leased.check(&key, 1).await.unwrap().is_granted());
        }
        leased.set_policy(FixedWindow::new(10, HOUR)).unwrap();
        assert!(leased.check(&key, 1).await.unwrap().is_granted(), "{key}");
        leased.set_policy(FixedWindow::new(1_000, HOUR)).unwrap();
    }
}

#[tokio::test]
async fn a_target_that_is_reset_has_no_lease() {
    let server = Server::start();
    let mut windows = Windows::on(&server, 1_000).await;
    windows.lease(20).await;
    assert!(windows.leased.reset("alice").await.unwrap());
    windows.taken = 0;
    while windows.take().await {}
    assert_eq!(windows.taken, 1_000);
}

#[tokio::test]
async fn a_lease_of_a_window_outlives_an_outage_until_it_is_used_up() {
    let server = Server::start();
    let options = LimiterOptions::new().failure_policy(FailurePolicy::Deny);
    let builder = RedissonClient::builder().default_options(options);
    let client = builder.connect(&server.url()).await.unwrap();
    let mut windows = Windows::over(client, &server, 10_000).await;
    windows.lease(20).await;
    let left = windows.counted().await - windows.taken;
    server.signal("KILL");
    drop(server);
    let mut granted = 0;
    let denied = loop {
        let decision = windows.leased.check("alice", 1).await.unwrap();
        if !decision.is_granted() {
            break decision;
        }
        assert!(!decision.is_by_failure_policy());
        granted += 1;
    };
    assert!(denied.is_by_failure_policy());
    assert!(granted > 0 && granted <= left, "{granted} of {left}");
}

#[tokio::test]
async fn only_a_key_in_use_is_leased() {
    let server = Server::start();
    let mut windows = Windows::on(&server, 10_000).await;
    windows.lease(20).await;
    for user in 0..200 {
        let key = format!("user {user}");
        assert!(windows.leased.check(&key, 1).await.unwrap().is_granted());
    }
    for user in 0..200 {
        let key = format!("user {user}");
        let counted: u64 = { &mut windows.counters }
            .get(format!("{{window}}:{key}"))
            .await
            .unwrap();
        assert_eq!(counted, 1);
    }
}

#[tokio::test]
async fn each_other_policy_says_why_it_has_no_leases() {
    let client = RedissonClient::in_memory();
    let lease = Lease::up_to(Duration::from_secs(1));
    for policy in AnyPolicy::examples(100, Duration::from_secs(60)) {
        let name = policy.algorithm();
        let leased = client.policy_limiter(policy).unwrap().leased(lease);
        match leased {
            Ok(_) => assert!(["fixed_window", "shared_rate"].contains(&name)),
            Err(Error::NotLeasable { policy, .. }) => assert_eq!(policy, name),
            Err(error) => panic!("{error}"),
        }
    }
    let window = || client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let refused = [
        window().leased(lease).unwrap().with_penalty(HOUR),
        window().with_penalty(HOUR).unwrap().leased(lease),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::NotLeasable { .. })));
    }
}

#[tokio::test]
async fn keys_in_each_slot_of_a_cluster_are_leased_and_given_back() {
    let cluster = Cluster::start();
    let client = patient(&cluster.urls().join(",")).await;
    let limiter = client
        .policy_limiter(FixedWindow::new(10_000, HOUR))
        .unwrap();
    let leased = limiter
        .clone()
        .leased(Lease::up_to(Duration::from_secs(60)))
        .unwrap();
    let keys: Vec<_> = (0..20).map(|user| format!("user {user}")).collect();
    for key in &keys {
        for _ in 0..8 {
            assert!(leased.check(key, 1).await.unwrap().is_granted());
        }
    }
    drop(leased);
    assert!(client.close(Duration::from_secs(60)).await);
    let peer = patient(&cluster.urls().join(",")).await;
    let limiter = peer.policy_limiter(FixedWindow::new(10_000, HOUR)).unwrap();
    for key in &keys {
        let left = limiter.peek(key, 1).await.unwrap().remaining() + 1;
        assert_eq!(left, 10_000 - 8, "{key}");
    }
}

#[tokio::test]
async fn a_request_that_a_lease_grants_is_an_event_like_any_other() {
    let server = Server::start();
    let (told, client) = told(&server.url()).await;
    let mut windows = Windows::over(client, &server, 10_000).await;
    windows.lease(20).await;
    told.take_requests();
    assert!(windows.take().await);
    assert_eq!(
        told.take_requests(),
        ["*{window}: 1 granted: granted by store"]
    );
}
