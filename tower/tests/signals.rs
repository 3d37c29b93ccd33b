//! The signals that end a service, and by which it reads its rules again.

use redisson_rate_limiter_tower::signals;
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::mpsc;

/// One test, because a signal reaches the whole process.
#[tokio::test]
async fn a_service_reloads_at_each_hangup_and_ends_at_a_signal() {
    let (reloads, mut reloaded) = mpsc::unbounded_channel();
    signals::on_hangup(move || reloads.send(()).unwrap()).unwrap();
    for _ in 0..2 {
        kill_process(getpid(), Signal::HUP).unwrap();
        reloaded.recv().await.unwrap();
    }
    for signal in [Signal::TERM, Signal::INT] {
        let end = signals::end().unwrap();
        kill_process(getpid(), signal).unwrap(); // before anybody waits
        end.await;
    }
    assert!(reloaded.is_empty());
}
