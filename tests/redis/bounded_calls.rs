//! The largest call of each kind that the crate makes: how much of the server's state it touches.

use redisson_rate_limiter::{
    Charge, FixedWindow, Rate, RedissonClient, SlidingWindowCounter, SlidingWindowLog,
};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, HOUR, NAME, SECOND, ms, passed};
use crate::monitor::Monitor;

/// How many members and counters the calls of scripts touched since the last time, each. Reading
/// and removing a member counts twice.
async fn touched(monitor: &mut Monitor, fixture: &Fixture) -> Vec<usize> {
    let mut calls = Vec::new();
    for words in monitor.commands_and_arguments(&fixture.server).await {
        let number = |at: usize| words[at].parse::<usize>().unwrap_or(usize::MAX / 8);
        let touched = match &words[0][..] {
            name if name.starts_with("EVAL") => {
                calls.push(0);
                0
            }
            "lua zadd" => (words.len() - 2) / 2,
            "lua mget" | "lua exists" | "lua zrem" => words.len() - 2,
            "lua zrange" | "lua zrevrange" | "lua zremrangebyrank" => {
                (number(3) + 1).saturating_sub(number(2))
            }
            "lua zrangebyscore" | "lua zrevrangebyscore" => {
                let limit = words.iter().position(|word| word == "limit");
                limit.map_or(usize::MAX / 8, |at| number(at + 2))
            }
            "lua zremrangebyscore" => usize::MAX / 8,
            _ => 0,
        };
        if let Some(call) = calls.last_mut() {
            *call += touched;
        }
    }
    calls.retain(|&touched| touched > 0); // the server did not know the script
    calls
}

/// Members of a sorted set of this name, all with this score.
async fn add_members(fixture: &mut Fixture, key: &str, score: i64, count: u32) {
    let script = "for i = 1, tonumber(ARGV[2]) do
        redis.call('zadd', KEYS[1], ARGV[1], struct.pack('<Bc0I', 16, string.format('%016d', i), 1))
    end";
    let [score, count] = [score.to_string(), count.to_string()];
    let command = ["EVAL", script, "1", key, &score, &count];
    fixture.run(&command).await;
}

async fn size(fixture: &mut Fixture, key: &str) -> i64 {
    let mut size = redis::cmd("ZCARD");
    size.arg(key).query_async(&mut fixture.raw).await.unwrap()
}

#[tokio::test]
async fn the_largest_request_of_a_log_adds_500_members_and_removes_1500() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(SlidingWindowLog::new(20_000, SECOND)).await;
    add_members(&mut fixture, NAME, 0, 20_000).await;
    let mut monitor = Monitor::of(&fixture.server).await;
    assert!(passed(&limiter, 500).await);
    assert_eq!(touched(&mut monitor, &fixture).await, [2_000]);
    assert_eq!(size(&mut fixture, NAME).await, 19_000);
}

#[tokio::test]
async fn expired_members_of_a_log_do_not_count_and_go_three_for_each_unit() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(SlidingWindowLog::new(10, SECOND)).await;
    add_members(&mut fixture, NAME, 0, 40).await;
    fixture.at(1_000);
    for left in [38, 36, 34] {
        assert!(passed(&limiter, 1).await);
        assert_eq!(size(&mut fixture, NAME).await, left);
    }
    assert!(passed(&limiter, 7).await);
    assert!(!passed(&limiter, 1).await);
    assert_eq!(size(&mut fixture, NAME).await, 20);
    fixture.at(2_000);
    assert!(passed(&limiter, 10).await);
    assert_eq!(size(&mut fixture, NAME).await, 10);
}

#[tokio::test]
async fn requests_on_a_log_share_calls_of_500_units() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(SlidingWindowLog::new(20_000, HOUR)).await;
    let mut monitor = Monitor::of(&fixture.server).await;
    let mut asking = JoinSet::new();
    for caller in 0..300 {
        let limiter = limiter.clone();
        asking.spawn(async move { limiter.check(NAME, 20 + caller % 2).await.unwrap() });
    }
    let decisions = asking.join_all().await;
    assert!(decisions.iter().all(|decision| decision.is_granted()));
    let calls = touched(&mut monitor, &fixture).await;
    // Besides, each reads the newest member.
    assert!(calls.iter().all(|&members| members <= 501), "{calls:?}");
    assert_eq!(size(&mut fixture, NAME).await, 150 * 41);
}

#[tokio::test]
async fn a_counter_reads_up_to_2000_periods_whatever_was_changed() {
    let fixture = Fixture::start().await;
    let shortest = SlidingWindowCounter::new(9, ms(500)).with_period(ms(1));
    let limiter = fixture.by(shortest).await;
    assert!(passed(&limiter, 1).await);
    let mut monitor = Monitor::of(&fixture.server).await;
    let longest = SlidingWindowCounter::new(9, 500 * HOUR).with_period(HOUR);
    limiter.set_policy(longest).unwrap();
    // A counter that grants once in an hour reads all counters, and checks whether the others
    // exist.
    fixture.at(2_000);
    assert!(passed(&limiter, 1).await);
    let [all] = touched(&mut monitor, &fixture).await[..] else {
        panic!("it is one call");
    };
    assert!((1_000..=2 * 2_000).contains(&all), "{all}");
}

/// A charge on a limiter for each cost, each with a million permits of which some are free, others
/// in use, and others expired.
async fn joint_charges(
    fixture: &mut Fixture,
    client: &RedissonClient,
    costs: &[u32],
) -> Vec<Charge> {
    let mut charges = Vec::new();
    for (place, &cost) in costs.iter().enumerate() {
        let limiter = client.rate_limiter(&format!("l:{place}"));
        let _ = limiter.try_set_rate(Rate::overall(1_000_000, SECOND)).await;
        charges.push(limiter.charge(cost).unwrap());
    }
    fixture.at(100_000);
    charges
}

#[tokio::test]
async fn a_joint_decision_takes_a_call_for_each_page_of_grants_that_it_needs() {
    const LIMITERS: usize = 32;
    let mut fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut costs = [1; LIMITERS];
    costs[LIMITERS - 1] = 5_000;
    joint_charges(&mut fixture, &client, &costs).await;
    for place in 0..LIMITERS {
        let permits = format!("{{l:{place}}}:permits");
        add_members(&mut fixture, &permits, 1_000, 6_000).await;
        add_members(&mut fixture, &format!("{permits}:live"), 99_999, 40).await;
        let live = format!("{permits}:live");
        fixture
            .run(&[
                "ZUNIONSTORE",
                &permits,
                "2",
                &permits,
                &live,
                "AGGREGATE",
                "MAX",
            ])
            .await;
        // The last one has only what has expired.
        let value = if place == LIMITERS - 1 { "0" } else { "100" };
        let key = format!("{{l:{place}}}:value");
        fixture.run(&["SET", &key, value]).await;
    }
    let charges = joint_charges(&mut fixture, &client, &costs).await;
    let mut monitor = Monitor::of(&fixture.server).await;
    assert!(client.check_all(charges).await.unwrap().is_granted());
    let calls = touched(&mut monitor, &fixture).await;
    // 5,000 permits, 500 a call, and the decision.
    assert!((10..=11).contains(&calls.len()), "{calls:?}");
    assert!(calls.iter().all(|&grants| grants <= 3_500), "{calls:?}");
}

#[tokio::test]
async fn a_limiter_that_is_made_to_expire_at_once_is_freed_in_the_background() {
    let fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(1_000, HOUR)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let mut monitor = Monitor::of(&fixture.server).await;
    assert!(limiter.expire(ms(0)).await.unwrap());
    let commands = monitor.commands(&fixture.server).await;
    assert!(commands.contains(&"lua unlink".to_owned()), "{commands:?}");
    assert!(
        !commands.contains(&"lua pexpire".to_owned()),
        "{commands:?}"
    );
    assert!(!limiter.exists().await.unwrap());
    let window = fixture.by(FixedWindow::new(1, HOUR)).await;
    assert!(window.check(NAME, 1).await.unwrap().is_granted());
}
