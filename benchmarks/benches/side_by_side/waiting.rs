//! A thousand waiters on 100 permits a window: how often the server is asked until each has its
//! permit.

use std::time::Duration;

use compat_tests::fairness::waiters::{self, RATE, Spacing, WAITERS, Waited};

use crate::{
    plan::Plan,
    setup::{NAME, Setup},
};

pub struct Waiting {
    pub spacing: Spacing,
    pub this_crate: Waited,
    pub redisson: Waited,
}

pub async fn measure(setup: &mut Setup, plan: &Plan) -> Vec<Waiting> {
    let mut all = Vec::new();
    for spacing in Spacing::ALL {
        prepare(setup, spacing, plan).await;
        let limiter = setup.rust.rate_limiter(NAME);
        let this_crate = waiters::waited(&mut setup.redis, waiters::wait(&limiter)).await;
        prepare(setup, spacing, plan).await;
        let (java, mut elapsed) = (&mut setup.java, Duration::ZERO);
        // The JVM measures the time, without that of the request to it.
        let waiting = async { elapsed = java.wait(NAME, WAITERS) };
        let redisson = waiters::waited(&mut setup.redis, waiting).await;
        all.push(Waiting {
            spacing,
            this_crate,
            redisson: Waited {
                elapsed,
                ..redisson
            },
        });
    }
    all
}

async fn prepare(setup: &mut Setup, spacing: Spacing, plan: &Plan) {
    let window = plan.waiting_window;
    setup.fresh(&[NAME.to_owned()], RATE.into(), window).await;
    spacing
        .prepare(&setup.rust.rate_limiter(NAME), window)
        .await;
}
