//! The settings of a limiter change under load, while two clients lease: no window exceeds the rate
//! that was set.

use std::time::Duration;

use redisson_rate_limiter::PermitsInUse::{self, Keep, Reset};
use redisson_rate_limiter::{Rate, RateLimiter};

use crate::eras::Eras;
use crate::parties::{INTERVAL, LEASE, Parties, RATE, until_leased};
use crate::support::Server;

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

/// `by` selects the handle that makes the changes.
async fn no_window_exceeds_the_rate_set(by: impl Fn(&Parties) -> RateLimiter) {
    let server = Server::start();
    let parties = Parties::start(&server, [&server.url(), &server.url()]).await;
    let by = by(&parties);
    let mut eras = Eras::begin(Rate::overall(RATE, INTERVAL), LEASE);
    parties.press_twice().await;
    for (rate, in_use) in changes() {
        until_leased(&mut server.connection().await).await;
        let changing = async {
            assert!(by.update_rate(rate, in_use).await.unwrap());
        };
        eras.change(rate, in_use == Keep, changing).await;
        parties.press_twice().await;
    }
    eras.check(&parties.all);
    parties.end_whole(&server, RATE, INTERVAL).await;
}

#[tokio::test]
async fn when_a_client_with_leases_changes_the_rate_no_window_exceeds_it() {
    no_window_exceeds_the_rate_set(|parties| parties.leasing[0].clone()).await;
}

#[tokio::test]
async fn when_another_process_changes_the_rate_no_window_exceeds_it() {
    no_window_exceeds_the_rate_set(|parties| parties.plain.clone()).await;
}
