//! A sliding window log and a quota bucket on keys that another program's script uses too.

use redisson_rate_limiter::{PolicyLimiter, QuotaBucket, RedissonClient, SlidingWindowLog};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, HOUR, denied, ms, passed};
use crate::peer::Peer;

/// A peer's sliding log: removes expired members, counts the others, and adds its own if they are
/// fewer than the limit. It sets no time to live.
const LOG: &str = "
local log, limit, window, now, id = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
redis.call('ZREMRANGEBYSCORE', log, '-inf', now - window)
if redis.call('ZCARD', log) >= limit then
  return 0
end
redis.call('ZADD', log, now, id)
return 1";

/// A peer's bucket of a quota: returns 1 if the request is limited, the capacity, and what remains.
/// It sets no time to live.
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

/// A store, a peer on its keys, and a key that both use.
struct SharedKey {
    fixture: Fixture,
    peer: Peer,
    key: String,
}

impl SharedKey {
    async fn on(fixture: Fixture) -> Self {
        Self {
            peer: fixture.peer().await,
            key: format!("{{{}}}:log", fixture.name()),
            fixture,
        }
    }

    async fn log(&self, limit: u32) -> PolicyLimiter<SlidingWindowLog> {
        let client = self.fixture.client("client").await;
        client
            .policy_limiter(SlidingWindowLog::new(limit, ms(60_000)))
            .unwrap()
    }

    /// How many of `requests` requests at this time the peer's log grants.
    async fn log_grants(&mut self, limit: u32, now: i64, requests: u32) -> u32 {
        let mut granted = 0;
        for request in 0..requests {
            let mut command = redis::cmd("EVAL");
            command.arg(LOG).arg(1).arg(&self.key);
            command.arg(limit).arg(60_000).arg(now);
            command.arg(format!("{now}-{request}"));
            granted += self.peer.run::<u32>(&command).await;
        }
        granted
    }

    async fn members(&mut self) -> u32 {
        self.peer.ask(&["ZCARD", &self.key]).await
    }

    /// A limiter by the server's clock, as the peer's script.
    async fn quota(&self, policy: QuotaBucket) -> PolicyLimiter<QuotaBucket> {
        let client = self.fixture.connect(RedissonClient::builder()).await;
        client.policy_limiter(policy).unwrap()
    }

    /// The peer's answer.
    async fn peers_quota(&mut self, args: &[u32]) -> [u32; 3] {
        let mut command = redis::cmd("EVAL");
        command.arg(QUOTA).arg(1).arg(&self.key).arg(args);
        self.peer.run(&command).await
    }
}

pub async fn a_script_that_counts_the_members_of_a_log_counts_each_unit_of_cost(fixture: Fixture) {
    let mut shared = SharedKey::on(fixture).await;
    let limiter = shared.log(8).await;
    assert!(passed(&limiter, &shared.key, 5).await);
    assert_eq!(shared.log_grants(8, 1_000, 9).await, 3);
    assert_eq!(denied(&limiter, &shared.key, 1).await, (0, ms(60_000)));
    shared.fixture.at(61_000);
    assert!(passed(&limiter, &shared.key, 8).await);
    assert_eq!(shared.log_grants(8, 61_000, 1).await, 0);
}

pub async fn what_a_script_added_to_a_log_counts_here(fixture: Fixture) {
    let mut shared = SharedKey::on(fixture).await;
    let limiter = shared.log(8).await;
    assert_eq!(shared.log_grants(8, 1_000, 3).await, 3);
    assert_eq!(denied(&limiter, &shared.key, 6).await, (5, ms(60_000)));
    assert!(passed(&limiter, &shared.key, 5).await);
    assert_eq!(shared.log_grants(8, 1_001, 1).await, 0);
}

pub async fn requests_that_share_a_call_are_counted_one_by_one_too(fixture: Fixture) {
    let mut shared = SharedKey::on(fixture).await;
    let limiter = shared.log(150).await;
    let mut asked = JoinSet::new();
    for cost in 1..=60 {
        let (limiter, key) = (limiter.clone(), shared.key.clone());
        let cost = 1 + cost % 3;
        asked.spawn(async move { u32::from(passed(&limiter, &key, cost).await) * cost });
    }
    let taken: u32 = asked.join_all().await.into_iter().sum();
    assert_eq!(taken, 120);
    assert_eq!(shared.log_grants(150, 1_000, 40).await, 30);
}

pub async fn a_large_cost_is_as_many_members(fixture: Fixture) {
    let mut shared = SharedKey::on(fixture).await;
    let limiter = shared.log(1_500).await;
    for (cost, all) in [(500, 500), (1, 501), (499, 1_000)] {
        assert!(passed(&limiter, &shared.key, cost).await);
        assert_eq!(shared.members().await, all);
    }
    assert!(passed(&limiter, &shared.key, 1).await);
    assert_eq!(denied(&limiter, &shared.key, 500).await, (499, ms(60_000)));
}

pub async fn a_member_of_a_log_counts_1_whatever_it_holds(fixture: Fixture) {
    let mut shared = SharedKey::on(fixture).await;
    let mut command = redis::cmd("ZADD");
    let mut member = vec![16];
    member.extend([7; 16]);
    member.extend(5_u32.to_le_bytes());
    command.arg(&shared.key).arg(900).arg(member);
    assert_eq!(shared.peer.run::<u32>(&command).await, 1);
    let limiter = shared.log(8).await;
    assert_eq!(denied(&limiter, &shared.key, 8).await, (7, ms(59_900)));
    assert!(passed(&limiter, &shared.key, 7).await);
    shared.fixture.at(60_900);
    assert!(passed(&limiter, &shared.key, 1).await);
    assert_eq!(shared.members().await, 8);
}

pub async fn a_log_that_a_script_goes_on_using_lives_for_two_windows(fixture: Fixture) {
    let mut shared = SharedKey::on(fixture).await;
    let client = shared.fixture.client("client").await;
    let limiter = client
        .policy_limiter(SlidingWindowLog::new(8, HOUR))
        .unwrap();
    let key = shared.key.clone();
    let step = async || assert!(passed(&limiter, &key, 1).await);
    shared.peer.assert_lives_for(&key, 2 * HOUR, step).await;
    assert_eq!(shared.log_grants(8, 2_000, 1).await, 1);
    assert!(shared.peer.ask::<i64>(&["PTTL", &key]).await > 3_600_000);
}

pub async fn the_script_of_a_quota_answers_as_described(fixture: Fixture) {
    let mut shared = SharedKey::on(fixture).await;
    assert_eq!(shared.peers_quota(&[100, 1, 3_600]).await, [0, 100, 99]);
    shared.peer.tell(&["DEL", &shared.key]).await;
    for expected in [[0, 10, 5], [0, 10, 0], [1, 10, 0]] {
        assert_eq!(shared.peers_quota(&[10, 1, 3_600, 5]).await, expected);
    }
}

pub async fn a_quota_bucket_lives_for_twice_the_time_to_fill_as_a_scripts_does(fixture: Fixture) {
    let mut shared = SharedKey::on(fixture).await;
    let limiter = shared
        .quota(QuotaBucket::new(2, HOUR).with_capacity(20))
        .await;
    let key = shared.key.clone();
    let step = async || assert!(passed(&limiter, &key, 1).await);
    shared.peer.assert_lives_for(&key, 20 * HOUR, step).await;
    assert_eq!(shared.peers_quota(&[20, 2, 3_600, 19]).await[0], 0);
    // Each side counts what the other took.
    assert!(shared.peer.ask::<i64>(&["PTTL", &key]).await > 10 * 3_600_000);
    assert_eq!(shared.peers_quota(&[20, 2, 3_600, 20]).await[0], 1);
    assert!(!passed(&limiter, &key, 20).await);
}

pub async fn what_a_script_left_in_a_bucket_of_a_quota_is_left_here(fixture: Fixture) {
    let mut shared = SharedKey::on(fixture).await;
    let limiter = shared
        .quota(QuotaBucket::new(1, HOUR).with_capacity(20))
        .await;
    assert_eq!(shared.peers_quota(&[20, 1, 3_600, 15]).await, [0, 20, 5]);
    assert_eq!(denied(&limiter, &shared.key, 6).await.0, 5);
    assert!(passed(&limiter, &shared.key, 5).await);
    assert_eq!(shared.peers_quota(&[20, 1, 3_600]).await, [1, 20, 0]);
}
