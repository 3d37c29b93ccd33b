//! What a process holds, as far as its callers can know.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::ops::AddAssign;

use redisson_rate_limiter::Error;

/// Permits of one limiter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Granted and not given back.
    pub held: i64,
    /// Held, but given back by a call whose answer is unknown.
    pub maybe_back: i64,
    /// Not held, but asked for by a call whose answer is unknown.
    pub maybe_taken: i64,
    /// How many permits its callers have been granted.
    pub granted: i64,
    /// Asked for by futures that were dropped.
    pub dropped: i64,
}

impl Ledger {
    pub fn grant(&mut self, permits: u32) {
        self.held += i64::from(permits);
        self.granted += i64::from(permits);
    }

    /// Notes that an acquire has failed.
    ///
    /// # Panics
    /// If it failed for another reason than a lost connection.
    pub fn fail(&mut self, permits: u32, error: &Error) {
        if is_unknown(error) {
            self.maybe_taken += i64::from(permits);
        }
    }

    /// Notes the answer to a refund or a release, which says how much it gave back.
    pub fn give_back(&mut self, permits: u32, answer: Result<u32, Error>) {
        match answer {
            Ok(permits) => self.held -= i64::from(permits),
            Err(error) if is_unknown(&error) => self.maybe_back += i64::from(permits),
            Err(_) => {}
        }
    }

    pub fn to_words(self) -> String {
        let Self {
            held,
            maybe_back,
            maybe_taken,
            granted,
            dropped,
        } = self;
        format!("{held} {maybe_back} {maybe_taken} {granted} {dropped}")
    }

    pub fn from_words(words: &str) -> Option<Self> {
        let numbers: Result<Vec<i64>, _> = words.split(' ').map(str::parse).collect();
        let [held, maybe_back, maybe_taken, granted, dropped] = numbers.ok()?.try_into().ok()?;
        Some(Self {
            held,
            maybe_back,
            maybe_taken,
            granted,
            dropped,
        })
    }
}

/// Whether the call may have had its effect.
fn is_unknown(error: &Error) -> bool {
    match error {
        Error::Indeterminate { .. } => true,
        Error::StoreUnavailable { .. } => false,
        other => panic!("{other:?}"),
    }
}

impl AddAssign for Ledger {
    fn add_assign(&mut self, other: Self) {
        self.held += other.held;
        self.maybe_back += other.maybe_back;
        self.maybe_taken += other.maybe_taken;
        self.granted += other.granted;
        self.dropped += other.dropped;
    }
}
