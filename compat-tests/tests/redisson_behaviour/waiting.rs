//! Waiting, and many callers at once.

use super::*;

#[tokio::test]
async fn many_threads_get_no_more_than_the_rate() {
    each(Version::ALL, async |on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(10, MINUTE))
            .await
            .unwrap();
        let load = limiter.load_trying(4, 1, 3_000).await.unwrap();
        assert!(load.grants == 10 && load.calls > 10, "{load:?}");
        assert_eq!(limiter.load_waiting(2, 1, 50).await.unwrap().grants, 0);
    })
    .await;
}

#[tokio::test]
async fn acquire_waits_for_the_interval_to_pass() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter.try_set_rate(Rate::overall(1, 100)).await.unwrap();
        let mut scores = Vec::new();
        for _ in 0..2 {
            limiter.acquire(1).await.unwrap();
            let members = on.dump("n").await.overall.permits.unwrap().data;
            assert_eq!(members.len(), 1);
            scores.push(members[0].score);
        }
        assert!(scores[1] >= scores[0] + 100.0, "{scores:?}");
    })
    .await;
}

#[tokio::test]
async fn a_waiting_call_holds_up_no_other() {
    each(Version::ALL, async |on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(1, MINUTE))
            .await
            .unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
        tokio::select! {
            biased;
            _ = limiter.acquire(1) => panic!("granted before its time"),
            exists = limiter.is_exists() => assert!(exists.unwrap()),
        }
    })
    .await;
}
