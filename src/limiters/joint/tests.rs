//! Which of several answers decides, and what becomes of what was charged.

use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::decision::{Denied, Granted};
use crate::store::memory::MemoryStore;
use crate::{Faults, FixedWindow, LeakyBucket, RedissonClient};

const SECOND: Duration = Duration::from_secs(1);

/// The place of the one that decides.
fn deciding(decisions: [Decision; 2]) -> usize {
    let limiter = Charged {
        by: By::Rule("limiter".into()),
        parts: Parts::new(),
    };
    JointDecision::new(smallvec![limiter; 2], decisions.into_iter().collect()).deciding
}

#[test]
fn of_equal_denials_that_with_the_fewest_permits_left_decides() {
    let denied = |after: Duration, left| Decision::from(Denied::new(after).with_remaining(left));
    for (stricter, other) in [
        (denied(SECOND, 1), denied(SECOND, 3)),
        (denied(2 * SECOND, 3), denied(SECOND, 1)),
    ] {
        assert_eq!(deciding([stricter.clone(), other.clone()]), 0);
        assert_eq!(deciding([other, stricter]), 1);
    }
}

#[test]
fn of_grants_the_one_with_the_longest_delay_and_the_fewest_left_decides() {
    let granted = |delay, left| {
        let granted = Granted::new(1).with_delay(delay).with_remaining(left);
        Decision::from(granted)
    };
    for (stricter, other) in [
        (granted(SECOND, 1), granted(SECOND, 3)),
        (granted(2 * SECOND, 3), granted(SECOND, 1)),
    ] {
        assert_eq!(deciding([stricter.clone(), other.clone()]), 0);
        assert_eq!(deciding([other, stricter]), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_joint_request_dropped_before_its_turn_gives_back_what_others_charged() {
    let memory = MemoryStore::new();
    let builder = RedissonClient::builder;
    let clients = [
        builder().in_memory(&memory),
        builder().in_memory_with_faults(&memory, &Faults::new()),
    ];
    let reader = builder().in_memory(&memory);
    let left = async |key| {
        let window = reader.policy_limiter(FixedWindow::new(9, 3600 * SECOND));
        window.unwrap().peek(key, 1).await.unwrap().remaining()
    };
    for (client, key) in clients.into_iter().zip(["first", "second"]) {
        let window = client.policy_limiter(FixedWindow::new(9, 3600 * SECOND));
        let window = window.unwrap().charge(key, 1).unwrap();
        let bucket = LeakyBucket::new(1, 60 * SECOND).with_capacity(5);
        let bucket = client
            .policy_limiter(bucket)
            .unwrap()
            .with_prefix("bucket:");
        assert!(bucket.check(key, 1).await.unwrap().is_granted());
        let charges = [window, bucket.charge(key, 1).unwrap()];
        let waiting = client.check_all(charges);
        assert!(timeout(59 * SECOND, waiting).await.is_err());
        assert!(client.close(SECOND).await);
        assert_eq!(left(key).await, 8, "{key}");
    }
}
