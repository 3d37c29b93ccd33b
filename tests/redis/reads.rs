//! `available_permits`, `peek`, `config`, `exists` and `remain_time_to_live` only read.

use redisson_rate_limiter::{Error, FixedWindow, Rate};

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR, NAME, PERMITS, SECOND, VALUE};
use crate::keys::{self, Everything, member};
use crate::monitor::Monitor;
use crate::proxy::{Fate, Proxy};

#[tokio::test]
async fn available_permits_leaves_every_byte_and_every_time_to_live_as_it_was() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .with(Rate::overall(10, SECOND).keep_alive(HOUR))
        .await;
    let untouched = fixture.everything().await;
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert_eq!(fixture.everything().await, untouched);

    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.add(1_000, b"malformed").await;
    let used = fixture.everything().await;
    assert_eq!(limiter.available_permits().await.unwrap(), 6);
    fixture.at(2_000);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert_eq!(fixture.everything().await, used);

    // If the invariant does not hold, it returns what the next acquire will find, and leaves the
    // correction to that acquire.
    fixture.run(&["DEL", VALUE]).await;
    fixture.at(1_500);
    let corrupt = fixture.everything().await;
    assert_eq!(limiter.available_permits().await.unwrap(), 6);
    assert_eq!(fixture.everything().await, corrupt);
    fixture.run(&["DEL", PERMITS]).await;
    fixture.run(&["SET", VALUE, "25"]).await;
    fixture.add(1_000, &member(&[7; 16], 3)).await;
    let corrupt = fixture.everything().await;
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert_eq!(fixture.everything().await, corrupt);
}

#[tokio::test]
async fn available_permits_starts_again_if_grants_change_between_two_pages() {
    const RATE: i64 = 10_000;
    let hour = HOUR.as_millis() as i64;
    for (remove, gone) in [
        // What other clients do: all that have expired are gone, and part of the value.
        (&["ZREMRANGEBYSCORE", PERMITS, "-inf", "1000"][..], 1_500),
        // The newest of them, but not the oldest of those that were read.
        (&["ZREMRANGEBYRANK", PERMITS, "1400", "1499"], 100),
    ] {
        let mut fixture = Fixture::start().await;
        let mut proxy = Proxy::to(fixture.server.port()).await;
        let client = fixture.builder().connect(&proxy.url()).await.unwrap();
        let limiter = client.rate_limiter(NAME);
        limiter
            .try_set_rate(Rate::overall(RATE as u64, HOUR))
            .await
            .unwrap();
        assert_eq!(limiter.available_permits().await.unwrap(), RATE as u64);
        // Each with one permit: 1,500 expired grants, then 1,500 live ones.
        let script = "for i = 1, 3000 do
            local member = struct.pack('<Bc0I', 16, string.format('%016d', i), 1)
            redis.call('zadd', KEYS[1], i <= 1500 and 1000 or ARGV[1], member)
        end";
        let live = (1_000 + hour).to_string();
        fixture.run(&["EVAL", script, "1", PERMITS, &live]).await;
        let left = RATE - 3_000;
        fixture.run(&["SET", VALUE, &left.to_string()]).await;
        fixture.at(1_000 + hour);
        proxy.next("EVALSHA", Fate::Held);
        proxy.next("EVALSHA", Fate::Held);
        let (available, ()) = tokio::join!(limiter.available_permits(), async {
            proxy.held().await.let_through().await;
            let second = proxy.held().await;
            fixture.run(remove).await;
            let left = (left + gone).to_string();
            fixture.run(&["SET", VALUE, &left]).await;
            second.let_through().await;
        });
        assert_eq!(available.unwrap(), RATE as u64 - 1_500);
    }
}

#[tokio::test]
async fn the_server_runs_no_command_that_writes() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.run(&["DEL", VALUE]).await;
    fixture.at(2_000);
    let mut monitor = Monitor::of(&fixture.server).await;
    limiter.available_permits().await.unwrap();
    assert!(limiter.peek(1).await.unwrap().is_granted());
    limiter.config().await.unwrap();
    limiter.exists().await.unwrap();
    limiter.remain_time_to_live().await.unwrap();
    let mut commands = monitor.commands(&fixture.server).await;
    commands.sort();
    commands.dedup();
    let reads = [
        "EVAL",
        "EVALSHA",
        "HMGET",
        "PTTL",
        "lua get",
        "lua hmget",
        "lua time",
        "lua zcard",
        "lua zcount",
        "lua zrange",
        "lua zrangebyscore",
    ];
    for command in &commands {
        assert!(
            reads.contains(&command.as_str()),
            "{command} among {commands:?}"
        );
    }
    assert!(
        commands.iter().any(|command| command == "lua zrange"),
        "{commands:?}"
    );
}

#[tokio::test]
async fn a_peek_leaves_every_byte_and_every_time_to_live_as_it_was() {
    for (policy, unit) in every_policy(3) {
        let mut fixture = Fixture::start().await;
        let limiter = fixture.by(policy).await;
        let limiter = limiter.with_penalty(100 * HOUR).unwrap();
        assert!(limiter.peek(NAME, unit).await.unwrap().is_granted());
        assert!(fixture.everything().await.is_empty());

        assert!(limiter.check(NAME, 2 * unit).await.unwrap().is_granted());
        // As another service with a shorter policy leaves them.
        for key in keys::names(&mut fixture.raw).await {
            fixture.run(&["PEXPIRE", &key, "600000"]).await;
        }
        let used = fixture.everything().await;
        fixture
            .run(&["CONFIG", "SET", "min-replicas-to-write", "1"])
            .await; // refuses each command that writes
        assert!(limiter.peek(NAME, unit).await.unwrap().is_granted());
        let denied = limiter.peek(NAME, 2 * unit).await.unwrap();
        assert_eq!(denied.retry_after(), Some(100 * HOUR));
        assert_eq!(fixture.everything().await, used);
    }
}

#[tokio::test]
async fn a_peek_writes_nothing_however_many_grants_have_expired() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .with(Rate::overall(5_000, SECOND).keep_alive(HOUR))
        .await;
    // 1,500 expired grants, then 700 live ones of two permits.
    let script = "for i = 1, 2200 do
        local member = struct.pack('<Bc0I', 16, string.format('%016d', i), i <= 1500 and 1 or 2)
        redis.call('zadd', KEYS[1], i <= 1500 and 1000 or 5000, member)
    end";
    fixture.run(&["EVAL", script, "1", PERMITS]).await;
    fixture.run(&["SET", VALUE, "2100"]).await;
    fixture.at(5_400);
    let before = fixture.everything().await;
    fixture
        .run(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .await; // refuses each command that writes
    let fits = limiter.peek(3_600).await.unwrap();
    assert_eq!((fits.is_granted(), fits.remaining()), (true, 0));
    let denied = limiter.peek(3_601).await.unwrap();
    assert_eq!(denied.retry_after(), Some(SECOND * 6 / 10));
    assert_eq!(fixture.everything().await, before);
}

/// Each of them has more expired grants than all limiters of a call may read together.
#[tokio::test]
async fn a_joint_peek_counts_the_expired_grants_of_all_its_limiters() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().await;
    let names = ["a", "b", "c"];
    let script = "for i = 1, 1700 do
        local member = struct.pack('<Bc0I', 16, string.format('%016d', i), 1)
        redis.call('zadd', KEYS[1], i <= 900 and 1000 or 5000, member)
    end";
    for name in names {
        let limiter = client.rate_limiter(name);
        limiter
            .set_rate(Rate::overall(2_000, SECOND))
            .await
            .unwrap();
        let (permits, value) = (format!("{{{name}}}:permits"), format!("{{{name}}}:value"));
        fixture.run(&["EVAL", script, "1", &permits]).await;
        fixture.run(&["SET", &value, "300"]).await;
    }
    fixture.at(5_400);
    let peek = async |permits| {
        let charges = names.map(|name| client.rate_limiter(name).charge(permits).unwrap());
        client.peek_all(charges).await.unwrap()
    };
    let fits = peek(1_200).await;
    assert!(fits.is_granted());
    assert!(fits.decisions().iter().all(|it| it.remaining() == 0));
    assert!(!peek(1_201).await.is_granted());
}

#[tokio::test]
async fn a_reset_leaves_no_key_of_a_target() {
    for (policy, unit) in every_policy(2) {
        let mut fixture = Fixture::start().await;
        let limiter = fixture.by(policy).await.with_penalty(HOUR).unwrap();
        assert!(limiter.check(NAME, 2 * unit).await.unwrap().is_granted());
        assert!(!limiter.check(NAME, unit).await.unwrap().is_granted());
        let mild = fixture.by(limiter.policy()).await;
        assert!(mild.reset(NAME).await.unwrap());
        assert_eq!(fixture.everything().await, Everything::new());
    }
    // With the key that a changed window has.
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(FixedWindow::new(2, HOUR)).await;
    limiter.set_policy(FixedWindow::new(2, 2 * HOUR)).unwrap();
    assert!(limiter.check(NAME, 1).await.unwrap().is_granted());
    let other = fixture.by(FixedWindow::new(2, 2 * HOUR)).await;
    assert!(other.reset(NAME).await.unwrap());
    assert_eq!(fixture.everything().await, Everything::new());
}

#[tokio::test]
async fn a_reset_refuses_what_another_kind_of_limiter_left() {
    for (policy, _) in every_policy(2) {
        let mut fixture = Fixture::start().await;
        let limiter = fixture.by(policy).await;
        for key in [NAME, "{limiter}-st", "{limiter}-periods"] {
            fixture.run(&["RPUSH", key, "1"]).await;
        }
        let before = fixture.everything().await;
        let refused = limiter.reset(NAME).await;
        assert!(
            matches!(refused, Err(Error::BadState { .. })),
            "{refused:?}"
        );
        assert_eq!(fixture.everything().await, before);
    }
}
