//! Five permits a second, shared by three callers.

use redisson_rate_limiter::{Decision, Denied, Rate};

use crate::fixture::{Fixture, SECOND, fields, ms};

pub async fn the_worked_example_is_answered_to_the_permit_and_the_millisecond(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    assert!(
        limiter
            .try_set_rate(Rate::overall(5, SECOND))
            .await
            .unwrap()
    );

    fixture.at(1_000);
    let decision = limiter.check(1).await.unwrap();
    assert_eq!(fields(&decision), (true, 4, None, 1000));

    fixture.at(1_100);
    let decision = limiter.check(2).await.unwrap();
    assert_eq!(fields(&decision), (true, 2, None, 1000));

    fixture.at(1_200);
    let decision = limiter.check(3).await.unwrap();
    assert_eq!(fields(&decision), (false, 2, Some(800), 900));
    let Decision::Denied(Denied { retry_after, .. }) = decision else {
        panic!("it was granted");
    };
    assert_eq!(retry_after, ms(800));

    fixture.at(2_100);
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    let decision = limiter.check(1).await.unwrap();
    assert_eq!(fields(&decision), (true, 4, None, 1000));
    assert_eq!(limiter.available_permits().await.unwrap(), 4);
}

pub async fn the_worked_example_holds_for_three_workers_with_their_own_clients(fixture: Fixture) {
    let anna = fixture.limiter_of("anna").await;
    let ben = fixture.limiter_of("ben").await;
    let carla = fixture.limiter_of("carla").await;
    assert!(ben.try_set_rate(Rate::overall(5, SECOND)).await.unwrap());

    fixture.at(1_000);
    assert!(anna.try_acquire(1).await.unwrap());
    fixture.at(1_100);
    assert!(ben.try_acquire(2).await.unwrap());
    fixture.at(1_200);
    let decision = carla.check(3).await.unwrap();
    assert_eq!(fields(&decision), (false, 2, Some(800), 900));
    fixture.at(2_000);
    let decision = carla.check(3).await.unwrap();
    assert_eq!(fields(&decision), (true, 0, None, 1000));
}
