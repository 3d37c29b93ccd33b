//! What the real Redisson was seen to do, one fact a test, in every version that the interop tests run.
//!
//! The crate under test takes no part: where one of these fails, it is the harness that is wrong, or Redisson.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use compat_tests::{
    Server,
    dump::{self, Content, Dump},
    redisson::{self, Client, Config, Rate, RateType, Version},
};
use redis::{AsyncTypedCommands, aio::MultiplexedConnection};

const MINUTE: i64 = 60_000;

/// One version's client on a server of its own.
struct Setting {
    version: Version,
    java: Client,
    redis: MultiplexedConnection,
    // Last, so that the client is told to close before its server goes.
    _server: Server,
}

impl Setting {
    async fn new(version: Version) -> Self {
        let server = Server::start();
        let [java] = redisson::clients(version, &server.url()).await;
        let redis = server.connection().await;
        Self {
            version,
            java,
            redis,
            _server: server,
        }
    }

    async fn dump(&mut self, name: &str) -> Dump {
        dump::read(&mut self.redis, name, &[&self.java.id]).await
    }
}

async fn each(versions: impl IntoIterator<Item = Version>, test: impl AsyncFn(Setting)) {
    for version in versions {
        println!("Redisson {version}");
        test(Setting::new(version).await).await;
    }
}

fn with(feature: fn(Version) -> bool) -> impl Iterator<Item = Version> {
    Version::ALL
        .into_iter()
        .filter(move |version| feature(*version))
}

fn value(dump: &Dump) -> Option<&str> {
    dump.overall.value.as_ref().map(|value| value.data.as_str())
}

/// The permits of each member, oldest first; empty without a zset.
fn permits(dump: &Dump) -> Vec<u32> {
    let members = dump
        .clone()
        .normal()
        .overall
        .permits
        .map_or(Vec::new(), |permits| permits.data);
    let of = |content| match content {
        Content::Grant { permits, .. } => permits,
        Content::Malformed(bytes) => panic!("a malformed member: {bytes:?}"),
    };
    members
        .into_iter()
        .map(|member| of(member.content))
        .collect()
}

fn ttls(dump: &Dump) -> [Option<i64>; 3] {
    [
        dump.config.as_ref().and_then(|config| config.ttl),
        dump.overall.value.as_ref().and_then(|value| value.ttl),
        dump.overall
            .permits
            .as_ref()
            .and_then(|permits| permits.ttl),
    ]
}

/// Whether a TTL set to `ms` just now may read so.
fn is_about(ttl: Option<i64>, ms: i64) -> bool {
    ttl.is_some_and(|ttl| (ms - 10_000..=ms).contains(&ttl))
}

fn epoch_millis(ago: i64) -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time after 1970");
    i64::try_from(now.as_millis()).expect("a time of this era") - ago
}

/// A member as Redisson writes it; `random` tells members apart.
fn member(random: u8, permits: u32) -> Vec<u8> {
    [&[16], &[random; 16][..], &permits.to_le_bytes()].concat()
}

#[tokio::test]
async fn try_set_rate_writes_the_hash_alone() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        assert!(limiter.try_set_rate(Rate::overall(5, 1000)).await.unwrap());
        let mut fields = vec![("rate", "5"), ("interval", "1000"), ("type", "0")];
        if on.version.has_keep_alive() {
            fields.push(("keepAliveTime", "0"));
        }
        let fields: BTreeMap<_, _> = fields
            .into_iter()
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        let made = on.dump("n").await;
        assert_eq!(made.config.as_ref().unwrap().data, fields);
        assert_eq!(ttls(&made), [None; 3]);
        assert_eq!(on.redis.keys("*").await.unwrap(), ["n"]);

        assert!(
            !limiter
                .try_set_rate(Rate::per_client(7, 2000))
                .await
                .unwrap()
        );
        assert_eq!(on.dump("n").await, made);
        let config = Config {
            rate_type: RateType::Overall,
            rate: 5,
            interval: 1000,
        };
        assert_eq!(limiter.config().await.unwrap(), config);
    })
    .await;
}

#[tokio::test]
async fn an_acquire_writes_value_and_one_member() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        let before = epoch_millis(0);
        assert!(limiter.try_acquire(3).await.unwrap());

        let after = on.dump("n").await;
        assert_eq!(value(&after), Some("2"));
        assert_eq!(ttls(&after), [None; 3]);
        let [member] = &after.overall.permits.as_ref().unwrap().data[..] else {
            panic!("one member: {after:#?}")
        };
        let random_len = on.version.random_len();
        assert_eq!(member.bytes.len(), 5 + random_len);
        assert_eq!(usize::from(member.bytes[0]), random_len);
        assert_eq!(member.bytes[1 + random_len..], [3, 0, 0, 0]);
        assert!(
            (before as f64..=epoch_millis(0) as f64).contains(&member.score),
            "{member:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn what_is_left_decides() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        assert!(limiter.try_acquire_one().await.unwrap());
        assert!(limiter.try_acquire(2).await.unwrap());
        assert!(!limiter.try_acquire(3).await.unwrap());
        assert!(!limiter.try_acquire_timeout(3, 0).await.unwrap());
        assert_eq!(limiter.available_permits().await.unwrap(), 2);
        limiter.acquire_one().await.unwrap();
        limiter.acquire(1).await.unwrap();
        assert_eq!(permits(&on.dump("n").await), [1, 2, 1, 1]);
    })
    .await;
}

#[tokio::test]
async fn errors_say_what_is_wrong_and_write_nothing() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        for missing in [
            limiter.try_acquire(1).await.map(drop),
            limiter.available_permits().await.map(drop),
        ] {
            let error = missing.unwrap_err();
            assert_eq!(error.class, "RedisException");
            assert!(
                error.message.contains("RateLimiter is not initialized"),
                "{error}"
            );
        }
        assert!(on.redis.keys("*").await.unwrap().is_empty());

        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        let error = limiter.try_acquire(6).await.unwrap_err();
        let may_not = if on.version < Version::V3_36_0 {
            "could not"
        } else {
            "cannot"
        };
        let text = format!("Requested permits amount {may_not} exceed defined rate");
        assert!(error.message.contains(&text), "{error}");
        assert_eq!(on.redis.keys("*").await.unwrap(), ["n"]);
    })
    .await;
}

#[tokio::test]
async fn per_client_keys_end_in_the_clients_id() {
    for version in Version::ALL {
        let server = Server::start();
        let [one, other] = redisson::clients(version, &server.url()).await;
        one.limiter("n")
            .try_set_rate(Rate::per_client(5, MINUTE))
            .await
            .unwrap();
        assert!(one.limiter("n").try_acquire(4).await.unwrap());
        assert!(other.limiter("n").try_acquire(5).await.unwrap());

        let mut redis = server.connection().await;
        let mut keys = redis.keys("*").await.unwrap();
        keys.sort();
        let mut expected = vec!["n".to_string()];
        for id in [&one.id, &other.id] {
            expected.extend([format!("{{n}}:value:{id}"), format!("{{n}}:permits:{id}")]);
        }
        expected.sort();
        assert_eq!(keys, expected, "{version}");
        let clients = dump::read(&mut redis, "n", &[&one.id, &other.id])
            .await
            .clients;
        let values: Vec<_> = clients
            .into_iter()
            .map(|client| client.value.unwrap().data)
            .collect();
        assert_eq!(values, ["1", "0"], "{version}");
    }
}

#[tokio::test]
async fn a_name_with_a_brace_gets_none_around_it() {
    const PREFIXES: [(&str, &str); 7] = [
        ("x y", "{x y}"),
        ("ü%+", "{ü%+}"),
        ("a{b", "a{b"),
        ("a}b", "{a}b}"),
        ("a{t}b", "a{t}b"),
        ("{}", "{}"),
        ("", "{}"),
    ];
    each(Version::ALL, async |mut on| {
        for (name, prefix) in PREFIXES {
            let limiter = on.java.limiter(name);
            limiter
                .try_set_rate(Rate::overall(5, MINUTE))
                .await
                .unwrap();
            assert!(limiter.try_acquire(1).await.unwrap());
            let mut expected = [
                name.to_string(),
                format!("{prefix}:permits"),
                format!("{prefix}:value"),
            ];
            expected.sort();
            let mut keys = on.redis.keys("*").await.unwrap();
            keys.sort();
            assert_eq!(keys, expected, "{name:?}");
            assert_eq!(value(&on.dump(name).await), Some("4"), "{name:?}");
            // `{}` and the empty name share their keys.
            assert!(limiter.delete().await.unwrap());
        }
    })
    .await;
}

#[tokio::test]
async fn old_and_new_clients_share_one_state() {
    let server = Server::start();
    let mut redis = server.connection().await;
    let mut taken = 0;
    for version in Version::ALL {
        let [java] = redisson::clients(version, &server.url()).await;
        let limiter = java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(20, MINUTE))
            .await
            .unwrap();
        assert_eq!(
            limiter.available_permits().await.unwrap(),
            20 - taken,
            "{version}"
        );
        assert!(limiter.try_acquire(3).await.unwrap());
        taken += 3;
    }
    assert_eq!(
        permits(&dump::read(&mut redis, "n", &[]).await),
        [3; Version::ALL.len()]
    );
}

#[tokio::test]
async fn release_raises_value_and_leaves_the_members() {
    each(with(Version::has_release), async |mut on| {
        let limiter = on.java.limiter("n");
        let error = limiter.release(1).await.unwrap_err();
        assert!(
            error.message.contains("RateLimiter is not initialized"),
            "{error}"
        );

        limiter
            .try_set_rate(Rate::overall(10, MINUTE))
            .await
            .unwrap();
        limiter.release(4).await.unwrap();
        assert_eq!(
            value(&on.dump("n").await),
            Some("10"),
            "an untouched limiter has its whole rate"
        );

        assert!(limiter.try_acquire(6).await.unwrap());
        limiter.release(0).await.unwrap();
        assert_eq!(value(&on.dump("n").await), Some("4"));
        limiter.release(4).await.unwrap();
        assert_eq!(value(&on.dump("n").await), Some("8"));
        limiter.release(4).await.unwrap();
        assert_eq!(value(&on.dump("n").await), Some("10"), "not above the rate");
        assert_eq!(permits(&on.dump("n").await), [6]);

        assert_eq!(
            limiter.release(-1).await.unwrap_err().class,
            "IllegalArgumentException"
        );
    })
    .await;
}

#[tokio::test]
async fn what_a_version_lacks_is_unsupported() {
    each(Version::ALL, async |on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        let rate = Rate::overall(5, MINUTE);
        let calls = [
            (on.version.has_release(), limiter.release(1).await),
            (
                on.version.has_keep_alive(),
                limiter.set_rate(rate.keep_alive(MINUTE)).await,
            ),
            (
                on.version.has_update_rate(),
                limiter.set_rate_args(rate, None).await,
            ),
            (
                on.version.has_update_rate(),
                limiter.update_rate(rate, None).await.map(drop),
            ),
        ];
        for (has, result) in calls {
            match result {
                Ok(()) => assert!(has),
                Err(error) => assert!(!has && error.is_unsupported(), "{error}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn set_rate_forgets_what_was_taken() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        for rate in [
            Rate::overall(5, MINUTE),
            Rate::overall(5, MINUTE),
            Rate::overall(7, 2 * MINUTE),
        ] {
            limiter.set_rate(rate).await.unwrap();
            let reset = on.dump("n").await;
            assert_eq!(
                reset.config.as_ref().unwrap().data["rate"],
                rate.rate.to_string()
            );
            assert_eq!((value(&reset), permits(&reset)), (None, vec![]));
            assert!(limiter.try_acquire(5).await.unwrap());
        }
    })
    .await;
}

#[tokio::test]
async fn update_rate_keeps_what_was_taken_where_told_to() {
    each(with(Version::has_update_rate), async |mut on| {
        let limiter = on.java.limiter("n");
        assert!(
            !limiter
                .update_rate(Rate::overall(20, MINUTE), Some(true))
                .await
                .unwrap()
        );
        assert!(on.redis.keys("*").await.unwrap().is_empty());

        limiter
            .try_set_rate(Rate::overall(10, MINUTE).keep_alive(2 * MINUTE))
            .await
            .unwrap();
        assert!(limiter.try_acquire(4).await.unwrap());
        assert!(
            limiter
                .update_rate(Rate::overall(20, MINUTE), Some(true))
                .await
                .unwrap()
        );
        let kept = on.dump("n").await;
        assert_eq!((value(&kept), permits(&kept)), (Some("16"), vec![4]));
        assert_eq!(kept.config.as_ref().unwrap().data["keepAliveTime"], "0");
        assert!(
            ttls(&kept).iter().all(|ttl| is_about(*ttl, 2 * MINUTE)),
            "the TTL stays: {kept:#?}"
        );

        limiter
            .set_rate_args(Rate::overall(3, MINUTE), Some(true))
            .await
            .unwrap();
        assert_eq!(value(&on.dump("n").await), Some("0"), "not below 0");

        assert!(
            limiter
                .update_rate(Rate::overall(3, MINUTE), Some(false))
                .await
                .unwrap()
        );
        assert_eq!(value(&on.dump("n").await), None);

        assert!(limiter.try_acquire(3).await.unwrap());
        assert!(
            limiter
                .update_rate(Rate::per_client(3, MINUTE), Some(true))
                .await
                .unwrap()
        );
        assert_eq!(
            on.redis.keys("*").await.unwrap(),
            ["n"],
            "another type starts afresh"
        );
    })
    .await;
}

#[tokio::test]
async fn keep_alive_is_renewed_on_all_keys() {
    each(with(Version::has_keep_alive), async |mut on| {
        let limiter = on.java.limiter("n");
        let error = limiter
            .try_set_rate(Rate::overall(5, MINUTE).keep_alive(MINUTE - 1))
            .await
            .unwrap_err();
        assert_eq!(error.class, "IllegalArgumentException");

        limiter
            .try_set_rate(Rate::overall(5, MINUTE).keep_alive(2 * MINUTE))
            .await
            .unwrap();
        assert!(is_about(ttls(&on.dump("n").await)[0], 2 * MINUTE));
        for granted in [true, false] {
            on.redis.pexpire("n", MINUTE).await.unwrap();
            assert_eq!(limiter.try_acquire(3).await.unwrap(), granted);
            let renewed = on.dump("n").await;
            assert!(
                ttls(&renewed).iter().all(|ttl| is_about(*ttl, 2 * MINUTE)),
                "{renewed:#?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_ttl_of_the_hash_is_copied() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        assert!(limiter.expire(MINUTE).await.unwrap());
        assert!(limiter.try_acquire(3).await.unwrap());
        let [hash, value, permits] = ttls(&on.dump("n").await);
        assert!(is_about(hash, MINUTE));
        // Since 3.17.3.
        let copied = on.version > Version::V3_17_0;
        assert_eq!(is_about(value, MINUTE), copied, "{value:?}");
        assert_eq!(is_about(permits, MINUTE), copied, "{permits:?}");
    })
    .await;
}

#[tokio::test]
async fn expiry_is_of_all_keys_but_read_from_the_hash() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        assert!(!limiter.is_exists().await.unwrap());
        assert!(!limiter.expire(MINUTE).await.unwrap());
        assert_eq!(limiter.remain_time_to_live().await.unwrap(), -2);

        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        limiter.try_acquire(1).await.unwrap();
        assert_eq!(limiter.remain_time_to_live().await.unwrap(), -1);
        assert!(!limiter.clear_expire().await.unwrap());
        assert!(!limiter.expire_if_set(MINUTE).await.unwrap());
        assert!(!limiter.expire_if_greater(MINUTE).await.unwrap());
        assert!(limiter.expire_if_not_set(MINUTE).await.unwrap());
        assert!(limiter.expire_if_greater(3 * MINUTE).await.unwrap());
        assert!(limiter.expire_if_less(2 * MINUTE).await.unwrap());
        assert!(
            ttls(&on.dump("n").await)
                .iter()
                .all(|ttl| is_about(*ttl, 2 * MINUTE))
        );
        assert!(limiter.clear_expire().await.unwrap());
        assert!(limiter.expire_at(epoch_millis(-MINUTE)).await.unwrap());
        assert!(
            ttls(&on.dump("n").await)
                .iter()
                .all(|ttl| is_about(*ttl, MINUTE))
        );
        assert!(limiter.delete().await.unwrap());
        assert!(!limiter.delete().await.unwrap());
        assert!(on.redis.keys("*").await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn available_permits_creates_the_value_key() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        limiter.expire(MINUTE).await.unwrap();
        assert_eq!(limiter.available_permits().await.unwrap(), 5);
        let created = on.dump("n").await;
        assert_eq!(value(&created), Some("5"));
        assert_eq!(ttls(&created)[1], None, "and lets it outlive the limiter");
    })
    .await;
}

#[tokio::test]
async fn a_lost_key_is_not_made_good() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        assert!(limiter.try_acquire(4).await.unwrap());
        on.redis.del("{n}:permits").await.unwrap();
        let error = limiter.try_acquire(2).await.unwrap_err();
        assert!(
            error
                .message
                .contains("attempt to perform arithmetic on a nil value"),
            "{error}"
        );

        assert!(limiter.try_acquire(1).await.unwrap());
        on.redis.del("{n}:value").await.unwrap();
        assert!(limiter.try_acquire(5).await.unwrap(), "full again");
        assert_eq!(permits(&on.dump("n").await), [1, 5]);
    })
    .await;
}

/// With 9 of 10 left, 3 more come back: too many, for 4 + 2 are out.
#[tokio::test]
async fn what_comes_back_above_the_rate_is_counted_anew() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(10, MINUTE))
            .await
            .unwrap();
        on.redis.set("{n}:value", 9).await.unwrap();
        for (ago, permits) in [(MINUTE, 3), (2000, 4), (1000, 2)] {
            on.redis
                .zadd(
                    "{n}:permits",
                    member(permits as u8, permits),
                    epoch_millis(ago),
                )
                .await
                .unwrap();
        }
        assert!(limiter.try_acquire(1).await.unwrap());
        // Up to 3.34 each member counted as one permit.
        let left = if on.version < Version::V3_36_0 {
            "7"
        } else {
            "3"
        };
        let after = on.dump("n").await;
        assert_eq!(
            (value(&after), permits(&after)),
            (Some(left), vec![4, 2, 1])
        );
    })
    .await;
}

#[tokio::test]
async fn many_threads_get_no_more_than_the_rate() {
    each(Version::ALL, async |on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(10, MINUTE))
            .await
            .unwrap();
        let load = limiter.load_trying(4, 1, 300).await.unwrap();
        assert!(load.grants == 10 && load.calls > 10, "{load:?}");
        assert_eq!(limiter.load_waiting(2, 1, 50).await.unwrap().grants, 0);
    })
    .await;
}

#[tokio::test]
async fn acquire_waits_for_the_interval_to_pass() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter.try_set_rate(Rate::overall(1, 100)).await.unwrap();
        let mut scores = Vec::new();
        for _ in 0..2 {
            limiter.acquire(1).await.unwrap();
            let members = on.dump("n").await.overall.permits.unwrap().data;
            assert_eq!(members.len(), 1);
            scores.push(members[0].score);
        }
        assert!(scores[1] >= scores[0] + 100.0, "{scores:?}");
    })
    .await;
}

#[tokio::test]
async fn a_waiting_call_holds_up_no_other() {
    each(Version::ALL, async |on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(1, MINUTE))
            .await
            .unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
        tokio::select! {
            biased;
            _ = limiter.acquire(1) => panic!("granted before its time"),
            exists = limiter.is_exists() => assert!(exists.unwrap()),
        }
    })
    .await;
}
