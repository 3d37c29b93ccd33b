//! Acquires, refunds and releases of an RRateLimiter with faults: the permits in use are those that
//! were granted and not given back, and each call whose outcome is unknown took all of its permits
//! or none.

use std::collections::HashMap;
use std::time::Duration;

use redisson_rate_limiter::Rate;

use crate::callers::{Caller, Subject};
use crate::fault::Replays;
use crate::ledger::Ledger;
use crate::round::{Round, rounds};
use crate::support::Server;

const HOUR: Duration = Duration::from_secs(3600);
const AMPLE: u64 = 1_000_000;
/// Taken before all others, so that releases give back these.
const SET_ASIDE: u32 = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_calls_take_their_permits_once_or_not_at_all() {
    let form = Form {
        limiters: 4,
        callers: 1,
        free: AMPLE,
        leave: true,
    };
    limiters("direct", Replays::Acquires, form).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_for_many_callers_take_their_permits_once_or_not_at_all() {
    let form = Form {
        limiters: 1,
        callers: 12,
        free: AMPLE,
        leave: true,
    };
    limiters("list", Replays::Acquires, form).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_granted_in_part_take_their_permits_once_or_not_at_all() {
    let form = Form {
        limiters: 1,
        callers: 10,
        free: 20,
        leave: false,
    };
    limiters("part", Replays::Acquires, form).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_callers_that_leave_keep_no_permits() {
    let form = Form {
        limiters: 1,
        callers: 10,
        free: 20,
        leave: true,
    };
    limiters("waiting", Replays::Acquires, form).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_for_many_limiters_take_their_permits_once_or_not_at_all() {
    let form = Form {
        limiters: 32,
        callers: 1,
        free: AMPLE,
        leave: true,
    };
    limiters("many", Replays::Acquires, form).await;
}

/// The limiters of a round.
#[derive(Clone, Copy)]
struct Form {
    limiters: u64,
    /// The number of callers of each limiter.
    callers: u64,
    /// Permits besides those that are set aside for releases.
    free: u64,
    /// Whether the callers leave some calls.
    leave: bool,
}

async fn limiters(name: &'static str, replays: Replays, form: Form) {
    let server = Server::start();
    let round = move |round| round_of(round, form);
    rounds(name, 130, replays, &server, round).await;
}

async fn round_of(mut round: Round, form: Form) {
    let rate = form.free + u64::from(SET_ASIDE);
    let mut ledgers = HashMap::new();
    let mut callers = Vec::new();
    for place in 0..form.limiters {
        let name = round.name(place);
        let direct = round.direct.rate_limiter(&name);
        direct.set_rate(Rate::overall(rate, HOUR)).await.unwrap();
        assert!(direct.try_acquire(SET_ASIDE).await.unwrap());
        let mut ledger = Ledger::default();
        ledger.grant(SET_ASIDE);
        ledgers.insert(name.clone(), ledger);
        for number in 0..form.callers {
            let subject = Subject::Limiter(round.client.rate_limiter(&name));
            let random = round.random(100 + place * form.callers + number);
            let mut caller = Caller::new(subject, random, round.watch.clone());
            caller.releases = true;
            caller.leaves = form.leave;
            let (plan, name) = (round.plan.clone(), name.clone());
            callers.push(async move { (name, caller.work(&plan).await) });
        }
    }
    for (name, ledger) in round.run(callers).await {
        *ledgers.get_mut(&name).unwrap() += ledger;
    }
    for (name, ledger) in &ledgers {
        round
            .assert_balanced(name, rate, ledger, form.callers > 1)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyed_limiters_take_their_permits_once_or_not_at_all() {
    let server = Server::start();
    rounds("keyed", 130, Replays::Acquires, &server, keyed).await;
}

async fn keyed(mut round: Round) {
    let rate = Rate::overall(AMPLE, HOUR);
    let prefix = format!("{}:", round.name(0));
    let limiter = round.client.keyed_rate_limiter(&prefix, rate).unwrap();
    let mut callers = Vec::new();
    for number in 0..9 {
        let key = format!("key{}", number % 3);
        let subject = Subject::Keyed(limiter.clone(), key.clone());
        let random = round.random(100 + number);
        let caller = Caller::new(subject, random, round.watch.clone());
        let (plan, name) = (round.plan.clone(), format!("{prefix}{key}"));
        callers.push(async move { (name, caller.work(&plan).await) });
    }
    let mut ledgers = HashMap::<_, Ledger>::new();
    for (name, ledger) in round.run(callers).await {
        *ledgers.entry(name).or_default() += ledger;
    }
    for (name, ledger) in &ledgers {
        round.assert_balanced(name, AMPLE, ledger, true).await;
    }
}
