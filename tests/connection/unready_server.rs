//! Connecting before the server is up, and over a Unix socket.

use redisson_rate_limiter::{Error, RedissonClient};

use crate::load::{PATIENT, ample, ms, patient_client};
use crate::support::{Server, ports};

#[tokio::test]
async fn connecting_waits_for_a_server_that_starts_later() {
    let port = ports::reserve();
    let url = format!("redis://127.0.0.1:{port}");
    let connecting = tokio::spawn(async move {
        let builder = RedissonClient::builder().wait_for_server(PATIENT);
        builder.connect(&url).await
    });
    tokio::time::sleep(ms(300)).await; // it is refused until then
    let _server = Server::start_at(port, &[]);
    let client = connecting.await.unwrap().unwrap();
    ample(&client, "limiter").await;
}

#[tokio::test]
async fn waiting_ends_with_the_cause() {
    let port = ports::reserve();
    let builder = RedissonClient::builder()
        .response_timeout(ms(100))
        .wait_for_server(ms(500));
    let error = builder.connect(&format!("redis://127.0.0.1:{port}")).await;
    assert!(
        matches!(error, Err(Error::StoreUnavailable { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn refused_credentials_are_not_waited_for() {
    let server = Server::start_with(&["--requirepass", "right"]);
    let builder = RedissonClient::builder().wait_for_server(std::time::Duration::MAX);
    let url = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let error = builder.connect(&url).await;
    assert!(
        matches!(error, Err(Error::AuthenticationFailed { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_unix_socket_works_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let server = Server::start_with(&["--unixsocket", socket.to_str().unwrap()]);
    let client = patient_client(&format!("redis+unix://{}", socket.display())).await;
    let limiter = ample(&client, "limiter").await;
    let mut raw = server.connection().await;
    for _ in 0..10 {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        let _: i64 = kill.query_async(&mut raw).await.unwrap();
        limiter.release(1).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
    }
}
