//! Names of limiters.

use redisson_rate_limiter::{Limiter, Rate, RedissonClient};

use crate::fixture::{Fixture, SECOND};

pub async fn a_mapped_name_is_the_name_in_the_store(fixture: Fixture) {
    let mapped = fixture
        .build(RedissonClient::builder().name_mapper(|name| format!("shop:{name}")))
        .await
        .rate_limiter(fixture.name());
    let full_name = format!("shop:{}", fixture.name());
    assert_eq!(mapped.name(), full_name);
    mapped.try_set_rate(Rate::overall(5, SECOND)).await.unwrap();
    assert!(mapped.try_acquire(3).await.unwrap());

    let plain = fixture.client("plain").await;
    assert!(!plain.rate_limiter(fixture.name()).exists().await.unwrap());
    let same = plain.rate_limiter(&full_name);
    assert_eq!(same.name(), full_name);
    assert_eq!(same.available_permits().await.unwrap(), 2);
}

pub async fn names_that_a_mapper_makes_the_same_are_the_same_limiter(fixture: Fixture) {
    let name = fixture.name().to_owned();
    let client = fixture
        .build(RedissonClient::builder().name_mapper(move |_| name.clone()))
        .await;
    let (one, two) = (client.rate_limiter("one"), client.rate_limiter("two"));
    one.try_set_rate(Rate::overall(5, SECOND)).await.unwrap();
    assert!(one.try_acquire(3).await.unwrap());
    assert_eq!(two.available_permits().await.unwrap(), 2);
}

pub async fn limiters_of_different_names_know_nothing_of_each_other(fixture: Fixture) {
    let client = fixture.client("client").await;
    let names = ["", ":value", ":permits", "{", " ü\n", ":client"];
    let limiters = names.map(|suffix| {
        let plain = fixture.name();
        // On a cluster, each opening brace needs a closing one.
        match suffix {
            "{" => client.rate_limiter(&format!("{plain}{{tag}}")),
            suffix => client.rate_limiter(&format!("{plain}{suffix}")),
        }
    });
    for (rate, limiter) in (1..).zip(&limiters) {
        assert!(
            limiter
                .try_set_rate(Rate::overall(rate, SECOND))
                .await
                .unwrap()
        );
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    for (rate, limiter) in (1..).zip(&limiters) {
        assert_eq!(
            limiter.available_permits().await.unwrap(),
            rate - 1,
            "{}",
            limiter.name()
        );
    }
    assert!(limiters[0].delete().await.unwrap());
    for limiter in &limiters[1..] {
        assert!(limiter.exists().await.unwrap(), "{}", limiter.name());
    }
}

pub async fn a_rate_limiter_can_be_used_as_any_limiter(fixture: Fixture) {
    let rate_limiter = fixture.limiter().await;
    rate_limiter
        .try_set_rate(Rate::overall(1, SECOND))
        .await
        .unwrap();
    let limiter: Box<dyn Limiter> = Box::new(rate_limiter);
    assert!(limiter.check("any key", 1).await.unwrap().is_granted());
    assert!(!limiter.check("another", 1).await.unwrap().is_granted());
    assert_eq!(limiter.name(), fixture.name());
}
