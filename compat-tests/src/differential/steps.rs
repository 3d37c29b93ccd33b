//! The steps, and random sequences of them.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{random::Random, redisson::Version};
use redisson_rate_limiter::{PermitsInUse, Rate};

use super::{TTL_UNIT, UNIT, keys::Keys};

/// The longest interval in units: nothing lives that long.
const LONG: u64 = 1000;

#[derive(Clone, Debug)]
pub(super) enum Step {
    TryAcquire(u32),
    /// `try_acquire_timeout` with no time.
    TryAcquireAtOnce(u32),
    Release(u32),
    AvailablePermits,
    TrySetRate(Rate),
    SetRate(Rate),
    SetRateWith(Rate, PermitsInUse),
    UpdateRate(Rate, PermitsInUse),
    Config,
    Exists,
    Delete,
    Expire(Condition, Duration),
    ExpireAt(SystemTime),
    ClearExpire,
    RemainTimeToLive,
    /// Time passes: so many units.
    Pass(i64),
    /// The hash expires, its sibling keys stay: they had their own time to live.
    HashExpires,
    /// The hash is as a Redisson before 3.38 wrote it.
    HashIsOld,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Condition {
    Always,
    IfSet,
    IfNotSet,
    IfGreater,
    IfLess,
}

impl Step {
    pub(super) fn asks_for_permits(&self) -> bool {
        matches!(self, Self::TryAcquire(_) | Self::TryAcquireAtOnce(_))
    }
}

/// The steps of one sequence, by its seed.
pub(super) struct Steps {
    random: Random,
    version: Version,
    /// Times to live that are taken.
    lives: HashSet<u64>,
}

impl Steps {
    pub(super) fn new(seed: u64, version: Version) -> Self {
        Self {
            random: Random::new(seed),
            version,
            lives: HashSet::new(),
        }
    }

    /// A time to live that no other of the sequence equals, and that outlives it.
    fn ttl(&mut self, shortest: u64) -> Duration {
        loop {
            let units = shortest + 10 + self.random.below(10_000);
            if self.lives.insert(units) {
                return Duration::from_millis(units * TTL_UNIT as u64);
            }
        }
    }

    fn rate(&mut self) -> Rate {
        let permits = match self.random.below(20) {
            0 => 1 << 53,
            1 => 10_000_000_000,
            _ => 1 + self.random.below(12),
        };
        let units = if self.random.one_in(2) {
            LONG
        } else {
            1 + self.random.below(3)
        };
        let interval = Duration::from_millis(units * UNIT as u64);
        let rate = if self.random.one_in(3) {
            Rate::per_client(permits, interval)
        } else {
            Rate::overall(permits, interval)
        };
        if !self.version.has_keep_alive() {
            return rate;
        }
        match self.random.below(10) {
            0 => rate.keep_alive(interval / 2), // refused
            1..4 => rate.keep_alive(self.ttl(units * (UNIT / TTL_UNIT) as u64)),
            _ => rate,
        }
    }

    fn permits(&mut self) -> u32 {
        match self.random.below(40) {
            0 => 0,
            1 => u32::MAX,
            _ => 1 + self.random.below(14).min(self.random.below(14)) as u32,
        }
    }

    fn state(&mut self) -> PermitsInUse {
        if self.random.one_in(3) {
            PermitsInUse::Reset
        } else {
            PermitsInUse::Keep
        }
    }

    fn condition(&mut self) -> Condition {
        match self.random.below(5) {
            0 => Condition::Always,
            1 => Condition::IfSet,
            2 => Condition::IfNotSet,
            3 => Condition::IfGreater,
            _ => Condition::IfLess,
        }
    }

    /// A step that this version can take and that is not left out (see the head of this file).
    pub(super) fn next(&mut self, keys: &Keys) -> Step {
        let version = self.version;
        loop {
            let step = self.any(keys);
            let can = match step {
                Step::SetRateWith(..) | Step::UpdateRate(..) => version.has_update_rate(),
                Step::HashIsOld => version.has_keep_alive(),
                Step::Release(_) if keys.limiter().is_some_and(|it| it.is_lowered()) => {
                    version.has_release() && !keys.limiter().is_some_and(|it| it.has_expired())
                }
                Step::Release(_) => version.has_release(),
                _ => true,
            };
            if can {
                return step;
            }
        }
    }

    fn any(&mut self, keys: &Keys) -> Step {
        // Without a limiter there is little to see.
        if keys.hash.is_none() && self.random.one_in(2) {
            return if self.random.one_in(5) {
                Step::Config
            } else {
                Step::TrySetRate(self.rate())
            };
        }
        match self.random.below(100) {
            0..40 => Step::TryAcquire(self.permits()),
            40..43 => Step::TryAcquireAtOnce(self.permits()),
            43..51 => Step::Release(self.permits()),
            51..57 => Step::AvailablePermits,
            57..60 => Step::TrySetRate(self.rate()),
            60..63 => Step::SetRate(self.rate()),
            63..67 => Step::SetRateWith(self.rate(), self.state()),
            67..73 => Step::UpdateRate(self.rate(), self.state()),
            73..75 => Step::Config,
            75 => Step::Exists,
            76 => Step::Delete,
            77..82 => Step::Expire(self.condition(), self.ttl(0)),
            82 => Step::ExpireAt(UNIX_EPOCH + Duration::from_secs(1)),
            83 => Step::ExpireAt(from_now(self.ttl(0))),
            84..86 => Step::ClearExpire,
            86..88 => Step::RemainTimeToLive,
            88..97 => Step::Pass(1 + self.random.below(2) as i64),
            97 => Step::Pass(-1), // grants of a peer whose clock is ahead
            98 => Step::HashExpires,
            _ => Step::HashIsOld,
        }
    }
}

/// In whole milliseconds, as Redis counts.
fn from_now(time: Duration) -> SystemTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UNIX_EPOCH + Duration::from_millis(now.as_millis() as u64) + time
}
