//! The other algorithms: what their keys hold, and what goes over the wire.

mod batching;
mod cluster_slots;
mod fixed_window;
mod key_names;
mod key_types;
mod leaky_bucket;
mod penalty;
mod penalty_token_bucket;
mod quota_bucket;
mod round_trips;
mod sliding_log;
mod sliding_window;
mod token_bucket;

use redisson_rate_limiter::{Error, Limiter};

use crate::stage::Stage;

/// Asks a limiter about a key whose state it cannot read, and shows that it says so and leaves the state as it is.
async fn assert_refused(stage: &mut Stage, limiter: &impl Limiter, key: &str, case: &str) {
    let before = stage.everything().await;
    let error = limiter.check(key, 1).await;
    assert!(
        matches!(&error, Err(Error::BadState { name, .. }) if name == key),
        "{case}: {error:?}"
    );
    assert_eq!(stage.everything().await, before, "{case}");
}

/// The same for a limiter whose state are two strings, `key` and `start`, in each of which something else stands.
async fn assert_bad_strings_are_refused<L: Limiter>(
    key: &str,
    start: &str,
    limiter: impl AsyncFn(&Stage) -> L,
) {
    for bad_key in [key, start] {
        for bad in ["many", "", "1.5", "1e17", "nan"] {
            let mut stage = Stage::set().await;
            let limiter = limiter(&stage).await;
            stage.run(&["SET", bad_key, bad]).await;
            let case = format!("{bad_key} {bad}");
            assert_refused(&mut stage, &limiter, key, &format!("{case} alone")).await;
            stage.run(&["SETNX", key, "1"]).await;
            stage.run(&["SETNX", start, "1000"]).await;
            assert_refused(&mut stage, &limiter, key, &case).await;
        }
        let mut stage = Stage::set().await;
        let limiter = limiter(&stage).await;
        assert!(limiter.check(key, 1).await.unwrap().is_granted());
        stage.run(&["DEL", bad_key]).await;
        stage.run(&["RPUSH", bad_key, "1"]).await;
        assert_refused(&mut stage, &limiter, key, &format!("{bad_key} is a list")).await;
    }
}
