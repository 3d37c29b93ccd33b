//! Redisson on a limiter of which this crate holds leases and reservations: it sees permits that are in use.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use compat_tests::{
    Both, Peer,
    dump::{Content, Dump},
    random::Random,
    redisson::Version,
};
use redisson_rate_limiter::{Lease, Rate, RateLimiter};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const HOUR_MS: i64 = 3_600_000;

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

        both.age("n", HOUR_MS).await;
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

/// When a permit was used: after the first of these times and before the second, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    after: u128,
    before: u128,
}

fn micros() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock").as_micros()
}

/// Takes permits, one after the other with pauses of up to so many ms, until it is told to stop.
async fn take(
    pauses: u64,
    is_over: &watch::Receiver<bool>,
    try_acquire: impl AsyncFn() -> bool,
) -> Vec<Use> {
    let (mut random, mut used) = (Random::new(pauses), Vec::new());
    while !*is_over.borrow() {
        let after = micros();
        if try_acquire().await {
            let before = micros();
            used.push(Use { after, before });
        }
        sleep(Duration::from_millis(random.below(pauses))).await;
    }
    used
}

#[tokio::test]
async fn beside_redisson_no_window_exceeds_the_rate() {
    const RATE: usize = 100;
    const INTERVAL: Duration = Duration::from_millis(300);
    Both::each([Version::V3_17_0, Version::V4_7_0], async |mut both| {
        let limiter = both.limiter("n");
        let rate = Rate::overall(RATE as u64, INTERVAL);
        assert!(limiter.try_set_rate(Peer::Java, rate).await);
        let leased = limiter.rust.clone().leased(Lease::up_to(INTERVAL / 4));
        let (stop, is_over) = watch::channel(false);
        let by_java = take(15, &is_over, async || {
            limiter.java.try_acquire(1).await.unwrap()
        });
        let by_rust = [9, 10].map(|pauses| {
            take(pauses, &is_over, async || {
                leased.try_acquire(1).await.unwrap()
            })
        });
        let [first, second] = by_rust;
        let pressing = async {
            let mut used = Vec::new();
            for _ in 0..3 {
                let leasing = async {
                    while in_use(both.dump("n").await).1 == 0 {
                        sleep(Duration::from_millis(1)).await;
                    }
                };
                timeout(AT_LAST, leasing).await.expect("a lease");
                // More than there is: the leases are used up, and then all are denied.
                for _ in 0..2 * RATE {
                    let after = micros();
                    if leased.try_acquire(1).await.unwrap() {
                        let before = micros();
                        used.push(Use { after, before });
                    }
                }
            }
            stop.send_replace(true);
            used
        };
        let (by_java, first, second, mut used) = tokio::join!(by_java, first, second, pressing);
        assert!(!by_java.is_empty(), "nothing was left to Redisson");
        used.extend([by_java, first, second].into_iter().flatten());
        assert!(used.len() > 2 * RATE, "{} were used", used.len());

        used.sort_unstable();
        let interval = INTERVAL.as_micros() - 1_000; // the server counts whole ms
        for (place, first) in used.iter().enumerate() {
            let end = first.after + interval;
            let within = used[place..].iter().take_while(|it| it.after < end);
            let certainly = within.filter(|it| it.before < end).count();
            assert!(certainly <= RATE, "{certainly} in a window");
        }
    })
    .await;
}
