//! The pauses between attempts to connect.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use redisson_rate_limiter::{Credentials, Error, RedissonClient};
use tokio::time::Instant;

use crate::load::{PATIENT, ms};
use crate::scripted::{Reply, Scripted, TIME};

#[tokio::test(start_paused = true)]
async fn attempts_that_fail_at_once_are_made_less_and_less_often() {
    let attempts = Arc::<Mutex<Vec<Instant>>>::default();
    let seen = Arc::clone(&attempts);
    // Nothing else waits: an attempt fails before it reaches the network.
    let builder = RedissonClient::builder().credentials(move || {
        seen.lock().unwrap().push(Instant::now());
        async { Err::<Credentials, _>("the vault is sealed") }
    });
    let connecting = builder.wait_for_server(ms(3_000));
    let error = connecting.connect("redis://127.0.0.1").await.unwrap_err();
    assert!(matches!(error, Error::StoreUnavailable { .. }), "{error:?}");
    let attempts = attempts.lock().unwrap();
    let pauses = attempts.windows(2).map(|pair| pair[1] - pair[0]);
    let expected = [10, 20, 40, 80, 160, 320, 400, 400].map(ms);
    for (pause, longest) in pauses.zip(expected) {
        // Shortened at random; timers are exact to a ms.
        assert!(
            (longest / 2..=longest + ms(1)).contains(&pause),
            "{pause:?}"
        );
    }
    assert!(attempts.len() > expected.len(), "{attempts:?}");
}

#[tokio::test]
async fn connections_that_are_lost_at_once_are_made_less_and_less_often() {
    // The answer with which a connection is set up is its last; only over the first one a second
    // question is asked.
    let is_first = AtomicBool::new(true);
    let server = Scripted::start(move |words| match &words[0][..] {
        "INFO" => {
            is_first.store(false, Ordering::Relaxed);
            Reply::Last("+cluster_enabled:0\r\n".to_owned())
        }
        "TIME" if !is_first.load(Ordering::Relaxed) => Reply::Last(TIME.to_owned()),
        _ => Reply::Silence,
    });
    let server = server.await;
    let url = format!("redis://127.0.0.1:{}", server.port);
    let builder = RedissonClient::builder().wait_for_server(PATIENT);
    let connecting = tokio::spawn(async move {
        let _client = builder.connect(&url).await;
        std::future::pending::<()>().await;
    });
    let accepted = server.accepted(8).await;
    connecting.abort();
    // The pauses are half as long at least.
    let pauses: u64 = [0, 10, 20, 40, 50, 50, 50].iter().sum();
    let took = accepted[7] - accepted[0];
    assert!(took >= ms(pauses / 2), "{took:?}");
}
