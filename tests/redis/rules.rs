//! Requests to rules that are dropped between two of their calls.

use redisson_rate_limiter::{Event, FixedWindow, Rate, Rule};
use tokio::sync::mpsc;

use crate::clients::{PATIENCE, builder, steady};
use crate::fixture::{Fixture, HOUR, NAME};

#[tokio::test]
async fn a_request_dropped_while_shadow_rules_are_asked_keeps_no_permits() {
    let fixture = Fixture::start().await;
    let (sender, mut told) = mpsc::unbounded_channel();
    let builder = builder().on_event(move |event| {
        if let Event::Request {
            is_shadow: false, ..
        } = event
        {
            sender.send(()).unwrap();
        }
    });
    let client = steady(&fixture.server.url(), builder).await;
    let enforced = client
        .keyed_rate_limiter("enforced:", Rate::overall(5, HOUR))
        .unwrap();
    let shadow = client.policy_limiter(FixedWindow::new(9, HOUR)).unwrap();
    let shadow = shadow.with_prefix("shadow:");
    let rules = client.rules([
        Rule::new(enforced.with_name("enforced")).by(["name"]),
        Rule::new(shadow.with_name("shadow")).in_shadow(),
    ]);
    let rules = rules.unwrap();
    tokio::select! {
        biased;
        _ = told.recv() => {}
        verdict = rules.check(&[("name", NAME)]) => panic!("{verdict:?}"),
    }
    assert!(client.close(PATIENCE).await);
    let limiter = client.rate_limiter(&format!("enforced:{NAME}"));
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
}
