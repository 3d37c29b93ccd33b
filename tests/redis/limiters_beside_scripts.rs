//! A SlidingLog and a QuotaBucket beside a script that a peer runs on the same keys, both ways.

use redis::AsyncCommands;
use redisson_rate_limiter::{PolicyLimiter, QuotaBucket, RedissonClient, SlidingLog};
use tokio::task::JoinSet;

use crate::keys::{self, member};
use crate::stage::{HOUR, NAME, SECOND, Stage, denied, ms, passed};

/// A peer's sliding log: forgets what is over, counts the members, adds its own where they are fewer than the limit. It
/// sets no time to live.
const LOG: &str = "
local log, limit, window, now, id = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
redis.call('ZREMRANGEBYSCORE', log, '-inf', now - window)
if redis.call('ZCARD', log) >= limit then
  return 0
end
redis.call('ZADD', log, now, id)
return 1";

/// A peer's bucket of a quota: 1 where it is limited, the capacity, what remains. It sets no time to live.
const QUOTA: &str = "
local bucket, capacity, quota, period = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local quantity, now = tonumber(ARGV[4] or '1'), tonumber(redis.call('TIME')[1])
local remain = tonumber(redis.call('HGET', bucket, 'remain'))
local timestamp = tonumber(redis.call('HGET', bucket, 'timestamp'))
if not remain then
  remain, timestamp = capacity, now
else
  local added = math.floor((now - timestamp) / period * quota)
  if added > 0 then
    remain, timestamp = math.min(remain + added, capacity), now
  end
end
local limited = 1
if remain >= quantity then
  limited, remain = 0, remain - quantity
end
redis.call('HSET', bucket, 'capacity', capacity, 'remain', remain, 'period', period, 'quota', quota,
  'timestamp', timestamp)
return {limited, capacity, remain}";

/// How many of so many requests at a time the peer's log grants.
async fn log_grants(stage: &mut Stage, limit: u32, now: i64, requests: u32) -> u32 {
    let mut granted = 0;
    for request in 0..requests {
        let id = format!("{now}-{request}");
        let mut command = redis::cmd("EVAL");
        command.arg(LOG).arg(1).arg(NAME);
        command.arg(limit).arg(60_000).arg(now).arg(id);
        let answer: u32 = command.query_async(&mut stage.raw).await.unwrap();
        granted += answer;
    }
    granted
}

async fn log(stage: &Stage, limit: u32) -> PolicyLimiter<SlidingLog> {
    stage.by(SlidingLog::new(limit, ms(60_000))).await
}

#[tokio::test]
async fn a_script_that_counts_the_members_of_a_log_counts_each_unit_of_cost() {
    let mut stage = Stage::set().await;
    let limiter = log(&stage, 8).await;
    assert!(passed(&limiter, 5).await);
    assert_eq!(log_grants(&mut stage, 8, 1_000, 9).await, 3);
    assert_eq!(denied(&limiter, 1).await, (0, 60_000));
    stage.at(61_000);
    assert!(passed(&limiter, 8).await);
    assert_eq!(log_grants(&mut stage, 8, 61_000, 1).await, 0);
}

#[tokio::test]
async fn what_a_script_added_to_a_log_counts_here() {
    let mut stage = Stage::set().await;
    let limiter = log(&stage, 8).await;
    assert_eq!(log_grants(&mut stage, 8, 1_000, 3).await, 3);
    assert_eq!(denied(&limiter, 6).await, (5, 60_000));
    assert!(passed(&limiter, 5).await);
    assert_eq!(log_grants(&mut stage, 8, 1_001, 1).await, 0);
}

#[tokio::test]
async fn requests_that_share_a_call_are_counted_one_by_one_too() {
    let mut stage = Stage::set().await;
    let limiter = log(&stage, 150).await;
    let mut asked = JoinSet::new();
    for cost in 1..=60 {
        let limiter = limiter.clone();
        let cost = 1 + cost % 3;
        asked.spawn(async move { u32::from(passed(&limiter, cost).await) * cost });
    }
    let taken: u32 = asked.join_all().await.into_iter().sum();
    assert_eq!(taken, 120);
    let evals = keys::calls(&mut stage.raw, "evalsha").await;
    assert!(evals < 60, "{evals} calls");
    assert_eq!(log_grants(&mut stage, 150, 1_000, 40).await, 30);
}

#[tokio::test]
async fn a_large_cost_is_as_many_members() {
    let mut stage = Stage::set().await;
    let limiter = log(&stage, 10_000).await;
    for (cost, all) in [(1_000, 1_000), (1_001, 2_001), (7_500, 9_501)] {
        assert!(passed(&limiter, cost).await);
        assert_eq!(stage.raw.zcard::<_, u32>(NAME).await.unwrap(), all);
    }
    assert_eq!(denied(&limiter, 500).await, (499, 60_000));
}

#[tokio::test]
async fn a_member_with_a_cost_that_an_earlier_version_wrote_counts_it() {
    let mut stage = Stage::set().await;
    stage
        .run_bytes(&[b"ZADD", NAME.as_bytes(), b"900", &member(&[7; 16], 5)])
        .await;
    let limiter = log(&stage, 8).await;
    assert_eq!(denied(&limiter, 4).await, (3, 59_900));
    assert!(passed(&limiter, 3).await);
    stage.at(60_900);
    assert!(passed(&limiter, 5).await);
    assert_eq!(stage.raw.zcard::<_, u32>(NAME).await.unwrap(), 8);
}

#[tokio::test]
async fn a_log_that_a_script_goes_on_using_lives_for_two_windows() {
    let mut stage = Stage::set().await;
    let limiter = stage.by(SlidingLog::new(8, HOUR)).await;
    let since = keys::time(&mut stage.raw).await;
    assert!(passed(&limiter, 1).await);
    assert_eq!(log_grants(&mut stage, 8, 2_000, 1).await, 1);
    keys::assert_lives_for(&mut stage.raw, NAME, 2 * 3_600_000, since).await;
}

/// The peer's answer.
async fn quota(stage: &mut Stage, args: &[u32]) -> [u32; 3] {
    let mut command = redis::cmd("EVAL");
    command.arg(QUOTA).arg(1).arg(NAME).arg(args);
    command.query_async(&mut stage.raw).await.unwrap()
}

#[tokio::test]
async fn the_script_of_a_quota_answers_as_it_is_described() {
    let mut stage = Stage::set().await;
    assert_eq!(quota(&mut stage, &[100, 30, 60]).await, [0, 100, 99]);
    stage.run(&["DEL", NAME]).await;
    for expected in [[0, 10, 5], [0, 10, 0], [1, 10, 0]] {
        assert_eq!(quota(&mut stage, &[10, 10, 60, 5]).await, expected);
    }
}

async fn by_the_servers_clock(stage: &Stage, policy: QuotaBucket) -> PolicyLimiter<QuotaBucket> {
    let client = RedissonClient::connect(&stage.server.url()).await.unwrap();
    client.limiter(policy).unwrap()
}

#[tokio::test]
async fn a_bucket_of_a_quota_lives_for_twice_the_time_to_fill_so_what_a_script_took_is_not_forgotten()
 {
    let mut stage = Stage::set().await;
    let policy = QuotaBucket::new(20, 2, SECOND);
    let limiter = by_the_servers_clock(&stage, policy).await;
    let since = keys::time(&mut stage.raw).await;
    assert!(passed(&limiter, 1).await);
    assert_eq!(quota(&mut stage, &[20, 2, 1, 19]).await[0], 0);
    keys::assert_lives_for(&mut stage.raw, NAME, 20_000, since).await;
    // What the other took counts, on both sides.
    assert_eq!(quota(&mut stage, &[20, 2, 1, 20]).await[0], 1);
    assert!(!passed(&limiter, 20).await);
}

#[tokio::test]
async fn what_a_script_left_in_a_bucket_of_a_quota_is_left_here() {
    let mut stage = Stage::set().await;
    let policy = QuotaBucket::new(20, 1, HOUR);
    let limiter = by_the_servers_clock(&stage, policy).await;
    assert_eq!(quota(&mut stage, &[20, 1, 3_600, 15]).await, [0, 20, 5]);
    let (remaining, _) = denied(&limiter, 6).await;
    assert_eq!(remaining, 5);
    assert!(passed(&limiter, 5).await);
    assert_eq!(quota(&mut stage, &[20, 1, 3_600]).await, [1, 20, 0]);
}
