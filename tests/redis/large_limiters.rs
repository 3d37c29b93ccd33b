//! A limiter with many grants of one permit, as Java clients leave them: no call's work grows with
//! their number.
//!
//! `LARGE_LIMITER` sets the number of grants, 20,000 by default.

use redisson_rate_limiter::{
    Decision, Denied, FixedWindow, Granted, PermitsInUse, Rate, RateLimiter, RedissonClient,
};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, HOUR, NAME, PERMITS, VALUE, ms};
use crate::monitor::Monitor;

/// The most members that a call may read and remove: a page of expired ones, each counted as often
/// as it is read or removed, and a few for each limiter of the call.
const MOST: usize = 1_800;
const NOW: i64 = 10_000_000;
const INTERVAL: i64 = 100_000;

fn grants() -> u32 {
    std::env::var("LARGE_LIMITER").map_or(20_000, |grants| grants.parse().unwrap())
}

/// A limiter of which all permits are in use, or were.
struct Large {
    fixture: Fixture,
    monitor: Monitor,
    expired: u32,
    live: u32,
}

impl Large {
    /// The limiter `NAME`, with this many grants that have expired and this many that have not.
    async fn with(expired: u32, live: u32) -> Self {
        let mut fixture = Fixture::start().await;
        fixture.at(NOW);
        add_grants(&mut fixture, NAME, VALUE, PERMITS, expired, live).await;
        fixture.prevent_audits().await;
        let monitor = Monitor::of(&fixture.server).await;
        Self {
            fixture,
            monitor,
            expired,
            live,
        }
    }

    /// The limiter, with two fifths of its grants expired.
    async fn start() -> Self {
        let grants = grants();
        Self::with(grants * 2 / 5, grants * 3 / 5).await
    }

    fn rate(&self) -> i64 {
        i64::from(self.expired + self.live)
    }

    async fn size(&mut self) -> i64 {
        let mut size = redis::cmd("ZCARD");
        size.arg(PERMITS)
            .query_async(&mut self.fixture.raw)
            .await
            .unwrap()
    }

    /// How many calls of scripts there were; none of them has touched more grants than a call may.
    async fn calls(&mut self) -> usize {
        let (mut calls, mut touched) = (0, 0);
        for words in self
            .monitor
            .commands_and_arguments(&self.fixture.server)
            .await
        {
            if words[0].starts_with("EVAL") {
                (calls, touched) = (calls + 1, 0);
            }
            touched += grants_touched(&words);
            assert!(touched <= MOST, "{touched}: {words:?}");
        }
        calls
    }
}

/// How many members of a sorted set a script's command reads or removes at most; without a bound
/// they are too many.
fn grants_touched(words: &[String]) -> usize {
    let number = |at: usize| words[at].parse::<usize>();
    match &words[0][..] {
        "lua zrange" | "lua zremrangebyrank" => match (number(2), number(3)) {
            (Ok(first), Ok(last)) => last + 1 - first,
            _ if words[2] == "-1" => 1,
            _ => usize::MAX / 2,
        },
        "lua zrangebyscore" | "lua zrevrangebyscore" => {
            let limit = words.iter().position(|word| word == "limit");
            limit.map_or(usize::MAX / 2, |at| number(at + 2).unwrap())
        }
        "lua zremrangebyscore" => usize::MAX / 2,
        "lua zrem" => words.len() - 2,
        _ => 0,
    }
}

/// Writes a limiter whose grants hold one permit each, and use up its rate.
async fn add_grants(
    fixture: &mut Fixture,
    name: &str,
    value: &str,
    permits: &str,
    expired: u32,
    live: u32,
) {
    const CHUNK: u32 = 5_000;
    let script = "for i = 1, tonumber(ARGV[2]) do
        redis.call('zadd', KEYS[1], ARGV[1], struct.pack('<Bc0I', 16, string.format('%08d%08d', ARGV[3], i), 1))
    end";
    let mut chunks = 0;
    for (score, mut number) in [(NOW - INTERVAL - 5_000, expired), (NOW - 5_000, live)] {
        while number > 0 {
            let chunk = number.min(CHUNK);
            number -= chunk;
            chunks += 1;
            let args = [
                score + i64::from(chunks),
                i64::from(chunk),
                i64::from(chunks),
            ];
            let [score, chunk, chunks] = args.map(|number| number.to_string());
            fixture
                .run(&["EVAL", script, "1", permits, &score, &chunk, &chunks])
                .await;
        }
    }
    let (rate, interval) = ((expired + live).to_string(), INTERVAL.to_string());
    fixture
        .run(&[
            "HSET", name, "rate", &rate, "interval", &interval, "type", "0",
        ])
        .await;
    fixture.run(&["SET", value, "0"]).await;
}

#[tokio::test]
async fn an_update_makes_no_more_available_than_the_rate_where_a_peer_left_more() {
    let mut large = Large::with(0, 200).await;
    let left = (large.rate() + 7).to_string();
    large.fixture.run(&["SET", VALUE, &left]).await;
    let rate = Rate::overall(210, ms(INTERVAL as u64));
    let limiter = large.fixture.limiter().await;
    limiter
        .set_rate_with(rate, PermitsInUse::Keep)
        .await
        .unwrap();
    assert_eq!(large.fixture.value().await.as_deref(), Some("210"));
}

#[tokio::test]
async fn an_acquire_removes_what_it_needs_and_a_few_more() {
    let mut large = Large::start().await;
    let limiter = large.fixture.limiter().await;
    let before = large.size().await;
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(before - large.size().await < 100);
    large.calls().await;
    let before = large.size().await;
    assert!(limiter.try_acquire(3_000).await.unwrap());
    assert!(large.calls().await >= 6);
    let removed = before - large.size().await;
    assert!((2_900..3_600).contains(&removed), "{removed}");
    let left = u64::from(large.expired) - 3_001;
    assert_eq!(limiter.available_permits().await.unwrap(), left);
    large.calls().await;
}

#[tokio::test]
async fn a_request_is_denied_only_once_nothing_more_has_expired() {
    for (asked, is_granted) in [(1_200, true), (1_201, false)] {
        let mut large = Large::with(1_200, 2_000).await;
        let limiter = large.fixture.limiter().await;
        let decision = limiter.check(asked).await.unwrap();
        assert_eq!(decision.is_granted(), is_granted, "{asked}");
        if let Decision::Denied(Denied {
            remaining,
            retry_after,
            ..
        }) = decision
        {
            assert_eq!(remaining, 1_200);
            assert_eq!(retry_after, ms(95_002));
        }
        large.calls().await;
    }
}

#[tokio::test]
async fn a_waiter_behind_a_grant_does_not_wait_for_available_permits() {
    let mut large = Large::start().await;
    let limiter = large.fixture.limiter().await;
    for _ in 0..3 {
        // As many as a call counts, so that its answer reports none left.
        limiter.acquire(64).await.unwrap();
    }
    large.calls().await;
}

#[tokio::test]
async fn grants_that_have_all_expired_go_at_once() {
    for asked in [1, 500] {
        let mut large = Large::with(grants(), 0).await;
        let limiter = large.fixture.limiter().await;
        assert_eq!(
            limiter.available_permits().await.unwrap(),
            large.rate().unsigned_abs()
        );
        assert!(limiter.try_acquire(asked).await.unwrap());
        assert_eq!(large.size().await, 1);
        let left = large.rate().unsigned_abs() - u64::from(asked);
        assert_eq!(large.fixture.value().await, Some(left.to_string()));
        large.calls().await;
    }
}

#[tokio::test]
async fn available_permits_reads_in_pages_and_is_exact() {
    let most = grants();
    for (expired, live) in [(most, 300), (300, most), (0, most), (most / 2, most / 2)] {
        let mut large = Large::with(expired, live).await;
        let limiter = large.fixture.limiter().await;
        let before = large.fixture.everything().await;
        let available = limiter.available_permits().await.unwrap();
        assert_eq!(available, u64::from(expired), "{live}");
        assert_eq!(large.fixture.everything().await, before);
        large.calls().await;
    }
}

#[tokio::test]
async fn a_release_takes_permits_out_of_the_oldest_live_grants_in_pages() {
    let mut large = Large::start().await;
    let limiter = large.fixture.limiter().await;
    limiter.release(2_500).await.unwrap();
    assert!(large.calls().await >= 5);
    let available = limiter.available_permits().await.unwrap();
    assert_eq!(available, u64::from(large.expired) + 2_500);
    let released = large.live - 2_500;
    // More than are live: only the live ones are given back.
    limiter.release(large.live).await.unwrap();
    assert_eq!(
        limiter.available_permits().await.unwrap(),
        large.rate().unsigned_abs(),
        "{released}"
    );
    large.calls().await;
}

#[tokio::test]
async fn live_grants_without_permits_do_not_hold_up_a_release() {
    let mut large = Large::with(0, 2_000).await;
    for i in 0..1_100 {
        let member = crate::keys::member(&u128::to_be_bytes(i), 0);
        large.fixture.add(NOW - 50_000, &member).await;
    }
    let limiter = large.fixture.limiter().await;
    limiter.release(7).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
}

#[tokio::test]
async fn a_refund_finds_its_grant_among_many() {
    let mut large = Large::start().await;
    let limiter = large.fixture.limiter().await;
    let Decision::Granted(Granted { grant, .. }) = limiter.check(5).await.unwrap() else {
        panic!("it was denied");
    };
    assert_eq!(limiter.refund(grant).await.unwrap(), 5);
    assert_eq!(
        limiter.available_permits().await.unwrap(),
        u64::from(large.expired)
    );
    large.calls().await;
}

#[tokio::test]
async fn a_rate_that_changes_takes_one_write() {
    let interval = ms(INTERVAL as u64);
    for change in [500_i64, -1_000] {
        let mut large = Large::start().await;
        let limiter = large.fixture.limiter().await;
        let rate = Rate::overall((large.rate() + change) as u64, interval);
        assert!(limiter.update_rate(rate, PermitsInUse::Keep).await.unwrap());
        assert_eq!(large.fixture.value().await, Some(change.to_string()));
        let available = u64::from(large.expired).saturating_add_signed(change);
        assert_eq!(limiter.available_permits().await.unwrap(), available);
        assert!(limiter.try_acquire(available as u32).await.unwrap());
        assert!(!limiter.try_acquire(1).await.unwrap());
        large.calls().await;
    }
}

#[tokio::test]
async fn a_rate_that_resets_or_outlives_all_grants_deletes_them_at_once() {
    let interval = ms(INTERVAL as u64);
    for (rate, state) in [
        (Rate::overall(7, interval), PermitsInUse::Reset),
        (Rate::overall(7, ms(1_000)), PermitsInUse::Keep),
        (Rate::per_client(7, interval), PermitsInUse::Keep),
    ] {
        let mut large = Large::start().await;
        let limiter = large.fixture.limiter().await;
        assert!(limiter.update_rate(rate, state).await.unwrap());
        assert_eq!(large.size().await, 0);
        assert_eq!(limiter.available_permits().await.unwrap(), 7);
        large.calls().await;
    }
    let mut large = Large::start().await;
    let limiter = large.fixture.limiter().await;
    limiter.set_rate(Rate::overall(7, interval)).await.unwrap();
    assert_eq!(large.size().await, 0);
    add_grants(&mut large.fixture, NAME, VALUE, PERMITS, 0, 2_000).await;
    large.fixture.run(&["DEL", NAME]).await;
    assert!(
        limiter
            .try_set_rate(Rate::overall(7, interval))
            .await
            .unwrap()
    );
    assert_eq!(large.size().await, 0);
    large.calls().await;
}

#[tokio::test]
async fn a_joint_decision_counts_expired_permits_in_several_calls() {
    let mut large = Large::start().await;
    let client = large
        .fixture
        .builder()
        .connect(&large.fixture.server.url())
        .await
        .unwrap();
    let limiter = client.rate_limiter(NAME);
    let window = client
        .policy_limiter(FixedWindow::new(10_000, HOUR))
        .unwrap();
    let is_granted = async |cost| {
        let charges = [
            limiter.charge(cost).unwrap(),
            window.charge("{limiter}", 1).unwrap(),
        ];
        client.check_all(charges).await.unwrap().is_granted()
    };
    assert!(is_granted(1).await);
    assert!(is_granted(3_000).await);
    let left = large.expired - 3_001;
    assert_eq!(limiter.available_permits().await.unwrap(), u64::from(left));
    assert!(!is_granted(left + 1).await);
    assert!(is_granted(left).await);
    large.calls().await;
}

#[tokio::test]
async fn acquires_on_many_limiters_share_what_a_call_may_remove() {
    const LIMITERS: usize = 60;
    let mut large = Large::with(0, 1).await;
    for i in 0..LIMITERS {
        let keys = ["", ":value", ":permits"].map(|suffix| format!("{{l:{i}}}{suffix}"));
        let name = format!("l:{i}");
        add_grants(&mut large.fixture, &name, &keys[1], &keys[2], 700, 200).await;
    }
    let url = large.fixture.server.url();
    let client: RedissonClient = large.fixture.builder().connect(&url).await.unwrap();
    let limiters: Vec<RateLimiter> = (0..LIMITERS)
        .map(|i| client.rate_limiter(&format!("l:{i}")))
        .collect();
    large.calls().await;
    for asked in [1, 600] {
        let mut acquires = JoinSet::new();
        for limiter in limiters.clone() {
            acquires.spawn(async move { limiter.try_acquire(asked).await.unwrap() });
        }
        assert!(
            acquires.join_all().await.into_iter().all(|granted| granted),
            "{asked}"
        );
    }
    large.calls().await;
    for limiter in &limiters {
        assert_eq!(limiter.available_permits().await.unwrap(), 99);
    }
}
