//! A grant that a peer's clock scored in the future is warned of, once per limiter.

use redisson_rate_limiter::{PermitsInUse, Rate};

use crate::clients::patient;
use crate::events::Events;
use crate::fixture::{Fixture, HOUR, NAME};
use crate::keys::{self, member};

/// The warnings among the events.
fn warnings(events: &Events) -> Vec<String> {
    let mut events = events.take();
    events.retain(|event| event.starts_with("WARN"));
    events
}

#[tokio::test]
async fn a_score_ahead_of_the_server_is_warned_of_once_with_the_difference() {
    let events = Events::start();
    let mut fixture = Fixture::start().await;
    let client = patient(&fixture.server.url()).await;
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();

    let minute_ahead = keys::time(&mut fixture.raw).await + 60_000;
    fixture.add(minute_ahead, &member(&[7; 16], 1)).await;
    let before = keys::time(&mut fixture.raw).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let after = keys::time(&mut fixture.raw).await;
    for rate in 11..14 {
        // A new rate makes the client audit the grants again.
        let rate = Rate::overall(rate, HOUR);
        limiter
            .set_rate_with(rate, PermitsInUse::Keep)
            .await
            .unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    let found = warnings(&events);
    let [warning] = &found[..] else {
        panic!("one warning: {found:?}");
    };
    assert!(warning.contains(&format!("limiter={NAME}")), "{warning}");
    assert!(warning.contains("is ahead"), "{warning}");
    let (_, ahead) = warning.split_once("ahead_ms=").unwrap();
    let digits = ahead.split(' ').next().unwrap();
    let expected = minute_ahead - after..=minute_ahead - before;
    assert!(
        expected.contains(&digits.parse().unwrap()),
        "{warning} not in {expected:?}"
    );
}

#[tokio::test]
async fn a_name_is_on_one_line_of_a_warning_whatever_it_holds() {
    let events = Events::start();
    let mut fixture = Fixture::start().await;
    let client = patient(&fixture.server.url()).await;
    let limiter = client.rate_limiter("a\nWARN b");
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    let minute_ahead = keys::time(&mut fixture.raw).await + 60_000;
    let score = minute_ahead.to_string();
    let command = [b"ZADD", &b"{a\nWARN b}:permits"[..], score.as_bytes()];
    let grant = member(&[7; 16], 1);
    fixture.run_bytes(&[&command[..], &[&grant]].concat()).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let found = warnings(&events);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(r"limiter=a\nWARN b "), "{found:?}");
}

#[tokio::test]
async fn grants_of_this_client_are_not_warned_of() {
    let events = Events::start();
    let fixture = Fixture::start().await;
    let client = patient(&fixture.server.url()).await;
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    for _ in 0..11 {
        limiter.try_acquire(1).await.unwrap();
    }
    assert!(warnings(&events).is_empty());
}
