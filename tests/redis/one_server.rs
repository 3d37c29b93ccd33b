//! Requests on different keys share calls only where one server has all keys.

use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::{Cmd, Pipeline, RedisFuture, Value};
use redisson_rate_limiter::{Clock, FixedWindow, Limiter, Rate, RedissonClient};

use crate::fixture::{Fixture, HOUR};
use crate::keys;
use crate::multi_check::{FEW, on_each, script_calls, until_shared};
use crate::proxy::{Command, Fate, Proxy};
use crate::support::Server;
use crate::support::cluster::Cluster;

/// How many times all targets are asked for, until a client has asked all of its questions.
const ROUNDS: usize = 32;
const TARGETS: usize = 4 * FEW;

/// A limiter of a policy, and an RRateLimiter for each key, which stores single grants. Both create
/// the state that they do not find.
fn limiters(client: &RedissonClient, limit: u32) -> [Arc<dyn Limiter>; 2] {
    let windows = client
        .policy_limiter(FixedWindow::new(limit, HOUR))
        .unwrap();
    let rate = Rate::overall(limit.into(), HOUR);
    let keyed = client.keyed_rate_limiter("keyed", rate).unwrap();
    [Arc::new(windows), Arc::new(keyed)]
}

/// Asserts that each server has the keys that the proxy looks for there, and no other, and that
/// each target is charged once for each request.
async fn each_is_asked_where_it_is(client: &RedissonClient, servers: &[Server]) {
    for limiter in limiters(client, ROUNDS as u32) {
        granted_to_all(&limiter).await;
        for answer in on_each(&limiter, TARGETS, 1).await {
            assert!(!answer.unwrap().is_granted());
        }
    }
    for (place, server) in servers.iter().enumerate() {
        let names = keys::names(&mut server.connection().await).await;
        assert!(!names.is_empty());
        for name in names {
            // The other keys of a limiter are where its name is.
            let tag = name.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let first = tag.map_or(&name[..], |(tag, _)| tag);
            let expected = Command::place_of(first.as_bytes(), servers.len());
            assert_eq!(place, expected, "{name}");
        }
    }
}

async fn granted_to_all(limiter: &Arc<dyn Limiter>) {
    for _ in 0..ROUNDS {
        for answer in on_each(limiter, TARGETS, 1).await {
            assert!(answer.unwrap().is_granted());
        }
    }
}

#[tokio::test]
async fn behind_a_proxy_with_several_servers_each_key_is_asked_for_alone() {
    let servers = [Server::start(), Server::start()];
    let proxy = Proxy::to(0).await;
    proxy.lead_to_several(&servers.each_ref().map(Server::port));
    let client = crate::clients::patient(&proxy.url()).await;
    each_is_asked_where_it_is(&client, &servers).await;
}

#[tokio::test]
async fn what_is_known_of_one_connection_does_not_hold_for_the_next() {
    let (before, servers) = (Fixture::start().await, [Server::start(), Server::start()]);
    let proxy = Proxy::to(before.server.port()).await;
    let client = crate::clients::patient(&proxy.url()).await;
    until_shared(&client, &proxy).await;
    proxy.lead_to_several(&servers.each_ref().map(Server::port));
    proxy.next("EVALSHA", Fate::CutBeforeServer);
    let limiter = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    assert!(limiter.check("lost", 1).await.is_err());
    each_is_asked_where_it_is(&client, &servers).await;
}

#[tokio::test]
async fn calls_are_shared_again_on_the_server_that_a_new_connection_leads_to() {
    let (before, after) = (Fixture::start().await, Fixture::start().await);
    let proxy = Proxy::to(before.server.port()).await;
    let client = crate::clients::patient(&proxy.url()).await;
    until_shared(&client, &proxy).await;
    proxy.lead_to(after.server.port());
    proxy.next("EVALSHA", Fate::CutBeforeServer);
    let limiter = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    assert!(limiter.check("lost", 1).await.is_err());
    until_shared(&client, &proxy).await;
}

#[tokio::test]
async fn a_server_that_does_not_state_its_id_is_asked_one_by_one() {
    for rules in [
        ["+@all", "-info", "~*"],
        ["+@all", "-eval", "~*"],
        ["+@all", "~t?", "~t??"],
    ] {
        let mut fixture = Fixture::start().await;
        let user = ["ACL", "SETUSER", "worker", "on", ">password"];
        fixture.run(&[&user, &rules[..]].concat()).await;
        // The user may not send scripts.
        let limiter: Arc<dyn Limiter> = Arc::new(fixture.by(FixedWindow::new(100, HOUR)).await);
        for answer in on_each(&limiter, TARGETS, 1).await {
            assert!(answer.unwrap().is_granted());
        }
        let proxy = Proxy::to(fixture.server.port()).await;
        let url = format!("redis://worker:password@127.0.0.1:{}", proxy.port());
        let client = fixture.builder().connect(&url).await.unwrap();
        let limiter: Arc<dyn Limiter> =
            Arc::new(client.policy_limiter(FixedWindow::new(100, HOUR)).unwrap());
        granted_to_all(&limiter).await;
        let seen = proxy.take_seen();
        let questions = seen.iter().filter(|call| call.name() == "EVAL").count();
        assert_ne!(questions, 0, "{rules:?}");
        assert_eq!(
            script_calls(&seen),
            ROUNDS * TARGETS + questions,
            "{rules:?}"
        );
    }
}

#[tokio::test]
async fn requests_in_different_slots_share_no_call() {
    let cluster = Cluster::start();
    let connection = ClusterClientBuilder::new(cluster.urls())
        .build()
        .unwrap()
        .get_async_connection()
        .await
        .unwrap();
    let clock = || RedissonClient::builder().clock(Clock::system());
    let given = clock().connection(connection).unwrap();
    let own = clock().connect(&cluster.urls().join(",")).await.unwrap();
    for client in [given, own] {
        for limiter in limiters(&client, 100) {
            granted_to_all(&limiter).await;
        }
    }
    for server in cluster.nodes() {
        let mut raw = server.connection().await;
        assert_eq!(keys::errors(&mut raw, "CROSSSLOT").await, 0);
    }
}

#[tokio::test]
async fn a_node_that_has_all_slots_refuses_one_shared_call() {
    let mut node = Fixture::with_arguments(&["--cluster-enabled", "yes"]).await;
    node.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    let is_ready = |info: String| info.contains("cluster_state:ok");
    while !is_ready(node.ask(&["CLUSTER", "INFO"]).await) {}
    let connection = node.server.connection().await;
    let client = node.builder().connection(connection).unwrap();
    let limiter = client.policy_limiter(FixedWindow::new(100, HOUR)).unwrap();
    let limiter: Arc<dyn Limiter> = Arc::new(limiter);
    let mut refused = Vec::new();
    for _ in 0..2 {
        granted_to_all(&limiter).await;
        refused.push(keys::errors(&mut node.raw, "CROSSSLOT").await);
    }
    assert_ne!(refused[0], 0);
    assert_eq!(refused, [refused[0]; 2]);
}

/// A connection that sends each call to the server that has its first key, as a proxy does that
/// knows no slots.
#[derive(Clone)]
struct Sharded([MultiplexedConnection; 2]);

impl ConnectionLike for Sharded {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let words = command.args_iter().map(|word| match word {
            redis::Arg::Simple(word) => word.to_vec(),
            _ => Vec::new(),
        });
        let place = Command(words.collect()).place_of_key(2);
        self.0[place].req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.0[0].req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.0[0].get_db()
    }
}

#[tokio::test]
async fn over_an_application_s_connection_to_several_servers_too() {
    let servers = [Server::start(), Server::start()];
    let connection = Sharded([servers[0].connection().await, servers[1].connection().await]);
    let client = crate::clients::builder().connection(connection).unwrap();
    each_is_asked_where_it_is(&client, &servers).await;
}
