//! Callers of limiters whose decisions are never sent again.

use std::time::Duration;

use redisson_rate_limiter::{Error, Result};

use crate::callers::Watch;
use crate::fault::Plan;
use crate::seeded::Seeded;

/// What was charged, as far as the callers can know.
#[derive(Debug, Clone, Copy, Default)]
pub struct Charges {
    pub granted: i64,
    /// By decisions whose answer is unknown.
    pub maybe: i64,
}

impl Charges {
    pub fn add(&mut self, other: Self) {
        self.granted += other.granted;
        self.maybe += other.maybe;
    }

    pub fn explain(self, charged: i64) -> bool {
        (self.granted..=self.granted + self.maybe).contains(&charged)
    }
}

/// Asks one question after the other until all faults have happened. `check` is passed the cost.
pub async fn check_until_over<F>(
    plan: &Plan,
    mut random: Seeded,
    watch: Watch,
    mut check: impl FnMut(u32) -> F,
) -> Charges
where
    F: Future<Output = Result<bool>>,
{
    let mut charges = Charges::default();
    while !plan.is_over() {
        let cost = random.below(3) as u32 + 1;
        match watch.call(Duration::ZERO, check(cost)).await {
            Ok(true) => charges.granted += i64::from(cost),
            Ok(false) => panic!("an ample limiter denied: {}", watch.round),
            Err(Error::Indeterminate { .. }) => charges.maybe += i64::from(cost),
            Err(Error::StoreUnavailable { .. }) => {}
            Err(error) => panic!("{error:?}: {}", watch.round),
        }
    }
    charges
}
