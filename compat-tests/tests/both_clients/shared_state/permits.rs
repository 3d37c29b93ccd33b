//! Permits that are taken, waited for and given back.

use super::*;

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

/// Section 3 of the design, release: Redisson's leaves the members, ours takes the permits out of
/// the oldest.
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
async fn redisson_waits_until_what_this_crate_owes_is_back() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        assert!(
            limiter
                .try_set_rate(Peer::Java, Rate::overall(5, MINUTE))
                .await
        );
        let estimate = limiter.rust.check(2).await.unwrap().into_grant().unwrap();
        limiter.rust.settle(estimate, 9).await.unwrap();
        for _ in 0..2 {
            let dump = both.dump("n").await;
            assert_eq!(value(&dump.overall), Some("-4"));
            assert!(!limiter.try_acquire(Peer::Java, 1).await);
            both.age("n", MINUTE_MS / 2).await;
        }
        for left in (0..5).rev() {
            assert!(limiter.try_acquire(Peer::Java, 1).await);
            assert_eq!(limiter.rust.available_permits().await.unwrap(), left);
        }
        assert!(!limiter.try_acquire(Peer::Java, 1).await);
    })
    .await;
}
