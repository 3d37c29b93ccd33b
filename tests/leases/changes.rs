//! The settings of a limiter change under load, while two clients lease: no window exceeds the rate that was set.

use std::time::Duration;

use redisson_rate_limiter::PermitsInUse::{self, Keep, Reset};
use redisson_rate_limiter::{Rate, RateLimiter, RateType};
use tokio::time::sleep;

use crate::parties::{INTERVAL, LEASE, Parties, RATE, until_leased};
use crate::support::Server;
use crate::uses::{TICK, Use, micros, micros_of, most_in_a_window};

/// Lowered, raised, another interval, afresh, another type and back.
fn changes() -> [(Rate, PermitsInUse); 7] {
    let ms = Duration::from_millis;
    [
        (Rate::overall(40, INTERVAL), Keep),
        (Rate::overall(120, INTERVAL), Keep),
        (Rate::overall(120, ms(360)), Keep),
        (Rate::overall(60, ms(150)), Keep),
        (Rate::overall(50, INTERVAL), Reset),
        (Rate::per_client(30, INTERVAL), Keep),
        (Rate::overall(RATE, INTERVAL), Keep),
    ]
}

/// The settings from one time to another.
struct Era {
    rate: Rate,
    /// Whether what was in use before them counts.
    keeps: bool,
    from: i64,
    until: i64,
}

impl Era {
    /// The uses from a time on, of those whose permits count together.
    fn uses(&self, parties: &Parties, from: i64) -> Vec<Vec<Use>> {
        let each = parties
            .all
            .iter()
            .map(|it| it.uses.between(from, self.until));
        match self.rate.rate_type() {
            RateType::PerClient => each.collect(),
            _ => vec![each.flatten().collect()],
        }
    }

    /// When the leases that were taken under the settings of before are over.
    fn begins(&self) -> i64 {
        self.from + micros_of(LEASE) + TICK
    }
}

/// The changes are made by this one of the handles.
async fn no_window_exceeds_the_rate_set(by: impl Fn(&Parties) -> RateLimiter) {
    let server = Server::start();
    let parties = Parties::start(&server, [&server.url(), &server.url()]).await;
    let by = by(&parties);
    let mut eras = vec![Era {
        rate: Rate::overall(RATE, INTERVAL),
        keeps: false,
        from: micros(),
        until: 0,
    }];
    for change in changes().map(Some).into_iter().chain([None]) {
        // When the leases of before are over, all ask for more than there is, as an interval later.
        sleep(LEASE).await;
        parties.press().await;
        sleep(INTERVAL / 2).await;
        parties.press().await;
        until_leased(&mut server.connection().await).await;
        let last = eras.last_mut().unwrap();
        last.until = micros();
        if let Some((rate, in_use)) = change {
            let changed_type = rate.rate_type() != last.rate.rate_type();
            assert!(by.update_rate(rate, in_use).await.unwrap());
            eras.push(Era {
                rate,
                keeps: in_use == Keep && !changed_type,
                from: micros(),
                until: 0,
            });
        }
    }
    for era in &eras {
        for used in era.uses(&parties, era.begins()) {
            assert!(!used.is_empty());
            let most = most_in_a_window(used, era.rate.interval());
            assert!(most as u64 <= era.rate.permits(), "{most} of {}", era.rate);
        }
    }
    for pair in eras.windows(2).filter(|pair| pair[1].keeps) {
        let [before, after] = [0, 1].map(|place| &pair[place]);
        let interval = before.rate.interval().min(after.rate.interval());
        let rate = before.rate.permits().max(after.rate.permits());
        for used in after.uses(&parties, before.begins()) {
            let most = most_in_a_window(used, interval);
            assert!(
                most as u64 <= rate,
                "{most} from {} to {}",
                before.rate,
                after.rate
            );
        }
    }
    parties.end_whole(&server, RATE, INTERVAL).await;
}

#[tokio::test]
async fn where_one_that_leases_changes_the_rate_no_window_exceeds_it() {
    no_window_exceeds_the_rate_set(|parties| parties.leasing[0].clone()).await;
}

#[tokio::test]
async fn where_another_process_changes_the_rate_no_window_exceeds_it() {
    no_window_exceeds_the_rate_set(|parties| parties.plain.clone()).await;
}
