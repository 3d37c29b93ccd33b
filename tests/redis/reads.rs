//! `available_permits`, `config`, `exists` and `remain_time_to_live` only read.

use redisson_rate_limiter::Rate;

use crate::fixture::{Fixture, HOUR, PERMITS, SECOND, VALUE};
use crate::keys::member;
use crate::monitor::Monitor;

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
