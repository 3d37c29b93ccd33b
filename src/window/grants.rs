//! The grants of a pool, ordered by score like the sorted set of permits.

#[cfg(all(test, feature = "redis"))]
pub(super) mod in_tests;

use std::ops::RangeInclusive;

use bytes::Bytes;

use super::BOUNDS;
use super::by_score::{ByScore, Scored};
use crate::grant::Grant;
use crate::permit::{self, CallId};

const NEWEST: usize = 100;

/// A member. Ours needs no allocation; a peer's is stored as its bytes, boxed so that it does not
/// make ours larger.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Member {
    Ours { call_id: CallId, permits: u32 },
    Other(Box<Bytes>),
}

impl Member {
    /// A member with these random bytes, of any length; in ours they are the id of the call.
    fn new(random: &[u8], permits: u32) -> Self {
        match random.try_into() {
            Ok(call_id) => Self::Ours { call_id, permits },
            Err(_) => Self::Other(Box::new(permit::encode(random, permits))),
        }
    }

    fn to_wire(&self) -> Bytes {
        match self {
            Self::Ours { call_id, permits } => permit::encode(call_id, *permits),
            Self::Other(bytes) => Bytes::clone(bytes),
        }
    }

    /// The permits that it holds; 0 if it is malformed.
    fn permits(&self) -> i64 {
        match self {
            Self::Ours { permits, .. } => i64::from(*permits),
            Self::Other(bytes) => {
                permit::decode(bytes).map_or(0, |(_, permits)| i64::from(permits))
            }
        }
    }

    fn with_permits(&self, permits: u32) -> Self {
        match self {
            Self::Ours { call_id, .. } => Self::Ours {
                call_id: *call_id,
                permits,
            },
            Self::Other(bytes) => permit::decode(bytes)
                .map_or_else(|| self.clone(), |(random, _)| Self::new(random, permits)),
        }
    }

    fn is_named(&self, name: &CallId) -> bool {
        match self {
            Self::Ours { call_id, .. } => call_id == name,
            Self::Other(_) => self.is_lease(name),
        }
    }

    fn is_lease(&self, name: &CallId) -> bool {
        self.ahead().is_some_and(|(call_id, _)| call_id == name)
    }

    /// This grant with other permits, and with a score up to `ahead` ms after the time at which it
    /// was made.
    fn with_ahead(&self, ahead: i64, permits: u32) -> Self {
        let call_id = self.ahead().and_then(|(id, _)| id.try_into().ok());
        call_id.map_or_else(
            || self.clone(),
            |call_id| Self::new(&permit::random_ahead(&call_id, ahead), permits),
        )
    }

    /// The fence of a lease.
    fn fence(call_id: &CallId) -> Self {
        Self::new(&permit::random_ahead(call_id, 1 << 53), 0) // as if it had been made long ago
    }

    /// The call id of a grant whose score is ahead of the time at which it was made, and by how
    /// many ms at most.
    fn ahead(&self) -> Option<(&[u8], i64)> {
        match self {
            Self::Ours { .. } => None,
            Self::Other(bytes) => {
                permit::decode(bytes).and_then(|(random, _)| permit::read_ahead(random))
            }
        }
    }
}

/// One member and its score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    score: i64,
    member: Member,
}

impl Scored for Entry {
    fn score(&self) -> i64 {
        self.score
    }

    /// Equal scores are ordered by the members' bytes, as in Redis.
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        if self.score != other.score {
            return self.score < other.score;
        }
        match (&self.member, &other.member) {
            (Member::Ours { call_id: a, .. }, Member::Ours { call_id: b, .. }) if a != b => a < b,
            (a, b) => a.to_wire() < b.to_wire(),
        }
    }
}

impl Entry {
    fn permits(&self) -> i64 {
        self.member.permits()
    }

    /// The time at which it was made, or an earlier one.
    fn made(&self) -> i64 {
        let ahead = self.member.ahead().map_or(0, |(_, ahead)| ahead);
        self.score.saturating_sub(ahead)
    }
}

/// The grants of a pool in ascending order.
pub(crate) type Grants = ByScore<Entry>;

impl Grants {
    #[inline]
    pub(crate) fn add(&mut self, score: i64, call_id: &CallId, permits: u32) {
        let call_id = *call_id;
        self.insert(Entry {
            score,
            member: Member::Ours { call_id, permits },
        });
    }

    /// Adds a lease that was made up to `ahead` ms before its score. The caller adds its fence
    /// later, once expired grants are removed.
    pub(super) fn add_ahead(&mut self, score: i64, call_id: &CallId, ahead: i64, permits: u32) {
        let member = Member::new(&permit::random_ahead(call_id, ahead), permits);
        self.insert(Entry { score, member });
    }

    /// Adds the fence of a lease: a member without permits at the earliest score that settling may
    /// give to the lease. [`take_from_oldest`](Self::take_from_oldest) removes the fences that it
    /// passes. So while a fence exists, no permits have been taken out of a later grant since the
    /// lease was made.
    pub(super) fn add_fence(&mut self, score: i64, call_id: &CallId) {
        let member = Member::fence(call_id);
        // If a call is granted twice, the second lease has the fence.
        #[cfg(all(test, feature = "redis"))]
        self.retain(|entry| entry.member != member);
        self.insert(Entry { score, member });
    }

    /// Adds permits to the grant with this name and score, or a new grant if there is none.
    pub(super) fn add_to(&mut self, score: i64, call_id: &CallId, permits: u32) {
        let place = self.place_of(score, call_id);
        let held = place.and_then(|place| self.remove(place));
        // A call's costs fit a member: its caller ensures it.
        let held = held.map_or(0, |entry| entry.permits() as u32);
        self.add(score, call_id, held + permits);
    }

    /// Adds permits to the newest grant, which gets the later score of both, if that grant has this
    /// name and a score from `begins` on. Otherwise adds a new grant.
    pub(super) fn add_to_newest(
        &mut self,
        score: i64,
        begins: i64,
        call_id: &CallId,
        permits: u32,
    ) {
        let newest = self.len().checked_sub(1);
        let merged = newest.and_then(|place| {
            let entry = self.get(place)?;
            let is_same = entry.score >= begins && entry.member.is_named(call_id);
            let sum = (entry.permits() as u32).checked_add(permits);
            let sum = sum.filter(|_| is_same)?;
            Some((place, score.max(entry.score), sum))
        });
        if let Some((place, ..)) = merged {
            self.remove(place);
        }
        let (score, permits) = merged.map_or((score, permits), |(_, score, sum)| (score, sum));
        self.add(score, call_id, permits);
    }

    /// Permits of the first `count` grants.
    #[inline]
    pub(super) fn permits_of_first(&self, count: usize) -> i64 {
        self.permits_between(0, count)
    }

    /// Permits of the grants from one index to another.
    #[inline]
    pub(super) fn permits_between(&self, from: usize, to: usize) -> i64 {
        self.range(from..to).map(Entry::permits).sum()
    }

    /// Permits of all grants but the first `count`.
    pub(super) fn permits_after(&self, count: usize) -> i64 {
        self.permits_between(count, self.len())
    }

    /// The score of the oldest live grant, if this many grants have expired. Skips members without
    /// permits, such as the fences of leases. If all members that are read have none, returns the
    /// score of the last one.
    #[inline]
    pub(super) fn oldest(&self, expired: usize) -> Option<i64> {
        if self.holds_at(expired) {
            return self.score_at(expired);
        }
        let page = expired..self.len().min(expired + BOUNDS.most_summed);
        let is_full = page.len() == BOUNDS.most_summed;
        let last = page.end.checked_sub(1).filter(|_| is_full);
        let place = page.into_iter().find(|&place| self.holds_at(place));
        self.score_at(place.or(last)?)
    }

    /// Whether there is a grant with permits at this index.
    #[inline]
    pub(super) fn holds_at(&self, place: usize) -> bool {
        self.get(place).is_some_and(|entry| entry.permits() > 0)
    }

    /// Milliseconds until grants from this index on that hold the `missing` permits have expired,
    /// if those scored up to `horizon` have expired now. If they are more than `most`, until all
    /// have.
    pub(super) fn until_back(
        &self,
        place: usize,
        mut missing: i64,
        horizon: i64,
        most: usize,
    ) -> i64 {
        if missing <= 0 {
            return 0;
        }
        let mut walked = (place..self.len()).take(most);
        let last = walked.find(|&place| {
            missing -= self.permits_between(place, place + 1);
            missing <= 0
        });
        let last = last.map_or(self.newest(), |place| self.score_at(place));
        last.map_or(0, |last| (last - horizon).max(0))
    }

    #[inline]
    pub(super) fn drop_first(&mut self, count: usize) {
        self.drain(0..count);
    }

    /// The permits of the grants that were made after this time, among the newest.
    pub(super) fn newer(&self, time: i64) -> i64 {
        let newer = self.newest_after(time).filter(|entry| entry.made() > time);
        newer.map(Entry::permits).sum()
    }

    /// By how many ms the time at which one of the newest grants was made is ahead of now.
    pub(super) fn clock_ahead(&self, now: i64) -> i64 {
        let ahead = self.newest_after(now).map(|entry| entry.made() - now);
        ahead.max().unwrap_or(0).max(0)
    }

    /// The grants with a higher score, among the newest.
    fn newest_after(&self, score: i64) -> impl Iterator<Item = &Entry> {
        let older = self.count_up_to(score);
        let first = older.max(self.len().saturating_sub(NEWEST));
        self.range(first..self.len())
    }

    /// Takes permits out of the oldest grants from the index `place` on, and removes the members
    /// without permits that it passes. Visits up to one page of members. Returns how many permits
    /// it took, and whether the page was full, so that there may be more grants.
    pub(super) fn take_from_oldest(&mut self, place: usize, permits: i64) -> (i64, bool) {
        let page = BOUNDS.most_read.min(self.len().saturating_sub(place));
        let mut wanted = permits;
        for _ in 0..page {
            if wanted == 0 {
                break;
            }
            let held = self.get(place).map_or(0, Entry::permits);
            let taken = held.min(wanted);
            wanted -= taken;
            self.shrink_at(place, (held - taken) as u32);
        }
        (permits - wanted, page == BOUNDS.most_read)
    }

    /// The index of the grant with this score and name; of two, the first.
    pub(super) fn place_of(&self, score: i64, call_id: &CallId) -> Option<usize> {
        let is_named = |entry: &Entry| entry.permits() > 0 && entry.member.is_named(call_id);
        self.position(score, is_named)
    }

    /// The index of the lease with this name that is scored between these times.
    pub(super) fn place_of_lease(
        &self,
        scores: RangeInclusive<i64>,
        call_id: &CallId,
    ) -> Option<usize> {
        let first = self.count_up_to(scores.start() - 1);
        let in_range = self
            .range(first..self.len())
            .take_while(|entry| entry.score <= *scores.end());
        let is_it = |entry: &Entry| entry.permits() > 0 && entry.member.is_lease(call_id);
        Some(first + in_range.map(is_it).position(|is_it| is_it)?)
    }

    /// Removes the fence of the lease with this name, unless it has expired, and returns its score.
    /// Searches the score `at` first.
    fn remove_fence(&mut self, call_id: &CallId, horizon: i64, at: i64) -> Option<i64> {
        let fence = Member::fence(call_id);
        let is_fence = |entry: &Entry| entry.score > horizon && entry.member == fence;
        let place = self.position(at, is_fence).or_else(|| {
            let first = self.count_up_to(horizon);
            let mut live = self.range(first..self.len());
            Some(first + live.position(is_fence)?)
        });
        self.remove(place?).map(|entry| entry.score)
    }

    /// Leaves this many permits in the lease at this index, and removes its fence. `score` computes
    /// the new score of the lease from the score of its fence, which is `None` if that has expired.
    pub(super) fn settle(
        &mut self,
        (place, lease): (usize, &Grant),
        horizon: i64,
        permits: u32,
        score: impl FnOnce(Option<i64>) -> i64,
    ) {
        let Some(entry) = self.remove(place) else {
            return;
        };
        let fence = self.remove_fence(&lease.call_id, horizon, lease.score - lease.span);
        if permits > 0 {
            let score = score(fence);
            let ahead = (score - entry.made()).max(0);
            self.put(score, entry.member.with_ahead(ahead, permits));
        }
    }

    /// The permits of the grant at this index.
    pub(super) fn permits_at(&self, place: usize) -> u32 {
        self.permits_between(place, place + 1) as u32
    }

    /// Takes up to this many permits out of the grant of this call at this index, and returns how
    /// many. If this removes a lease, its fence is removed too.
    pub(super) fn take_out(
        &mut self,
        (place, call_id): (usize, &CallId),
        horizon: i64,
        permits: u32,
    ) -> u32 {
        let entry = self.get(place);
        let (held, score) = entry.map_or((0, 0), |it| (it.permits() as u32, it.score));
        let is_lease = entry.is_some_and(|it| it.member.is_lease(call_id));
        let taken = permits.min(held);
        if !self.shrink_at(place, held - taken) && is_lease {
            self.remove_fence(call_id, horizon, score);
        }
        taken
    }

    /// Leaves `permits` in the grant at this index, or removes it if there are none. Returns
    /// whether it stays.
    fn shrink_at(&mut self, at: usize, permits: u32) -> bool {
        let Some(entry) = self.remove(at) else {
            return false;
        };
        if permits > 0 {
            self.put(entry.score, entry.member.with_permits(permits));
        }
        permits > 0
    }

    fn put(&mut self, score: i64, member: Member) {
        // In memory no call is granted twice, and equal members stay two.
        #[cfg(all(test, feature = "redis"))]
        let member = self.unlike_others(member);
        self.insert(Entry { score, member });
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, Bytes)> {
        self.range(0..self.len())
            .map(|entry| (entry.score, entry.member.to_wire()))
    }
}
