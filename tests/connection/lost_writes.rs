//! A failover to a server without the last writes.

use redisson_rate_limiter::{Decision, Granted, Rate};
use tokio::time::sleep;

use crate::keys;
use crate::load::{HOUR, ms, patient_client};
use crate::proxy::Proxy;
use crate::support::Server;

const VALUE: &str = "{limiter}:value";
const PERMITS: &str = "{limiter}:permits";

#[tokio::test]
async fn a_failover_forgets_only_the_grants_that_were_not_replicated() {
    let (first, second) = (Server::start(), Server::start());
    let proxy = Proxy::to(first.port()).await;
    let client = patient_client(&proxy.url()).await;
    let limiter = client.rate_limiter("limiter");
    limiter.try_set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(4).await.unwrap());
    let mut raw = second.connection().await;
    let mut replica_of = redis::cmd("REPLICAOF");
    replica_of.arg("127.0.0.1").arg(first.port());
    let _: () = replica_of.query_async(&mut raw).await.unwrap();
    while keys::left_and_used(&mut raw, VALUE, PERMITS).await != (Some(6), 4) {
        sleep(ms(5)).await;
    }
    let mut primary = redis::cmd("REPLICAOF");
    primary.arg("NO").arg("ONE");
    let _: () = primary.query_async(&mut raw).await.unwrap();

    let Decision::Granted(Granted { grant, .. }) = limiter.check(3).await.unwrap() else {
        panic!("7 of 10 are in use");
    };
    proxy.lead_to(second.port());
    first.signal("KILL");
    assert_eq!(limiter.available_permits().await.unwrap(), 6);
    assert_eq!(limiter.refund(grant).await.unwrap(), 0); // it was forgotten
    assert!(limiter.try_acquire(6).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(
        keys::left_and_used(&mut raw, VALUE, PERMITS).await,
        (Some(0), 10)
    );
}
