//! Acquiring permits: what one call decides.
//!
//! In nearly every call, no grant has expired and nothing must be corrected: `grant_common` decides
//! such a call by two numbers. `acquire_in_full` decides all others, and gives the same answer in
//! the common case.

use smallvec::SmallVec;

use super::acquired::Details;
use super::pool::{Reconciled, Removal};
use super::requests::Run;
use super::set_up::SettingsChange;
use super::state::Open;
use super::{Acquired, At, BOUNDS, NotInitialized, Requests, SetUp, Settings, Window};
use crate::permit::{self, CallId};
use crate::rate::RateType;

/// A list of requests, as one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acquire {
    /// The call id, the same for each attempt.
    pub(crate) id: CallId,
    /// The rate at which the caller last had the live grants summed.
    pub(crate) audited_rate: Option<i64>,
    pub(crate) requests: Requests,
    /// Asks how many permits were granted with a higher score than this.
    pub(crate) newer_than: Option<i64>,
    /// The settings that the limiter must have.
    pub(crate) set_up: Option<SetUp>,
    /// Until when the permits may be used; `None` if they are used at once.
    pub(crate) ahead: Option<Ahead>,
}

/// Until when the permits that a call takes may be used. Their grant has the latest time of use as
/// its score, so that they count for an interval after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// For this many ms, or less if the limiter may expire before the grant does.
    Lease(i64),
    /// For an interval from the time at which enough permits are available, if that is `within`
    /// this many ms. They are taken at once, so that others wait.
    Reservation { within: i64 },
}

impl Ahead {
    /// By how many ms at most the score is ahead of the time of the call.
    pub(crate) fn most(self) -> i64 {
        match self {
            Self::Lease(millis) => millis,
            Self::Reservation { .. } => 1 << 53, // unknown
        }
    }
}

/// What an attempt must know about earlier attempts, which may have been granted or may arrive
/// later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retry {
    /// The latest deadline of the earlier attempts, in ms of the server's clock. None of them does
    /// anything after it.
    pub(crate) previous_deadline: i64,
    /// The earliest and the latest score that their grant can have.
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Acquire {
    /// The member of the grant with these permits.
    pub(crate) fn member(&self, permits: u32) -> bytes::Bytes {
        match self.ahead {
            None => permit::encode(&self.id, permits),
            Some(ahead) => permit::encode(&permit::random_ahead(&self.id, ahead.most()), permits),
        }
    }

    /// Whether the reply states when each request fits. It does not for a list that is served in
    /// order or by share.
    fn tells_when(&self) -> bool {
        let Requests { fifo, share, .. } = self.requests;
        let is_in_order = fifo && self.requests.single().is_none();
        let reserves = matches!(self.ahead, Some(Ahead::Reservation { .. }));
        !(is_in_order || share.is_some() || reserves)
    }

    /// How many requests share the call, for events. The single permits of a lease are one request.
    pub(crate) fn sharing(&self) -> u32 {
        match self.ahead {
            Some(Ahead::Lease(_)) => 1,
            _ => self.requests.count(),
        }
    }
}

#[cfg(all(test, feature = "redis"))]
impl Acquire {
    /// A client's first call, which knows nothing about the limiter. Each byte of its id is 1.
    pub(crate) fn first(requests: Requests) -> Self {
        Self {
            id: [1; 16],
            audited_rate: None,
            requests,
            newer_than: None,
            set_up: None,
            ahead: None,
        }
    }
}

impl Window {
    /// Decides a list of requests in order, as if each were a call of its own at the same time.
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        at: At,
        client: &str,
        call: &Acquire,
    ) -> Result<Acquired, NotInitialized> {
        self.drop_expired(client, at.server);
        let left_settings = |set_up: SetUp| set_up.leaves(*self.settings.get()?);
        let other_settings = call.set_up.and_then(left_settings);
        let mut answer = match self.grant_common(at, call) {
            Some(answer) => answer,
            None => self.acquire_in_full(at, client, call)?,
        };
        if let Some(settings) = other_settings {
            answer.details.get_or_insert_default().other_settings = Some(settings);
        }
        Ok(answer)
    }

    /// Grants a single request in the common case: all clients share the limiter, its numbers need
    /// no check, and none of its grants has expired. Nothing is summed or removed then. In other
    /// cases changes nothing and returns `None`. The caller has dropped expired keys.
    #[inline]
    fn grant_common(&mut self, at: At, call: &Acquire) -> Option<Acquired> {
        let permits = call.requests.single()?;
        let settings = *self.settings.get()?;
        let Settings { rate, interval, .. } = settings;
        let is_in_order = settings.rate_type == RateType::Overall
            && call.audited_rate == Some(rate)
            && call.requests.share.is_none()
            && call.newer_than.is_none()
            && call.ahead.is_none()
            && matches!(
                SetUp::change(call.set_up, Some(&settings)),
                Ok(SettingsChange::None)
            );
        let available = *self.overall.value.get()?;
        let oldest = self.overall.grants().score_at(0)?;
        let has_room = i64::from(permits) <= available && available <= rate;
        let has_permits = self.overall.grants().holds_at(0);
        if !is_in_order || !has_room || !has_permits || oldest <= at.now - interval {
            return None;
        }
        let mut open = Open {
            settings,
            hash: &mut self.settings,
            pool: &mut self.overall,
        };
        open.pool.grants.get_mut()?.add(at.now, &call.id, permits);
        *open.pool.value.get_mut()? -= i64::from(permits);
        open.renew_for(call.set_up, at.server);
        let until_first = interval - at.now + oldest;
        Some(Acquired::new(
            at.now,
            rate,
            available,
            until_first,
            interval,
        ))
    }

    fn acquire_in_full(
        &mut self,
        at: At,
        client: &str,
        call: &Acquire,
    ) -> Result<Acquired, NotInitialized> {
        let (mut sets_rate, mut stored_rate) = (false, None);
        if call.set_up.is_some() {
            stored_rate = self.settings.get().map(|settings| settings.rate);
            let change = SetUp::change(call.set_up, self.settings.get())?;
            if let SettingsChange::Settings(new) | SettingsChange::Afresh(new) = change {
                if !call.requests.any_fits(new.rate) {
                    let interval = new.interval;
                    return Ok(Acquired::new(at.now, new.rate, 0, interval, interval));
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
            return Ok(Acquired::new(at.now, rate, 0, interval, interval));
        }

        let wanted = call.requests.wanted(rate);
        let (mut reconciled, check) = loop {
            let audited = if sets_rate { stored_rate } else { Some(rate) };
            let check = call.audited_rate.is_none() || call.audited_rate != audited;
            let reconciled = open.reconcile(at.now, check, Removal::until(wanted));
            if !reconciled.is_unfinished(wanted) {
                break (reconciled, check);
            }
            open.remove_expired(&reconciled, call.set_up, at.server);
            sets_rate = false;
        };
        // As in the script, where a member without permits does not make a grant last.
        reconciled.all_expired = reconciled.oldest.is_none();
        let until_first = reconciled
            .oldest
            .map_or(interval, |oldest| interval - at.now + oldest);
        let newer = call.newer_than.map(|score| open.pool.grants().newer(score));
        let (available, until_score) = open.scored(call, at, &reconciled);
        let answer = Acquired::new(at.now, rate, available, until_first, interval);
        let taken = call.requests.taken(&answer);
        let newest = reconciled.oldest.and_then(|_| open.pool.grants().newest());
        let clock_ahead = match reconciled.oldest {
            Some(_) if check => open.pool.grants().clock_ahead(at.now),
            _ => 0,
        };
        let until_score = match call.ahead {
            Some(Ahead::Lease(_)) if taken == 0 => 0,
            _ => until_score,
        };

        // A denial that found the keys in order does not write them, unless the keep alive counts
        // from it, or the settings are the caller's.
        let is_changed = taken > 0
            || reconciled.gone > 0
            || reconciled.excess > 0
            || open.pool.value.get() != Some(&reconciled.available);
        open.write_with(&reconciled, taken, |grants| {
            // The caller of the list ensures that its permits fit a member.
            let (score, permits) = (at.now + until_score, taken as u32);
            match call.ahead {
                None => grants.add(score, &call.id, permits),
                Some(ahead) => grants.add_ahead(score, &call.id, ahead.most(), permits),
            }
        });
        let until_usable = match call.ahead {
            Some(Ahead::Reservation { .. }) => until_score - interval,
            _ => 0,
        };
        if taken > 0 && until_usable < until_score {
            open.pool
                .change_grants(|grants| grants.add_fence(at.now + until_usable, &call.id));
        }
        let replaces = call.set_up.and_then(SetUp::replacing).is_some();
        if is_changed || check || replaces || keep_alive > 0 {
            open.renew_for(call.set_up, at.server);
        }
        let until_back = match reconciled.oldest {
            Some(_) if taken < call.requests.total() && call.tells_when() => {
                open.until_back(&call.requests, &answer, taken, at.now)
            }
            _ => Box::default(),
        };

        let answer = Acquired {
            score: at.now + until_score,
            until_score,
            counted: if reconciled.rest > 0 {
                0
            } else {
                reconciled.counted
            },
            audit_due: reconciled.audit_due,
            has_more: reconciled.rest > 0,
            until_all: match newest {
                Some(score) if taken < call.requests.total() => {
                    (interval - at.now + score).clamp(0, interval)
                }
                _ => interval,
            },
            ..answer
        };
        let answer = answer.with_details(Details {
            until_back,
            clock_ahead,
            newer,
            ..Details::default()
        });
        if keep_alive > 0 && taken < call.requests.total() {
            return Ok(answer.with_life(keep_alive));
        }
        Ok(answer)
    }
}

impl Open<'_> {
    /// Returns the available permits, and by how many ms the score of a grant is ahead of now. The
    /// limiter must not expire before the grant. For a reservation, the permits are at least what
    /// it asks for if it is granted, and otherwise fewer.
    #[inline]
    fn scored(&self, call: &Acquire, at: At, reconciled: &Reconciled) -> (i64, i64) {
        let interval = self.settings.interval;
        let Reconciled { available, .. } = *reconciled;
        let Some(ahead) = call.ahead else {
            return (available, 0);
        };
        let most = self
            .life(at)
            .map_or(i64::MAX, |life| (life - interval).max(0));
        match ahead {
            Ahead::Lease(millis) => (available, millis.min(most)),
            Ahead::Reservation { within } => {
                let (pool, total) = (&self.pool, call.requests.total());
                let walked = BOUNDS.most_walked;
                let until_usable =
                    pool.until_available(reconciled, &self.settings, at.now, total, walked);
                let until_score = until_usable + interval;
                let available = match until_usable <= within && until_score <= most {
                    true => available.max(total),
                    false => available.min(total - 1),
                };
                (available, until_score)
            }
        }
    }

    /// Returns [`Details::until_back`] for an answer that denies a request.
    fn until_back(
        &self,
        requests: &Requests,
        answer: &Acquired,
        taken: i64,
        now: i64,
    ) -> Box<[i64]> {
        let Acquired { rate, interval, .. } = *answer;
        let (grants, most) = (self.pool.grants(), BOUNDS.most_walked);
        let more = (taken - answer.available).max(0) + 1;
        // Usually the oldest grant holds what any of them lacks.
        let first = now - interval + answer.until_first;
        if grants.score_at(0) == Some(first) {
            let lacking = |run: &Run| i64::from(run.permits) + taken - answer.available;
            let most_lacking = requests.runs.iter().map(lacking).fold(more, i64::max);
            if most_lacking <= i64::from(grants.permits_at(0)) {
                return Box::default();
            }
        }
        let mut left = answer.available;
        let lacking = requests.served(answer).map(|(run, granted)| {
            let permits = i64::from(run.permits);
            left -= permits * i64::from(granted);
            match granted < run.count && permits <= rate {
                true => permits - left,
                false => more,
            }
        });
        let lacking = [more].into_iter().chain(lacking);
        let until_back: SmallVec<[i64; 4]> = lacking
            .map(|missing| grants.until_back(0, missing, now - interval, most).max(1))
            .collect();
        match until_back.iter().all(|&it| it == answer.until_first.max(1)) {
            true => Box::default(),
            false => until_back.into_boxed_slice(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::window::{Existing, Pool, Share, any_existing, timed};

    const CLIENT: &str = "a";

    /// Around the time 0 of the call, so that each comparison of times meets equal ones.
    fn expiry() -> impl Strategy<Value = Option<i64>> {
        prop_oneof![6 => Just(None), 1 => (-1..3_i64).prop_map(Some)]
    }

    fn settings() -> impl Strategy<Value = Settings> {
        let rate_type = prop_oneof![8 => Just(RateType::Overall), 2 => Just(RateType::PerClient)];
        let keep_alive = prop_oneof![Just(0), Just(5)];
        (1..9_i64, 2..6_i64, rate_type, keep_alive).prop_map(
            |(rate, interval, rate_type, keep_alive)| Settings {
                rate,
                interval,
                rate_type,
                keep_alive,
            },
        )
    }

    fn pool() -> impl Strategy<Value = Pool> {
        let value = (prop::option::weighted(0.9, -2..10_i64), expiry());
        let grants = prop::collection::vec((-4..3_i64, 1..4_u32), 0..4);
        (value, (grants, expiry())).prop_map(|((value, value_expires), (grants, expires))| {
            let mut pool = Pool::default();
            if let Some(value) = value {
                pool.value = timed(value, value_expires);
            }
            if !grants.is_empty() {
                pool.grants = timed(Default::default(), expires);
                pool.change_grants(|held| {
                    for (place, (score, permits)) in (0..).zip(grants) {
                        held.add(score, &[place; 16], permits);
                    }
                });
            }
            pool
        })
    }

    fn window() -> impl Strategy<Value = Window> {
        (settings(), expiry(), pool(), pool()).prop_map(|(settings, expires, overall, client)| {
            Window {
                settings: timed(settings, expires),
                overall,
                clients: [(CLIENT.to_owned(), client)].into(),
            }
        })
    }

    fn call(window: &Window) -> BoxedStrategy<Acquire> {
        let Some(&stored) = window.settings.get() else {
            unreachable!("a window has settings");
        };
        let set_up = prop_oneof![8 => Just(stored), 1 => settings()];
        let set_up =
            (set_up, any_existing()).prop_map(|(settings, existing)| SetUp { settings, existing });
        let audited_rate = prop_oneof![4 => Just(Some(stored.rate)), 1 => Just(None)];
        let newer_than = prop::option::weighted(0.2, -4..3_i64);
        let share = (0..1_001_i64, -2_000..2_000_i64)
            .prop_map(|(permille, credit)| Share { permille, credit });
        let requests =
            (1..4_u32, prop::option::weighted(0.2, share)).prop_map(|(permits, share)| Requests {
                share,
                ..Requests::one(permits)
            });
        (requests, audited_rate, newer_than, prop::option::of(set_up))
            .prop_map(|(requests, audited_rate, newer_than, set_up)| Acquire {
                id: [9; 16],
                audited_rate,
                requests,
                newer_than,
                set_up,
                ahead: None,
            })
            .boxed()
    }

    /// Another client's call may have given the hash a time to live that this pool does not have.
    #[test]
    fn a_denial_renews_no_time_to_live_for_settings_that_it_leaves() {
        let stored = Settings {
            rate: 4,
            interval: 9,
            rate_type: RateType::Overall,
            keep_alive: 0,
        };
        let mut before = Window {
            settings: timed(stored, Some(50)),
            ..Window::default()
        };
        before.overall.value = timed(3, None);
        let grants = &mut before.overall.grants;
        grants.get_or_set(Default::default).add(-1, &[1; 16], 1);
        let deny = |existing| {
            let call = Acquire {
                id: [9; 16],
                audited_rate: Some(4),
                requests: Requests::one(4),
                newer_than: None,
                set_up: Some(SetUp {
                    settings: stored,
                    existing,
                }),
                ahead: None,
            };
            let mut window = before.clone();
            let answer = window.acquire(At { now: 0, server: 0 }, CLIENT, &call);
            assert_eq!(answer.unwrap().available, 3);
            window
        };

        let left = deny(Existing::Left);
        let replaced = deny(Existing::Replaced);

        assert_eq!(left, before);
        let mut renewed = before;
        renewed.overall.expire_at(50);
        assert_eq!(replaced, renewed);
    }

    #[test]
    fn the_common_case_is_decided_as_in_full() {
        let cases = (window(), -1..2_i64)
            .prop_flat_map(|(window, server)| (call(&window), Just(window), Just(server)));
        let config = ProptestConfig {
            cases: 10_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let common = Cell::new(0);
        let result = TestRunner::new(config).run(&cases, |(call, window, server)| {
            let at = At { now: 0, server };
            let mut one = window;
            one.drop_expired(CLIENT, server);
            let mut other = one.clone();
            if let Some(answer) = one.grant_common(at, &call) {
                common.set(common.get() + 1);
                prop_assert_eq!(Ok(answer), other.acquire_in_full(at, CLIENT, &call));
            }
            prop_assert_eq!(one, other);
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{error}"));
        assert!(common.get() > 100, "only {} common cases", common.get());
    }
}
