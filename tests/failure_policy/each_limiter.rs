//! Each kind of limiter and each form of request, without Redis.

use redisson_rate_limiter::{Error, FailurePolicy, Limiter, Rate, RedissonClient};
use tokio::task::JoinSet;

use crate::every_policy::every_policy;
use crate::fixture::{HOUR, client, kill, limiter, ms, one_of, policies, until_by_policy};
use crate::support::Server;

#[tokio::test]
async fn every_form_of_request_is_decided() {
    for policy in policies() {
        let server = Server::start();
        let client = client(&server.url(), policy.clone()).await;
        let limiter = limiter(&client, 1_000).await;
        let keyed = client
            .keyed_rate_limiter("keyed:", Rate::overall(1_000, HOUR))
            .unwrap();
        let port = kill(server);
        let _ = until_by_policy(&limiter).await;
        let is_granted = policy != FailurePolicy::Deny;
        assert_eq!(limiter.try_acquire(1).await.unwrap(), is_granted);
        let timed = limiter.try_acquire_timeout(1, ms(100)).await;
        assert_eq!(timed.unwrap(), is_granted);
        assert_eq!(keyed.try_acquire("key", 1).await.unwrap(), is_granted);
        let timed = keyed.try_acquire_timeout("key", 1, ms(100)).await;
        assert_eq!(timed.unwrap(), is_granted);
        let charges = [limiter.charge(1).unwrap(), keyed.charge("key", 1).unwrap()];
        let decision = client.check_all(charges).await.unwrap();
        assert!(decision.is_by_failure_policy());
        assert_eq!(decision.is_granted(), is_granted);
        // Waiters get permits now or, if the policy denies, once the server is back.
        let mut waiting = JoinSet::new();
        for _ in 0..20 {
            let keyed = keyed.clone();
            waiting.spawn(async move { keyed.acquire("key", 1).await });
        }
        if !is_granted {
            tokio::time::sleep(ms(100)).await;
            assert!(waiting.try_join_next().is_none());
        }
        let _server = (!is_granted).then(|| crate::fixture::restart(port));
        while let Some(waited) = waiting.join_next().await {
            waited.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn an_estimate_is_settled_where_it_was_granted() {
    for policy in policies() {
        let server = Server::start();
        let client = client(&server.url(), policy.clone()).await;
        let limiter = limiter(&client, 1_000).await;
        let by_redis = limiter.check(2).await.unwrap().into_grant().unwrap();
        kill(server);
        let _ = until_by_policy(&limiter).await;
        let lost = limiter.settle(by_redis, 3).await.unwrap_err();
        let is_lost = matches!(
            lost,
            Error::StoreUnavailable { .. } | Error::Indeterminate { .. }
        );
        assert!(is_lost, "{lost:?}");
        let Some(by_policy) = limiter.check(2).await.unwrap().into_grant() else {
            continue; // the policy denies
        };
        limiter.settle(by_policy, 501).await.unwrap();
        // Half of the permits are this client's.
        let is_granted = policy == FailurePolicy::Allow;
        assert_eq!(limiter.try_acquire(1).await.unwrap(), is_granted);
    }
}

/// A limiter of each policy, of 42 units, and the unit.
fn limiters(client: &RedissonClient) -> Vec<(u32, Box<dyn Limiter>)> {
    let limiter = |policy| -> Box<dyn Limiter> { Box::new(client.policy_limiter(policy).unwrap()) };
    let each = every_policy(42).map(|(policy, unit)| (unit, limiter(policy)));
    each.collect()
}

/// How many requests of this cost are granted out of 50.
async fn granted(limiter: &dyn Limiter, cost: u32) -> u32 {
    let mut granted = 0;
    for _ in 0..50 {
        let decision = limiter.check_without_waiting("key", cost).await;
        granted += u32::from(decision.unwrap().is_granted());
    }
    granted
}

#[tokio::test]
async fn every_policy_grants_a_quarter_as_if_requests_cost_four_times_as_much() {
    let memory = RedissonClient::in_memory();
    for place in 0..limiters(&memory).len() {
        // Each kind of limiter has a server of its own, as the key is the same.
        let server = Server::start();
        let client = client(&server.url(), one_of(4)).await;
        let limiter = limiter(&client, 1_000).await;
        let (unit, each) = limiters(&client).swap_remove(place);
        let decision = each.check("key", unit).await.unwrap();
        assert!(decision.is_granted() && !decision.is_by_failure_policy());
        kill(server);
        let _ = until_by_policy(&limiter).await;
        let memory = RedissonClient::in_memory();
        let in_memory = limiters(&memory).swap_remove(place).1;
        let expected = granted(&*in_memory, 4 * unit).await;
        assert!((10..=12).contains(&expected), "{each:?}: {expected}");
        assert_eq!(granted(&*each, unit).await, expected, "{each:?}");
    }
}

#[tokio::test]
async fn keys_have_a_quarter_of_their_rate() {
    let server = Server::start();
    let client = client(&server.url(), one_of(4)).await;
    let limiter = limiter(&client, 1_000).await;
    let keyed = client
        .keyed_rate_limiter("keyed:", Rate::overall(43, HOUR))
        .unwrap();
    kill(server);
    let _ = until_by_policy(&limiter).await;
    assert_eq!(granted(&keyed, 1).await, 10);
}
