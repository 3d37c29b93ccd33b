//! The settings of a limiter that change, and what its parties may have used meanwhile.

use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::{Rate, RateType};

use crate::load::Party;
use crate::uses::{TICK, Use, micros, micros_of, most_in_a_window};

/// The settings from one time to another.
struct Era {
    rate: Rate,
    /// Whether what was in use before them counts.
    keeps: bool,
    from: i64,
    until: i64,
}

/// All settings, and the length of the leases that may be taken under them.
pub struct Eras {
    all: Vec<Era>,
    lease: Duration,
}

impl Eras {
    /// Begins with this rate.
    pub fn begin(rate: Rate, lease: Duration) -> Self {
        let first = Era {
            rate,
            keeps: false,
            from: micros(),
            until: i64::MAX,
        };
        Self {
            all: vec![first],
            lease,
        }
    }

    /// Changes the rate. The permits in use still count if the change `keeps` them and the type
    /// stays.
    pub async fn change(&mut self, rate: Rate, keeps: bool, changing: impl Future<Output = ()>) {
        let until = micros();
        changing.await;
        let last = self.all.last_mut().expect("there is a first one");
        last.until = until;
        let keeps = keeps && rate.rate_type() == last.rate.rate_type();
        self.all.push(Era {
            rate,
            keeps,
            from: micros(),
            until: i64::MAX,
        });
    }

    /// When the leases that were taken before the era are over.
    fn begin_of(&self, era: &Era) -> i64 {
        era.from + micros_of(self.lease) + TICK
    }

    /// Asserts that no window exceeds the rate once the earlier leases are over. If the permits in
    /// use still count, asserts that no earlier window exceeds the higher of the two rates.
    pub fn check(&self, parties: &[Arc<Party>]) {
        for era in &self.all {
            let used = era.uses(parties, self.begin_of(era));
            assert!(used.iter().flatten().count() > 0, "none of {}", era.rate);
            for used in used {
                let most = most_in_a_window(used, era.rate.interval());
                assert!(most as u64 <= era.rate.permits(), "{most} of {}", era.rate);
            }
        }
        for pair in self.all.windows(2).filter(|pair| pair[1].keeps) {
            let (before, after) = (&pair[0], &pair[1]);
            let interval = before.rate.interval().min(after.rate.interval());
            let rate = before.rate.permits().max(after.rate.permits());
            for used in after.uses(parties, self.begin_of(before)) {
                let most = most_in_a_window(used, interval);
                let rates = (before.rate, after.rate);
                assert!(most as u64 <= rate, "{most} of {} to {}", rates.0, rates.1);
            }
        }
    }
}

impl Era {
    /// The uses from a time on, of those whose permits count together.
    fn uses(&self, parties: &[Arc<Party>], from: i64) -> Vec<Vec<Use>> {
        let each = parties.iter().map(|it| it.uses.between(from, self.until));
        match self.rate.rate_type() {
            RateType::PerClient => each.collect(),
            _ => vec![each.flatten().collect()],
        }
    }
}
