//! Permits that are lost, or granted twice.

use compat_tests::redisson::{Rate, Version};
use compat_tests::repeated::acquire_twice;

use crate::spoilt::{MINUTE, NAME, Spoilt, each};

fn with(feature: fn(Version) -> bool) -> impl Iterator<Item = Version> {
    Version::ALL.into_iter().filter(move |it| feature(*it))
}

#[tokio::test]
async fn permits_of_an_acquire_that_redisson_sent_twice_come_back() {
    each(Version::ALL, async |on, limiter| {
        assert_eq!(limiter.try_acquire(1).await, Ok(true));
        acquire_twice(on.version, &on.cli.server.url(), &on.redis, NAME, 4).await;
        assert_eq!(on.state(false).await, (1, vec![1, 4]), "four are lost");
        on.mends(&["permits-lost"]);
        assert_eq!(on.state(false).await, (5, vec![1, 4]));
        on.goes_on(limiter, 5, 10).await;
    })
    .await;
}

#[tokio::test]
async fn permits_of_one_client_that_it_sent_twice_come_back_to_it() {
    let mut on = Spoilt::start(Version::V4_7_0).await;
    let limiter = on.java.limiter(NAME);
    limiter
        .set_rate(Rate::per_client(10, MINUTE))
        .await
        .unwrap();
    let other = on.client(Version::V3_36_0).await.limiter(NAME);
    assert_eq!(limiter.try_acquire(1).await, Ok(true));
    assert_eq!(other.try_acquire(3).await, Ok(true));
    // The id of the client that repeats is one of its own.
    acquire_twice(on.version, &on.cli.server.url(), &on.redis, NAME, 4).await;
    on.mends(&["client permits-lost"]);
    assert_eq!(on.state(true).await, (9, vec![1]));
    assert_eq!(other.available_permits().await, Ok(7));
    on.goes_on(&limiter, 9, 10).await;
}

#[tokio::test]
async fn permits_that_redisson_released_are_not_granted_twice() {
    each(with(Version::has_release), async |on, limiter| {
        for permits in [2, 4] {
            assert_eq!(limiter.try_acquire(permits).await, Ok(true));
            on.age(1).await; // not both in one millisecond, in which they have no order
        }
        limiter.release(3).await.unwrap();
        assert_eq!(on.state(false).await, (7, vec![2, 4]));
        on.mends(&["permits-too-many"]);
        assert_eq!(on.state(false).await, (7, vec![3]));
        on.goes_on(limiter, 7, 10).await;
    })
    .await;
}

#[tokio::test]
async fn what_comes_back_after_a_release_is_no_more_than_the_rate() {
    each(with(Version::has_release), async |on, limiter| {
        assert_eq!(limiter.try_acquire(3).await, Ok(true));
        limiter.release(3).await.unwrap();
        on.age(MINUTE).await;
        on.mends(&["permits-too-many"]);
        on.goes_on(limiter, 10, 10).await;
    })
    .await;
}

#[tokio::test]
async fn a_rate_that_was_lowered_under_use_is_kept_from_the_first_window_on() {
    each(with(Version::has_update_rate), async |on, limiter| {
        assert_eq!(limiter.try_acquire(8).await, Ok(true));
        let lower = Rate::overall(5, MINUTE);
        assert_eq!(limiter.update_rate(lower, Some(true)).await, Ok(true));
        assert_eq!(on.state(false).await, (0, vec![8]));
        on.mends(&["permits-too-many"]);
        assert_eq!(on.state(false).await, (-3, vec![8]));
        assert_eq!(limiter.try_acquire(1).await, Ok(false));
        on.age(MINUTE).await;
        on.goes_on(limiter, 5, 5).await;
    })
    .await;
    // An operator changes the rate by HSET. The permits above the rate may have been released too.
    each(Version::ALL, async |on, limiter| {
        assert_eq!(limiter.try_acquire(8).await, Ok(true));
        on.cli.redis(&["HSET", NAME, "rate", "5"]);
        on.mends(&["permits-too-many"]);
        assert_eq!(on.state(false).await, (-1, vec![6]));
        on.age(MINUTE).await;
        on.goes_on(limiter, 5, 5).await;
    })
    .await;
}

#[tokio::test]
async fn acquires_of_no_permit_and_of_less_leave_nothing() {
    each(Version::ALL, async |on, limiter| {
        assert_eq!(limiter.try_acquire(2).await, Ok(true));
        for permits in [0, 0, -1] {
            assert_eq!(limiter.try_acquire(permits).await, Ok(true));
        }
        on.mends(&["members-without-permits", "permits-too-many"]);
        // The permit of the last one counts as released.
        assert_eq!(on.state(false).await, (9, vec![1]));
        on.goes_on(limiter, 9, 10).await;
    })
    .await;
}

#[tokio::test]
async fn a_limiter_that_lost_its_permits_or_its_value_works_again() {
    each(Version::ALL, async |on, limiter| {
        assert_eq!(limiter.try_acquire(8).await, Ok(true));
        on.cli.redis(&["DEL", "{orders}:permits"]);
        limiter.try_acquire(3).await.unwrap_err();
        on.mends(&["permits-lost"]);
        assert_eq!(limiter.try_acquire(8).await, Ok(true));
        on.cli.redis(&["DEL", "{orders}:value"]);
        on.mends(&["value-missing"]);
        on.goes_on(limiter, 2, 10).await;
    })
    .await;
}

/// Each permit is granted once, before, while and after the lost ones come back.
#[tokio::test]
async fn a_limiter_is_mended_while_redisson_takes_permits_of_it() {
    each([Version::V3_17_0, Version::V4_7_0], async |on, limiter| {
        limiter
            .set_rate(Rate::overall(1_000, 60 * MINUTE))
            .await
            .unwrap();
        assert_eq!(limiter.try_acquire(1).await, Ok(true));
        acquire_twice(on.version, &on.cli.server.url(), &on.redis, NAME, 400).await;
        let mut doctor = on.cli.command("doctor orders --fix --yes");
        let mends = std::thread::spawn(move || {
            let mut runs = 1;
            // It changes nothing if the limiter has changed since it was read, so another run may
            // be needed.
            while !doctor.output().unwrap().status.success() {
                runs += 1;
            }
            runs
        });
        let mut granted = 0;
        while granted < 599 {
            granted += limiter.load_trying(4, 1, 50).await.unwrap().grants;
        }
        println!("runs of doctor: {}", mends.join().unwrap());
        assert_eq!((granted, limiter.try_acquire(1).await), (599, Ok(false)));
        let (value, grants) = on.state(false).await;
        assert_eq!((value, grants.iter().sum::<u32>()), (0, 1_000));
    })
    .await;
}
