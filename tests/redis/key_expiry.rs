//! Asserts how long a key lives.

use std::time::Instant;

use redis::AsyncCommands;

use crate::fixture::Fixture;

/// Asserts that a write of the key after `since` gave it this time to live, in ms.
pub async fn assert_lives_for(fixture: &mut Fixture, key: &str, millis: i64, since: Instant) {
    let left: i64 = fixture.raw.pttl(key).await.unwrap();
    let passed = since.elapsed().as_millis() as i64 + 1;
    assert!(
        (millis - passed..=millis).contains(&left),
        "{key} lives {left} ms, {passed} ms after it got {millis}"
    );
}
