//! A cluster with a node that goes down: each node has its own breaker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{RedisResult, Value};
use redisson_rate_limiter::{Decision, FailurePolicy, Rate, RateLimiter, RedissonClient};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{AT_LAST, HOUR, client, ms, policies, until_by_policy, until_by_redis};
use crate::support::Server;

/// A node of a cluster that goes on while some of its nodes are down, and never replaces them.
struct Node {
    /// `None` while it is down.
    server: Option<Server>,
    port: u16,
    folder: TempDir,
    /// The name of a limiter whose keys it has.
    name: String,
}

fn arguments(folder: &TempDir) -> [&str; 12] {
    let folder = folder.path().to_str().unwrap();
    [
        "--dir",
        folder,
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--cluster-enabled",
        "yes",
        "--cluster-require-full-coverage",
        "no",
        "--cluster-node-timeout",
        "600000",
    ]
}

impl Node {
    /// Starts a node that knows no other one.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start_with(&arguments(&folder));
        Self {
            port: server.port(),
            server: Some(server),
            folder,
            name: String::new(),
        }
    }

    /// Starts a node that serves these slots.
    async fn serving(slots: [u16; 2]) -> Self {
        let node = Self::start();
        let [first, last] = slots.map(|slot| slot.to_string());
        let slots = ["CLUSTER", "ADDSLOTSRANGE", &first, &last];
        node.run(&slots).await.unwrap();
        node
    }

    /// Starts a replica of a node, and waits until it has all of its data.
    async fn replica_of(primary: &Self) -> Self {
        let node = Self::start();
        let id = primary.run(&["CLUSTER", "MYID"]).await.unwrap();
        let id: String = redis::from_redis_value(id).unwrap();
        let port = primary.port.to_string();
        node.run(&["CLUSTER", "MEET", "127.0.0.1", &port])
            .await
            .unwrap();
        // Until it knows the primary.
        while node.run(&["CLUSTER", "REPLICATE", &id]).await.is_err() {
            sleep(ms(10)).await;
        }
        while !format!("{:?}", node.run(&["INFO", "replication"]).await)
            .contains("master_link_status:up")
        {
            sleep(ms(10)).await;
        }
        node
    }

    /// Waits until its replica has what it has now.
    async fn is_replicated(&self) {
        let mut raw = self.server.as_ref().unwrap().connection().await;
        // WAIT counts the writes up to the last one of its own connection.
        let mut set = redis::cmd("SET");
        let set = set.arg(format!("{{{}}}:mark", self.name)).arg(1);
        set.exec_async(&mut raw).await.unwrap();
        let mut wait = redis::cmd("WAIT");
        let replicas: i64 = wait.arg(1).arg(0).query_async(&mut raw).await.unwrap();
        assert_eq!(replicas, 1);
    }

    /// Takes over the slots of its primary.
    async fn takes_over(&self) {
        let take_over = ["CLUSTER", "FAILOVER", "TAKEOVER"];
        self.run(&take_over).await.unwrap();
    }

    async fn run(&self, command: &[&str]) -> RedisResult<Value> {
        let mut raw = self.server.as_ref().unwrap().connection().await;
        redis::Cmd::new().arg(command).query_async(&mut raw).await
    }

    async fn finds_a_name(&mut self) {
        for number in 0.. {
            let name = format!("limiter-{number}");
            if self.run(&["EXISTS", &name]).await.is_ok() {
                self.name = name;
                return;
            }
        }
    }

    fn signal(&self, signal: &str) {
        self.server.as_ref().unwrap().signal(signal);
    }

    fn kill(&mut self) {
        self.signal("KILL"); // at once, so that nothing more is answered
        self.server = None;
    }

    /// Starts it again with its data.
    fn restart(&mut self) {
        self.server = Some(Server::start_at(self.port, &arguments(&self.folder)));
    }
}

async fn cluster() -> [Node; 2] {
    let mut nodes = [
        Node::serving([0, 8_191]).await,
        Node::serving([8_192, 16_383]).await,
    ];
    let other = nodes[1].port.to_string();
    let meet = ["CLUSTER", "MEET", "127.0.0.1", &other];
    nodes[0].run(&meet).await.unwrap();
    for node in &mut nodes {
        loop {
            let slots = node.run(&["CLUSTER", "SLOTS"]).await.unwrap();
            let info = node.run(&["CLUSTER", "INFO"]).await.unwrap();
            let is_up = format!("{info:?}").contains("cluster_state:ok");
            if is_up && matches!(slots, Value::Array(ranges) if ranges.len() == 2) {
                break;
            }
            sleep(ms(10)).await;
        }
        node.finds_a_name().await;
    }
    nodes
}

async fn limiter_on(node: &Node, client: &RedissonClient) -> RateLimiter {
    let limiter = client.rate_limiter(&node.name);
    let rate = Rate::overall(1_000_000, HOUR);
    limiter.try_set_rate(rate).await.unwrap();
    assert!(until_by_redis(&limiter).await.is_granted());
    limiter
}

/// Asks a limiter whose node is up, until `is_over`. Asserts that Redis decides each time, unless
/// the machine stands still for so long that the node seems to be down.
async fn is_decided_by_redis(limiter: RateLimiter, is_over: Arc<AtomicBool>) {
    let mut last = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        if is_by_redis(&limiter.check(1).await.unwrap()) {
            last = asked;
        }
        assert!(
            last.elapsed() >= ms(500) || last == asked,
            "{}",
            limiter.name()
        );
        sleep(ms(2)).await;
    }
}

fn is_by_redis(decision: &Decision) -> bool {
    decision.is_granted() && !decision.is_by_failure_policy()
}

/// Asserts that the failure policy decides for the keys of the node that `leaves` only, and no
/// longer once it `comes_back`.
async fn while_one_is_away(leaves: fn(&mut Node), comes_back: fn(&mut Node)) {
    let [mut away, there] = cluster().await;
    let urls = [&away, &there].map(|node| format!("redis://127.0.0.1:{}", node.port));
    for policy in policies() {
        let client = client(&urls.join(","), policy.clone()).await;
        let limiter = limiter_on(&away, &client).await;
        let other = limiter_on(&there, &client).await;
        let is_over = Arc::<AtomicBool>::default();
        let other = tokio::spawn(is_decided_by_redis(other, Arc::clone(&is_over)));

        leaves(&mut away);
        let _ = until_by_policy(&limiter).await;
        for _ in 0..100 {
            let decision = limiter.check(1).await.unwrap();
            assert!(decision.is_by_failure_policy());
            assert_eq!(decision.is_granted(), policy != FailurePolicy::Deny);
        }
        comes_back(&mut away);
        let _ = until_by_redis(&limiter).await;
        // Its breaker is closed: not only one call at a time goes out.
        let by_redis = async {
            loop {
                let mut together = JoinSet::new();
                for _ in 0..10 {
                    let limiter = limiter.clone();
                    together.spawn(async move { limiter.check(1).await.unwrap() });
                }
                if together.join_all().await.iter().all(is_by_redis) {
                    return;
                }
            }
        };
        timeout(AT_LAST, by_redis).await.expect("ten at a time");
        is_over.store(true, Ordering::Relaxed);
        other.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_decides_only_keys_of_a_node_that_is_away_until_it_is_back() {
    while_one_is_away(|node| node.signal("STOP"), |node| node.signal("CONT")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_decides_only_keys_of_a_killed_node_until_its_restart() {
    while_one_is_away(Node::kill, Node::restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_redis_decides_again_whatever_the_policy() {
    let [mut killed, there] = cluster().await;
    let replica = Node::replica_of(&killed).await;
    let urls = [&killed, &there].map(|node| format!("redis://127.0.0.1:{}", node.port));
    let mut clients = Vec::new();
    for policy in policies() {
        let client = client(&urls.join(","), policy.clone()).await;
        clients.push(limiter_on(&killed, &client).await);
    }
    // One client whose only call waits, and another one that is idle until the failover is over.
    let waiting = limiter_on(&killed, &client(&urls.join(","), FailurePolicy::Deny).await).await;
    let idle = limiter_on(&killed, &client(&urls.join(","), FailurePolicy::Deny).await).await;
    killed.is_replicated().await;
    killed.kill();
    for limiter in &clients {
        let _ = until_by_policy(limiter).await;
    }
    let _ = until_by_policy(&waiting).await;
    let waiting = tokio::spawn(async move { waiting.acquire(1).await });
    replica.takes_over().await;
    timeout(AT_LAST, waiting).await.unwrap().unwrap().unwrap();
    for limiter in clients.iter().chain([&idle]) {
        assert!(until_by_redis(limiter).await.is_granted());
    }
}
