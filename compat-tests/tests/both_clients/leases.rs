//! Redisson on a limiter of which this crate holds leases and reservations: it sees permits that
//! are in use.

use std::{sync::Arc, time::Duration};

use compat_tests::{
    Both, Peer,
    dump::{Content, Dump},
    record::{Change, Entry, Record},
    redisson::{self, Version},
};
use redisson_rate_limiter::{Lease, Rate, RateLimiter};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    clients::patient,
    eras::Eras,
    late_settles::late_settles,
    load::{Load, Party},
    parties::{INTERVAL, LEASE, Parties, RATE, until_leased},
    uses::{TICK, Use, micros, most_in_a_window},
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;

/// Within this time what a test waits for happens, or it fails.
const AT_LAST: Duration = Duration::from_secs(60);

/// The permits of all grants, and of the leases among them that have not ended.
fn in_use(dump: Dump) -> (u32, u32) {
    let members = dump.normal().overall.permits;
    let (mut all, mut leased) = (0, 0);
    for member in members.map_or(Vec::new(), |members| members.data) {
        let Content::Grant {
            random_len,
            permits,
        } = member.content
        else {
            panic!("a malformed member: {member:?}");
        };
        all += permits;
        let is_lease = random_len == 24 && member.score * 1_000.0 > micros() as f64;
        leased += if is_lease { permits } else { 0 };
    }
    (all, leased)
}

/// Takes permits until some are leased. Returns how many it has taken.
async fn lease(both: &mut Both, limiter: &RateLimiter) -> u32 {
    let mut taken = 0;
    let leasing = async {
        while in_use(both.dump("n").await).1 == 0 {
            assert!(limiter.try_acquire(1).await.unwrap());
            taken += 1;
        }
    };
    timeout(AT_LAST, leasing).await.expect("a lease");
    taken
}

#[tokio::test]
async fn redisson_counts_a_lease_until_it_is_settled() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        let rate = Rate::overall(200, HOUR);
        assert!(limiter.try_set_rate(Peer::Java, rate).await);
        let leased = limiter.rust.clone().leased(Lease::up_to(MINUTE));
        let mut used = lease(&mut both, &leased).await;

        let left = 200 - i64::from(in_use(both.dump("n").await).0);
        assert_eq!(limiter.java.available_permits().await.unwrap(), left);
        assert!(!limiter.java.try_acquire(left + 1).await.unwrap());
        assert!(limiter.java.try_acquire(left).await.unwrap());
        assert!(!limiter.java.try_acquire(1).await.unwrap());
        assert!(leased.try_acquire(1).await.unwrap(), "the lease has some");
        used += 1;

        drop(leased);
        assert!(both.rust.close(AT_LAST).await, "all is given back");
        let unused = 200 - left - i64::from(used);
        assert_eq!(limiter.java.available_permits().await.unwrap(), unused);
        assert_eq!(i64::from(in_use(both.dump("n").await).0), 200 - unused);
        if unused > 0 {
            assert!(limiter.java.try_acquire(unused).await.unwrap());
        }
        assert!(!limiter.java.try_acquire(1).await.unwrap());

        // What a lease was used for counts from a little later, as its call took some time, but not
        // beyond its end.
        both.age("n", HOUR_MS + MINUTE_MS).await;
        assert_eq!(limiter.java.available_permits().await.unwrap(), 200);
        assert!(limiter.java.try_acquire(200).await.unwrap());
        assert!(!limiter.java.try_acquire(1).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn redisson_waits_for_a_reservation() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        let rate = Rate::overall(10, HOUR);
        assert!(limiter.try_set_rate(Peer::Java, rate).await);
        assert!(limiter.java.try_acquire(8).await.unwrap());
        let reservation = limiter.rust.reserve(6, 2 * HOUR).await.unwrap();
        let reservation = reservation.expect("an hour from now");
        assert!(!limiter.java.try_acquire(1).await.unwrap());

        assert_eq!(reservation.cancel().await.unwrap(), 6);
        assert_eq!(limiter.java.available_permits().await.unwrap(), 2);
        let reservation = limiter.rust.reserve(6, 2 * HOUR).await.unwrap();
        assert!(reservation.is_some(), "an hour from now");
        both.age("n", HOUR_MS).await; // Redisson's come back, and the reservation may be used
        assert!(!limiter.java.try_acquire(5).await.unwrap());
        assert!(limiter.java.try_acquire(4).await.unwrap());
        assert!(!limiter.java.try_acquire(1).await.unwrap());
    })
    .await;
}

/// What Redisson was granted. It scores a permit with its clock before it sends the call, and the
/// server grants it later.
fn uses_by_java(entries: Vec<Entry>) -> Vec<Use> {
    let mut used = Vec::new();
    for Entry { at, change } in entries {
        if let Change::Granted {
            to: Peer::Java,
            score,
            permits,
        } = change
        {
            let (after, before) = (score * 1_000, at * 1_000 + TICK);
            used.extend((0..permits).map(|_| Use { after, before }));
        }
    }
    used
}

#[tokio::test]
async fn beside_redisson_that_takes_and_waits_no_window_exceeds_the_rate() {
    Both::each(Version::ALL, async |mut both| {
        let url = both.server.url();
        let parties = Parties::start(&both.server, [&url, &url]).await;
        let record = Record::start(&both.server, "{limiter}:permits").await;
        let java = both.java.limiter("limiter");
        let taking = Party::by({
            let java = java.clone();
            move || {
                let java = java.clone();
                async move { java.try_acquire(1).await.unwrap() }
            }
        });
        let load = Load::start(&[Arc::clone(&taking)], Duration::from_millis(10));
        let mut waiting = JoinSet::new();
        for _ in 0..4 {
            let java = java.clone();
            waiting.spawn(async move {
                for _ in 0..5 {
                    java.acquire(2).await.unwrap();
                }
            });
        }
        for _ in 0..4 {
            until_leased(&mut both.redis).await;
            parties.press().await;
        }
        let waiting = timeout(AT_LAST, waiting.join_all()).await;
        waiting.expect("Redisson's waiters are all granted");
        load.end().await;
        assert!(taking.uses.len() > 0, "nothing was left to Redisson");

        let mut used = uses_by_java(record.end(&both.server).await);
        assert!(used.len() >= taking.uses.len() + 4 * 5 * 2);
        used.extend(parties.uses());
        let most = most_in_a_window(used, INTERVAL);
        assert!(most <= RATE as usize, "{most} in a window");
        parties.end_whole(&both.server, RATE, INTERVAL).await;
    })
    .await;
}

#[tokio::test]
async fn where_redisson_changes_the_rate_no_window_exceeds_it() {
    Both::each(Version::ALL, async |mut both| {
        let url = both.server.url();
        let parties = Parties::start(&both.server, [&url, &url]).await;
        let java = both.java.limiter("limiter");
        let [low, high, longer, each, as_before] = [
            Rate::overall(40, INTERVAL),
            Rate::overall(120, INTERVAL),
            Rate::overall(120, INTERVAL * 3 / 2),
            Rate::per_client(30, INTERVAL),
            Rate::overall(RATE, INTERVAL),
        ];
        let kept = [low, high, longer].map(|rate| (rate, true));
        let kept = kept.into_iter().filter(|_| both.version.has_update_rate());
        let afresh = [low, longer, each, as_before].map(|rate| (rate, false));
        let mut eras = Eras::begin(as_before, LEASE);
        parties.press_twice().await;
        for (rate, keeps) in kept.chain(afresh) {
            until_leased(&mut both.redis).await;
            let changing = async {
                let rate = redisson::Rate::of(&rate);
                match keeps {
                    true => assert!(java.update_rate(rate, Some(true)).await.unwrap()),
                    false => java.set_rate(rate).await.unwrap(),
                }
            };
            eras.change(rate, keeps, changing).await;
            parties.press_twice().await;
        }
        eras.check(&parties.all);
        parties.end_whole(&both.server, RATE, INTERVAL).await;
    })
    .await;
}

#[tokio::test]
async fn what_redisson_releases_before_a_late_settle_is_in_no_window_twice() {
    let versions = Version::ALL.into_iter().filter(|it| it.has_release());
    Both::each(versions, async |both| {
        let java = both.java.limiter("limiter");
        late_settles(&both.server, async |permits| {
            java.release(permits.into()).await.unwrap();
            // Redisson leaves the grants as they are, until a client of this crate sums them.
            let rust = patient(&both.server.url()).await.rate_limiter("limiter");
            assert!(rust.try_acquire(1).await.unwrap());
        })
        .await;
    })
    .await;
}
