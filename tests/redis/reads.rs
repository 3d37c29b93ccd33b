//! `available_permits`, `config`, `exists` and `remain_time_to_live` only read.

use redisson_rate_limiter::Rate;

use crate::fixture::{Fixture, HOUR, NAME, PERMITS, SECOND, VALUE};
use crate::keys::member;
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

    // If the invariant does not hold, it returns what the next acquire will find, and leaves the correction to that acquire.
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
    limiter.config().await.unwrap();
    limiter.exists().await.unwrap();
    limiter.remain_time_to_live().await.unwrap();
    let mut commands = monitor.commands(&fixture.server).await;
    commands.sort();
    commands.dedup();
    let reads = [
        "EVAL",
        "EVALSHA",
        "EXISTS",
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
