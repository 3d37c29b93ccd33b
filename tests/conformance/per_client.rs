//! Rates that count for each client by itself.

use redisson_rate_limiter::{Error, PermitsInUse, Rate};

use crate::fixture::{Fixture, SECOND, granted};

pub async fn asking_for_20_of_1_is_an_error_and_1_is_granted_afterwards(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::per_client(1, SECOND))
        .await
        .unwrap();
    let error = limiter.try_acquire(20).await;
    assert!(
        matches!(
            &error,
            Err(Error::ExceedsLimit {
                requested: 20,
                limit: 1,
                ..
            })
        ),
        "{error:?}"
    );
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
}

pub async fn each_client_has_the_whole_rate_for_itself(fixture: Fixture) {
    let one = fixture.limiter_of("one").await;
    let two = fixture.limiter_of("two").await;
    one.try_set_rate(Rate::per_client(5, SECOND)).await.unwrap();
    assert_eq!(granted(&one, 6).await, 5);
    assert_eq!(two.available_permits().await.unwrap(), 5);
    assert_eq!(granted(&two, 6).await, 5);
    assert_eq!(one.available_permits().await.unwrap(), 0);
    fixture.pass(SECOND);
    assert_eq!(granted(&one, 6).await, 5);
    assert_eq!(two.available_permits().await.unwrap(), 5);
}

pub async fn release_and_refund_touch_only_the_callers_permits(fixture: Fixture) {
    let one = fixture.limiter_of("one").await;
    let two = fixture.limiter_of("two").await;
    one.try_set_rate(Rate::per_client(5, SECOND)).await.unwrap();
    assert!(one.try_acquire(4).await.unwrap());
    assert!(two.try_acquire(4).await.unwrap());
    one.release(2).await.unwrap();
    assert_eq!(one.available_permits().await.unwrap(), 3);
    assert_eq!(two.available_permits().await.unwrap(), 1);
}

pub async fn set_rate_resets_the_caller_and_others_keep_what_they_use(fixture: Fixture) {
    let one = fixture.limiter_of("one").await;
    let two = fixture.limiter_of("two").await;
    one.try_set_rate(Rate::per_client(5, SECOND)).await.unwrap();
    assert!(one.try_acquire(4).await.unwrap());
    assert!(two.try_acquire(4).await.unwrap());
    one.set_rate(Rate::per_client(5, SECOND)).await.unwrap();
    assert_eq!(one.available_permits().await.unwrap(), 5);
    assert_eq!(two.available_permits().await.unwrap(), 1);
    assert!(
        one.update_rate(Rate::per_client(5, SECOND), PermitsInUse::Reset)
            .await
            .unwrap()
    );
    assert_eq!(two.available_permits().await.unwrap(), 1);
}

pub async fn deleting_takes_the_limiter_from_all_and_the_use_of_the_caller_only(fixture: Fixture) {
    let one = fixture.limiter_of("one").await;
    let two = fixture.limiter_of("two").await;
    let rate = Rate::per_client(5, SECOND);
    one.try_set_rate(rate).await.unwrap();
    assert!(one.try_acquire(4).await.unwrap());
    assert!(two.try_acquire(4).await.unwrap());
    assert!(one.delete().await.unwrap());
    assert!(!two.exists().await.unwrap());
    assert!(matches!(
        two.try_acquire(1).await,
        Err(Error::NotInitialized { .. })
    ));
    // The client that creates the limiter again starts without permits in use. The other still has
    // its own in use, until their window has passed.
    assert!(one.try_set_rate(rate).await.unwrap());
    assert_eq!(one.available_permits().await.unwrap(), 5);
    assert_eq!(two.available_permits().await.unwrap(), 1);
    fixture.pass(SECOND);
    assert_eq!(two.available_permits().await.unwrap(), 5);
}

pub async fn a_client_that_keeps_its_id_over_a_restart_keeps_its_permits(fixture: Fixture) {
    let before = fixture.limiter_of("worker-7").await;
    before
        .try_set_rate(Rate::per_client(5, SECOND))
        .await
        .unwrap();
    assert!(before.try_acquire(4).await.unwrap());
    drop(before);

    let after = fixture.limiter_of("worker-7").await;
    assert_eq!(after.available_permits().await.unwrap(), 1);
    assert_eq!(granted(&after, 2).await, 1);
    let stranger = fixture.limiter_of("worker-8").await;
    assert_eq!(stranger.available_permits().await.unwrap(), 5);
}

pub async fn clients_without_an_id_of_their_own_get_different_ones(fixture: Fixture) {
    use redisson_rate_limiter::RedissonClient;
    let one = fixture.build(RedissonClient::builder()).await;
    let two = fixture.build(RedissonClient::builder()).await;
    assert_ne!(one.id(), two.id());
    assert_eq!(one.id().len(), 36);
    assert_eq!(one.clone().id(), one.id());
    let (one, two) = (
        one.rate_limiter(fixture.name()),
        two.rate_limiter(fixture.name()),
    );
    one.try_set_rate(Rate::per_client(1, SECOND)).await.unwrap();
    assert!(one.try_acquire(1).await.unwrap());
    assert!(two.try_acquire(1).await.unwrap());
}
