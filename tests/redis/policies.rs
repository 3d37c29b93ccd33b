//! The other algorithms: what their keys hold, and what goes over the wire.

mod batching;
mod cluster_slots;
mod fixed_window;
mod gcra;
mod key_names;
mod key_types;
mod leaky_bucket;
mod penalty;
mod penalty_token_bucket;
mod quota_bucket;
mod round_trips;
mod sliding_window_counter;
mod sliding_window_log;
mod token_bucket;

use redisson_rate_limiter::{Error, Limiter};

use crate::fixture::Fixture;

/// Asks a limiter about a key whose state it cannot read. Asserts that it reports this and leaves
/// the state as it is.
async fn assert_refused(fixture: &mut Fixture, limiter: &impl Limiter, key: &str, case: &str) {
    let before = fixture.everything().await;
    let error = limiter.check(key, 1).await;
    assert!(
        matches!(&error, Err(Error::BadState { name, .. }) if name == key),
        "{case}: {error:?}"
    );
    assert_eq!(fixture.everything().await, before, "{case}");
}

/// Asserts the same of a limiter whose state is two strings, `key` and `start`, with something else
/// in one of them at a time.
async fn assert_bad_strings_are_refused<L: Limiter>(
    key: &str,
    start: &str,
    limiter: impl AsyncFn(&Fixture) -> L,
) {
    for bad_key in [key, start] {
        for bad in ["many", "", "1.5", "1e17", "nan"] {
            let mut fixture = Fixture::start().await;
            let limiter = limiter(&fixture).await;
            fixture.run(&["SET", bad_key, bad]).await;
            let case = format!("{bad_key} {bad}");
            assert_refused(&mut fixture, &limiter, key, &format!("{case} alone")).await;
            fixture.run(&["SETNX", key, "1"]).await;
            fixture.run(&["SETNX", start, "1000"]).await;
            assert_refused(&mut fixture, &limiter, key, &case).await;
        }
        let mut fixture = Fixture::start().await;
        let limiter = limiter(&fixture).await;
        assert!(limiter.check(key, 1).await.unwrap().is_granted());
        fixture.run(&["DEL", bad_key]).await;
        fixture.run(&["RPUSH", bad_key, "1"]).await;
        assert_refused(&mut fixture, &limiter, key, &format!("{bad_key} is a list")).await;
    }
}
