//! The ACL rule in docs/connections.md: each operation works under it, and each permission of it is
//! needed.

use std::collections::{BTreeSet, HashMap};

use tempfile::TempDir;
use tokio::task::JoinSet;

use redisson_rate_limiter::{
    AnyPolicy, Decision, Error, FixedWindow, Granted, PermitsInUse, Rate, RedissonClient, Result,
    SlidingWindowCounter, TokenBucket,
};

use crate::clients::patient;
use crate::every_method;
use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR, ms};
use crate::keys;
use crate::stopped_time::{StoppedTime, at_once, run_until_stalled, until};

const PAGE: &str = include_str!("../../docs/connections.md");

/// The arguments of the page's `ACL SETUSER` commands, in their order.
fn rules() -> Vec<Vec<String>> {
    let text = PAGE.replace("\\\n", " ");
    let commands = text
        .lines()
        .filter_map(|line| line.strip_prefix("redis-cli ACL SETUSER "));
    commands
        .map(|rest| {
            let parts = rest.split_whitespace();
            parts
                .map(|part| part.trim_matches('\'').to_owned())
                .collect()
        })
        .collect()
}

async fn set_user(fixture: &mut Fixture, rule: &[String]) {
    let mut command = vec!["ACL", "SETUSER"];
    command.extend(rule.iter().map(String::as_str));
    fixture.run(&command).await;
}

/// The name of an operation, and its result.
type Outcome = (String, Result<()>);

/// Each operation of the library, on limiters that the operator has set up.
async fn operations(fixture: &mut Fixture, app: &RedissonClient) -> Vec<Outcome> {
    fixture.run(&["FLUSHALL"]).await;
    let operator = patient(&fixture.server.url()).await;
    let mut outcomes = Vec::new();
    for (name, rate) in [
        ("overall", Rate::overall(10, HOUR)),
        ("per-client", Rate::per_client(10, HOUR)),
        ("alive", Rate::overall(10, HOUR).keep_alive(2 * HOUR)),
    ] {
        let name = format!("orders:{name}");
        operator.rate_limiter(&name).set_rate(rate).await.unwrap();
        let limiter = app.rate_limiter(&name);
        let taken_back = async {
            if let Decision::Granted(Granted { grant, .. }) = limiter.check(3).await? {
                limiter.refund(grant).await?;
            }
            limiter.try_acquire(3).await?;
            limiter.release(2).await?;
            limiter
                .update_rate(Rate::overall(20, HOUR), PermitsInUse::Keep)
                .await?;
            limiter
                .update_rate(Rate::overall(20, HOUR), PermitsInUse::Reset)
                .await?;
            Ok(())
        };
        outcomes.push((format!("taken back on {name}"), taken_back.await));
        let methods = every_method::results(&limiter).await;
        outcomes.extend(
            methods
                .into_iter()
                .map(|(method, result)| (format!("{method} on {name}"), result)),
        );
    }
    outcomes.push(("ping".to_owned(), app.ping().await));
    outcomes.push((
        "a window passes".to_owned(),
        a_window_passes(&operator, app).await,
    ));
    outcomes.push((
        "expired grants".to_owned(),
        expired_grants(fixture, &operator, app).await,
    ));
    outcomes.push((
        "keys that are lost".to_owned(),
        lost_keys(fixture, &operator, app).await,
    ));
    let keyed = app
        .keyed_rate_limiter("orders:", Rate::overall(2, HOUR))
        .unwrap();
    for i in 0..4 {
        let decided = keyed.check("keyed", 1).await.map(drop);
        outcomes.push((format!("keyed {i}"), decided));
    }
    for (policy, unit) in every_policy(2) {
        let name = policy.algorithm().to_owned();
        outcomes.push((name, by_policy(app, policy, unit).await));
    }
    let periods = SlidingWindowCounter::new(2, HOUR).with_period(HOUR / 60);
    let by_periods = by_policy(app, periods, 1).await;
    outcomes.push(("a window of many periods".to_owned(), by_periods));
    outcomes.push((
        "a whole token".to_owned(),
        a_whole_token(fixture, app).await,
    ));
    let window = app.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
    for i in 0..2 {
        let charges = [
            window.charge("orders:joint", 1).unwrap(),
            keyed.charge("joint-rate", 1).unwrap(),
        ];
        let decided = app.check_all(charges).await.map(drop);
        outcomes.push((format!("check_all {i}"), decided));
    }
    outcomes
}

/// Makes several requests that are granted, denied and locked out, and one with another policy.
async fn by_policy(app: &RedissonClient, policy: impl Into<AnyPolicy>, unit: u32) -> Result<()> {
    let policy = policy.into();
    let kind = policy.algorithm();
    let limiter = app
        .policy_limiter(policy.clone())?
        .with_prefix("orders:policy:");
    let strict = app
        .policy_limiter(policy)?
        .with_prefix("orders:strict:")
        .with_penalty(HOUR)?;
    for _ in 0..4 {
        let _ = limiter.check_without_waiting(kind, unit).await?;
        let _ = strict.check_without_waiting(kind, unit).await?;
        let _ = limiter.peek(kind, unit).await?;
    }
    limiter.reset(kind).await?;
    strict.reset(kind).await?;
    Ok(())
}

/// Asks a bucket that held a part of a token, and holds whole ones under its new policy.
async fn a_whole_token(fixture: &mut Fixture, app: &RedissonClient) -> Result<()> {
    let now = keys::time(&mut fixture.raw).await.to_string();
    let mut command = vec!["HSET", "orders:whole", "tokens", "1"];
    command.extend(["last_refill_timestamp", &now, "last_refill_fraction", "1"]);
    fixture.run(&command).await;
    let limiter = app.policy_limiter(TokenBucket::per_second(1).with_capacity(2))?;
    limiter.check("orders:whole", 1).await.map(drop)
}

/// Waits for permits until earlier grants have expired, for one and for two at a time. There are so
/// many waiters that several calls serve them.
async fn a_window_passes(operator: &RedissonClient, app: &RedissonClient) -> Result<()> {
    let rate = Rate::overall(3, ms(20));
    operator
        .rate_limiter("orders:short")
        .set_rate(rate)
        .await
        .unwrap();
    let limiter = app.rate_limiter("orders:short");
    let mut waiters = JoinSet::new();
    for _ in 0..12 {
        let limiter = limiter.clone();
        waiters.spawn(async move { limiter.acquire(1).await });
    }
    for served in waiters.join_all().await {
        served?;
    }
    limiter.available_permits().await?;
    limiter
        .update_rate(Rate::overall(4, ms(60)), PermitsInUse::Keep)
        .await?;
    limiter.acquire(2).await
}

/// Asks a limiter of whose grants some have expired, however fast the machine is.
async fn expired_grants(
    fixture: &mut Fixture,
    operator: &RedissonClient,
    app: &RedissonClient,
) -> Result<()> {
    let name = "orders:expired";
    let rate = Rate::overall(10, HOUR);
    operator.rate_limiter(name).set_rate(rate).await.unwrap();
    let keys = ["{orders:expired}:value", "{orders:expired}:permits"];
    fixture.fill(keys[0], keys[1], 3, 7).await;
    let before = (keys::time(&mut fixture.raw).await - 2 * HOUR.as_millis() as i64).to_string();
    let age = "for _, grant in ipairs(redis.call('zrange', KEYS[1], 0, 1)) do
        redis.call('zadd', KEYS[1], ARGV[1], grant)
    end";
    fixture.run(&["EVAL", age, "1", keys[1], &before]).await;
    app.rate_limiter(name).try_acquire(1).await.map(drop)
}

/// Calls on limiters of which an operator or an eviction has deleted a key.
async fn lost_keys(
    fixture: &mut Fixture,
    operator: &RedissonClient,
    app: &RedissonClient,
) -> Result<()> {
    for (lost, name) in [
        ("value", "orders:valueless"),
        ("permits", "orders:grantless"),
    ] {
        let rate = Rate::overall(10, HOUR);
        let prepared = operator.rate_limiter(name);
        prepared.set_rate(rate).await.unwrap();
        assert!(prepared.try_acquire(4).await.unwrap());
        fixture.run(&["DEL", &format!("{{{name}}}:{lost}")]).await;
        let limiter = app.rate_limiter(name);
        limiter.try_acquire(1).await?;
        limiter.release(1).await?;
        limiter.available_permits().await?;
    }
    Ok(())
}

async fn connect(fixture: &Fixture, rule: &[String]) -> RedissonClient {
    let password = rule.iter().find_map(|part| part.strip_prefix('>')).unwrap();
    let url = format!(
        "redis://{}:{password}@127.0.0.1:{}",
        rule[0],
        fixture.server.port()
    );
    patient(&url).await
}

fn permissions(rule: &[String]) -> Vec<String> {
    rule.iter()
        .filter_map(|part| part.strip_prefix('+'))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn every_operation_works_under_the_rule() {
    let mut fixture = Fixture::start().await;
    let rule = &rules()[0];
    set_user(&mut fixture, rule).await;
    let app = connect(&fixture, rule).await;
    fixture.run(&["SCRIPT", "FLUSH"]).await;
    for (operation, result) in operations(&mut fixture, &app).await {
        result.unwrap_or_else(|error| panic!("{operation}: {error:?}"));
    }
    let mut log = redis::cmd("ACL");
    let denied: Vec<HashMap<String, redis::Value>> =
        log.arg("LOG").query_async(&mut fixture.raw).await.unwrap();
    let denied = denied.iter().map(|entry| entry["object"].clone());
    let denied: BTreeSet<String> = denied
        .map(|object| redis::from_redis_value(object).unwrap())
        .collect();
    // Each connection sets the name of the library if the server knows such a command, and waiters
    // ask for messages, which another rule permits.
    let optional = ["client|setinfo", "ssubscribe"];
    let others: Vec<_> = denied
        .iter()
        .filter(|it| !optional.contains(&it.as_str()))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

/// Whether the server has denied a call: also one that it answered so late that its next attempt
/// got the answer.
fn is_denied(error: &Error) -> bool {
    match error {
        Error::PermissionDenied { .. } => true,
        Error::Indeterminate {
            source: Some(cause),
        } => cause.downcast_ref().is_some_and(is_denied),
        _ => false,
    }
}

#[tokio::test]
async fn without_one_of_its_permissions_operations_are_denied_and_no_other_way() {
    let mut fixture = Fixture::start().await;
    let rule = &rules()[0];
    let mut needless = BTreeSet::new();
    for permission in permissions(rule) {
        set_user(&mut fixture, rule).await;
        fixture
            .run(&["ACL", "SETUSER", "app", &format!("-{permission}")])
            .await;
        let app = connect(&fixture, rule).await;
        fixture.run(&["SCRIPT", "FLUSH"]).await;
        let mut denied = 0;
        for (operation, result) in operations(&mut fixture, &app).await {
            match result {
                Ok(()) => {}
                Err(error) if is_denied(&error) => denied += 1,
                Err(error) => panic!("{operation} without {permission}: {error:?}"),
            }
        }
        println!("without {permission}: {denied} denied");
        if denied == 0 {
            needless.insert(permission);
        }
    }
    // The page says what these are for: all but the first two for audits of large limiters in the
    // background.
    let others = [
        "info", "role", "lindex", "lrange", "lset", "ltrim", "rpush", "rpushx", "zrank",
    ];
    assert_eq!(needless, others.map(str::to_owned).into());
}

/// The commands and keys that the server has denied.
async fn denied_commands(fixture: &mut Fixture) -> BTreeSet<String> {
    let mut log = redis::cmd("ACL");
    let log: Vec<HashMap<String, redis::Value>> =
        log.arg("LOG").query_async(&mut fixture.raw).await.unwrap();
    let object = |mut entry: HashMap<String, redis::Value>| {
        redis::from_redis_value(entry.remove("object").unwrap()).unwrap()
    };
    log.into_iter().map(object).collect()
}

#[tokio::test]
async fn a_large_limiter_is_audited_under_the_rule() {
    let mut fixture = Fixture::start().await;
    let rule = &rules()[0];
    set_user(&mut fixture, rule).await;
    let app = connect(&fixture, rule).await;
    let limiter = app.rate_limiter("orders:large");
    limiter.set_rate(Rate::overall(1_000, HOUR)).await.unwrap();
    // Commands that a connection can do without, which depend on the server. The audit uses another
    // connection.
    let connecting = denied_commands(&mut fixture).await;
    // A peer's retry lost 100 permits.
    let keys = ["{orders:large}:value", "{orders:large}:permits"];
    fixture.fill(keys[0], keys[1], 600, 300).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    while limiter.available_permits().await.unwrap() != 399 {
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!(denied_commands(&mut fixture).await, connecting);
}

#[tokio::test]
async fn without_one_of_its_key_patterns_operations_are_denied_and_no_other_way() {
    let mut fixture = Fixture::start().await;
    let rule = &rules()[0];
    let patterns: Vec<_> = rule.iter().filter(|part| part.starts_with('~')).collect();
    assert_eq!(patterns.len(), 2);
    for pattern in patterns {
        set_user(&mut fixture, rule).await;
        fixture
            .run(&["ACL", "SETUSER", "app", "resetkeys", pattern])
            .await;
        let app = connect(&fixture, rule).await;
        let mut denied = 0;
        for (operation, result) in operations(&mut fixture, &app).await {
            match result {
                Ok(()) => {}
                Err(error) if is_denied(&error) => denied += 1,
                Err(error) => panic!("{operation} with {pattern} alone: {error:?}"),
            }
        }
        assert_ne!(denied, 0, "{pattern}");
    }
}

#[tokio::test]
async fn with_the_permissions_for_messages_waiters_are_told_what_comes_free() {
    let mut fixture = Fixture::start().await;
    let rules = rules();
    for rule in [&rules[0], &rules[2]] {
        set_user(&mut fixture, rule).await;
    }
    let [app, other] = [
        connect(&fixture, &rules[0]).await,
        connect(&fixture, &rules[0]).await,
    ];
    let other = other.rate_limiter("orders:messages");
    other.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(other.try_acquire(10).await.unwrap());
    let limiter = app.rate_limiter("orders:messages");
    let _stopped = StoppedTime::stop();
    let waiter = tokio::spawn(async move { limiter.acquire(1).await });
    until("it has subscribed", async || {
        let mut command = redis::cmd("PUBSUB");
        command.arg("SHARDNUMSUB").arg("{orders:messages}:freed");
        let asked = command.query_async(&mut fixture.raw.clone()).await;
        let (_, subscribers): (String, u64) = asked.unwrap();
        subscribers == 1
    })
    .await;
    run_until_stalled(&other).await;
    other.release(10).await.unwrap();
    at_once(waiter).await.unwrap().unwrap();
}

/// A node with all slots but one that moves to another node, whose commands are answered with a
/// redirection there.
struct MovingSlot {
    nodes: [Fixture; 2],
    _files: [TempDir; 2],
}

impl MovingSlot {
    async fn of(name: &str) -> Self {
        let files = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut nodes = Vec::new();
        for folder in &files {
            let file = folder.path().join("nodes.conf");
            let file = file.to_str().unwrap();
            nodes.push(
                Fixture::with_arguments(&[
                    "--cluster-enabled",
                    "yes",
                    "--cluster-config-file",
                    file,
                ])
                .await,
            );
        }
        let Ok(mut nodes) = <[Fixture; 2]>::try_from(nodes) else {
            unreachable!("two were started");
        };
        let [from, to] = &mut nodes;
        from.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        let port = from.server.port().to_string();
        to.run(&["CLUSTER", "MEET", "127.0.0.1", &port]).await;
        let slot: u16 = from.ask(&["CLUSTER", "KEYSLOT", name]).await;
        let ids: [String; 2] = [
            from.ask(&["CLUSTER", "MYID"]).await,
            to.ask(&["CLUSTER", "MYID"]).await,
        ];
        for node in [&mut *from, &mut *to] {
            while !node
                .ask::<String>(&["CLUSTER", "NODES"])
                .await
                .lines()
                .all(|line| !line.contains("handshake"))
                || !node
                    .ask::<String>(&["CLUSTER", "INFO"])
                    .await
                    .contains("cluster_state:ok")
            {
                tokio::time::sleep(ms(10)).await;
            }
        }
        let slot = slot.to_string();
        to.run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]])
            .await;
        from.run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]])
            .await;
        Self {
            nodes,
            _files: files,
        }
    }
}

#[tokio::test]
async fn on_a_cluster_two_more_permissions_are_needed() {
    let mut moving = MovingSlot::of("orders:moving").await;
    let rules = rules();
    for rule in &rules[..2] {
        for node in &mut moving.nodes {
            set_user(node, rule).await;
        }
    }
    let app = connect(&moving.nodes[0], &rules[0]).await;
    assert!(!app.rate_limiter("orders:moving").exists().await.unwrap());
    let resting = app.rate_limiter("orders:resting");
    resting.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(resting.try_acquire(1).await.unwrap());

    for node in &mut moving.nodes {
        node.run(&["ACL", "SETUSER", "app", "-asking"]).await;
    }
    let error = app
        .rate_limiter("orders:moving")
        .exists()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
    for node in &mut moving.nodes {
        node.run(&["ACL", "SETUSER", "app", "+asking", "-cluster|slots"])
            .await;
    }
    let url = format!(
        "redis://app:secret@127.0.0.1:{}",
        moving.nodes[0].server.port()
    );
    let error = RedissonClient::connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
}
