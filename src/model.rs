//! The algorithm as a pure model: state, time and request in, answer out. No server, no clock, no waiting.
//!
//! It says in Rust what the scripts in `lua/` say, step by step, and property tests hold the two to the same answers
//! and the same state. The in-memory backend is this model behind a lock.
//!
//! A limiter is a hash with its settings and, for all clients or for each one, a [`Pool`]: the permits left and the
//! live grants. A permit taken at T is back at T + interval, inclusive. Permits left + permits of the live grants =
//! rate, also where the rate was lowered below what is in use: then the permits left are below zero. Where a peer's
//! call, or a key that was lost, left it otherwise, [`settle`](Pool::settle) finds it as the script's namesake does.
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
#[cfg(test)]
pub(crate) use requests::Run;
pub(crate) use requests::{Answer, Requests, Share};

/// So many grants are summed without a thought.
const FEW: i64 = 32;

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

/// What `settle` found.
struct Settled {
    /// So many grants, the first ones, are over.
    over: usize,
    balance: i64,
    oldest: Option<i64>,
    /// Permits of the live grants where they were summed, less `excess`.
    used: Option<i64>,
    /// Permits that the live grants hold although a peer's release gave them back.
    excess: i64,
    /// How many live grants were summed.
    counted: u64,
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

        let check = call.summed_rate.is_none()
            || call.summed_rate != if sets_rate { stored_rate } else { Some(rate) };
        let settled = open.settle(at.now, check);
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
                .change_grants(|grants| grants.take_from_oldest(settled.over, settled.excess));
        }
        if taken > 0 {
            // The list's permits fit a member: who makes the list sees to it.
            let permits = taken as u32;
            open.pool
                .change_grants(|grants| grants.add(at.now, &call.random, permits));
        }
        // A denial that found the keys as they should be leaves them alone, unless keep alive counts from it.
        let is_changed = taken > 0
            || settled.over > 0
            || settled.excess > 0
            || open.pool.value.get() != Some(&settled.balance);
        open.write(&settled, taken);
        if is_changed || check || sets_rate || keep_alive > 0 {
            open.renew(at.server);
        }

        let newest = check.then(|| open.pool.grants().newest()).flatten();
        let answer = Answer {
            ahead: newest.map_or(0, |score| (score - at.now).max(0)),
            counted: settled.counted,
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
        let mut open = self.open(client, at.server)?;
        let rate = open.settings.rate;
        let mut settled = open.settle(at.now, summed_rate != Some(rate));
        let found = open.pool.change_grants(|grants| {
            grants.take_from_oldest(settled.over, settled.excess);
            grants.take_from_oldest(settled.over, i64::from(permits))
        });
        settled.credit(found, rate);
        open.pool.value.remove(); // it is written anew in any case, as Redisson does
        open.write(&settled, 0);
        open.renew(at.server);
        Ok(settled.balance)
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
        let mut settled = open.settle(at.now, summed_rate != Some(rate));
        let back = open.pool.change_grants(|grants| {
            // The grant first: a peer's release is made good out of what remains.
            let back = grants.shrink(grant);
            grants.take_from_oldest(settled.over, settled.excess);
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
        let settled = self.open(client, at.server)?.settle(at.now, true);
        Ok(settled.balance.max(0))
    }
}

impl Open<'_> {
    /// What is left at `now`, once the grants whose window has passed are back. Reads only.
    #[inline]
    fn settle(&self, now: i64, check: bool) -> Settled {
        let value = self.pool.value.get().copied();
        self.pool.settle(&self.settings, value, now, check)
    }

    #[inline]
    fn write(&mut self, settled: &Settled, taken: i64) {
        match self.pool.value.get_mut() {
            // DECRBY keeps a time to live, SET drops it.
            Some(value) if *value == settled.balance => *value -= taken,
            _ => self.pool.value.set(settled.balance - taken),
        }
        if settled.over > 0 {
            self.pool
                .change_grants(|grants| grants.drop_first(settled.over));
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
        self.grants().len() as i64 <= FEW
    }

    /// What is left at `now`, once the grants whose window has passed are back; without a `value` it is what the live
    /// ones leave. Reads only.
    fn settle(&self, settings: &Settings, value: Option<i64>, now: i64, check: bool) -> Settled {
        let Settings { rate, interval, .. } = *settings;
        let grants = self.grants();
        let over = grants.over(now - interval);
        let mut settled = Settled {
            over,
            balance: rate,
            oldest: grants.score_at(over),
            used: None,
            excess: 0,
            counted: 0,
        };
        if settled.oldest.is_none() {
            return settled; // nothing is out, so everything is here
        }
        let balance = value.unwrap_or(0) + grants.permits_of_first(over);
        let live = (grants.len() - over) as i64;
        settled.balance = balance.min(rate);
        let room = rate - balance;
        if value.is_none() || check || (over > 0 && (live > room || (live <= FEW && live != room)))
        {
            let used = grants.permits_after(over);
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
            settled.counted = live as u64;
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
