//! Servers as hosting companies run them, and the list of those that the tests run on.

use redisson_rate_limiter::{FixedWindow, Rate, RedissonClient};

use crate::clients::patient;
use crate::every_method;
use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR, NAME};

/// Each method of a limiter, and each policy, alone and jointly.
async fn everything_works(url: &str) {
    let client: RedissonClient = patient(url).await;
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    for (method, result) in every_method::results(&limiter).await {
        result.unwrap_or_else(|error| panic!("{method}: {error:?}"));
    }
    for (policy, unit) in every_policy(2) {
        let key = policy.algorithm().to_owned();
        let limiter = client.policy_limiter(policy).unwrap();
        let limiter = limiter.with_prefix("policy:");
        let decision = limiter.check_without_waiting(&key, unit).await.unwrap();
        assert!(decision.is_granted(), "{key}");
    }
    let window = client.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
    let window = window.with_prefix("{joint}:");
    let keyed = client.keyed_rate_limiter("{joint}:", Rate::overall(2, HOUR));
    let charges = [
        window.charge("window", 1).unwrap(),
        keyed.unwrap().charge("rate", 1).unwrap(),
    ];
    let decision = client.check_all(charges).await.unwrap();
    assert!(decision.is_granted());
    client.ping().await.unwrap();
}

#[tokio::test]
async fn everything_works_without_the_commands_of_administrators() {
    let renamed = [
        "CONFIG", "INFO", "ROLE", "CLIENT", "CLUSTER", "SCRIPT", "KEYS", "FLUSHALL",
    ];
    let arguments = renamed.iter().flat_map(|it| ["--rename-command", it, ""]);
    let arguments: Vec<_> = arguments.collect();
    let fixture = Fixture::with_arguments(&arguments).await;
    everything_works(&fixture.server.url()).await;
}

#[tokio::test]
async fn a_proxy_before_a_cluster_that_knows_no_cluster_is_one_server() {
    // A node with all slots, whose CLUSTER has another name, answers as such a proxy does.
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("nodes.conf");
    let mut fixture = Fixture::with_arguments(&[
        "--cluster-enabled",
        "yes",
        "--cluster-config-file",
        file.to_str().unwrap(),
        "--rename-command",
        "CLUSTER",
        "ADMINISTER",
    ])
    .await;
    let slots: Vec<_> = (0..16_384).map(|slot| slot.to_string()).collect();
    let mut command = vec!["ADMINISTER", "ADDSLOTS"];
    command.extend(slots.iter().map(String::as_str));
    fixture.run(&command).await;
    while !fixture
        .ask::<String>(&["ADMINISTER", "INFO"])
        .await
        .contains("cluster_state:ok")
    {
        tokio::task::yield_now().await;
    }
    let info: String = fixture.ask(&["INFO", "cluster"]).await;
    assert!(info.contains("cluster_enabled:1"));
    everything_works(&fixture.server.url()).await;
}

#[tokio::test]
async fn the_guide_names_the_server_that_the_tests_run_on() {
    let mut fixture = Fixture::start().await;
    let info: String = fixture.ask(&["INFO", "server"]).await;
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(field, _)| *field == name);
        found.map(|(_, value)| value.trim().to_owned())
    };
    // Valkey says in `redis_version` which Redis it is compatible with.
    let (name, version) = match field("valkey_version") {
        Some(version) => ("Valkey", version),
        None => ("Redis", field("redis_version").unwrap()),
    };
    let server = format!("{name} {}", version.split('.').next().unwrap());
    let page = include_str!("../../docs/connections.md");
    let row = format!("| {server} |");
    assert!(page.contains(&row), "docs/connections.md has no {row}");
}
