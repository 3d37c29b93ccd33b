//! Where this crate differs on purpose, and what it does there: see the head of the file above.

use crate::redisson::Version;
use redisson_rate_limiter::{PermitsInUse, RateType};

use super::{
    UNIT,
    clients::Outcome,
    keys::{Grant, Keys, Pool},
    steps::Step,
};

/// A difference that is on purpose: see the head of the file above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    ReleaseTakesOldest,
    AvailablePermitsReads,
    LeftoversGo,
    MissingConfigIsNone,
    ZeroPermitsRefused,
    LoweredRateSettles,
    NoTimeToLiveCopied,
    PerClientResetsOverall,
}

impl Difference {
    /// Those that steps of this version meet.
    pub fn of(version: Version) -> Vec<Self> {
        let met_by = [
            (Self::ReleaseTakesOldest, version.has_release()),
            (Self::AvailablePermitsReads, true),
            (Self::LeftoversGo, true),
            (Self::MissingConfigIsNone, true),
            (Self::ZeroPermitsRefused, true),
            (Self::LoweredRateSettles, version.has_update_rate()),
            (Self::NoTimeToLiveCopied, version == Version::V3_17_0),
            (Self::PerClientResetsOverall, version < Version::V3_36_0),
        ];
        let met = met_by.into_iter().filter(|(_, met)| *met);
        met.map(|(difference, _)| difference).collect()
    }
}

/// What this crate makes of a step whose effect differs from Redisson's, by what was before and
/// what Redisson made of it.
pub(super) fn expected_difference(
    version: Version,
    step: &Step,
    before: &Keys,
    java_outcome: &Outcome,
    java: &Keys,
) -> Option<(Difference, Outcome, Keys)> {
    use Difference as D;
    match step {
        Step::TryAcquire(0) | Step::TryAcquireAtOnce(0) | Step::Release(0) => Some((
            D::ZeroPermitsRefused,
            Outcome::InvalidArgument,
            before.clone(),
        )),
        Step::Config if before.hash.is_none() => Some((
            D::MissingConfigIsNone,
            Outcome::Config(None),
            before.clone(),
        )),
        Step::TrySetRate(_) if *java_outcome == Outcome::Is(true) => {
            let mut keys = java.clone();
            (keys.overall, keys.client) = Default::default();
            (keys != *java).then_some((D::LeftoversGo, java_outcome.clone(), keys))
        }
        Step::SetRate(rate)
            if version < Version::V3_36_0 && rate.rate_type() == RateType::PerClient =>
        {
            let mut keys = java.clone();
            keys.overall = before.overall.clone();
            keys.client = Pool::default();
            (keys != *java).then_some((D::PerClientResetsOverall, java_outcome.clone(), keys))
        }
        // Also where the hash has gone and what it left has not.
        Step::UpdateRate(_, PermitsInUse::Keep) | Step::SetRateWith(_, PermitsInUse::Keep) => {
            let lowered = java.limiter()?;
            let left = lowered.rate - sum(&lowered.live());
            let mut keys = java.clone();
            match &mut keys.pool_mut(lowered.is_per_client).value {
                Some(value) if left < 0 => value.holds = left,
                _ => return None,
            }
            (keys != *java).then_some((D::LoweredRateSettles, java_outcome.clone(), keys))
        }
        _ => expected_of_limiter(version, step, before, java_outcome, java),
    }
}

/// The steps that need a limiter to be there.
fn expected_of_limiter(
    version: Version,
    step: &Step,
    before: &Keys,
    java_outcome: &Outcome,
    java: &Keys,
) -> Option<(Difference, Outcome, Keys)> {
    use Difference as D;
    let limiter = before.limiter()?;
    let mut keys = java.clone();
    let (difference, outcome) = match step {
        Step::AvailablePermits => {
            keys = before.clone();
            let permits = Outcome::Permits(limiter.reconciled().available.max(0));
            let difference = if permits != *java_outcome && limiter.is_lowered() {
                D::LoweredRateSettles
            } else {
                D::AvailablePermitsReads
            };
            (difference, permits)
        }
        Step::Release(permits) => {
            limiter.release((*permits).into(), &mut keys);
            (D::ReleaseTakesOldest, Outcome::Done)
        }
        _ if !step.asks_for_permits() || *java_outcome == Outcome::PermitsExceedRate => {
            return None;
        }
        _ if version == Version::V3_17_0 => {
            let lives = java.hash.as_ref()?.lives;
            keys.pool_mut(limiter.is_per_client).renew(lives);
            (D::NoTimeToLiveCopied, java_outcome.clone())
        }
        _ => return None,
    };
    let may_differ = outcome == *java_outcome || difference == D::LoweredRateSettles;
    let differs = outcome != *java_outcome || keys != *java;
    (may_differ && differs).then_some((difference, outcome, keys))
}

/// A limiter that has a rate, with the pool that its type uses.
pub(super) struct Limited<'a> {
    rate: i64,
    interval: i64,
    is_per_client: bool,
    pool: &'a Pool,
}

/// The permits left, once the grants that are over are back, and the live ones.
struct Reconciled {
    available: i64,
    live: Vec<Grant>,
}

impl Keys {
    pub(super) fn limiter(&self) -> Option<Limited<'_>> {
        let hash = &self.hash.as_ref()?.holds;
        let is_per_client = hash.get("type")? == "1";
        Some(Limited {
            rate: hash.get("rate")?.parse().unwrap(),
            interval: hash.get("interval")?.parse::<i64>().unwrap() / UNIT,
            is_per_client,
            pool: if is_per_client {
                &self.client
            } else {
                &self.overall
            },
        })
    }
}

impl Limited<'_> {
    fn value(&self) -> Option<i64> {
        self.pool.value.as_ref().map(|value| value.holds)
    }

    fn live(&self) -> Vec<Grant> {
        let grants = self.pool.grants.as_ref().map(|grants| &grants.holds[..]);
        let mut live = grants.unwrap_or(&[]).to_vec();
        live.retain(|grant| grant.age < self.interval);
        live
    }

    /// Whether more is in use than the rate has, because the rate was lowered.
    pub(super) fn is_lowered(&self) -> bool {
        self.value().is_some_and(|left| left < 0)
    }

    pub(super) fn has_expired(&self) -> bool {
        let mut all = self.pool.grants.iter().flat_map(|grants| &grants.holds);
        all.any(|grant| grant.age >= self.interval)
    }

    fn reconciled(&self) -> Reconciled {
        let mut live = self.live();
        let left = self.value().unwrap_or(0).min(self.rate);
        // A value that leaves less room than these grants need was raised by a release of Redisson.
        let excess = sum(&live) + left - self.rate;
        let most = if left < 0 { sum(&live) } else { left };
        take_from_oldest(&mut live, excess.clamp(0, most));
        let available = self.rate - sum(&live);
        Reconciled { available, live }
    }

    fn release(&self, permits: i64, keys: &mut Keys) {
        let Reconciled { mut live, .. } = self.reconciled();
        take_from_oldest(&mut live, permits);
        let left = self.rate - sum(&live);
        keys.pool_mut(self.is_per_client).hold(left, live);
    }
}

impl Pool {
    fn renew(&mut self, lives: Option<i64>) {
        if lives.is_none() {
            return;
        }
        for key in [
            self.value.as_mut().map(|value| &mut value.lives),
            self.grants.as_mut().map(|grants| &mut grants.lives),
        ] {
            key.into_iter().for_each(|key| *key = lives);
        }
    }

    fn hold(&mut self, left: i64, live: Vec<Grant>) {
        if let Some(value) = &mut self.value {
            value.holds = left;
        }
        match &mut self.grants {
            _ if live.is_empty() => self.grants = None,
            Some(grants) => grants.holds = live,
            None => unreachable!("grants that Redisson lost: {live:?}"),
        }
    }
}

fn sum<'a>(grants: impl IntoIterator<Item = &'a Grant>) -> i64 {
    grants.into_iter().map(|grant| grant.permits).sum()
}

fn take_from_oldest(grants: &mut Vec<Grant>, mut permits: i64) {
    for grant in grants.iter_mut() {
        let taken = grant.permits.min(permits);
        grant.permits -= taken;
        permits -= taken;
    }
    grants.retain(|grant| grant.permits > 0);
}
