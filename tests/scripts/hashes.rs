//! `lua/sha1.txt` has the SHA-1 of each script as it is sent.

use std::collections::BTreeSet;
use std::time::Duration;

use redisson_rate_limiter::{
    Decision, FixedWindow, Granted, Limiter, PermitsInUse, Rate, RedissonClient, TokenBucket,
};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use crate::by_hand::{Pending, poll_once};
use crate::clients::patient;
use crate::every_policy::every_policy;
use crate::include::{assemble, names, read};
use crate::monitor::Monitor;
use crate::support::Server;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// As `sha1sum` writes them.
const LISTED: &str = include_str!("../../lua/sha1.txt");

#[test]
fn the_listed_hashes_are_those_of_the_assembled_scripts() {
    let lines = names().map(|name| {
        let script = assemble(name, read).unwrap_or_else(|error| panic!("{error}"));
        format!("{}  {name}\n", redis::Script::new(&script).get_hash())
    });
    let expected: String = lines.collect();
    assert_eq!(LISTED, expected, "lua/sha1.txt should have\n{expected}");
}

#[test]
fn every_policy_with_a_script_is_in_the_list_of_the_tests() {
    let listed = every_policy(5).map(|(policy, _)| format!("policies/{}.lua", policy.algorithm()));
    let listed: BTreeSet<_> = listed.collect();
    let scripts = names().filter(|name| name.starts_with("policies/"));
    assert_eq!(listed, scripts.map(str::to_owned).collect());
}

#[test]
fn clients_send_every_listed_script_and_no_other() {
    let listed: BTreeSet<&str> = LISTED
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::start();
    runtime().block_on(async {
        let mut monitor = Monitor::of(&server).await;
        let client = patient(&server.url()).await;
        use_every_operation(&client, &server).await;
        // The runtime of this call ends before its answer, so that the call is reclaimed.
        let abandoned = client.clone();
        let redis = redis::Client::open(server.url()).unwrap();
        std::thread::spawn(move || {
            let own = runtime();
            own.block_on(async {
                let limiter = abandoned.rate_limiter("abandoned");
                limiter.set_rate(Rate::overall(5, HOUR)).await.unwrap();
                assert!(limiter.try_acquire(1).await.unwrap());
                let mut pause = redis::cmd("CLIENT");
                pause.arg("PAUSE").arg(200);
                let mut raw = redis.get_multiplexed_async_connection().await.unwrap();
                pause.exec_async(&mut raw).await.unwrap();
                assert!(poll_once(&mut (Box::pin(limiter.acquire(1)) as Pending<_>)).is_none());
            });
        })
        .join()
        .unwrap();

        let mut sent = BTreeSet::new();
        let start = Instant::now();
        while sent.len() < listed.len() && start.elapsed() < 60 * SECOND {
            for words in monitor.commands_and_arguments(&server).await {
                if words[0] == "EVALSHA" {
                    sent.insert(words[1].clone());
                }
            }
            sleep(Duration::from_millis(5)).await;
        }
        let sent: BTreeSet<&str> = sent.iter().map(String::as_str).collect();
        assert_eq!(sent, listed);

        let mut connection = server.connection().await;
        let mut exists = redis::cmd("SCRIPT");
        exists.arg("EXISTS").arg(&listed);
        let exist: Vec<u8> = exists.query_async(&mut connection).await.unwrap();
        assert_eq!(exist, vec![1; listed.len()]);
    });
}

async fn use_every_operation(client: &RedissonClient, server: &Server) {
    let limiter = client.rate_limiter("limiter");
    let rate = Rate::overall(1_000, HOUR);
    limiter.try_set_rate(rate).await.unwrap();
    limiter.set_rate(rate).await.unwrap();
    limiter.update_rate(rate, PermitsInUse::Keep).await.unwrap();
    let Decision::Granted(Granted { grant, .. }) = limiter.check(1).await.unwrap() else {
        panic!("denied");
    };
    limiter.refund(grant).await.unwrap();
    limiter.release(1).await.unwrap();
    drop(limiter.reserve(1, Duration::ZERO).await.unwrap());
    limiter.available_permits().await.unwrap();
    limiter.expire(HOUR).await.unwrap();
    limiter.clear_expire().await.unwrap();
    limiter.hold(Duration::from_millis(1)).await.unwrap();

    // There are so many grants that they are audited in pages.
    let large = client.rate_limiter("large");
    large.set_rate(rate).await.unwrap();
    let fill = "local now = redis.call('time')[1] * 1000
        for i = 1, 200 do
            redis.call('zadd', KEYS[1], now, struct.pack('<Bc0I', 16, string.format('%016d', i), 1))
        end
        redis.call('set', KEYS[2], 800)";
    let mut eval = redis::cmd("EVAL");
    eval.arg(fill)
        .arg(2)
        .arg("{large}:permits")
        .arg("{large}:value");
    eval.exec_async(&mut server.connection().await)
        .await
        .unwrap();
    assert!(large.try_acquire(1).await.unwrap());

    // So many are in flight, until it is known that one server has all keys.
    let keyed = client
        .keyed_rate_limiter("keyed", Rate::overall(1_000_000, HOUR))
        .unwrap();
    let windows = client
        .policy_limiter(FixedWindow::new(1_000_000, HOUR))
        .unwrap();
    let limiters: [(&str, &dyn Limiter); 2] =
        [("multi_acquire.lua", &keyed), ("multi_check.lua", &windows)];
    for (script, limiter) in limiters {
        let hash = LISTED.lines().find_map(|line| line.split_once(script));
        let hash = hash.unwrap().0.trim();
        let is_sent = async || {
            let mut exists = redis::cmd("SCRIPT");
            exists.arg("EXISTS").arg(hash);
            let exist: [bool; 1] = exists
                .query_async(&mut server.connection().await)
                .await
                .unwrap();
            exist[0]
        };
        for _ in 0..1_000 {
            if is_sent().await {
                break; // otherwise what was sent says which one is missing
            }
            let targets: Vec<_> = (0..40).map(|i| format!("target:{i}")).collect();
            let checks = targets.iter().map(|target| limiter.check(target, 1));
            let mut checks: Vec<Pending<redisson_rate_limiter::Result<Decision>>> =
                checks.map(|check| Box::pin(check) as _).collect();
            for check in &mut checks {
                assert!(poll_once(check).is_none());
            }
            for check in checks {
                assert!(check.await.unwrap().is_granted());
            }
        }
    }

    for (policy, unit) in every_policy(5) {
        let name = policy.algorithm();
        let limiter = client.policy_limiter(policy).unwrap();
        assert!(limiter.check(name, unit).await.unwrap().is_granted());
    }
    let window = client.policy_limiter(FixedWindow::new(5, SECOND)).unwrap();
    let tokens = client.policy_limiter(TokenBucket::per_second(5)).unwrap();
    let both = [
        window.charge("joint:window", 1).unwrap(),
        tokens.charge("joint:tokens", 1).unwrap(),
    ];
    assert!(client.check_all(both).await.unwrap().is_granted());
}
