//! Sums up the grants of a limiter in bounded memory, however many there are.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::inspect::grants::{Grant, Stored};
use crate::inspect::member::Generation;

/// The number of parts into which the window is divided.
pub(crate) const PARTS: usize = 240;
/// The most returns, and the most takers, that are kept.
pub(crate) const KEPT: usize = 8;
/// Two calls are by the same process if their ids differ by at most this: the ids that a process
/// gives its calls increase by one.
const NEAR: u64 = 1 << 20;

/// The sums of a limiter's grants.
#[derive(Debug)]
pub(crate) struct Noted {
    /// The server's time, in ms.
    now: i64,
    /// The interval of the rate, in ms.
    interval: i64,
    /// The permits of all grants.
    pub(crate) permits: u64,
    /// The permits of the grants that have not come back.
    pub(crate) live: u64,
    /// The number of grants in each form.
    pub(crate) generations: BTreeMap<Generation, u64>,
    /// The time until the last hold ends, in ms; `None` if there is no hold.
    pub(crate) hold_ends: Option<i64>,
    /// The number of fences of leases and of holds, which are stored among the grants.
    pub(crate) beside: u64,
    /// The permits that come back in each part of the window, from now on.
    pub(crate) parts: Vec<u64>,
    /// The permits that come back after the window: those of leases, of reservations and of clients
    /// whose clock is ahead.
    pub(crate) later: u64,
    /// The next times at which permits come back, in ms from now, and the number of permits.
    pub(crate) returns: Vec<(i64, u64)>,
    /// How far in the future the latest grant was made, in ms; 0 if none was.
    pub(crate) ahead: i64,
    /// The processes of the Rust crate, by the first id of their calls.
    takers: BTreeMap<u64, Taker>,
}

/// A process of the Rust crate.
#[derive(Debug, Clone)]
pub(crate) struct Taker {
    /// The last id of its calls.
    last: u64,
    /// The number of its grants that have not come back.
    pub(crate) grants: u64,
    /// The permits of these grants.
    pub(crate) permits: u64,
    /// The permits that come back in each part of the window, from now on.
    pub(crate) parts: Box<[u64; PARTS]>,
}

impl Default for Taker {
    fn default() -> Self {
        Self {
            last: 0,
            grants: 0,
            permits: 0,
            parts: Box::new([0; PARTS]),
        }
    }
}

impl Noted {
    pub(crate) fn new(stored: &Stored, now: i64) -> Self {
        let (_, interval) = stored.settings.numbers().unwrap_or((0, 1));
        Self {
            now,
            interval,
            permits: 0,
            live: 0,
            hold_ends: None,
            generations: BTreeMap::new(),
            beside: 0,
            parts: vec![0; PARTS],
            later: 0,
            returns: Vec::new(),
            ahead: 0,
            takers: BTreeMap::new(),
        }
    }

    /// Adds the next grant. The oldest must come first.
    pub(crate) fn note(&mut self, grant: Grant) {
        let held = grant.member.counted();
        if grant.member.is_fence() {
            self.beside += 1;
            return;
        }
        self.permits = self.permits.saturating_add(held);
        self.ahead = self.ahead.max(grant.ahead(self.now));
        let back = grant
            .score
            .saturating_add(self.interval)
            .saturating_sub(self.now);
        if grant.member.is_hold() {
            self.beside += 1;
            self.hold_ends = self.hold_ends.max(Some(back).filter(|it| *it > 0));
            return;
        }
        *self.generations.entry(grant.member.generation).or_default() += 1;
        if back <= 0 || held == 0 {
            return;
        }
        self.live = self.live.saturating_add(held);
        let part = back.saturating_sub(1).saturating_mul(PARTS as i64) / self.interval;
        let part = usize::try_from(part).ok().filter(|it| *it < PARTS);
        let sum = match part {
            Some(part) => &mut self.parts[part],
            None => &mut self.later,
        };
        *sum = sum.saturating_add(held);
        let has_room = self.returns.len() < KEPT;
        match self.returns.last_mut() {
            Some((at, permits)) if *at == back => *permits += held,
            _ if has_room => self.returns.push((back, held)),
            _ => {}
        }
        if matches!(
            grant.member.generation,
            Generation::Current | Generation::Lease
        ) {
            self.note_taker(&grant.member.id, held, part);
        }
    }

    /// Adds a grant to its process. The first eight bytes of an id of the Rust crate are a counter
    /// of the process.
    fn note_taker(&mut self, id: &[u8], held: u64, part: Option<usize>) {
        const MOST_TAKERS: usize = 4_096;
        let Some(counter) = id.first_chunk().copied().map(u64::from_be_bytes) else {
            return;
        };
        let before = self
            .takers
            .range(..=counter.saturating_add(NEAR))
            .next_back();
        let is_near = |(first, taker): &(&u64, &Taker)| {
            counter >= first.saturating_sub(NEAR) && counter <= taker.last.saturating_add(NEAR)
        };
        let first = before.filter(is_near).map(|(first, _)| *first);
        if first.is_none() && self.takers.len() >= MOST_TAKERS {
            return;
        }
        let taker = self.takers.entry(first.unwrap_or(counter)).or_default();
        taker.last = taker.last.max(counter);
        taker.grants += 1;
        taker.permits += held;
        if let Some(part) = part {
            taker.parts[part] += held;
        }
    }

    /// The processes of the Rust crate that hold the most, and the permits that all others hold:
    /// Redisson's clients, and processes with a single grant.
    pub(crate) fn takers(&self) -> (Vec<(u64, Taker)>, u64) {
        let processes = self.takers.iter().filter(|(_, taker)| taker.grants > 1);
        let mut processes: Vec<_> = processes.map(|(id, taker)| (*id, taker.clone())).collect();
        processes.sort_by_key(|(_, taker)| std::cmp::Reverse(taker.permits));
        processes.truncate(KEPT);
        let by_them: u64 = processes.iter().map(|(_, taker)| taker.permits).sum();
        (processes, self.live.saturating_sub(by_them))
    }

    pub(crate) fn generations_to_json(&self) -> Value {
        let met = self.generations.iter();
        Value::Object(
            met.map(|(it, number)| (it.as_str().to_owned(), (*number).into()))
                .collect(),
        )
    }

    pub(crate) fn returns_to_json(&self) -> Value {
        let next = self.returns.iter();
        next.map(|(at, permits)| json!({ "in_ms": at, "permits": permits }))
            .collect()
    }

    pub(crate) fn takers_to_json(&self) -> Value {
        let (processes, others) = self.takers();
        let processes: Vec<_> = processes.iter()
            .map(|(id, it)| json!({ "process": format!("{id:016x}"), "grants": it.grants, "permits": it.permits }))
            .collect();
        json!({ "rust_processes": processes, "others": others })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::member::Member;

    fn noted(grants: &[(i64, u64, u32)]) -> Noted {
        let mut noted = Noted {
            interval: 1_000,
            ..Noted::new(&Stored::default(), 5_000)
        };
        for (score, counter, permits) in grants {
            let raw = [
                &[16][..],
                &counter.to_be_bytes(),
                &[9; 8],
                &permits.to_le_bytes(),
            ]
            .concat();
            noted.note(Grant {
                member: Member::read(&raw),
                raw,
                score: *score,
            });
        }
        noted
    }

    #[test]
    fn a_grant_comes_back_an_interval_after_its_score() {
        let noted = noted(&[(3_000, 1, 4), (4_000, 2, 1), (4_001, 3, 2), (5_500, 4, 1)]);
        assert_eq!((noted.permits, noted.live, noted.ahead), (8, 3, 500));
        assert_eq!(noted.returns, [(1, 2), (1_500, 1)]);
        assert_eq!((noted.parts[0], noted.parts[PARTS - 1]), (2, 0));
        assert_eq!(noted.later, 1);
    }

    #[test]
    fn grants_of_one_process_are_put_together() {
        let far = u64::MAX / 2;
        let noted = noted(&[
            (4_500, far, 1),
            (4_501, far + 2, 1),
            (4_502, far - 1, 1),
            (4_503, 7, 5),
        ]);
        let (told, others) = noted.takers();
        assert_eq!((told.len(), told[0].1.permits, others), (1, 3, 5));
        // The first grant comes back in the 500th ms, the others later.
        assert_eq!(told[0].1.parts[119..121], [1, 2]);
    }
}
