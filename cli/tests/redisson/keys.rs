//! Keys that nobody uses any more, that would outlive their limiter, or that are something else.

use compat_tests::redisson::{Rate, Version};

use crate::spoilt::{MINUTE, NAME, Spoilt, each};

const KEEP_ALIVE: i64 = 2 * MINUTE;

/// Any program may write a number. Once a limiter uses it, it is corrected.
#[tokio::test]
async fn a_value_that_outlived_its_limiter_is_corrected_once_the_next_uses_it() {
    each(Version::ALL, async |on, limiter| {
        limiter.set_rate(Rate::overall(99, MINUTE)).await.unwrap();
        limiter.expire(MINUTE).await.unwrap();
        assert_eq!(limiter.available_permits().await, Ok(99));
        on.mends(&["no-time-to-live"]);
        on.cli.redis(&["PERSIST", "{orders}:value"]);
        on.cli.redis(&["DEL", NAME]); // as if its time had come
        on.keeps(&["not-proven"]);
        limiter
            .try_set_rate(Rate::overall(10, MINUTE))
            .await
            .unwrap();
        on.mends(&["permits-too-many"]);
        on.goes_on(limiter, 10, 10).await;
    })
    .await;
}

#[tokio::test]
async fn a_value_that_the_next_limiter_uses_already_is_corrected() {
    for (stale, code) in [(99, "permits-too-many"), (4, "permits-lost")] {
        each(Version::ALL, async |on, limiter| {
            limiter
                .set_rate(Rate::overall(stale, MINUTE))
                .await
                .unwrap();
            limiter.available_permits().await.unwrap();
            on.cli.redis(&["DEL", NAME]);
            limiter
                .try_set_rate(Rate::overall(10, MINUTE))
                .await
                .unwrap();
            assert_eq!(limiter.available_permits().await, Ok(stale));
            on.mends(&[code]);
            on.goes_on(limiter, 10, 10).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_limiter_with_a_keep_alive_leaves_no_key_that_lives_for_ever() {
    let with_keep_alive = Version::ALL.into_iter().filter(|it| it.has_keep_alive());
    each(with_keep_alive, async |on, limiter| {
        let rate = Rate::overall(10, MINUTE).keep_alive(KEEP_ALIVE);
        limiter.set_rate(rate).await.unwrap();
        limiter.available_permits().await.unwrap();
        on.mends(&["no-time-to-live"]);
        let dump = on.dump().await;
        let left = dump.overall.value.and_then(|it| it.ttl).unwrap_or(0);
        assert!((1..=KEEP_ALIVE).contains(&left), "{left}");
        on.goes_on(limiter, 10, 10).await;
    })
    .await;
}

/// 3.17.0 does not give value and permits the time to live of the limiter.
#[tokio::test]
async fn permits_get_the_time_to_live_of_a_limiter_of_redisson_3_17() {
    each([Version::V3_17_0], async |on, limiter| {
        limiter.expire(MINUTE).await.unwrap();
        assert_eq!(limiter.try_acquire(3).await, Ok(true));
        on.mends(&["no-time-to-live"]);
        let dump = on.dump().await;
        let lives = [
            dump.overall.value.unwrap().ttl,
            dump.overall.permits.unwrap().ttl,
        ];
        assert!(lives.iter().all(Option::is_some), "{lives:?}");
    })
    .await;
}

#[tokio::test]
async fn what_a_limiter_leaves_that_redisson_renamed_is_removed() {
    each(Version::ALL, async |on, limiter| {
        assert_eq!(limiter.try_acquire(8).await, Ok(true));
        limiter.rename("mails").await.unwrap();
        on.mends(&["keys-left-behind"]);
        let mails = on.java.limiter("mails");
        assert_eq!(mails.try_acquire(10).await, Ok(true));
        assert_eq!(mails.try_acquire(1).await, Ok(false));
    })
    .await;
}

#[tokio::test]
async fn keys_of_clients_that_have_gone_are_removed_and_others_stay() {
    each(Version::ALL, async |on, limiter| {
        let on: &mut Spoilt = on;
        limiter.delete().await.unwrap();
        limiter
            .try_set_rate(Rate::per_client(10, MINUTE))
            .await
            .unwrap();
        let gone = on.client(on.version).await;
        assert_eq!(gone.limiter(NAME).try_acquire(4).await, Ok(true));
        compat_tests::age::age(&mut on.redis, NAME, &[&gone.id], MINUTE + 1).await;
        assert_eq!(limiter.try_acquire(3).await, Ok(true));
        drop(gone);
        on.mends_with("--idle 1m", &["client idle-client"]);
        assert_eq!(on.state(true).await, (7, vec![3]));
        on.goes_on(limiter, 7, 10).await;
    })
    .await;
}

#[tokio::test]
async fn keys_of_the_type_that_a_limiter_had_before_are_removed() {
    each(Version::ALL, async |on, limiter| {
        limiter
            .set_rate(Rate::per_client(10, MINUTE))
            .await
            .unwrap();
        assert_eq!(limiter.try_acquire(4).await, Ok(true));
        limiter.set_rate(Rate::overall(10, MINUTE)).await.unwrap();
        assert_eq!(limiter.try_acquire(3).await, Ok(true));
        on.mends(&["client keys-of-other-type"]);
        on.goes_on(limiter, 7, 10).await;

        assert_eq!(limiter.try_acquire(6).await, Ok(true));
        limiter
            .set_rate(Rate::per_client(10, MINUTE))
            .await
            .unwrap();
        assert_eq!(limiter.try_acquire(2).await, Ok(true));
        // Before 3.22.1 it forgets what all clients used.
        if on.version >= Version::V3_36_0 {
            on.mends(&["keys-of-other-type"]);
        }
        on.goes_on(limiter, 8, 10).await;
    })
    .await;
}

#[tokio::test]
async fn keys_of_other_programs_are_reported_and_left_alone() {
    each(Version::ALL, async |on, limiter| {
        assert_eq!(limiter.try_acquire(3).await, Ok(true));
        on.cli.redis(&["DEL", "{orders}:value"]);
        on.cli.redis(&["RPUSH", "{orders}:value", "a letter"]);
        on.cli.redis(&["SET", "{mails}:permits", "a letter"]);
        on.cli.redis(&["RPUSH", "{mails}:value:one", "a letter"]);
        limiter.try_acquire(1).await.unwrap_err();
        on.cannot_mend(&["wrong-type"]);
        on.cli.redis(&["DEL", "{orders}:value"]);
        on.cli.redis(&["DEL", "{mails}:permits"]);
        on.cli.redis(&["DEL", "{mails}:value:one"]);
        on.mends(&["value-missing"]);
        on.goes_on(limiter, 7, 10).await;
    })
    .await;
}
