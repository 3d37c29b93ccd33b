//! The audit of a limiter with too many grants to sum in one call: in pages, with pauses, on the
//! client's background thread.
//!
//! Permits left + permits of all grants = rate. Clients change both by the same amount, except that
//! a peer's retry or release changes only one of them. So once all grants are known at one time,
//! their sum shows what was lost that way, whatever happens in the meantime: see [`AuditPages`].
//!
//! Only one client at a time audits a limiter, and a client audits only one limiter at a time. An
//! audit reads for at most the part of the time that [`PAUSE_PER_GRANT`] leaves it, so all clients
//! together cost the server no more than that.

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Value, from_redis_value};
use tokio::time::sleep;

use super::audit_pages::{AuditPages, GrantChange, Position};
use super::client::{RedisStore, RedisStoreInner};
use crate::escaped::Escaped;
use crate::keys::Keys;
use crate::link::limits::{Limits, Repeat};
use crate::permit::{CallId, new_call_id};
use crate::rate::RateType;
use crate::store::redis::script::{self, Args, Script};

/// Reading a grant takes the server less than a microsecond, so this leaves it 99 % of its time.
const PAUSE_PER_GRANT: Duration = Duration::from_micros(100);
/// After an audit no other one begins for a tenth of the time that it took.
const REST_PER_GRANT: Duration = Duration::from_micros(10);
const SHORTEST_REST: Duration = Duration::from_secs(1);
/// If the client of an audit is gone, the limiter is free for another client this long after its
/// last call.
const LIFE: Duration = Duration::from_secs(10);

/// One audit.
struct LargeAudit {
    keys: Keys,
    rate_type: RateType,
    id: CallId,
    pages: AuditPages,
    read: u32,
}

/// Starts to audit a limiter, unless this client audits one already.
pub(super) fn start(store: &RedisStore, keys: &Keys, rate_type: RateType) {
    if store.is_auditing.swap(true, Ordering::AcqRel) {
        return;
    }
    let weak = Arc::downgrade(&store.0);
    let flag = Auditing(Weak::clone(&weak));
    let mut audit = LargeAudit::new(keys, rate_type);
    store.background.spawn(async move {
        let _flag = flag;
        // The store is not kept alive during a pause.
        while let Some(shared) = weak.upgrade() {
            match audit.step(&RedisStore(shared)).await {
                Some(pause) => sleep(pause).await,
                None => break,
            }
        }
    });
}

/// Set while an audit is under way.
struct Auditing(Weak<RedisStoreInner>);

impl Drop for Auditing {
    fn drop(&mut self) {
        if let Some(store) = self.0.upgrade() {
            store.audits.fetch_add(1, Ordering::Release);
            store.is_auditing.store(false, Ordering::Release);
        }
    }
}

impl LargeAudit {
    fn new(keys: &Keys, rate_type: RateType) -> Self {
        Self {
            keys: keys.clone(),
            rate_type,
            id: new_call_id(),
            pages: AuditPages::default(),
            read: 0,
        }
    }

    /// Makes one call, and returns after which time the next one is made. `None` ends the audit: it
    /// is done, or the call failed, and a later audit makes up for this one.
    async fn step(&mut self, store: &RedisStore) -> Option<Duration> {
        let answer = self.read_page(store).await?;
        let (word, fields) = answer.split_first()?;
        if word != b"read" {
            return None; // another client audits it, or what was read is gone
        }
        let [place, count, permits, last, score, changes @ ..] = fields else {
            return None;
        };
        let count = number(count)?;
        self.note_changes(changes)?;
        self.pages.note_place(number(place)?);
        if count > 0 {
            let last = Position::new(score, last)?;
            self.pages.push(last, count, number(permits)?);
        }
        let count = u32::try_from(count).ok()?;
        self.read += count;
        if count == page() {
            return Some(PAUSE_PER_GRANT * count);
        }
        self.correct(store).await
    }

    async fn read_page(&self, store: &RedisStore) -> Option<Vec<Vec<u8>>> {
        let [_name, _value, permits, audit] = self.keys.of_audit(self.rate_type);
        let args = Args::new()
            .bytes(&self.id)
            .number(LIFE.as_millis() as i64)
            .bytes(self.pages.last().unwrap_or_default());
        run(store, &script::AUDIT_READ, &[permits, audit], &args).await
    }

    fn note_changes(&mut self, changes: &[Vec<u8>]) -> Option<()> {
        for change in changes {
            if !self.pages.change(&GrantChange::read(change)?) {
                return None;
            }
        }
        Some(())
    }

    /// Tries to end the audit. Returns after which time to go on, as [`step`](Self::step) does.
    async fn correct(&mut self, store: &RedisStore) -> Option<Duration> {
        let rest = (REST_PER_GRANT * self.read).max(SHORTEST_REST);
        loop {
            let known = self.pages.known()?;
            let args = Args::new()
                .bytes(&self.id)
                .number(rest.as_millis() as i64)
                .bytes(known.first)
                .number(known.count)
                .number(known.permits)
                .bytes(known.last);
            let keys = self.keys.of_audit(self.rate_type);
            let answer = run(store, &script::AUDIT_RECONCILE, &keys, &args).await?;
            let (word, fields) = answer.split_first()?;
            match (&word[..], fields) {
                (b"changed", changes) => self.note_changes(changes)?,
                (b"first", _) => self.pages.drop_first().then_some(())?,
                (b"more", _) => return Some(PAUSE_PER_GRANT * page()),
                (b"done", [drift, released]) => {
                    let (drift, released) = (number(drift)?, number(released)?);
                    if drift != 0 {
                        tracing::debug!(limiter = %Escaped(&self.keys.name), drift, "permits left set right");
                    }
                    self.release(store, released).await?;
                    return None;
                }
                _ => return None,
            }
        }
    }

    /// Takes what a peer's release gave back out of the oldest grants.
    async fn release(&self, store: &RedisStore, mut rest: i64) -> Option<()> {
        while rest > 0 {
            sleep(PAUSE_PER_GRANT * page()).await;
            let args = Args::new()
                .optional(store.clock.now())
                .number(rest)
                .optional(None);
            let (keys, limits) = (self.keys.of_refund(), limits(store));
            let sending = script::RELEASE.run(&store.connection, &keys, &args, limits);
            rest = from_redis_value(sending.await.ok()?).ok()?;
        }
        Some(())
    }
}

fn page() -> u32 {
    crate::window::BOUNDS.most_read as u32
}

/// A call whose answer was lost is not made again: the changes that it returned are lost with it.
fn limits(store: &RedisStore) -> Limits {
    Limits::new(store.deadline(), Repeat::Never)
}

async fn run(
    store: &RedisStore,
    script: &Script,
    keys: &[&str],
    args: &Args,
) -> Option<Vec<Vec<u8>>> {
    let sending = script.run(&store.connection, keys, args, limits(store));
    let answer: Value = sending.await.ok()?;
    from_redis_value(answer).ok()
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
