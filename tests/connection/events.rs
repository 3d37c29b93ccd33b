//! Each change of a connection's state is one tracing event, with its cause and without any secret,
//! and one event of the client's handler.

use redisson_rate_limiter::RedissonClient;

use crate::captured_events::Events;
use crate::load::{PATIENT, ample, ms};
use crate::scripted::{Reply, Scripted};
use crate::support::Server;
use crate::told::Told;

const SECRET: &str = "correct-horse-battery";

#[tokio::test]
async fn losing_and_finding_a_server_is_logged_once_each() {
    let events = Events::start();
    let arguments = ["--requirepass", SECRET];
    let server = Server::start_with(&arguments);
    let port = server.port();
    let url = format!("redis://:{SECRET}@127.0.0.1:{port}");
    let told = Told::default();
    let builder = RedissonClient::builder().response_timeout(PATIENT);
    let client = told.by(builder).connect(&url).await.unwrap();
    let limiter = ample(&client, "limiter").await;
    server.signal("KILL"); // at once, so that nobody listens any more
    drop(server);
    tokio::time::sleep(ms(300)).await; // connecting fails for this long
    let _server = Server::start_at(port, &arguments);
    assert!(!limiter.exists().await.unwrap());

    let events = events.take();
    let expected = [
        ["INFO", "connected", ""],
        [
            "WARN",
            "replacing the connection",
            "the connection was closed",
        ],
        ["WARN", "cannot connect, trying again", "refused"],
        ["WARN", "circuit breaker opened", "refused"],
        ["INFO", "connected", ""],
        ["INFO", "circuit breaker half open", ""],
        ["INFO", "circuit breaker closed", ""],
    ];
    assert_eq!(events.len(), expected.len(), "{events:#?}");
    for (event, parts) in events.iter().zip(expected) {
        let server = format!("server=127.0.0.1:{port}");
        let has_all = parts.iter().all(|part| event.contains(part));
        assert!(has_all && event.contains(&server), "{event}");
        assert!(!event.contains(SECRET), "{event}");
    }

    let expected = [
        "connected",
        "lost",
        "open for store_unavailable",
        "connected",
        "half_open",
        "closed",
    ];
    let expected = expected.map(|change| format!("127.0.0.1:{port} {change}"));
    assert_eq!(told.take_changes(), expected);
}

#[tokio::test]
async fn a_connection_that_no_call_can_use_is_not_reported_as_connected() {
    let asks_for_a_login = Server::start_with(&["--requirepass", SECRET]);
    let closes = Scripted::start(|words| match &words[0][..] {
        "TIME" => Reply::Close, // after an answer to the command before
        _ => Reply::Silence,
    });
    let closes = closes.await;
    for port in [asks_for_a_login.port(), closes.port] {
        let events = Events::start();
        let builder = RedissonClient::builder().response_timeout(PATIENT);
        let url = format!("redis://127.0.0.1:{port}");
        builder.connect(&url).await.unwrap_err();
        let events = events.take();
        let said = |text| events.iter().any(|event| event.contains(text));
        assert!(said("cannot connect") && !said("connected"), "{events:#?}");
    }
}
