//! What the keys of one limiter weigh in Redis after many permits were taken within one window.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use crate::{
    plan::Plan,
    setup::{NAME, Setup},
    workload::{MANY, Traffic, Workload},
};

/// In bytes.
pub struct MemoryUse {
    pub this_crate: f64,
    /// Of fewer permits, scaled.
    pub redisson: f64,
}

/// Long enough that no grant expires meanwhile.
const WINDOW: Duration = Duration::from_secs(600);

pub async fn measure(setup: &mut Setup, plan: &Plan) -> MemoryUse {
    let rate = Workload::on_one_limiter(MANY, Traffic::Granted).rate();
    setup.fresh(&[NAME.to_owned()], rate, WINDOW).await;
    take(setup, plan.taken).await;
    let this_crate = bytes(setup).await;

    setup.fresh(&[NAME.to_owned()], rate, WINDOW).await;
    let granted = setup.java.take(NAME, MANY, plan.taken_by_redisson);
    let redisson = bytes(setup).await * plan.taken as f64 / granted as f64;
    MemoryUse {
        this_crate,
        redisson,
    }
}

async fn take(setup: &Setup, permits: u64) {
    let taken = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..MANY {
        let (limiter, taken) = (setup.rust.rate_limiter(NAME), Arc::clone(&taken));
        callers.spawn(async move {
            while taken.fetch_add(1, Ordering::Relaxed) < permits {
                assert!(limiter.try_acquire(1).await.expect("a decision"));
            }
        });
    }
    callers.join_all().await;
}

async fn bytes(setup: &mut Setup) -> f64 {
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut setup.redis)
        .await
        .expect("the keys");
    let mut total = 0;
    for key in keys {
        let bytes: u64 = redis::cmd("MEMORY")
            .arg("USAGE")
            .arg(key)
            .arg("SAMPLES")
            .arg(0)
            .query_async(&mut setup.redis)
            .await
            .expect("the bytes of a key");
        total += bytes;
    }
    total as f64
}
