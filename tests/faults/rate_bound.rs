//! Many short windows while requests and answers get lost: the server never grants more than the
//! rate in a window, callers know of all that it grants, and one interval later all permits are
//! available.

use std::sync::Mutex;
use std::time::Duration;

use redisson_rate_limiter::Rate;
use tokio::time::sleep;

use crate::callers::{Caller, Subject};
use crate::fault::Replays;
use crate::keys;
use crate::ledger::Ledger;
use crate::round::{Round, rounds};
use crate::support::Server;
use crate::windows::Windows;

const INTERVAL: Duration = Duration::from_millis(250);
const RATE: u64 = 20;

/// What the callers of each limiter know of.
static LEDGERS: Mutex<Vec<(String, Ledger, String)>> = Mutex::new(Vec::new());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_exceeds_the_rate_and_all_permits_come_back() {
    let server = Server::start();
    let windows = Windows::of(&server, INTERVAL.as_millis() as i64).await;
    rounds("windows", 50, Replays::Acquires, &server, round).await;
    let mut redis = server.connection().await;
    let windows = windows.until_now(&mut redis).await;
    let ledgers = std::mem::take(&mut *LEDGERS.lock().unwrap());
    for (name, ledger, round) in ledgers {
        let window = &windows[&format!("{{{name}}}:permits")];
        assert!(
            window.most_in_use <= RATE as i64,
            "{name}: {window:?}, {round}"
        );
        let kept = window.granted - window.given_back;
        // A dropped grant cannot be given back after its window has passed.
        let least = ledger.held - ledger.maybe_back;
        let most = ledger.held + ledger.maybe_taken + ledger.dropped;
        assert!(
            (least..=most).contains(&kept),
            "{name}: {window:?}, {ledger:?}, {round}"
        );
        println!(
            "{name}: {} granted, {} in use at most",
            window.granted, window.most_in_use
        );
    }
}

async fn round(mut round: Round) {
    let name = round.name(0);
    let rate = Rate::overall(RATE, INTERVAL);
    let direct = round.direct.rate_limiter(&name);
    direct.set_rate(rate).await.unwrap();
    let mut callers = Vec::new();
    for number in 0..10 {
        let subject = Subject::Limiter(round.client.rate_limiter(&name));
        let random = round.random(100 + number);
        let caller = Caller::new(subject, random, round.watch.clone());
        let plan = round.plan.clone();
        callers.push(async move { caller.work(&plan).await });
    }
    let mut ledger = Ledger::default();
    for one in round.run(callers).await {
        ledger += one;
    }
    // A call without a caller may be granted until the deadlines of its attempts have passed.
    sleep(round.watch.response_timeout * 2).await;
    let permits = format!("{{{name}}}:permits");
    let members = keys::members(&mut round.redis, &permits).await;
    let last = members.last().map_or(0, |member| member.score);
    while keys::time(&mut round.redis).await < last + INTERVAL.as_millis() as i64 {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(
        direct.try_acquire(RATE as u32).await.unwrap(),
        "{name}: not all permits came back, {}",
        round.watch.round
    );
    ledger.grant(RATE as u32);
    let mut ledgers = LEDGERS.lock().unwrap();
    ledgers.push((name, ledger, round.watch.round));
}
