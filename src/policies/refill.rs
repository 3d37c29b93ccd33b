//! Tokens that come in at a steady rate: the arithmetic of a TokenBucket and of a QuotaBucket.
//!
//! Only whole tokens come in, and the time of the last refill moves by the time that they took. So
//! the time of a fraction of a token is not lost, and in the long run the rate is exact. If the
//! tokens took no whole number of units of time, the fraction of a unit is stored too.

use super::arithmetic::div_ceil;
use crate::policies::answer::Answer;
use crate::window::At;

/// `rate` tokens come in with each `period`, up to `capacity`. The period and the times of
/// [`Tokens`] are in a unit of time of this many ms, all other times in ms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refill {
    pub(super) capacity: i64,
    pub(super) rate: i64,
    pub(super) period: i64,
    pub(super) unit: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(super) left: i64,
    pub(super) refilled_at: i64,
    /// Parts of 1 / rate of the unit of time that the last refill was later than `refilled_at`.
    pub(super) fraction: i64,
}

impl Refill {
    /// The tokens at `now`; a bucket that nobody used is full.
    #[inline(always)]
    pub(super) fn refilled(&self, stored: Option<Tokens>, now: i64) -> Tokens {
        let Self {
            capacity,
            rate,
            period,
            unit,
        } = *self;
        let now = now.div_euclid(unit);
        let full = Tokens {
            left: capacity,
            refilled_at: now,
            fraction: 0,
        };
        let Some(stored) = stored else {
            return full;
        };
        if stored.refilled_at - now > self.units_to_fill() {
            return full; // only a clock that was wrong can have written this
        }
        let left = stored.left.min(capacity);
        let fraction = stored.fraction.clamp(0, rate - 1);
        let elapsed = (now - stored.refilled_at).max(0);
        if elapsed == 0 && left < capacity {
            // Nothing came in, which is found without the divisions.
            return Tokens {
                left,
                fraction,
                ..stored
            };
        }
        if elapsed >= div_ceil((capacity - left) * period + fraction, rate) {
            return full;
        }
        let came_in = ((elapsed * rate - fraction) / period).max(0);
        let took = fraction + came_in * period;
        Tokens {
            left: left + came_in,
            refilled_at: stored.refilled_at + took / rate,
            fraction: took % rate,
        }
    }

    /// How much of a charge at the time `mark` is given back at `now`, and the tokens after that.
    /// It is the cost less the tokens that came in since, which a full bucket may have refused.
    pub(super) fn given_back(
        &self,
        stored: Option<Tokens>,
        now: i64,
        mark: i64,
        cost: i64,
    ) -> (i64, Tokens) {
        let tokens = self.refilled(stored, now);
        let elapsed = now.div_euclid(self.unit) - mark.div_euclid(self.unit);
        let flowed_in = div_ceil(elapsed.max(0).saturating_mul(self.rate), self.period);
        let back = (cost - flowed_in).min(self.capacity - tokens.left).max(0);
        let left = tokens.left + back;
        (back, Tokens { left, ..tokens })
    }

    /// The time in which an empty bucket fills, in ms.
    #[inline]
    pub(super) fn time_to_fill(&self) -> i64 {
        self.units_to_fill().saturating_mul(self.unit)
    }

    /// The time in which an empty bucket fills, in units of the times of [`Tokens`].
    #[inline(always)]
    fn units_to_fill(&self) -> i64 {
        div_ceil(self.capacity.saturating_mul(self.period), self.rate.max(1))
    }

    /// The time from `now` until there are `wanted` tokens, in ms.
    #[inline(always)]
    fn until_there_are(&self, wanted: i64, tokens: &Tokens, now: i64) -> i64 {
        // A cost above the capacity may need longer than an i64 can count.
        let missing = (wanted - tokens.left).saturating_mul(self.period);
        let time = div_ceil(missing.saturating_add(tokens.fraction), self.rate);
        let there_at = tokens.refilled_at.saturating_add(time);
        (there_at.saturating_mul(self.unit).saturating_sub(now)).max(0)
    }

    /// When the bucket is full, by the server's clock.
    #[inline]
    pub(super) fn full_at(&self, tokens: &Tokens, at: At) -> i64 {
        // A time ahead of the caller's clock keeps no key for ever.
        let now = at.now.max(tokens.refilled_at * self.unit);
        at.server + self.until_there_are(self.capacity, tokens, now)
    }

    #[inline]
    pub(super) fn evaluate(&self, tokens: &Tokens, now: i64, cost: i64) -> Answer {
        let window = self.time_to_fill();
        let until_there_are = |wanted| self.until_there_are(wanted, tokens, now);
        Answer::of_tokens(
            self.capacity,
            window,
            tokens.left,
            cost,
            now,
            until_there_are,
        )
    }
}
