//! Both clients on one limiter: each works with exactly what the other left.

use std::{collections::BTreeMap, time::Duration};

use compat_tests::{
    Both, Peer,
    dump::{Content, Dump, RawMember, State},
    redisson::{self, Config, Version},
};
use redis::AsyncTypedCommands;
use redisson_rate_limiter::{Rate, TimeToLive};

const MINUTE: Duration = Duration::from_secs(60);
const MINUTE_MS: i64 = 60_000;

fn with(feature: fn(Version) -> bool) -> impl Iterator<Item = Version> {
    Version::ALL.into_iter().filter(move |it| feature(*it))
}

fn members(state: &State<RawMember>) -> &[RawMember] {
    state.permits.as_ref().map_or(&[], |permits| &permits.data)
}

fn value(state: &State<RawMember>) -> Option<&str> {
    state.value.as_ref().map(|value| value.data.as_str())
}

fn permits(member: &RawMember) -> u32 {
    let (_, permits) = member.bytes.split_last_chunk().unwrap();
    u32::from_le_bytes(*permits)
}

/// Of each member, oldest first.
fn granted(dump: &Dump) -> Vec<u32> {
    members(&dump.overall).iter().map(permits).collect()
}

/// Of hash, value and permits.
fn ttls(dump: &Dump) -> [Option<i64>; 3] {
    let state = &dump.overall;
    [
        dump.config.as_ref().and_then(|hash| hash.ttl),
        state.value.as_ref().and_then(|value| value.ttl),
        state.permits.as_ref().and_then(|permits| permits.ttl),
    ]
}

/// Whether a TTL of so many minutes, set just now, may read so.
fn is_minutes(ttl: Option<i64>, minutes: i64) -> bool {
    ttl.is_some_and(|ttl| ((minutes - 1) * MINUTE_MS + 1..=minutes * MINUTE_MS).contains(&ttl))
}

async fn server_millis(both: &mut Both) -> f64 {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME")
        .query_async(&mut both.redis)
        .await
        .unwrap();
    (seconds * 1000 + micros / 1000) as f64
}

#[tokio::test]
async fn a_grant_adds_one_member_and_touches_nothing_of_the_others() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        assert!(
            limiter
                .try_set_rate(Peer::Java, Rate::overall(20, MINUTE))
                .await
        );
        let mut left = 20_i64;
        for (by, permits) in [
            (Peer::Java, 3),
            (Peer::Rust, 2),
            (Peer::Rust, 4),
            (Peer::Java, 1),
            (Peer::Java, 5),
            (Peer::Rust, 5),
        ] {
            let before = both.dump("n").await;
            let earliest = server_millis(&mut both).await;
            assert!(limiter.try_acquire(by, permits).await);
            let latest = server_millis(&mut both).await;
            let after = both.dump("n").await;
            left -= i64::from(permits);

            assert_eq!(after.config, before.config);
            assert_eq!(after.clients, before.clients);
            assert_eq!(value(&after.overall), Some(left.to_string().as_str()));
            assert_eq!(after.overall.value.as_ref().unwrap().ttl, None);
            assert_eq!(after.overall.permits.as_ref().unwrap().ttl, None);
            let (old, new): (Vec<_>, Vec<_>) = members(&after.overall)
                .iter()
                .partition(|member| members(&before.overall).contains(member));
            assert_eq!(old, members(&before.overall).iter().collect::<Vec<_>>());
            let [new] = new[..] else {
                panic!("one new member: {new:?}")
            };
            assert!((earliest..=latest).contains(&new.score), "{new:?}");
            let random_len = match by {
                Peer::Java => both.version.random_len(),
                Peer::Rust => 16,
            };
            let grant = Content::Grant {
                random_len,
                permits,
            };
            assert_eq!(new.clone().normal().content, grant);
            assert_eq!(limiter.available_permits().await, left.unsigned_abs());
        }
        let full = both.dump("n").await;
        for by in Peer::ALL {
            assert!(!limiter.try_acquire(by, 1).await);
            assert_eq!(
                both.dump("n").await,
                full,
                "a denial changes nothing: {by:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn permits_that_one_took_come_back_to_the_other() {
    Both::each(Version::ALL, async |mut both| {
        for [first, second] in [[Peer::Java, Peer::Rust], [Peer::Rust, Peer::Java]] {
            let name = format!("{first:?}");
            let limiter = both.limiter(&name);
            assert!(
                limiter
                    .try_set_rate(second, Rate::overall(10, MINUTE))
                    .await
            );
            assert!(limiter.try_acquire(first, 6).await);
            both.age(&name, MINUTE_MS / 2).await;
            assert!(limiter.try_acquire(second, 4).await);
            assert!(!limiter.try_acquire(second, 1).await);

            both.age(&name, MINUTE_MS / 2).await;
            assert!(!limiter.try_acquire(second, 7).await);
            let denied = both.dump(&name).await;
            assert_eq!(
                (value(&denied.overall), granted(&denied)),
                (Some("6"), vec![4])
            );
            assert!(limiter.try_acquire(second, 5).await);
            let after = both.dump(&name).await;
            assert_eq!(
                (value(&after.overall), granted(&after)),
                (Some("1"), vec![4, 5])
            );
            assert_eq!(limiter.available_permits().await, 1);

            both.age(&name, MINUTE_MS / 2).await;
            assert!(limiter.try_acquire(first, 5).await);
            let after = both.dump(&name).await;
            assert_eq!(
                (value(&after.overall), granted(&after)),
                (Some("0"), vec![5, 5])
            );
        }
    })
    .await;
}

#[tokio::test]
async fn both_wait_for_each_others_permits() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        let interval = Duration::from_millis(100);
        assert!(
            limiter
                .try_set_rate(Peer::Rust, Rate::overall(1, interval))
                .await
        );
        let a_minute = 60_000;
        let mut scores = Vec::new();
        for turn in 0..5 {
            match turn {
                0 | 2 => assert!(limiter.java.try_acquire_timeout(1, a_minute).await.unwrap()),
                1 => assert!(limiter.rust.try_acquire_timeout(1, MINUTE).await.unwrap()),
                3 => limiter.rust.acquire(1).await.unwrap(),
                _ => limiter.java.acquire(1).await.unwrap(),
            }
            let dump = both.dump("n").await;
            let [member] = members(&dump.overall) else {
                panic!("one member: {dump:?}")
            };
            scores.push(member.score);
        }
        assert!(
            scores.windows(2).all(|two| two[1] - two[0] >= 100.0),
            "{scores:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn who_waits_in_vain_leaves_nothing() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        assert!(
            limiter
                .try_set_rate(Peer::Java, Rate::overall(5, MINUTE))
                .await
        );
        assert!(limiter.try_acquire(Peer::Java, 4).await);
        let before = both.dump("n").await;
        assert!(!limiter.java.try_acquire_timeout(2, 10).await.unwrap());
        assert_eq!(both.dump("n").await, before);
        let timeout = Duration::from_millis(10);
        assert!(!limiter.rust.try_acquire_timeout(2, timeout).await.unwrap());
        assert_eq!(both.dump("n").await, before);
    })
    .await;
}

#[tokio::test]
async fn a_rate_set_by_one_holds_for_the_other() {
    Both::each(Version::ALL, async |mut both| {
        for by in Peer::ALL {
            let name = format!("{by:?}");
            let limiter = both.limiter(&name);
            let first = Rate::overall(5, MINUTE);
            assert!(limiter.try_set_rate(by, first).await);
            for peer in Peer::ALL {
                assert!(
                    !limiter
                        .try_set_rate(peer, Rate::per_client(9, 2 * MINUTE))
                        .await
                );
            }
            assert_eq!(limiter.rust.config().await.unwrap(), Some(first));
            let config = Config {
                rate_type: redisson::RateType::Overall,
                rate: 5,
                interval: MINUTE_MS,
            };
            assert_eq!(limiter.java.config().await.unwrap(), config);
            assert_eq!(ttls(&both.dump(&name).await), [None; 3]);

            for peer in Peer::ALL {
                assert!(limiter.try_acquire(peer, 2).await);
            }
            limiter.set_rate(by, Rate::overall(7, 2 * MINUTE)).await;
            let reset = both.dump(&name).await;
            let mut fields = reset.config.as_ref().unwrap().data.clone();
            // Redisson before 3.38 does not know the field; what is there stays.
            assert_eq!(fields.remove("keepAliveTime").unwrap_or("0".into()), "0");
            let expected = [("rate", "7"), ("interval", "120000"), ("type", "0")];
            let expected = expected.map(|(field, value)| (field.into(), value.into()));
            assert_eq!(fields, BTreeMap::from(expected));
            assert_eq!((value(&reset.overall), granted(&reset)), (None, vec![]));
            assert_eq!(limiter.available_permits().await, 7);
        }
    })
    .await;
}

#[tokio::test]
async fn an_update_keeps_what_both_have_in_use() {
    use redisson_rate_limiter::PermitsInUse::{Keep, Reset};

    Both::each(with(Version::has_update_rate), async |mut both| {
        let limiter = both.limiter("n");
        let rate = |permits| Rate::overall(permits, MINUTE);
        let java_rate = |permits| redisson::Rate::of(&rate(permits));
        assert!(!limiter.rust.update_rate(rate(5), Keep).await.unwrap());
        assert!(limiter.try_set_rate(Peer::Java, rate(10)).await);
        assert!(limiter.try_acquire(Peer::Java, 3).await);
        assert!(limiter.try_acquire(Peer::Rust, 4).await);

        assert!(limiter.rust.update_rate(rate(20), Keep).await.unwrap());
        assert_eq!(limiter.available_permits().await, 13);
        assert!(
            limiter
                .java
                .update_rate(java_rate(15), Some(true))
                .await
                .unwrap()
        );
        assert_eq!(limiter.available_permits().await, 8);
        limiter.rust.set_rate_with(rate(12), Keep).await.unwrap();
        assert_eq!(limiter.available_permits().await, 5);
        let kept = both.dump("n").await;
        assert_eq!(
            (value(&kept.overall), granted(&kept)),
            (Some("5"), vec![3, 4])
        );

        assert!(
            limiter
                .java
                .update_rate(java_rate(12), Some(false))
                .await
                .unwrap()
        );
        assert_eq!(limiter.available_permits().await, 12);
        assert!(limiter.try_acquire(Peer::Java, 2).await);
        limiter.rust.set_rate_with(rate(12), Reset).await.unwrap();
        assert_eq!(limiter.available_permits().await, 12);

        assert!(limiter.try_acquire(Peer::Rust, 2).await);
        let per_client = redisson::Rate::per_client(6, MINUTE_MS);
        assert!(
            limiter
                .java
                .update_rate(per_client, Some(true))
                .await
                .unwrap()
        );
        assert_eq!(
            both.redis.keys("*").await.unwrap(),
            ["n"],
            "another type starts afresh"
        );
        assert_eq!(limiter.available_permits().await, 6);
    })
    .await;
}

/// Section 3 of the design, release: Redisson's leaves the members, ours takes the permits out of the oldest.
#[tokio::test]
async fn each_can_release_what_the_other_took() {
    Both::each(with(Version::has_release), async |mut both| {
        let limiter = both.limiter("n");
        assert!(
            limiter
                .try_set_rate(Peer::Rust, Rate::overall(10, MINUTE))
                .await
        );
        assert!(limiter.try_acquire(Peer::Rust, 6).await);
        limiter.java.release(4).await.unwrap();
        let by_java = both.dump("n").await;
        assert_eq!(
            (value(&by_java.overall), granted(&by_java)),
            (Some("8"), vec![6])
        );
        assert_eq!(limiter.available_permits().await, 8);

        both.limiter("n").rust.delete().await.unwrap();
        assert!(
            limiter
                .try_set_rate(Peer::Java, Rate::overall(10, MINUTE))
                .await
        );
        assert!(limiter.try_acquire(Peer::Java, 2).await);
        both.age("n", 1000).await;
        assert!(limiter.try_acquire(Peer::Java, 6).await);
        let before = both.dump("n").await;
        limiter.rust.release(3).await.unwrap();
        let by_rust = both.dump("n").await;
        assert_eq!(
            (value(&by_rust.overall), granted(&by_rust)),
            (Some("5"), vec![5])
        );
        let [shrunk] = members(&by_rust.overall) else {
            panic!("one member: {by_rust:?}")
        };
        let old = &members(&before.overall)[1];
        assert_eq!(shrunk.score, old.score, "it comes back when it would have");
        assert_eq!(
            shrunk.bytes[..17],
            old.bytes[..17],
            "and keeps its random bytes"
        );
        assert_eq!(limiter.available_permits().await, 5);

        both.age("n", MINUTE_MS).await;
        assert_eq!(
            limiter.available_permits().await,
            10,
            "not more than the rate"
        );
    })
    .await;
}

#[tokio::test]
async fn a_time_to_live_set_by_one_is_copied_by_the_other() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        assert!(
            limiter
                .try_set_rate(Peer::Java, Rate::overall(9, MINUTE))
                .await
        );
        assert!(limiter.rust.expire(5 * MINUTE).await.unwrap());
        assert!(is_minutes(
            Some(limiter.java.remain_time_to_live().await.unwrap()),
            5
        ));
        assert!(limiter.try_acquire(Peer::Java, 1).await);
        let by_java = ttls(&both.dump("n").await);
        // Since 3.17.3.
        let copies = both.version > Version::V3_17_0;
        assert!(
            by_java[1..].iter().all(|ttl| is_minutes(*ttl, 5) == copies),
            "{by_java:?}"
        );

        assert!(limiter.java.expire(9 * MINUTE_MS).await.unwrap());
        match limiter.rust.remain_time_to_live().await.unwrap() {
            TimeToLive::Remaining(left) => {
                assert!(is_minutes(Some(left.as_millis() as i64), 9), "{left:?}");
            }
            other => panic!("{other:?}"),
        }
        both.redis.del("{n}:value").await.unwrap();
        assert!(limiter.try_acquire(Peer::Rust, 1).await);
        let by_rust = ttls(&both.dump("n").await);
        assert!(by_rust.iter().all(|ttl| is_minutes(*ttl, 9)), "{by_rust:?}");

        assert!(limiter.java.expire_if_less(4 * MINUTE_MS).await.unwrap());
        assert!(!limiter.rust.expire_if_greater(3 * MINUTE).await.unwrap());
        assert!(limiter.rust.expire_if_set(2 * MINUTE).await.unwrap());
        let ttls_now = ttls(&both.dump("n").await);
        assert!(
            ttls_now.iter().all(|ttl| is_minutes(*ttl, 2)),
            "{ttls_now:?}"
        );
        assert!(limiter.java.clear_expire().await.unwrap());
        assert_eq!(
            limiter.rust.remain_time_to_live().await.unwrap(),
            TimeToLive::Unlimited
        );
        assert!(!limiter.rust.clear_expire().await.unwrap());
        assert!(limiter.rust.expire_if_not_set(MINUTE).await.unwrap());
        assert!(limiter.java.clear_expire().await.unwrap());
        assert_eq!(ttls(&both.dump("n").await), [None; 3]);
    })
    .await;
}

#[tokio::test]
async fn both_keep_alive_what_one_asked_to_keep_alive() {
    Both::each(with(Version::has_keep_alive), async |mut both| {
        for by in Peer::ALL {
            let name = format!("{by:?}");
            let limiter = both.limiter(&name);
            let rate = Rate::overall(5, MINUTE).keep_alive(9 * MINUTE);
            assert!(limiter.try_set_rate(by, rate).await);
            assert_eq!(limiter.rust.config().await.unwrap(), Some(rate));
            for (peer, permits, is_granted) in [
                (Peer::Java, 2, true),
                (Peer::Rust, 3, true),
                (Peer::Java, 1, false),
                (Peer::Rust, 1, false),
            ] {
                assert!(limiter.java.expire(2 * MINUTE_MS).await.unwrap());
                assert_eq!(limiter.try_acquire(peer, permits).await, is_granted);
                let renewed = ttls(&both.dump(&name).await);
                assert!(
                    renewed.iter().all(|ttl| is_minutes(*ttl, 9)),
                    "{peer:?}: {renewed:?}"
                );
            }
        }
    })
    .await;
}

#[tokio::test]
async fn what_one_deletes_is_gone_for_the_other() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        for by in Peer::ALL {
            assert!(
                limiter
                    .try_set_rate(Peer::Rust, Rate::overall(5, MINUTE))
                    .await
            );
            assert!(limiter.try_acquire(Peer::Java, 2).await);
            assert!(limiter.try_acquire(Peer::Rust, 2).await);
            assert!(limiter.java.is_exists().await.unwrap());
            match by {
                Peer::Java => assert!(limiter.java.delete().await.unwrap()),
                Peer::Rust => assert!(limiter.rust.delete().await.unwrap()),
            }
            assert!(both.redis.keys("*").await.unwrap().is_empty());
            assert!(!limiter.java.is_exists().await.unwrap());
            assert!(!limiter.rust.exists().await.unwrap());
            assert!(!limiter.java.delete().await.unwrap());
            assert!(!limiter.rust.delete().await.unwrap());
        }
    })
    .await;
}

#[tokio::test]
async fn per_client_each_has_the_rate_for_itself() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        let rate = Rate::per_client(5, MINUTE);
        assert!(limiter.try_set_rate(Peer::Java, rate).await);
        assert_eq!(limiter.rust.config().await.unwrap(), Some(rate));
        assert!(limiter.try_acquire(Peer::Java, 4).await);
        assert!(limiter.try_acquire(Peer::Rust, 5).await);
        assert!(!limiter.try_acquire(Peer::Java, 2).await);
        assert_eq!(limiter.java.available_permits().await.unwrap(), 1);
        assert_eq!(limiter.rust.available_permits().await.unwrap(), 0);

        let dump = both.dump("n").await;
        assert_eq!(
            dump.overall,
            State {
                value: None,
                permits: None
            }
        );
        let [java, rust] = &dump.clients[..] else {
            panic!("two clients: {dump:?}")
        };
        assert_eq!((value(java), permits(&members(java)[0])), (Some("1"), 4));
        assert_eq!((value(rust), permits(&members(rust)[0])), (Some("0"), 5));
        let mut names = both.redis.keys("*").await.unwrap();
        names.sort();
        let mut expected = vec!["n".to_owned()];
        for id in [&both.java.id, both.rust.id()] {
            expected.extend([format!("{{n}}:permits:{id}"), format!("{{n}}:value:{id}")]);
        }
        expected.sort();
        assert_eq!(names, expected);

        // A client's delete leaves the others' own keys, whoever it is.
        assert!(limiter.rust.delete().await.unwrap());
        let left = both.dump("n").await;
        assert_eq!((left.config, &left.clients[0]), (None, java));
    })
    .await;
}

/// A process that takes over from a Java one by its id takes over its permits.
#[tokio::test]
async fn a_client_with_anothers_id_has_its_permits() {
    Both::each(Version::ALL, async |both| {
        let heir = redisson_rate_limiter::RedissonClient::builder()
            .client_id(&both.java.id)
            .connect(&both.server.url())
            .await
            .unwrap();
        let (java, heir) = (both.java.limiter("n"), heir.rate_limiter("n"));
        assert!(
            heir.try_set_rate(Rate::per_client(5, MINUTE))
                .await
                .unwrap()
        );
        assert!(java.try_acquire(3).await.unwrap());
        assert_eq!(heir.available_permits().await.unwrap(), 2);
        assert!(heir.try_acquire(2).await.unwrap());
        assert!(!java.try_acquire(1).await.unwrap());
    })
    .await;
}
