//! What may be granted, by whom, and in which order.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::super::RESPONSE_TIMEOUT;
use crate::error::Error;
use crate::grant::Origin;
use crate::window::Settings;
use crate::{FailurePolicy, Rate};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// A limiter whose rate is set in the store.
    Set,
    /// A limiter with a rate of its own.
    Own,
    Keyed,
}

/// A rate, and its interval in ms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) rate: u64,
    pub(super) interval: u64,
}

impl Terms {
    pub(super) fn rate(self) -> Rate {
        Rate::overall(self.rate, Duration::from_millis(self.interval))
    }
}

pub(super) struct Oracle {
    policy: FailurePolicy,
    waiters: usize,
    subjects: BTreeMap<Subject, Record>,
}

#[derive(Default)]
struct Record {
    /// All settings, and since when they are in force.
    terms: Vec<(Instant, Terms)>,
    granted: Vec<Granted>,
    waiting: BTreeMap<usize, Waiting>,
    overtaken: Vec<Overtaken>,
}

/// A waiter that another one overtook, unless it is served at the same time.
#[derive(Debug)]
#[expect(dead_code, reason = "a failure shows it")]
struct Overtaken {
    waiter: usize,
    by: usize,
    at: Instant,
    origin: Origin,
}

struct Granted {
    at: Instant,
    permits: u64,
    origin: Origin,
}

#[derive(Debug)]
struct Waiting {
    permits: u32,
    until: Option<Instant>,
}

impl Oracle {
    pub(super) fn new(policy: FailurePolicy, terms: Terms) -> Self {
        let record = || Record {
            terms: vec![(Instant::now(), terms)],
            ..Record::default()
        };
        let subjects = [Subject::Set, Subject::Own, Subject::Keyed];
        Self {
            policy,
            waiters: 0,
            subjects: subjects.map(|subject| (subject, record())).into(),
        }
    }

    fn of(&mut self, subject: Subject) -> &mut Record {
        self.subjects.get_mut(&subject).unwrap()
    }

    pub(super) fn terms(&self, subject: Subject) -> Terms {
        self.subjects[&subject].terms.last().unwrap().1
    }

    pub(super) fn set(&mut self, subject: Subject, terms: Terms) {
        self.of(subject).terms.push((Instant::now(), terms));
    }

    pub(super) fn has_any_waiters(&self) -> bool {
        let mut subjects = self.subjects.values();
        subjects.any(|record| !record.waiting.is_empty())
    }

    /// Returns the waiter's number: who comes later has a higher one.
    pub(super) fn waits(
        &mut self,
        subject: Subject,
        permits: u32,
        until: Option<Instant>,
    ) -> usize {
        self.waiters += 1;
        let waiter = self.waiters;
        let record = self.of(subject);
        let waiting = Waiting { permits, until };
        record.waiting.insert(waiter, waiting);
        waiter
    }

    pub(super) fn left(&mut self, subject: Subject, waiter: usize) {
        self.of(subject).waiting.remove(&waiter);
    }

    pub(super) fn timed_out(&mut self, subject: Subject, waiter: usize) {
        let waiting = self.of(subject).waiting.remove(&waiter);
        let until = waiting.and_then(|it| it.until);
        assert_eq!(until, Some(Instant::now()), "a waiter gives up in time");
    }

    pub(super) fn failed(&mut self, subject: Subject, waiter: usize, error: &Error) {
        assert_eq!(self.policy, FailurePolicy::Error, "{error:?}");
        self.left(subject, waiter);
    }

    pub(super) fn served(&mut self, subject: Subject, waiter: usize, origin: Origin) {
        let share = self.share(self.terms(subject));
        let record = self.of(subject);
        let Some(Waiting { permits, .. }) = record.waiting.remove(&waiter) else {
            panic!("who has left is served");
        };
        let now = Instant::now();
        let earlier = record.waiting.range(..waiter).find(|(_, it)| {
            let gives_up = it.until.is_some_and(|until| until <= now);
            let has_room = origin != Origin::Local
                || share.is_some_and(|it_has| u64::from(it.permits) <= it_has.rate);
            !gives_up && has_room
        });
        if let Some((&overtaken, _)) = earlier {
            record.overtaken.push(Overtaken {
                waiter: overtaken,
                by: waiter,
                at: now,
                origin,
            });
        }
        self.granted(subject, permits, origin);
    }

    /// Panics if a waiter was overtaken. Those served in one step may learn of it in any order.
    pub(super) fn check_order(&self) {
        let now = Instant::now();
        for record in self.subjects.values() {
            let is_waiting = |it: &&Overtaken| record.waiting.contains_key(&it.waiter);
            let mut overtaken = record.overtaken.iter().filter(is_waiting);
            let overtaken = overtaken.find(|it| it.at < now);
            assert!(overtaken.is_none(), "{overtaken:?}: {:?}", record.waiting);
        }
    }

    /// The local limiter's terms.
    fn share(&self, terms: Terms) -> Option<Terms> {
        let FailurePolicy::Local(share) = self.policy else {
            return None;
        };
        let settings = Settings::of(terms.rate());
        let settings = share.of(settings).settings;
        Some(Terms {
            rate: settings.rate.unsigned_abs(),
            interval: settings.interval.unsigned_abs(),
        })
    }

    pub(super) fn granted(&mut self, subject: Subject, permits: u32, origin: Origin) {
        let may_grant = match self.policy {
            FailurePolicy::Local(_) => origin != Origin::Nowhere,
            FailurePolicy::Allow => origin != Origin::Local,
            FailurePolicy::Error | FailurePolicy::Wait | FailurePolicy::Deny => {
                origin == Origin::Store
            }
        };
        assert!(may_grant, "{:?} grants by {origin:?}", self.policy);
        let now = Instant::now();
        let permits = u64::from(permits);
        self.of(subject).granted.push(Granted {
            at: now,
            permits,
            origin,
        });
        let terms = self.subjects[&subject].terms.clone();
        let terms = terms.iter().map(|&(since, terms)| match origin {
            Origin::Local => (since, self.share(terms).unwrap()),
            Origin::Store | Origin::Nowhere => (since, terms),
        });
        let terms: Vec<_> = terms.collect();
        let counts = |it: &&Granted| match origin {
            Origin::Nowhere => false,
            Origin::Store => it.origin == Origin::Store,
            // What the store granted counts toward the share.
            Origin::Local => it.origin != Origin::Nowhere,
        };
        let (limit, window) = bounds(&terms, now);
        let record = &self.subjects[&subject];
        let in_window = record.granted.iter().filter(|it| it.at + window > now);
        let sum: u64 = in_window.filter(counts).map(|it| it.permits).sum();
        assert!(
            sum <= limit,
            "{sum} of {limit} in {window:?} of {subject:?} by {origin:?}"
        );
    }
}

/// The limit of a window that ends now, and its length. What has come back under settings with a
/// shorter interval stays back; a request keeps the settings that it began with.
fn bounds(terms: &[(Instant, Terms)], now: Instant) -> (u64, Duration) {
    let longest_request = 2 * RESPONSE_TIMEOUT;
    let current = terms.last().unwrap().1;
    let in_force_since = |since: Instant| {
        let ends = terms.iter().skip(1).map(|&(next, _)| Some(next));
        let ends = ends.chain([None]);
        let all = terms.iter().zip(ends);
        all.filter(move |(_, end)| end.is_none_or(|end| end >= since))
            .map(|((_, terms), _)| *terms)
    };
    let longest = Duration::from_millis(current.interval);
    let window = in_force_since(now - longest - longest_request)
        .map(|it| it.interval)
        .min();
    let limit = in_force_since(now - longest_request)
        .map(|it| it.rate)
        .max();
    (limit.unwrap(), Duration::from_millis(window.unwrap()))
}
