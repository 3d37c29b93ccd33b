//! An address from which nothing comes back: a connection to it is neither made nor refused.

use std::net::TcpStream;
use std::time::Duration;

use redisson_rate_limiter::{Error, RedissonClient};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::Instant;

use crate::captured_events::Events;
use crate::load::{Load, PATIENT, ample, impatient_client, ms, patient_client};
use crate::sentinels::Sentinel;
use crate::support::Server;

/// A listener that accepts nothing and whose backlog is full, so that the kernel drops what comes.
struct BlackHole {
    port: u16,
    _listener: TcpListener,
    _backlog: Vec<TcpStream>,
}

impl BlackHole {
    /// Listens on this port, or on a free one for 0.
    fn open(port: u16) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], port).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut backlog = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, ms(500)) {
            backlog.push(stream);
        }
        Self {
            port: address.port(),
            _listener: listener,
            _backlog: backlog,
        }
    }
}

fn assert_is_silent(error: &Error) {
    assert!(matches!(error, Error::StoreUnavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("does not answer"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn connecting_ends_with_the_cause_at_the_response_timeout() {
    let hole = BlackHole::open(0);
    let timeout = Duration::from_secs(3);
    let builder = RedissonClient::builder().response_timeout(timeout);
    let start = Instant::now();
    let url = format!("redis://127.0.0.1:{}", hole.port);
    let connected = builder.connect(&url);
    assert_is_silent(&connected.await.unwrap_err());
    assert_eq!(start.elapsed(), timeout);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_needs_no_server_is_returned_at_the_response_timeout() {
    let hole = BlackHole::open(0);
    let timeout = Duration::from_secs(3);
    let builder = RedissonClient::builder().response_timeout(timeout);
    let start = Instant::now();
    let url = format!("redis://127.0.0.1:{}", hole.port);
    let client = builder.require_server(false).connect(&url).await.unwrap();
    assert_eq!(start.elapsed(), timeout);
    assert_is_silent(&client.ping().await.unwrap_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_a_server_logs_the_reason() {
    let events = Events::start();
    let hole = BlackHole::open(0);
    let wait = Duration::from_secs(60);
    let builder = RedissonClient::builder().wait_for_server(wait);
    let address = format!("127.0.0.1:{}", hole.port);
    let start = Instant::now();
    let url = format!("redis://{address}");
    let connected = builder.connect(&url);
    assert_is_silent(&connected.await.unwrap_err());
    assert!(start.elapsed() <= wait, "{:?}", start.elapsed());
    let events = events.take();
    let waiting: Vec<_> = events
        .iter()
        .filter(|event| event.contains("waiting for the server"))
        .collect();
    let [waiting] = waiting[..] else {
        panic!("one event says why: {events:#?}");
    };
    assert!(waiting.contains(&format!("server={address}")), "{waiting}");
    assert!(waiting.contains("does not answer"), "{waiting}");
}

#[tokio::test]
async fn callers_get_the_cause_and_a_server_that_comes_back_is_found() {
    let server = Server::start();
    let (port, url) = (server.port(), server.url());
    let patient = patient_client(&url).await;
    let impatient = impatient_client(&url).await;
    let limiter = ample(&patient, "limiter").await;
    drop(server);
    let hole = BlackHole::open(port);
    let waiting = tokio::spawn(async move { limiter.exists().await });
    let limiter = impatient.rate_limiter("limiter");
    // The first may still hear of the lost connection.
    let is_silent = |error: Error| error.to_string().ends_with("the server does not answer");
    while !is_silent(limiter.exists().await.unwrap_err()) {}
    let (plain, waiting_for_permits, released) = tokio::join!(
        limiter.try_acquire(1),
        limiter.acquire(1),
        limiter.release(1),
    );
    assert_is_silent(&plain.unwrap_err());
    assert_is_silent(&waiting_for_permits.unwrap_err());
    assert_is_silent(&released.unwrap_err());
    drop(hole);
    let _server = Server::start_at(port, &[]);
    assert!(!waiting.await.unwrap().unwrap());
    while impatient.rate_limiter("limiter").exists().await.is_err() {}
}

#[tokio::test]
async fn a_sentinel_that_is_a_black_hole_costs_no_call() {
    let hole = BlackHole::open(0);
    let server = Server::start();
    let sentinel = Sentinel::of(&server).await;
    let url = format!(
        "redis-sentinel://127.0.0.1:{},127.0.0.1:{}/orders",
        hole.port, sentinel.port
    );
    let builder = RedissonClient::builder().response_timeout(PATIENT);
    let client = builder.connect(&url).await.unwrap();
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    load.end_taken_once(&mut server.connection().await).await;
}
