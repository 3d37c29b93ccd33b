//! Decisions without an id are never sent again: each is charged at most once, and a joint decision
//! is charged to all of its limiters or to none.

use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::{
    AnyPolicy, Decision, FixedWindow, Granted, Limiter, QuotaBucket, Rate, RedissonClient,
};

use crate::decisions::{Charges, check_until_over};
use crate::fault::Replays;
use crate::round::{Round, rounds};
use crate::support::Server;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const AMPLE: u32 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_charges_once_or_not_at_all() {
    let server = Server::start();
    rounds("policies", 80, Replays::LateDecisions, &server, policies).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joint_decisions_charge_once_or_not_at_all() {
    let server = Server::start();
    rounds("joint", 90, Replays::LateDecisions, &server, joint).await;
}

/// A limiter of each policy, of so many units that none is denied, and the unit.
fn every_policy(client: &RedissonClient, prefix: &str) -> Vec<(u32, Arc<dyn Limiter>)> {
    let limiter = |policy: AnyPolicy| -> Arc<dyn Limiter> {
        let prefix = format!("{prefix}:{}:", policy.algorithm());
        Arc::new(client.policy_limiter(policy).unwrap().with_prefix(prefix))
    };
    let each =
        crate::every_policy::every_policy(AMPLE).map(|(policy, unit)| (unit, limiter(policy)));
    each.collect()
}

/// How many units of a limiter are charged, including the one that this request takes. A part of a
/// unit may have flowed back.
async fn charged(limiter: &dyn Limiter, unit: u32, key: &str) -> i64 {
    match limiter.check_without_waiting(key, unit).await.unwrap() {
        Decision::Granted(Granted { remaining, .. }) => {
            i64::from(AMPLE) - (remaining / u64::from(unit)) as i64
        }
        denied => panic!("{denied:?}"),
    }
}

async fn policies(mut round: Round) {
    let prefix = round.name(0);
    let limiters = every_policy(&round.client, &prefix);
    let mut before = Vec::new();
    for (unit, limiter) in every_policy(&round.direct, &prefix) {
        before.push(charged(&*limiter, unit, "key").await);
    }
    let mut callers = Vec::new();
    for (place, (unit, limiter)) in limiters.iter().enumerate() {
        for number in 0..2 {
            let (limiter, plan) = (Arc::clone(limiter), Arc::clone(&round.plan));
            let random = round.random(100 + place as u64 * 2 + number);
            let (watch, unit) = (round.watch.clone(), *unit);
            callers.push(async move {
                let ask = |cost| {
                    let limiter = Arc::clone(&limiter);
                    async move {
                        let decision = limiter.check_without_waiting("key", cost * unit);
                        Ok(decision.await?.is_granted())
                    }
                };
                (place, check_until_over(&plan, random, watch, ask).await)
            });
        }
    }
    let mut charges = vec![Charges::default(); limiters.len()];
    for (place, one) in round.run(callers).await {
        charges[place].add(one);
    }
    let direct = every_policy(&round.direct, &prefix);
    for (((unit, limiter), charges), before) in direct.iter().zip(charges).zip(before) {
        let charged = charged(&**limiter, *unit, "key").await - before - 1;
        assert!(
            charges.explain(charged),
            "{charged} charged, {charges:?}: {limiter:?}, {}",
            round.watch.round
        );
    }
}

async fn joint(mut round: Round) {
    let prefix = round.name(0);
    let names: Vec<String> = (1..=3).map(|place| round.name(place)).collect();
    for name in &names {
        let rate = Rate::overall(u64::from(AMPLE), HOUR);
        let limiter = round.direct.rate_limiter(name);
        limiter.set_rate(rate).await.unwrap();
    }
    let client = round.client.clone();
    let window = client
        .policy_limiter(FixedWindow::new(AMPLE, HOUR))
        .unwrap();
    let window = window.with_prefix(format!("{prefix}:window:"));
    let bucket = client
        .policy_limiter(QuotaBucket::new(1, DAY).with_capacity(AMPLE))
        .unwrap();
    let bucket = bucket.with_prefix(format!("{prefix}:bucket:"));
    let mut callers = Vec::new();
    for number in 0..8 {
        let (client, plan) = (client.clone(), Arc::clone(&round.plan));
        let (window, bucket) = (window.clone(), bucket.clone());
        let rates = names.iter().map(|name| client.rate_limiter(name));
        let rates: Vec<_> = rates.collect();
        let random = round.random(100 + number);
        let watch = round.watch.clone();
        callers.push(async move {
            let ask = |cost| {
                let mut charges = vec![
                    window.charge("key", cost).unwrap(),
                    bucket.charge("key", cost).unwrap(),
                ];
                charges.extend(rates.iter().map(|rate| rate.charge(cost).unwrap()));
                let decision = client.check_all(charges);
                async move { Ok(decision.await?.is_granted()) }
            };
            check_until_over(&plan, random, watch, ask).await
        });
    }
    let mut charges = Charges::default();
    for one in round.run(callers).await {
        charges.add(one);
    }

    let window = round
        .direct
        .policy_limiter(FixedWindow::new(AMPLE, HOUR))
        .unwrap();
    let window = window.with_prefix(format!("{prefix}:window:"));
    let bucket = round
        .direct
        .policy_limiter(QuotaBucket::new(1, DAY).with_capacity(AMPLE))
        .unwrap();
    let bucket = bucket.with_prefix(format!("{prefix}:bucket:"));
    let mut charged = vec![
        charged(&window, 1, "key").await - 1,
        charged(&bucket, 1, "key").await - 1,
    ];
    for name in &names {
        let left = round.direct.rate_limiter(name).available_permits().await;
        charged.push(i64::from(AMPLE) - left.unwrap() as i64);
    }
    let round = &round.watch.round;
    assert!(
        charges.explain(charged[0]),
        "{charged:?} charged, {charges:?}, {round}"
    );
    assert!(
        charged.iter().all(|it| *it == charged[0]),
        "{charged:?}, {round}"
    );
}
