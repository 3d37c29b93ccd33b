//! Texts that Lua takes for numbers and Redis does not are refused before anything is written.

use redisson_rate_limiter::{
    Error, FixedWindow, LeakyBucket, Limiter, PenaltyTokenBucket, TokenBucket,
};

use crate::stage::{HOUR, SECOND, Stage};

const ODD: [&str; 7] = ["5.0", " 5", "5 ", "0x5", "5e0", "+5", "05"];

#[tokio::test]
async fn a_counter_that_redis_cannot_count_with_is_a_bad_state_and_nobody_is_charged() {
    let mut stage = Stage::set().await;
    let client = stage.builder().connect(&stage.server.url()).await.unwrap();
    let leaky = LeakyBucket::new(9, 1, SECOND);
    let penalty = PenaltyTokenBucket::new(9, 1, SECOND);
    let limiters: [Box<dyn Limiter>; 3] = [
        Box::new(client.limiter(FixedWindow::new(9, HOUR)).unwrap()),
        Box::new(client.limiter(leaky).unwrap()),
        Box::new(client.limiter(penalty).unwrap()),
    ];
    let other = client.limiter(TokenBucket::new(9, 1)).unwrap();
    for limiter in &limiters {
        for odd in ODD {
            stage.run(&["FLUSHALL"]).await;
            // A start beside it, for those that have one.
            stage.run(&["SET", "{key}-st", "1000"]).await;
            stage.run(&["SET", "key", odd]).await;
            let before = stage.everything().await;
            let alone = limiter.decide("key", 1).await;
            assert!(
                matches!(alone, Err(Error::BadState { .. })),
                "{odd:?} {alone:?}"
            );
            let shares = [
                other.share("other", 1).unwrap(),
                limiter.share("key", 1).unwrap(),
            ];
            let joint = client.decide_all(shares).await;
            assert!(
                matches!(joint, Err(Error::BadState { .. })),
                "{odd:?} {joint:?}"
            );
            assert_eq!(stage.everything().await, before, "{odd:?}");
        }
    }
}
