//! A cluster with a node that goes down: each node has its own breaker.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Client, RedisResult, Value};
use redis_test::cluster::{RedisCluster, RedisClusterConfiguration};
use redisson_rate_limiter::{Decision, FailurePolicy, Rate, RateLimiter};
use tokio::task::JoinSet;

use crate::fixture::{HOUR, client, ms, policies, until_by_policy, until_by_redis};

struct Node {
    url: String,
    pid: u32,
    /// The name of a limiter whose keys it has.
    name: String,
}

impl Node {
    fn signal(&self, signal: &str) {
        let pid = self.pid.to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
    }
}

/// The nodes of a cluster that goes on without those of its nodes that are away, and never replaces them.
async fn nodes_of(cluster: &RedisCluster) -> Vec<Node> {
    let mut nodes = Vec::new();
    for server in cluster.iter_servers() {
        let (host, port) = server.host_and_port().unwrap();
        let url = format!("redis://{host}:{port}");
        let node = Client::open(url.as_str()).unwrap();
        let mut raw = node.get_multiplexed_async_connection().await.unwrap();
        for (name, value) in [
            ("cluster-require-full-coverage", "no"),
            ("cluster-node-timeout", "600000"),
        ] {
            let mut set = redis::cmd("CONFIG");
            set.arg("SET").arg(name).arg(value);
            let _: () = set.query_async(&mut raw).await.unwrap();
        }
        let mut name = None;
        for number in 0.. {
            let candidate = format!("limiter-{number}");
            let mut exists = redis::cmd("EXISTS");
            let answer: RedisResult<Value> = exists.arg(&candidate).query_async(&mut raw).await;
            if answer.is_ok() {
                name = Some(candidate);
                break;
            }
        }
        nodes.push(Node {
            url,
            pid: server.process.id(),
            name: name.unwrap(),
        });
    }
    nodes
}

/// Asks a limiter whose node is there, until it is told to end. Redis decides each time.
async fn is_decided_by_redis(limiter: RateLimiter, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        let decision = limiter.check(1).await.unwrap();
        assert!(is_by_redis(&decision), "{}", limiter.name());
        tokio::time::sleep(ms(2)).await;
    }
}

fn is_by_redis(decision: &Decision) -> bool {
    decision.is_granted() && !decision.is_by_failure_policy()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_keys_of_a_node_that_is_away_are_left_to_the_policy_and_not_after_it_is_back() {
    let cluster = RedisCluster::new(RedisClusterConfiguration::default());
    let nodes = nodes_of(&cluster).await;
    let urls: Vec<_> = nodes.iter().map(|node| node.url.as_str()).collect();
    let (away, there) = nodes.split_first().unwrap();
    let urls = urls.join(",");
    for policy in policies() {
        let client = client(&urls, policy).await;
        let limiter_on = async |node: &Node| {
            let limiter = client.rate_limiter(&node.name);
            let rate = Rate::overall(1_000_000, HOUR);
            limiter.try_set_rate(rate).await.unwrap();
            assert!(is_by_redis(&limiter.check(1).await.unwrap()));
            limiter
        };
        let limiter = limiter_on(away).await;
        let is_over = Arc::<AtomicBool>::default();
        let mut others = JoinSet::new();
        for node in there {
            let limiter = limiter_on(node).await;
            others.spawn(is_decided_by_redis(limiter, Arc::clone(&is_over)));
        }

        away.signal("STOP");
        let _ = until_by_policy(&limiter).await;
        for _ in 0..100 {
            let decision = limiter.check(1).await.unwrap();
            assert!(decision.is_by_failure_policy());
            assert_eq!(decision.is_granted(), policy != FailurePolicy::Deny);
        }
        away.signal("CONT");
        let _ = until_by_redis(&limiter).await;
        // Its breaker is closed: not only one call at a time goes out.
        let mut together = JoinSet::new();
        for _ in 0..10 {
            let limiter = limiter.clone();
            together.spawn(async move { limiter.check(1).await.unwrap() });
        }
        for decision in together.join_all().await {
            assert!(is_by_redis(&decision));
        }
        is_over.store(true, Ordering::Relaxed);
        others.join_all().await;
    }
}
