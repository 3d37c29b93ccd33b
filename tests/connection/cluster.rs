//! A cluster whose nodes fail, and whose slots move.

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use redisson_rate_limiter::{
    FixedWindow, PenaltyTokenBucket, Rate, RateLimiter, RedissonClient, SlidingWindowCounter,
};
use tokio::time::sleep;

use crate::load::{HOUR, Load, ample, at_last, ms, patient_client, taken};
use crate::support::cluster::Cluster;
use crate::support::{Server, without_timeouts};

struct Node {
    port: u16,
    id: String,
    raw: MultiplexedConnection,
}

impl Node {
    async fn at(port: u16) -> Self {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
        let config = without_timeouts();
        let raw = client.get_multiplexed_async_connection_with_config(&config);
        let mut node = Self {
            port,
            id: String::new(),
            raw: raw.await.unwrap(),
        };
        node.id = redis::from_redis_value(node.run("CLUSTER MYID").await.unwrap()).unwrap();
        node
    }

    async fn run(&mut self, command: &str) -> RedisResult<Value> {
        let mut all = redis::Cmd::new();
        for part in command.split(' ') {
            all.arg(part);
        }
        all.query_async(&mut self.raw).await
    }

    async fn serves(&mut self, key: &str) -> bool {
        self.run(&format!("EXISTS {key}")).await.is_ok()
    }
}

fn url(nodes: &[Node]) -> String {
    let urls: Vec<_> = nodes
        .iter()
        .map(|node| format!("redis://127.0.0.1:{}", node.port))
        .collect();
    urls.join(",")
}

/// The index of the node that serves a key. A replica redirects even reads.
async fn serving(nodes: &mut [Node], key: &str) -> usize {
    for (index, node) in nodes.iter_mut().enumerate() {
        if node.serves(key).await {
            return index;
        }
    }
    panic!("no node serves {key}");
}

async fn nodes_of(cluster: &Cluster) -> Vec<Node> {
    let mut nodes = Vec::new();
    for server in cluster.nodes() {
        nodes.push(Node::at(server.port()).await);
    }
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_killed_costs_no_acquire() {
    let cluster = Cluster::with_replicas();
    let mut nodes = nodes_of(&cluster).await;
    for node in &mut nodes {
        let shorter = "CONFIG SET cluster-node-timeout 1000";
        node.run(shorter).await.unwrap();
    }
    let client = patient_client(&url(&nodes)).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    let primary = serving(&mut nodes, "limiter").await;
    let paused = load.pause().await;
    // WAIT counts the writes up to the last one of its own connection.
    nodes[primary].run("SET {limiter}:mark 1").await.unwrap();
    let replicas = nodes[primary].run("WAIT 1 0").await.unwrap();
    assert_eq!(replicas, Value::Int(1));
    cluster.nodes()[primary].signal("STOP"); // what is sent to it from then on is lost
    drop(paused);
    cluster.nodes()[primary].signal("KILL");
    load.until_granted(20).await;
    nodes.remove(primary);
    let successor = serving(&mut nodes, "limiter").await;
    load.end_taken_once(&mut nodes[successor].raw).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_to_a_new_node_costs_no_call() {
    let cluster = Cluster::start();
    let mut nodes = nodes_of(&cluster).await;
    let client = patient_client(&url(&nodes)).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    let released = ample(&client, "{limiter}:released").await;

    // A node without slots joins.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nodes.conf");
    let file = file.to_str().unwrap();
    let new_server =
        Server::start_with(&["--cluster-enabled", "yes", "--cluster-config-file", file]);
    let mut target = Node::at(new_server.port()).await;
    let meet = format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port);
    target.run(&meet).await.unwrap();
    for node in nodes.iter_mut().chain([&mut target]) {
        loop {
            let known: String =
                redis::from_redis_value(node.run("CLUSTER NODES").await.unwrap()).unwrap();
            if known.lines().count() == 4 && !known.contains("handshake") {
                break;
            }
            sleep(ms(10)).await;
        }
    }
    while !matches!(target.run("CLUSTER INFO").await, Ok(info)
        if format!("{info:?}").contains("cluster_state:ok"))
    {
        sleep(ms(10)).await;
    }

    // The limiter's slot moves, with its keys.
    let source = serving(&mut nodes, "limiter").await;
    let slot = nodes[source].run("CLUSTER KEYSLOT limiter").await.unwrap();
    let slot: u16 = redis::from_redis_value(slot).unwrap();
    let (from, to) = (nodes[source].id.clone(), target.id.clone());
    let importing = format!("CLUSTER SETSLOT {slot} IMPORTING {from}");
    target.run(&importing).await.unwrap();
    let migrating = format!("CLUSTER SETSLOT {slot} MIGRATING {to}");
    nodes[source].run(&migrating).await.unwrap();

    // Limiters that are new are asked for at the target, and there their keys are missing: scripts
    // with several keys have to try again until the slot has moved.
    let [tried, set] = ["{limiter}:tried", "{limiter}:set"].map(|name| client.rate_limiter(name));
    let window = client.policy_limiter(FixedWindow::new(10, HOUR)).unwrap();
    let periods = SlidingWindowCounter::new(10, HOUR).with_period(HOUR / 60);
    let periods = client.policy_limiter(periods).unwrap();
    let bucket = client
        .policy_limiter(PenaltyTokenBucket::new(1, HOUR).with_capacity(10))
        .unwrap();
    let bucket = bucket.with_penalty(HOUR).unwrap();
    let charges = [
        window.charge("{limiter}:joint-window", 1).unwrap(),
        periods.charge("{limiter}:joint-periods", 1).unwrap(),
    ];
    let joint = client.clone();
    let meanwhile = tokio::spawn(async move {
        let rate = Rate::overall(10, HOUR);
        let (is_set, was_set, released, counted, slid, drawn, joined) = tokio::join!(
            tried.try_set_rate(rate),
            set.set_rate(rate),
            released.release(1),
            window.check("{limiter}:window", 1),
            periods.check("{limiter}:periods", 1),
            bucket.check("{limiter}:bucket", 1),
            joint.check_all(charges),
        );
        assert!(is_set.unwrap());
        was_set.unwrap();
        released.unwrap();
        for decision in [counted, slid, drawn] {
            assert!(decision.unwrap().is_granted());
        }
        assert!(joined.unwrap().is_granted());
        for limiter in [tried, set] {
            assert!(limiter.try_acquire(1).await.unwrap());
        }
    });
    sleep(ms(300)).await; // the slot is between the nodes for this long
    loop {
        let keys = format!("CLUSTER GETKEYSINSLOT {slot} 100");
        let keys: Vec<String> =
            redis::from_redis_value(nodes[source].run(&keys).await.unwrap()).unwrap();
        if keys.is_empty() {
            break;
        }
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(target.port).arg("").arg(0);
        migrate.arg(5_000).arg("KEYS").arg(keys);
        let _: Value = migrate.query_async(&mut nodes[source].raw).await.unwrap();
    }
    let assign = format!("CLUSTER SETSLOT {slot} NODE {to}");
    target.run(&assign).await.unwrap();
    for node in &mut nodes {
        node.run(&assign).await.unwrap();
    }
    meanwhile.await.unwrap();
    load.until_granted(20).await;
    load.end_taken_once(&mut target.raw).await;
    assert_eq!(taken(&mut target.raw, "{limiter}:released").await, 0);
}

/// A limiter on each node.
async fn apart(nodes: &mut [Node], client: &RedissonClient) -> Vec<RateLimiter> {
    let mut apart = Vec::new();
    for node in nodes {
        let mut names = (0..).map(|name| format!("limiter:{name}"));
        let name = loop {
            let name = names.next().unwrap();
            if node.serves(&name).await {
                break name;
            }
        };
        apart.push(ample(client, &name).await);
    }
    apart
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_the_node_of_one_limiter_is_down_neither_of_two_is_charged() {
    let cluster = Cluster::start();
    let mut nodes = nodes_of(&cluster).await;
    let client = RedissonClient::builder().response_timeout(ms(300));
    let client = client.connect(&url(&nodes)).await.unwrap();
    let apart = apart(&mut nodes, &client).await;
    let both = async || {
        let charges = apart[..2].iter().map(|limiter| limiter.charge(1).unwrap());
        client.check_all(charges.collect::<Vec<_>>()).await
    };
    assert!(both().await.unwrap().is_granted());
    cluster.nodes()[1].signal("STOP");
    let _ = both().await.unwrap_err();
    cluster.nodes()[1].signal("CONT");
    for (node, limiter) in nodes.iter_mut().zip(&apart).take(2) {
        assert_eq!(taken(&mut node.raw, limiter.name()).await, 2); // one to set it up
    }
    assert!(both().await.unwrap().is_granted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_leads_to_all_and_a_stopped_node_holds_up_no_other() {
    let cluster = Cluster::start();
    let mut nodes = nodes_of(&cluster).await;
    let client = patient_client(&url(&nodes[..1])).await;
    let apart = apart(&mut nodes, &client).await;
    cluster.nodes()[0].signal("STOP");
    let waiting = apart[0].clone();
    let waiting = tokio::spawn(async move { waiting.try_acquire(1).await });
    for _ in 0..50 {
        for limiter in &apart[1..] {
            assert!(limiter.try_acquire(1).await.unwrap());
        }
    }
    cluster.nodes()[0].signal("CONT");
    assert!(waiting.await.unwrap().unwrap());
    for ((node, limiter), granted) in nodes.iter_mut().zip(&apart).zip([2, 51, 51]) {
        assert_eq!(taken(&mut node.raw, limiter.name()).await, granted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_no_node_serves_for_a_while_costs_no_acquire() {
    let cluster = Cluster::start();
    let mut nodes = nodes_of(&cluster).await;
    let client = patient_client(&url(&nodes)).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    let serving = serving(&mut nodes, "limiter").await;
    let node = &mut nodes[serving];
    let slot = node.run("CLUSTER KEYSLOT limiter").await.unwrap();
    let slot: u16 = redis::from_redis_value(slot).unwrap();
    node.run(&format!("CLUSTER DELSLOTS {slot}")).await.unwrap();
    sleep(ms(500)).await; // nobody serves it for this long
    node.run(&format!("CLUSTER ADDSLOTS {slot}")).await.unwrap();
    load.until_granted(20).await;
    load.end_taken_once(&mut node.raw).await;
}

#[tokio::test]
async fn an_acquire_redirected_to_a_node_without_a_connection_waits_for_one() {
    let cluster = Cluster::start();
    let mut nodes = nodes_of(&cluster).await;
    let client = patient_client(&url(&nodes)).await;
    let limiter = ample(&client, "limiter").await;
    let source = serving(&mut nodes, "limiter").await;
    let mut source = nodes.swap_remove(source);
    let mut target = nodes.swap_remove(0);
    // All of its keys have moved, and the slot has not.
    let slot = source.run("CLUSTER KEYSLOT limiter").await.unwrap();
    let slot: u16 = redis::from_redis_value(slot).unwrap();
    let importing = format!("CLUSTER SETSLOT {slot} IMPORTING {}", source.id);
    target.run(&importing).await.unwrap();
    let migrating = format!("CLUSTER SETSLOT {slot} MIGRATING {}", target.id);
    source.run(&migrating).await.unwrap();
    let keys = "KEYS limiter {limiter}:value {limiter}:permits";
    let migrate = format!("MIGRATE 127.0.0.1 {}  0 5000 {keys}", target.port); // an empty word
    source.run(&migrate).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap()); // the target knows the script
    let mut calls = 1;
    let sent_once = async {
        loop {
            // This client knows the source alone.
            let client = patient_client(&url(std::slice::from_ref(&source))).await;
            let before = redirected(&mut source, "evalsha").await;
            assert!(client.rate_limiter("limiter").try_acquire(1).await.unwrap());
            calls += 1;
            // A busy machine may take longer to connect than an attempt waits.
            if redirected(&mut source, "evalsha").await == before + 1 {
                return;
            }
        }
    };
    at_last("an acquire that is sent once", sent_once).await;
    let assign = format!("CLUSTER SETSLOT {slot} NODE {}", target.id);
    target.run(&assign).await.unwrap();
    assert_eq!(taken(&mut target.raw, "limiter").await, 1 + calls);
}

/// How often a node has redirected a command.
async fn redirected(node: &mut Node, command: &str) -> u64 {
    let stats = node.run("INFO commandstats").await.unwrap();
    let stats: String = redis::from_redis_value(stats).unwrap();
    let start = format!("cmdstat_{command}:");
    let line = stats.lines().find(|line| line.starts_with(&start)).unwrap();
    let (_, count) = line.split_once("rejected_calls=").unwrap();
    count.split(',').next().unwrap().parse().unwrap()
}
