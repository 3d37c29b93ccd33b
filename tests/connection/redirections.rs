//! A node of a cluster that redirects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redisson_rate_limiter::Error;

use crate::load::{at_last, patient_client};
use crate::scripted::{Reply, Scripted};
use crate::support::{Server, ports};

/// The answer to CLUSTER SLOTS of a cluster with one node.
fn slots_at(port: u16) -> Reply {
    let node = format!("*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n");
    Reply::Answer(format!("*1\r\n*3\r\n:0\r\n:16383\r\n{node}"))
}

#[tokio::test]
async fn later_calls_go_to_the_right_node_after_a_redirection() {
    let target = Server::start();
    let to = target.port();
    let redirected = Arc::<AtomicU64>::default();
    let node = Scripted::start(|_| Reply::Silence).await;
    let from = node.port;
    let counter = Arc::clone(&redirected);
    let redirects = move |serving: u16| {
        let counter = Arc::clone(&counter);
        move |words: &[String]| {
            if words[0] == "CLUSTER" {
                return slots_at(serving);
            }
            counter.fetch_add(1, Ordering::SeqCst);
            Reply::Answer(format!("-MOVED 1 127.0.0.1:{to}\r\n"))
        }
    };
    node.answers(redirects(from));
    let url = format!("redis://127.0.0.1:{from}");
    let client = patient_client(&format!("{url},{url}")).await;
    let limiter = client.rate_limiter("limiter");
    node.answers(redirects(to));
    let before = redirected.load(Ordering::SeqCst);
    assert!(!limiter.exists().await.unwrap());
    assert!(redirected.load(Ordering::SeqCst) > before);
    let found = async {
        loop {
            let before = redirected.load(Ordering::SeqCst);
            assert!(!limiter.exists().await.unwrap());
            if redirected.load(Ordering::SeqCst) == before {
                return;
            }
        }
    };
    at_last("the right node", found).await;
}

/// A call that is made again and again, as long as it takes.
#[tokio::test]
async fn the_slots_are_read_again_while_a_call_finds_no_node_that_answers() {
    let nobody = ports::reserve();
    let closes = Scripted::start(|words| match &words[0][..] {
        "CLIENT" | "TIME" => Reply::Silence, // to set a connection up
        _ => Reply::Close,
    });
    let closes = closes.await;
    for gone in [nobody, closes.port] {
        for is_acquire in [false, true] {
            let target = Server::start();
            let node = Scripted::start(move |_| slots_at(gone)).await;
            let url = format!("redis://127.0.0.1:{}", node.port);
            let client = patient_client(&format!("{url},{url}")).await;
            let limiter = client.rate_limiter("limiter");
            let to = target.port();
            node.answers(move |_| slots_at(to));
            if is_acquire {
                let missing = limiter.try_acquire(1).await;
                assert!(matches!(missing, Err(Error::NotInitialized { .. })));
            } else {
                assert!(!limiter.exists().await.unwrap());
            }
        }
    }
}
