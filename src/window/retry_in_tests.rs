//! The steps of later attempts and copies of a call, and of giving back what a call took after its
//! caller has left, as in the scripts. In memory, no call is sent or lost.

use super::acquired::Details;
use super::grants::in_tests::FoundGrant;
use super::pool::Removal;
use super::{
    Acquire, Acquired, Ahead, At, Grants, NotInitialized, Pool, Retry, SetUp, Settings, Window,
};

/// The earlier attempts may still arrive: nothing was done. Ask again after this many ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Early(pub(crate) i64);

impl Window {
    /// Decides a later attempt of a call.
    pub(crate) fn acquire_again(
        &mut self,
        at: At,
        client: &str,
        call: &Acquire,
        retry: &Retry,
    ) -> Result<Result<Acquired, Early>, NotInitialized> {
        self.drop_expired(client, at.server);
        let settings = self.settings.get().copied();
        let wait = retry.previous_deadline - at.server + 1;
        let replacing = call.set_up.and_then(SetUp::replacing);
        let wanted_type = replacing.map(|set_up| set_up.settings.rate_type);
        let is_its_type = |it: &Settings| wanted_type.is_none_or(|wanted| it.rate_type == wanted);
        if let Some(settings) = settings.filter(is_its_type)
            && let Some(found) = self.find(settings, client, call, retry)
            && (wait <= 0 || self.is_found_at_once(settings, client, call, retry, found))
        {
            return Ok(Ok(self.granted_before(at, settings, client, call, found)));
        }
        if wait > 0 {
            return Ok(Err(Early(wait)));
        }
        self.acquire(at, client, call).map(Ok)
    }

    /// Decides a call that a proxy or a driver has sent twice: a grant with all of its permits is
    /// found, however many are left.
    pub(crate) fn acquire_copy(
        &mut self,
        at: At,
        client: &str,
        call: &Acquire,
    ) -> Result<Acquired, NotInitialized> {
        self.drop_expired(client, at.server);
        let settings = self.settings.get().copied();
        let replacing = call.set_up.and_then(SetUp::replacing);
        let wanted_type = replacing.map(|set_up| set_up.settings.rate_type);
        if let Some(settings) = settings
            && wanted_type.is_none_or(|wanted| settings.rate_type == wanted)
            && let Some(found) = self.find_whole(settings, client, call)
        {
            return Ok(self.granted_before(at, settings, client, call, found));
        }
        self.acquire(at, client, call)
    }

    fn granted_before(
        &self,
        at: At,
        settings: Settings,
        client: &str,
        call: &Acquire,
        found: FoundGrant,
    ) -> Acquired {
        let (permits, mut interval) = (i64::from(found.permits), settings.interval);
        let grants = self.grants(settings, client);
        let left = self.pool(settings, client).map_or(settings.rate, |pool| {
            let value = pool.value.get().copied();
            let removal = Removal::until(settings.rate);
            let reconciled = pool.reconcile(&settings, value, at.now, false, removal);
            reconciled.available
        });
        let oldest = grants.and_then(|grants| {
            let expired = grants.count_up_to(at.now - interval);
            grants.oldest(expired)
        });
        let until_first = oldest.map_or(interval, |oldest| {
            (interval - at.now + oldest).min(interval)
        });
        if matches!(call.ahead, Some(Ahead::Reservation { .. })) {
            // A reservation can be used from its fence on, whatever the interval is now.
            let usable_at = grants.and_then(|grants| grants.fence(&call.id));
            interval = usable_at.map_or(0, |usable_at| (found.score - usable_at).max(0));
        }
        Acquired {
            found: true,
            until_score: (found.score - at.now).max(0),
            ..Acquired::new(found.score, settings.rate, permits, until_first, interval)
        }
        .with_details(Details {
            left_now: Some(left.max(0)),
            ..Details::default()
        })
    }

    /// Gives back all that a call took, once no attempt of it can still arrive. Returns how many
    /// permits came back.
    pub(crate) fn reclaim(
        &mut self,
        at: At,
        client: &str,
        call: &Acquire,
        attempts: &Retry,
    ) -> Result<Result<u32, Early>, NotInitialized> {
        let wait = attempts.previous_deadline - at.server + 1;
        if wait > 0 {
            return Ok(Err(Early(wait)));
        }
        let settings = self.open(client, at.server)?.settings;
        let Some(found) = self.find(settings, client, call, attempts) else {
            return Ok(Ok(0));
        };
        let mut open = self.open(client, at.server)?;
        Ok(Ok(open.take_out(
            at,
            found.place,
            call.audited_rate,
            |grants, horizon| grants.take_out((found.place, &call.id), horizon, found.permits),
        )))
    }

    fn grants(&self, settings: Settings, client: &str) -> Option<&Grants> {
        self.pool(settings, client).map(Pool::grants)
    }

    /// Whether one call finds the grant. A search in several calls begins only once no other
    /// attempt can arrive.
    fn is_found_at_once(
        &self,
        settings: Settings,
        client: &str,
        call: &Acquire,
        retry: &Retry,
        found: FoundGrant,
    ) -> bool {
        is_whole(call, &found)
            || self.grants(settings, client).is_some_and(|grants| {
                grants.is_on_first_page(&call.id, found.score, retry.from..=retry.to)
            })
    }

    /// The grant of a call: with all its permits whatever its score is, or with a score that one of
    /// its attempts can have.
    fn find(
        &self,
        settings: Settings,
        client: &str,
        call: &Acquire,
        retry: &Retry,
    ) -> Option<FoundGrant> {
        let grants = self.grants(settings, client)?;
        let is_in_range = |found: &FoundGrant| (retry.from..=retry.to).contains(&found.score);
        let whole = self.find_whole(settings, client, call);
        whole.or_else(|| grants.find(&call.id).find(is_in_range))
    }

    /// The grant of a call with all its permits.
    fn find_whole(&self, settings: Settings, client: &str, call: &Acquire) -> Option<FoundGrant> {
        let mut grants = self.grants(settings, client)?.find(&call.id);
        grants.find(|found| is_whole(call, found))
    }
}

/// Whether this grant of the call has all its permits.
fn is_whole(call: &Acquire, found: &FoundGrant) -> bool {
    let ahead = call.ahead.map_or(0, Ahead::most);
    (i64::from(found.permits), found.ahead) == (call.requests.total(), ahead)
}
