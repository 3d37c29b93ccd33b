//! What happens to a client whose Sentinels name the wrong server, or none.

use std::sync::atomic::{AtomicUsize, Ordering};

use redisson_rate_limiter::RedissonClient;
use tokio::net::TcpSocket;

use crate::keys;
use crate::load::{PATIENT, ample, patient_client, taken};
use crate::scripted::{Reply, Scripted};
use crate::support::Server;

const ASKS: &str = "SENTINEL";

fn names(port: u16) -> Reply {
    let port = port.to_string();
    let answer = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
    Reply::Answer(answer)
}

async fn naming(port: u16) -> Scripted {
    Scripted::start(move |_| names(port)).await
}

fn url(sentinels: &[&Scripted]) -> String {
    let hosts: Vec<_> = sentinels
        .iter()
        .map(|sentinel| format!("127.0.0.1:{}", sentinel.port))
        .collect();
    format!("redis-sentinel://{}/orders", hosts.join(","))
}

async fn close_connections(server: &Server) {
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("normal");
    kill.exec_async(&mut server.connection().await)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_replica_that_a_sentinel_names_is_not_used() {
    let (primary, replica) = (Server::start(), Server::start());
    let mut raw = replica.connection().await;
    let mut replicate = redis::cmd("REPLICAOF");
    replicate.arg("127.0.0.1").arg(1); // nobody listens there
    replicate.exec_async(&mut raw).await.unwrap();
    let sentinels = [naming(replica.port()).await, naming(primary.port()).await];
    let client = patient_client(&url(&[&sentinels[0], &sentinels[1]])).await;
    ample(&client, "limiter").await;
    assert_eq!(keys::errors(&mut raw, "READONLY").await, 0);
    assert_eq!(taken(&mut primary.connection().await, "limiter").await, 1);
}

#[tokio::test]
async fn a_new_client_asks_again_until_the_named_primary_is_one() {
    let (primary, replica) = (Server::start(), Server::start());
    let mut replicate = redis::cmd("REPLICAOF");
    replicate.arg("127.0.0.1").arg(1); // nobody listens there
    let mut raw = replica.connection().await;
    replicate.exec_async(&mut raw).await.unwrap();
    // Nobody listens there, and nobody else can.
    let unused = TcpSocket::new_v4().unwrap();
    unused.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let nobody = unused.local_addr().unwrap().port();
    for named_before in [replica.port(), nobody] {
        let (port, asked) = (primary.port(), AtomicUsize::new(0));
        let sentinel = Scripted::start(move |words| {
            let is_asked = words[0] == ASKS;
            let times = asked.fetch_add(usize::from(is_asked), Ordering::Relaxed);
            names(if times < 3 { named_before } else { port })
        });
        let sentinel = sentinel.await;
        // The other Sentinel is down.
        let urls = format!(
            "redis-sentinel://127.0.0.1:{},127.0.0.1:{nobody}/orders",
            sentinel.port
        );
        let builder = RedissonClient::builder().response_timeout(PATIENT);
        let client = builder.connect(&urls).await.unwrap();
        ample(&client, "limiter").await;
        assert!(sentinel.got(ASKS) > 3);
    }
}

#[tokio::test]
async fn the_last_primary_is_not_used_where_a_sentinel_names_another_or_none() {
    // Nobody listens there, and nobody else can.
    let unused = TcpSocket::new_v4().unwrap();
    unused.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let nobody = unused.local_addr().unwrap().port();
    let says: [fn(u16) -> Reply; 2] = [names, |_| Reply::Answer("*-1\r\n".to_owned())];
    for says in says {
        let primary = Server::start();
        let sentinel = naming(primary.port()).await;
        let client = patient_client(&url(&[&sentinel])).await;
        let limiter = ample(&client, "limiter").await;
        sentinel.answers(move |_| says(nobody));
        close_connections(&primary).await;
        let waiting = tokio::spawn(async move { limiter.try_acquire(1).await });
        sentinel.until_got(ASKS, 3).await;
        let mut raw = primary.connection().await;
        assert_eq!(taken(&mut raw, "limiter").await, 1);
        let port = primary.port();
        sentinel.answers(move |_| names(port));
        assert!(waiting.await.unwrap().unwrap());
        assert_eq!(taken(&mut raw, "limiter").await, 2);
    }
}

#[tokio::test]
async fn the_last_primary_is_used_while_the_sentinel_answers_nothing() {
    for nothing in [|| Reply::Silence, || Reply::Close] {
        let primary = Server::start();
        let sentinel = naming(primary.port()).await;
        let client = patient_client(&url(&[&sentinel])).await;
        let limiter = ample(&client, "limiter").await;
        sentinel.answers(move |_| nothing());
        close_connections(&primary).await;
        assert!(limiter.try_acquire(1).await.unwrap());
        assert_eq!(taken(&mut primary.connection().await, "limiter").await, 2);
    }
}

#[tokio::test]
async fn the_sentinel_that_named_the_primary_is_asked_first_the_next_time() {
    let primary = Server::start();
    let first = Scripted::start(|_| Reply::Close).await;
    let second = naming(primary.port()).await;
    let client = patient_client(&url(&[&first, &second])).await;
    let limiter = ample(&client, "limiter").await;
    let before = first.connections();
    let is_asked_again = second.until_got(ASKS, 1);
    close_connections(&primary).await;
    is_asked_again.await;
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(first.connections(), before);
}
