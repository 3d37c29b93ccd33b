//! The algorithm as a pure model: state, time and request in, answer out. No server, no clock, no waiting.
//!
//! It says in Rust what the scripts in `lua/` say, step by step, and property tests hold the two to the same answers
//! and the same state. The in-memory backend is this model behind a lock.
//!
//! A limiter is a hash with its settings and, for all clients or for each one, a [`Pool`]: the permits left and the
//! grants. A permit taken at T is back at T + interval, inclusive. Permits left + permits of all grants = rate, also where
//! the rate was lowered below what is in use: then the permits left are below zero. Expired grants are removed, and their
//! permits added to those left, from the oldest on, as far as a request needs them and a few more. Where a peer's call, or
//! a key that was lost, left few grants otherwise, [`settle`](Pool::settle) finds it as the script's namesake does.
//!
//! What an acquire runs through is inlined, so that its settings and sums stay in registers: else copying them through
//! memory takes as long as deciding.

mod expiry;
mod grants;
mod joint;
mod rates;
mod requests;
#[cfg(test)]
mod retry;

use std::collections::BTreeMap;

use crate::decision::Grant;
use crate::permit::Random;
use crate::rate::RateType;
use joint::Change;

pub(crate) use expiry::{Condition, Expiry, Timed};
pub(crate) use grants::Grants;
pub(crate) use joint::SetUp;
#[cfg(all(test, feature = "redis"))]
pub(crate) use requests::Run;
pub(crate) use requests::{Answer, Requests, Share};

/// The bounds of a call's work, as in `lua/shared/limits.lua`. In unit tests they are so small that few grants are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// So many grants are summed in any call.
    pub(crate) few: usize,
    /// Of more grants none are summed.
    pub(crate) summed: usize,
    /// So many expired grants any call removes.
    pub(crate) spare: usize,
    /// So many it removes where a request needs their permits, and so many grants it reads.
    pub(crate) page: usize,
}

impl Bounds {
    pub(crate) const SHIPPED: Self = Self {
        few: 32,
        summed: 100,
        spare: 64,
        page: 500,
    };
    #[cfg(test)]
    pub(crate) const OF_TESTS: Self = Self {
        few: 2,
        summed: 4,
        spare: 2,
        page: 5,
    };
}

#[cfg(not(test))]
pub(crate) const BOUNDS: Bounds = Bounds::SHIPPED;
#[cfg(test)]
pub(crate) const BOUNDS: Bounds = Bounds::OF_TESTS;

/// The two clocks of a call, in ms since the epoch: `now` scores grants, `server` is the one that keys expire by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) now: i64,
    pub(crate) server: i64,
}

/// Why a step did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotInitialized;

/// The fields of the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) rate: i64,
    pub(crate) interval: i64,
    pub(crate) rate_type: RateType,
    pub(crate) keep_alive: i64,
}

/// The permits left, as of the last call, and the grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) value: Timed<i64>,
    pub(crate) grants: Timed<Grants>,
}

/// All that one limiter's keys hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) settings: Timed<Settings>,
    pub(crate) overall: Pool,
    /// Few: the clients of one store in one process.
    pub(crate) clients: BTreeMap<String, Pool>,
}

/// A list of requests, as one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acquire {
    /// Names the call, however often it is sent.
    pub(crate) random: Random,
    /// The rate at which the caller had the live grants summed lately.
    pub(crate) summed_rate: Option<i64>,
    pub(crate) requests: Requests,
    /// Has the answer tell how many grants have a higher score than this.
    pub(crate) newer_than: Option<i64>,
    /// The settings that the limiter must have.
    pub(crate) set_up: Option<SetUp>,
}

/// What a call does whose earlier attempts may have been granted, or may still arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retry {
    /// The last deadline of the attempts before, in ms of the server's clock: none of them does anything after it.
    pub(crate) previous_deadline: i64,
    /// The times, in ms, that one of them can have scored its grant with.
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Which expired grants a step may remove.
#[derive(Debug, Clone, Copy)]
struct Removal {
    /// Until so many permits are left; any step removes a few.
    wanted: i64,
    /// So many at most.
    most: usize,
}

impl Removal {
    const NONE: Self = Self { wanted: 0, most: 0 };
    /// The few that any step removes.
    const SPARE: Self = Self {
        wanted: 0,
        most: BOUNDS.page,
    };

    const fn until(wanted: i64) -> Self {
        Self {
            wanted,
            most: BOUNDS.page,
        }
    }
}

/// What `settle` found.
struct Settled {
    /// So many grants, the oldest, are to be removed.
    gone: usize,
    /// How many more have expired.
    rest: usize,
    balance: i64,
    /// The score of the oldest live grant.
    oldest: Option<i64>,
    /// Permits of the grants that stay, where they were summed, less `excess`.
    used: Option<i64>,
    /// Permits that these grants hold although a peer's release gave them back.
    excess: i64,
    /// How many grants were summed.
    counted: u64,
    /// They were to be summed, and are too many.
    audit_due: bool,
}

impl Settled {
    /// Adds permits that came back out of live grants to the balance.
    fn credit(&mut self, permits: i64, rate: i64) {
        match &mut self.used {
            Some(used) => {
                *used -= permits;
                self.balance = rate - *used;
            }
            None => self.balance = (self.balance + permits).min(rate),
        }
    }

    /// Whether the step has to end so that the next one goes on: more permits are there than it may count.
    #[inline]
    fn is_unfinished(&self, wanted: i64) -> bool {
        self.rest > 0 && self.balance < wanted
    }
}

/// The settings and the pool that their type chooses.
struct Open<'a> {
    settings: Settings,
    hash: &'a mut Timed<Settings>,
    pool: &'a mut Pool,
}

impl Window {
    #[inline]
    fn open(&mut self, client: &str, server: i64) -> Result<Open<'_>, NotInitialized> {
        self.drop_expired(client, server);
        let settings = *self.settings.get().ok_or(NotInitialized)?;
        let pool = match settings.rate_type {
            RateType::Overall => &mut self.overall,
            RateType::PerClient => self.clients.entry(client.to_owned()).or_default(),
        };
        Ok(Open {
            settings,
            hash: &mut self.settings,
            pool,
        })
    }

    /// Decides a list of requests, in order, as if each had come alone at the same time.
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        at: At,
        client: &str,
        call: &Acquire,
    ) -> Result<Answer, NotInitialized> {
        let (mut sets_rate, mut stored_rate) = (false, None);
        if call.set_up.is_some() {
            self.drop_expired(client, at.server);
            stored_rate = self.settings.get().map(|settings| settings.rate);
            let change = SetUp::change(call.set_up, self.settings.get())?;
            if let Change::Settings(new) | Change::Afresh(new) = change {
                if !call.requests.any_fits(new.rate) {
                    return Ok(Answer::new(at.now, new.rate, 0, new.interval));
                }
                sets_rate = true;
                self.apply(&change, at, client);
            }
        }
        let mut open = self.open(client, at.server)?;
        let Settings {
            rate,
            interval,
            keep_alive,
            ..
        } = open.settings;
        if !call.requests.any_fits(rate) {
            return Ok(Answer::new(at.now, rate, 0, interval));
        }

        let wanted = call.requests.wanted(rate);
        let (settled, check) = loop {
            let audited = if sets_rate { stored_rate } else { Some(rate) };
            let check = call.summed_rate.is_none() || call.summed_rate != audited;
            let settled = open.settle(at.now, check, Removal::until(wanted));
            if !settled.is_unfinished(wanted) {
                break (settled, check);
            }
            open.remove_expired(&settled, at.server);
            sets_rate = false;
        };
        let reset = settled
            .oldest
            .map_or(interval, |oldest| interval - at.now + oldest);
        let newer = call.newer_than.map(|score| open.pool.grants().newer(score));
        let answer = Answer {
            newer,
            interval: newer.map(|_| interval),
            ..Answer::new(at.now, rate, settled.balance, reset)
        };
        let taken = call.requests.taken(&answer);

        if settled.excess > 0 {
            open.pool
                .change_grants(|grants| grants.take_from_oldest(settled.gone, settled.excess));
        }
        // A denial that found the keys as they should be leaves them alone, unless keep alive counts from it.
        let is_changed = taken > 0
            || settled.gone > 0
            || settled.excess > 0
            || open.pool.value.get() != Some(&settled.balance);
        open.write_with(&settled, taken, |grants| {
            // The list's permits fit a member: who makes the list sees to it.
            grants.add(at.now, &call.random, taken as u32);
        });
        if is_changed || check || sets_rate || keep_alive > 0 {
            open.renew(at.server);
        }

        let newest = check.then(|| open.pool.grants().newest()).flatten();
        let answer = Answer {
            ahead: newest.map_or(0, |score| (score - at.now).max(0)),
            counted: if settled.rest > 0 { 0 } else { settled.counted },
            audit_due: settled.audit_due,
            has_more: settled.rest > 0,
            ..answer
        };
        if keep_alive > 0 && taken < call.requests.total() {
            return Ok(answer.with_life(keep_alive));
        }
        Ok(answer)
    }

    /// Gives permits back without naming their grant: they come out of the oldest live grants.
    pub(crate) fn release(
        &mut self,
        at: At,
        client: &str,
        permits: u32,
        summed_rate: Option<i64>,
    ) -> Result<i64, NotInitialized> {
        let mut rest = i64::from(permits);
        let mut open = self.open(client, at.server)?;
        let Settings { rate, interval, .. } = open.settings;
        loop {
            let mut settled = open.settle(at.now, summed_rate != Some(rate), Removal::SPARE);
            let (found, has_more) = open.pool.change_grants(|grants| {
                grants.take_from_oldest(settled.gone, settled.excess);
                let expired = grants.expired(at.now - interval);
                grants.take_from_oldest(expired, rest)
            });
            settled.credit(found, rate);
            open.pool.value.remove(); // it is written anew in any case, as Redisson does
            open.write(&settled, 0);
            open.renew(at.server);
            rest -= found;
            if rest == 0 || !has_more {
                return Ok(settled.balance);
            }
        }
    }

    /// Gives permits of one grant back and tells how many came back: none where its window has passed.
    pub(crate) fn refund(
        &mut self,
        at: At,
        client: &str,
        grant: &Grant,
        summed_rate: Option<i64>,
    ) -> Result<u32, NotInitialized> {
        let mut open = self.open(client, at.server)?;
        let Settings { rate, interval, .. } = open.settings;
        if grant.score <= at.now - interval || !open.pool.grants().holds(grant) {
            return Ok(0);
        }
        let mut settled = open.settle(at.now, summed_rate != Some(rate), Removal::SPARE);
        let back = open.pool.change_grants(|grants| {
            // The grant first: a peer's release is made good out of what remains.
            let back = grants.shrink(grant);
            grants.take_from_oldest(settled.gone, settled.excess);
            back
        });
        settled.credit(i64::from(back), rate);
        open.write(&settled, 0);
        open.renew(at.server);
        Ok(back)
    }

    /// How many permits an acquire would find; none where more than the rate is in use.
    pub(crate) fn available_permits(
        &mut self,
        at: At,
        client: &str,
    ) -> Result<i64, NotInitialized> {
        let open = self.open(client, at.server)?;
        let (rate, grants) = (open.settings.rate, open.pool.grants());
        if grants.len() <= BOUNDS.summed {
            return Ok(open
                .settle(at.now, true, Removal::SPARE)
                .balance
                .clamp(0, rate));
        }
        let expired = grants.expired(at.now - open.settings.interval);
        let live = grants.len() - expired;
        let left = if live == 0 {
            rate
        } else if expired > BOUNDS.page && live <= BOUNDS.page {
            rate - grants.permits_after(expired)
        } else {
            open.pool.value.get().unwrap_or(&0) + grants.permits_of_first(expired)
        };
        Ok(left.clamp(0, rate))
    }
}

impl Open<'_> {
    /// What is left at `now`, once the grants whose window has passed are back. Reads only.
    #[inline]
    fn settle(&self, now: i64, check: bool, removal: Removal) -> Settled {
        let value = self.pool.value.get().copied();
        self.pool.settle(&self.settings, value, now, check, removal)
    }

    /// Writes what `settle` found, and nothing else.
    fn remove_expired(&mut self, settled: &Settled, server: i64) {
        self.pool
            .change_grants(|grants| grants.take_from_oldest(settled.gone, settled.excess));
        self.write(settled, 0);
        self.renew(server);
    }

    /// Writes what `settle` found, and adds a grant where permits are taken.
    #[inline]
    fn write_with(&mut self, settled: &Settled, taken: i64, add: impl FnOnce(&mut Grants)) {
        // All grants go at once, and their time to live with them, or the new one keeps it.
        let all_go_first = settled.oldest.is_none() && settled.gone > BOUNDS.spare;
        if all_go_first {
            self.write(settled, taken);
        }
        if taken > 0 {
            self.pool.change_grants(add);
        }
        if !all_go_first {
            self.write(settled, taken);
        }
    }

    #[inline]
    fn write(&mut self, settled: &Settled, taken: i64) {
        match self.pool.value.get_mut() {
            // DECRBY keeps a time to live, SET drops it.
            Some(value) if *value == settled.balance => *value -= taken,
            _ => self.pool.value.set(settled.balance - taken),
        }
        if settled.gone > 0 {
            self.pool
                .change_grants(|grants| grants.drop_first(settled.gone));
        }
    }

    /// Keep alive where the limiter has one, else the time to live of the hash for the keys beside it. In its last
    /// millisecond these live that one longer: none may stay for ever.
    #[inline]
    fn renew(&mut self, server: i64) {
        let Self {
            settings,
            hash,
            pool,
        } = self;
        if settings.keep_alive > 0 {
            let at = server + settings.keep_alive;
            hash.expire_at(at);
            pool.expire_at(at);
        } else if let Some(at) = hash.expires_at() {
            pool.expire_at(at.max(server + 1));
        }
    }
}

impl Pool {
    #[inline]
    pub(crate) fn grants(&self) -> &Grants {
        static NONE: Grants = Grants::new();
        self.grants.get().unwrap_or(&NONE)
    }

    /// Whether there are so few grants that summing them costs nothing.
    fn is_small(&self) -> bool {
        self.grants().len() <= BOUNDS.few
    }

    /// Whether more grants have expired than any step removes, and others have not.
    fn are_many_expired(&self, horizon: i64) -> bool {
        let expired = self.grants().expired(horizon);
        expired > BOUNDS.spare && expired < self.grants().len()
    }

    /// What is left at `now`, once expired grants are removed; without a `value` it is what the others leave. Reads only.
    fn settle(
        &self,
        settings: &Settings,
        value: Option<i64>,
        now: i64,
        check: bool,
        removal: Removal,
    ) -> Settled {
        let Settings { rate, interval, .. } = *settings;
        let grants = self.grants();
        let expired = grants.expired(now - interval);
        let mut settled = Settled {
            gone: expired,
            rest: 0,
            balance: rate,
            oldest: grants.score_at(expired),
            used: None,
            excess: 0,
            counted: 0,
            audit_due: false,
        };
        if settled.oldest.is_none() {
            return settled; // nothing is in use
        }
        let gone = expired.min(BOUNDS.spare).min(removal.most);
        let mut balance = value.unwrap_or(0) + grants.permits_of_first(gone);
        settled.gone = gone;
        if gone < expired && balance < removal.wanted {
            settled.gone = expired.min(removal.most);
            balance += grants.permits_between(gone, settled.gone);
        }
        settled.rest = expired - settled.gone;
        settled.balance = balance.min(rate);
        let others = grants.len() - settled.gone;
        let (number, room) = (others as i64, rate - balance);
        let is_few = others <= BOUNDS.few;
        let must_sum = value.is_none()
            || check
            || (settled.gone > 0 && (number > room || (is_few && number != room)));
        if must_sum && others > BOUNDS.summed {
            settled.audit_due = true;
        } else if must_sum {
            let used = grants.permits_after(settled.gone);
            if let Some(value) = value {
                // What is left beside more grants than that leaves room for was raised by a peer's release. A peer that
                // lowers the rate below what is in use writes 0, so what is above that is all that can be a release.
                let left = value.min(rate);
                let most = if left < 0 { used } else { left };
                settled.excess = (used + left - rate).clamp(0, most);
            }
            let used = used - settled.excess;
            settled.used = Some(used);
            // Below zero where the rate was lowered below what is in use.
            settled.balance = rate - used;
            settled.counted = others as u64;
        }
        settled
    }

    /// As Redis does it: a zset without members is gone, its time to live with it.
    #[inline]
    fn change_grants<T>(&mut self, change: impl FnOnce(&mut Grants) -> T) -> T {
        let grants = self.grants.get_or_set(Grants::new);
        let answer = change(grants);
        if grants.is_empty() {
            self.grants.remove();
        }
        answer
    }

    fn expire_at(&mut self, at: i64) {
        self.value.expire_at(at);
        self.grants.expire_at(at);
    }
}
