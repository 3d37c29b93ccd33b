//! States that break a limiter for Redisson, or that Redisson leaves broken: after one call of this
//! crate it works again, for both.

use std::time::Duration;

use compat_tests::{
    Both, Pair, Peer,
    dump::{Content, Dump},
    redisson::Version,
    repeated::acquire_twice,
};
use redis::AsyncTypedCommands;
use redisson_rate_limiter::Rate;

const MINUTE: Duration = Duration::from_secs(60);
const MINUTE_MS: i64 = 60_000;
const RATE: u32 = 10;

/// A limiter with 10 permits a minute, on each of some versions.
async fn each(
    versions: impl IntoIterator<Item = Version>,
    spoil_and_heal: impl AsyncFn(&mut Both, &Pair),
) {
    Both::each(versions, async |mut both| {
        let limiter = both.limiter("n");
        let rate = Rate::overall(RATE.into(), MINUTE);
        assert!(limiter.try_set_rate(Peer::Java, rate).await);
        spoil_and_heal(&mut both, &limiter).await;
        works(&mut both, &limiter).await;
    })
    .await;
}

/// The value, and the permits of each member, oldest first.
fn state(dump: Dump) -> (i64, Vec<u32>) {
    let state = dump.normal().overall;
    let value = state.value.map(|value| value.data.parse().unwrap());
    let members = state.permits.map_or(Vec::new(), |permits| permits.data);
    let of = |content| match content {
        Content::Grant { permits, .. } => permits,
        Content::Malformed(bytes) => panic!("a malformed member: {bytes:?}"),
    };
    let permits = members.into_iter().map(|member| of(member.content));
    (value.expect("a value"), permits.collect())
}

/// Both grant what is left and no more, and all of it is back after its window.
async fn works(both: &mut Both, limiter: &Pair) {
    for by in Peer::ALL {
        let (left, grants) = state(both.dump("n").await);
        assert_eq!(
            left + i64::from(grants.iter().sum::<u32>()),
            RATE.into(),
            "{by:?}"
        );
        assert_eq!(
            limiter.available_permits().await,
            left.unsigned_abs(),
            "{by:?}"
        );
        if left < RATE.into() {
            assert!(!limiter.try_acquire(by, left as u32 + 1).await, "{by:?}");
        }
        assert!(limiter.try_acquire(by, left as u32).await, "{by:?}");
        for peer in Peer::ALL {
            assert!(!limiter.try_acquire(peer, 1).await, "{by:?}, {peer:?}");
        }
        both.age("n", MINUTE_MS).await;
        assert_eq!(limiter.available_permits().await, RATE.into(), "{by:?}");
        assert!(limiter.try_acquire(by, 4).await, "{by:?}");
    }
}

/// Redisson sends an acquire that gets no answer again, and the server grants it twice, as one
/// member.
#[tokio::test]
async fn a_limiter_recovers_after_redisson_repeated_an_acquire() {
    each(Version::ALL, async |both, limiter| {
        assert!(limiter.try_acquire(Peer::Java, 1).await);
        acquire_twice(both.version, &both.server.url(), &both.redis, "n", 4).await;
        assert_eq!(
            state(both.dump("n").await),
            (1, vec![1, 4]),
            "four permits are missing for good"
        );

        assert!(limiter.try_acquire(Peer::Rust, 1).await);
        assert_eq!(state(both.dump("n").await), (4, vec![1, 4, 1]));
    })
    .await;
}

/// Redisson alone would have 13 of 10 when the window has passed.
#[tokio::test]
async fn a_limiter_recovers_after_redissons_release() {
    let versions = Version::ALL.into_iter().filter(|it| it.has_release());
    each(versions, async |both, limiter| {
        assert!(limiter.try_acquire(Peer::Java, 3).await);
        limiter.java.release(3).await.unwrap();
        assert_eq!(state(both.dump("n").await), (10, vec![3]));

        assert!(limiter.try_acquire(Peer::Rust, 1).await);
        assert_eq!(state(both.dump("n").await), (9, vec![1]));
    })
    .await;
}

#[tokio::test]
async fn a_limiter_recovers_after_the_permits_were_lost() {
    each(Version::ALL, async |both, limiter| {
        assert!(limiter.try_acquire(Peer::Java, 8).await);
        both.redis.del("{n}:permits").await.unwrap();
        let error = limiter.java.try_acquire(3).await.unwrap_err();
        assert!(
            error.message.contains("arithmetic on a nil value"),
            "{error}"
        );

        assert!(limiter.try_acquire(Peer::Rust, 3).await);
        assert_eq!(state(both.dump("n").await), (7, vec![3]));
    })
    .await;
}

#[tokio::test]
async fn a_limiter_recovers_after_the_value_was_lost() {
    each(Version::ALL, async |both, limiter| {
        assert!(limiter.try_acquire(Peer::Java, 8).await);
        both.redis.del("{n}:value").await.unwrap();
        assert!(
            !limiter.try_acquire(Peer::Rust, 3).await,
            "it is not full again"
        );
        assert_eq!(state(both.dump("n").await), (2, vec![8]));
    })
    .await;
}

#[tokio::test]
async fn a_limiter_recovers_after_the_value_was_raised_above_the_rate() {
    each(Version::ALL, async |both, limiter| {
        both.redis.set("{n}:value", 13).await.unwrap();
        assert!(limiter.try_acquire(Peer::Rust, 1).await);
        assert_eq!(state(both.dump("n").await), (9, vec![1]));
    })
    .await;
}

/// A member of Redisson before 3.17, or of nobody: once it is over, each of Redisson's calls fails.
#[tokio::test]
async fn a_limiter_recovers_after_a_malformed_member() {
    each(Version::ALL, async |both, limiter| {
        assert!(limiter.try_acquire(Peer::Java, 2).await);
        both.redis
            .zadd("{n}:permits", b"\xcd\xcc\xcc\x3d\x01\0\0\0", 1)
            .await
            .unwrap();
        let error = limiter.java.try_acquire(1).await.unwrap_err();
        assert!(error.message.contains("data string too short"), "{error}");

        assert!(limiter.try_acquire(Peer::Rust, 1).await);
        assert_eq!(state(both.dump("n").await), (7, vec![2, 1]));
    })
    .await;
}

/// Redisson grants 0 permits, and never takes the members away by themselves.
#[tokio::test]
async fn a_limiter_recovers_after_an_acquire_of_zero_permits() {
    each(Version::ALL, async |both, limiter| {
        for _ in 0..3 {
            assert!(limiter.java.try_acquire(0).await.unwrap());
        }
        both.age("n", MINUTE_MS).await;
        assert!(limiter.try_acquire(Peer::Java, 2).await);
        assert_eq!(state(both.dump("n").await), (8, vec![0, 0, 0, 2]));

        assert!(limiter.try_acquire(Peer::Rust, 1).await);
        assert_eq!(state(both.dump("n").await), (7, vec![2, 1]));
    })
    .await;
}

/// Redisson's availablePermits makes a value key that outlives the limiter.
#[tokio::test]
async fn a_limiter_recovers_after_an_earlier_one_left_its_value() {
    each(Version::ALL, async |both, limiter| {
        limiter
            .java
            .set_rate(compat_tests::redisson::Rate::overall(99, 1000))
            .await
            .unwrap();
        limiter.java.expire(MINUTE_MS).await.unwrap();
        assert_eq!(limiter.java.available_permits().await.unwrap(), 99);
        // The hash expires.
        both.redis.del("n").await.unwrap();
        let rate = Rate::overall(RATE.into(), MINUTE);
        assert!(limiter.try_set_rate(Peer::Rust, rate).await);
        assert_eq!(limiter.available_permits().await, RATE.into());
    })
    .await;
}

/// What comes back is granted only when less than the new rate is in use, also where a request that
/// could never be granted came first.
#[tokio::test]
async fn a_limiter_recovers_after_its_rate_was_lowered_below_what_is_in_use() {
    use redisson_rate_limiter::PermitsInUse::Keep;

    each(Version::ALL, async |both, limiter| {
        limiter
            .rust
            .set_rate(Rate::overall(20, MINUTE))
            .await
            .unwrap();
        assert!(limiter.try_acquire(Peer::Java, 8).await);
        both.age("n", 1000).await;
        assert!(limiter.try_acquire(Peer::Rust, 7).await);
        let lower = Rate::overall(RATE.into(), MINUTE);
        assert!(limiter.rust.update_rate(lower, Keep).await.unwrap());
        assert_eq!(state(both.dump("n").await), (-5, vec![8, 7]));

        limiter.rust.try_acquire(RATE + 1).await.unwrap_err();
        for peer in [Peer::Rust, Peer::Java] {
            assert!(!limiter.try_acquire(peer, 1).await);
            assert_eq!(state(both.dump("n").await), (-5, vec![8, 7]));
        }
        assert_eq!(limiter.rust.available_permits().await.unwrap(), 0);
        both.age("n", MINUTE_MS - 1000).await;
        // Whichever of them comes first.
        for (peer, left, out) in [(Peer::Java, 2, vec![7, 1]), (Peer::Rust, 1, vec![7, 1, 1])] {
            assert!(limiter.try_acquire(peer, 1).await);
            assert_eq!(state(both.dump("n").await), (left, out));
        }
    })
    .await;
}
