//! A connection that stays open but transfers nothing.

use redisson_rate_limiter::FixedWindow;
use tokio::time::timeout;

use crate::load::{HOUR, Load, ample, at_last, ms, patient_client};
use crate::proxy::{Fate, Proxy};
use crate::support::Server;

#[tokio::test]
async fn a_frozen_connection_is_replaced_and_no_acquire_fails() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = patient_client(&proxy.url()).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    for _ in 0..3 {
        load.until_granted(20).await;
        proxy.freeze();
        load.until_granted(20).await;
    }
    load.end_taken_once(&mut server.connection().await).await;
}

#[tokio::test]
async fn callers_that_all_give_up_early_get_another_connection_too() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = patient_client(&proxy.url()).await;
    let limiter = ample(&client, "limiter").await;
    proxy.freeze();
    // Each waits for less than a silent connection is waited for.
    let impatient = ms(30);
    let answered = async { while timeout(impatient, limiter.exists()).await.is_err() {} };
    at_last("an answer", answered).await;
}

#[tokio::test]
async fn a_read_is_made_again_over_the_next_connection() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = patient_client(&proxy.url()).await;
    let limiter = ample(&client, "limiter").await;
    proxy.freeze();
    assert!(limiter.exists().await.unwrap());
}

#[tokio::test]
async fn a_call_that_cannot_be_repeated_waits_for_a_slow_server() {
    let server = Server::start();
    let mut proxy = Proxy::to(server.port()).await;
    let client = patient_client(&proxy.url()).await;
    let limiter = ample(&client, "limiter").await;
    limiter.release(1).await.unwrap(); // the server knows the script
    proxy.next("EVALSHA", Fate::Held);
    let (released, ()) = tokio::join!(limiter.release(1), async {
        let held = proxy.held().await;
        // Other calls leave the connection while it is silent.
        assert!(limiter.try_acquire(1).await.unwrap());
        held.let_through().await;
    });
    released.unwrap();
}

#[tokio::test]
async fn a_call_lost_with_its_connection_holds_up_no_later_one_on_its_key() {
    let server = Server::start();
    let mut proxy = Proxy::to(server.port()).await;
    let client = patient_client(&proxy.url()).await;
    let policy = client.policy_limiter(FixedWindow::new(10, HOUR)).unwrap();
    assert!(policy.check("key", 1).await.unwrap().is_granted());
    let ask = || {
        let policy = policy.clone();
        tokio::spawn(async move { policy.check("key", 1).await })
    };
    proxy.next("EVALSHA", Fate::Held);
    // The second one cannot be sent with the first, and goes after it on the same connection.
    let lost = [ask(), ask()];
    let _held = proxy.held().await;
    let later = ask();
    assert!(later.await.unwrap().unwrap().is_granted());
    for lost in lost {
        assert!(!lost.is_finished());
        lost.abort();
    }
}
