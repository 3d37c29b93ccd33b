//! The sums of a limiter's grants, and the proof that its keys are a limiter's.

use std::collections::BTreeMap;

use redisson_rate_limiter::RedissonClient;

use super::grants::{Grant, Reading, Stored, read};
use super::member::Generation;
use crate::failure::Failure;

/// The keys of a limiter, or those of one of its clients.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) client: Option<String>,
}

/// The sums of a limiter's grants. Times are those of the server, in ms.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) now: i64,
    /// The permits of all grants, without those of Redisson before 3.17.
    pub(crate) permits: i64,
    /// The permits of grants that have not expired, without those of Redisson before 3.17.
    pub(crate) live: i64,
    /// The permits of grants by Redisson before 3.17.
    pub(crate) legacy: i64,
    /// The score of the oldest grant by Redisson before 3.17.
    pub(crate) oldest_legacy: i64,
    /// The number of readable grants that hold nothing.
    pub(crate) without_permits: u64,
    /// The number of members of each form, and their permits.
    pub(crate) by_generation: BTreeMap<Generation, (u64, i64)>,
    /// The score of the newest grant.
    pub(crate) newest: i64,
    /// How far in the future the latest grant was made, in ms; 0 if none was.
    pub(crate) ahead: i64,
    /// Grants have expired if their score is at most this.
    pub(crate) horizon: i64,
}

pub(crate) async fn read_tally(
    client: &RedissonClient,
    place: &Place,
) -> Result<(Reading, Tally), Failure> {
    let client_id = place.client.as_deref();
    read(client, &place.name, client_id, Tally::new, Tally::note).await
}

impl Tally {
    pub(crate) fn new(stored: &Stored, now: i64) -> Self {
        let interval = stored
            .settings
            .numbers()
            .map_or(0, |(_, interval)| interval);
        Self {
            now,
            permits: 0,
            live: 0,
            legacy: 0,
            oldest_legacy: i64::MAX,
            without_permits: 0,
            by_generation: BTreeMap::new(),
            newest: i64::MIN,
            ahead: 0,
            horizon: now.saturating_sub(interval),
        }
    }

    fn note(&mut self, grant: Grant) {
        let member = &grant.member;
        let held = i64::try_from(member.counted()).unwrap_or(0);
        self.permits = self.permits.saturating_add(held);
        if grant.score > self.horizon {
            self.live = self.live.saturating_add(held);
        }
        self.newest = self.newest.max(grant.score);
        self.ahead = self.ahead.max(grant.ahead(self.now));
        let (number, permits) = self.by_generation.entry(member.generation).or_default();
        *number += 1;
        *permits += i64::from(member.permits);
        if member.generation.is_legacy() {
            self.legacy += i64::from(member.permits);
            self.oldest_legacy = self.oldest_legacy.min(grant.score);
        }
        let is_read = !member.generation.is_legacy() && member.generation != Generation::Malformed;
        self.without_permits += u64::from(is_read && held == 0 && !member.is_fence());
    }

    /// The time in ms until the first grant by Redisson before 3.17 expires; negative if it has.
    pub(crate) fn legacy_until(&self) -> i64 {
        self.oldest_legacy.saturating_sub(self.horizon)
    }

    fn has(&self, generation: Generation) -> bool {
        self.by_generation.contains_key(&generation)
    }

    /// Whether the value and the grants are certainly a limiter's: there is a grant in a form that
    /// no other program writes, and nothing that contradicts it. The value alone proves nothing,
    /// because any program may write a number.
    pub(crate) fn is_proven(&self, stored: &Stored) -> bool {
        use Generation::{Current, Lease, Older};
        let has_grant = [Current, Older, Lease].into_iter().any(|it| self.has(it));
        let has_legacy = self.by_generation.keys().any(|it| it.is_legacy());
        has_grant && !has_legacy && self.is_possible(stored)
    }

    /// Whether the value and the grants may be a limiter's.
    pub(crate) fn is_possible(&self, stored: &Stored) -> bool {
        let [_, value, permits] = stored.types.each_ref().map(String::as_str);
        let is_value = value == "none" || value == "string" && stored.value().is_some();
        is_value && matches!(permits, "none" | "zset") && !self.has(Generation::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::member::Member;

    #[test]
    fn a_grant_is_in_use_until_its_window_has_passed() {
        let mut stored = Stored::default();
        (stored.settings.rate, stored.settings.interval) = ("9".to_owned(), "1000".to_owned());
        for (score, live) in [(4_001, 3), (4_000, 0), (3_999, 0)] {
            let mut tally = Tally::new(&stored, 5_000);
            let raw = [&[16][..], &[7; 16], &3_u32.to_le_bytes()].concat();
            let member = Member::read(&raw);
            tally.note(Grant { member, raw, score });
            assert_eq!((tally.permits, tally.live), (3, live), "{score}");
        }
    }
}
