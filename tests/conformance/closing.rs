//! A closed client: what it refuses, which waits end, and what still works.

use redisson_rate_limiter::{Error, FixedWindow, Rate, Result, Rule, Verdict};

use crate::fixture::{Fixture, HOUR, SECOND, ms};

fn is_closed<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Closed))
}

pub async fn a_closed_client_refuses_all_requests_of_all_handles_and_ends_all_waits(
    fixture: Fixture,
) {
    let client = fixture.client("closed").await;
    let limiter = client.rate_limiter(fixture.name());
    limiter.set_rate(Rate::overall(2, HOUR)).await.unwrap();
    let keyed = client
        .keyed_rate_limiter(&format!("{{{}}}:", fixture.name()), Rate::overall(1, HOUR))
        .unwrap();
    let policy = client.policy_limiter(FixedWindow::new(9, HOUR)).unwrap();
    let key = format!("{{{}}}policy", fixture.name());
    let of_rule = policy.clone().with_prefix(&*key);
    let rules = client.rules([Rule::new(of_rule)]).unwrap();
    let grant = limiter.check(2).await.unwrap().into_grant().unwrap();
    assert!(keyed.try_acquire("alice", 1).await.unwrap());
    assert!(matches!(
        rules.check(&()).await.unwrap(),
        Verdict::Granted(_)
    ));

    let mut waiting = Vec::new();
    for _ in 0..3 {
        let limiter = limiter.clone();
        waiting.push(tokio::spawn(async move { limiter.acquire(1).await }));
    }
    let timed = limiter.clone();
    let timed = tokio::spawn(async move { timed.try_acquire_timeout(1, HOUR).await });
    let by_key = keyed.clone();
    waiting.push(tokio::spawn(
        async move { by_key.acquire("alice", 1).await },
    ));
    while limiter.waiters() < 4 || keyed.rate_limiter("alice").waiters() < 1 {
        tokio::task::yield_now().await;
    }
    let clone = client.clone();
    assert!(!client.is_closed());
    assert!(clone.close(60 * SECOND).await);
    assert!(client.is_closed());
    for waiting in waiting {
        assert!(is_closed(&waiting.await.unwrap()));
    }
    assert!(is_closed(&timed.await.unwrap()));

    let charge = policy.charge(&key, 1).unwrap();
    let new = client.rate_limiter(&format!("{{{}}}:new", fixture.name()));
    assert!(is_closed(&limiter.try_acquire(1).await));
    assert!(is_closed(&limiter.check(1).await));
    assert!(is_closed(&limiter.acquire(1).await));
    assert!(is_closed(&limiter.try_acquire_timeout(1, ms(10)).await));
    assert!(is_closed(&new.acquire(1).await));
    assert!(is_closed(&keyed.check("bob", 1).await));
    assert!(is_closed(&keyed.try_acquire("bob", 1).await));
    assert!(is_closed(
        &keyed
            .check_with_rate("bob", 1, Rate::overall(1, HOUR))
            .await
    ));
    assert!(is_closed(&keyed.acquire("bob", 1).await));
    assert!(is_closed(&keyed.rate_limiter("bob").acquire(1).await));
    assert!(is_closed(&policy.check(&key, 1).await));
    assert!(is_closed(&limiter.peek(1).await));
    assert!(is_closed(&keyed.peek("bob", 1).await));
    assert!(is_closed(&policy.peek(&key, 1).await));
    assert!(is_closed(&client.peek_all([charge.clone()]).await));
    assert!(is_closed(&client.check_all([charge]).await));
    assert!(is_closed(&rules.peek_all(&[()]).await));
    assert!(is_closed(&rules.check(&()).await));

    // The calls that a handler makes at its end still work, and the waiters took nothing.
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    assert_eq!(limiter.refund(grant).await.unwrap(), 2);
    assert_eq!(limiter.available_permits().await.unwrap(), 2);
    client.ping().await.unwrap();
    assert!(
        client.close(ms(0)).await,
        "nothing is left to be given back"
    );

    let other = fixture.client("other").await;
    assert!(
        other
            .rate_limiter(fixture.name())
            .try_acquire(2)
            .await
            .unwrap()
    );
}

pub async fn a_client_is_healthy_while_its_servers_answer(fixture: Fixture) {
    let client = fixture.client("healthy").await;
    client.ping().await.unwrap();
    let health = client.health();
    assert!(health.is_healthy());
    assert_eq!(health.servers.is_empty(), fixture.is_in_memory());
    assert!(health.servers.iter().all(|it| it.last_cause.is_none()));
}
