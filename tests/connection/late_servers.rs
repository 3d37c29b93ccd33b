//! A client that needs no server to start: what it connects to when there is one at last.

use redisson_rate_limiter::{Error, RedissonClient, RedissonClientBuilder};

use crate::load::{PATIENT, ample, at_last, ms};
use crate::scripted::{Reply, Scripted};
use crate::sentinels::Sentinel;
use crate::support::{Server, ports};

/// Settings of a client whose calls wait for the server.
pub fn builder() -> RedissonClientBuilder {
    let builder = RedissonClient::builder().require_server(false);
    builder.response_timeout(PATIENT)
}

/// Whether what `start` starts answers a call that was made before.
pub async fn is_served_by<S>(client: &RedissonClient, start: impl Future<Output = S>) -> S {
    assert!(!client.health().is_healthy());
    let (asking, is_asked) = (client.clone(), tokio::sync::oneshot::channel());
    let asking = tokio::spawn(async move {
        let _ = is_asked.0.send(());
        asking.rate_limiter("limiter").exists().await
    });
    is_asked.1.await.unwrap();
    let started = start.await;
    let exists = at_last("an answer", asking).await.unwrap();
    assert!(!exists.unwrap());
    ample(client, "limiter").await;
    assert!(client.health().is_healthy());
    started
}

#[tokio::test]
async fn sentinels_that_start_later_lead_to_their_primary() {
    let (primary, sentinel) = (ports::reserve(), ports::reserve());
    let urls = format!("redis-sentinel://127.0.0.1:{sentinel}/orders");
    let client = builder().connect(&urls).await.unwrap();
    is_served_by(&client, async {
        let primary = Server::start_at(primary, &[]);
        let sentinel = Sentinel::start_at(sentinel, primary.port(), "", "").await;
        (primary, sentinel)
    })
    .await;
}

#[tokio::test]
async fn a_primary_that_starts_after_its_sentinel_is_found() {
    let primary = ports::reserve();
    let sentinel = Sentinel::start(primary, "", "").await;
    let client = builder().connect(&sentinel.url()).await.unwrap();
    is_served_by(&client, async { Server::start_at(primary, &[]) }).await;
}

#[tokio::test]
async fn a_server_that_answers_nothing_yet_is_asked_again() {
    let server = Scripted::start(|_| Reply::Close).await;
    let url = format!("redis://127.0.0.1:{}", server.port);
    let client = builder().connect(&url).await.unwrap();
    let asking = tokio::spawn(async move { client.ping().await });
    // A busy server does not say whether it is part of a cluster.
    server.answers(|_| Reply::Answer("-BUSY Redis is busy running a script.\r\n".to_owned()));
    server.until_got("INFO", 2).await;
    server.answers(|words| match &words[0][..] {
        "INFO" => Reply::Answer("+cluster_enabled:0\r\n".to_owned()),
        _ => Reply::Answer("+PONG\r\n".to_owned()),
    });
    at_last("an answer", asking).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_later_server_without_the_database_is_an_invalid_argument() {
    let port = ports::reserve();
    let url = format!("redis://127.0.0.1:{port}/99");
    let client = builder().connect(&url).await.unwrap();
    let _server = Server::start_at(port, &[]);
    let is_invalid = |error: &Error| matches!(error, Error::InvalidArgument { .. });
    at_last("the reason", async {
        loop {
            let health = client.health().servers.remove(0);
            if health.last_cause.as_ref().is_some_and(is_invalid) {
                break;
            }
            tokio::time::sleep(ms(5)).await;
        }
    })
    .await;
}
