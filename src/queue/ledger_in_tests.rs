//! A limiter as a store keeps it, for tests: a grant is a member, found by its id while any of it
//! is in use.

use crate::grant::Grant;
use crate::store::AcquireCall;
use crate::window::{Acquired, Details};

pub(super) const RATE: i64 = 6;

pub(super) struct Ledger {
    window: i64,
    members: Vec<Member>,
}

struct Member {
    id: [u8; 16],
    score: i64,
    granted: u32,
    in_use: u32,
    is_anothers: bool,
}

impl Ledger {
    pub(super) fn new(window: i64) -> Self {
        Self {
            window,
            members: Vec::new(),
        }
    }

    fn expire(&mut self, now: i64) {
        let window = self.window;
        self.members.retain(|it| it.score + window > now);
    }

    /// The permits available.
    pub(super) fn free(&mut self, now: i64) -> i64 {
        self.expire(now);
        let used: u32 = self.members.iter().map(|it| it.in_use).sum();
        RATE - i64::from(used)
    }

    pub(super) fn has_granted(&self, call: &AcquireCall) -> bool {
        self.members.iter().any(|it| it.id == call.id)
    }

    pub(super) fn execute(&mut self, call: &AcquireCall, now: i64) -> Acquired {
        let free = self.free(now);
        if let Some(member) = self.members.iter().find(|it| it.id == call.id) {
            let granted = i64::from(member.granted);
            let mut answer = Acquired::new(member.score, RATE, granted, self.window, self.window);
            answer.found = true;
            return answer;
        }
        let oldest = self.members.iter().map(|it| it.score).min();
        let until_first = oldest.map_or(self.window, |oldest| self.window - (now - oldest));
        let newer = call.newer_than.map(|score| {
            let newer = self.members.iter().filter(|it| it.score > score);
            newer.map(|it| i64::from(it.in_use)).sum()
        });
        let answer = Acquired::new(now, RATE, free, until_first, self.window);
        let answer = answer.with_details(Details {
            newer,
            ..Details::default()
        });
        let granted = call.requests.taken(&answer) as u32;
        if granted > 0 {
            self.add(call.id, now, granted, false);
        }
        answer
    }

    fn add(&mut self, id: [u8; 16], score: i64, permits: u32, is_anothers: bool) {
        self.members.push(Member {
            id,
            score,
            granted: permits,
            in_use: permits,
            is_anothers,
        });
    }

    pub(super) fn refund(&mut self, grant: &Grant) {
        for member in &mut self.members {
            if member.id == grant.call_id && member.score == grant.score {
                member.in_use = member.in_use.saturating_sub(grant.permits);
            }
        }
        self.members.retain(|member| member.in_use > 0);
    }

    /// Takes back what a call was granted, except what was delivered.
    pub(super) fn reclaim(&mut self, id: [u8; 16], delivered: Option<i64>) {
        let is_kept = |it: &Member| it.id != id || delivered == Some(it.score);
        self.members.retain(is_kept);
    }

    pub(super) fn take_for_another(&mut self, permits: u32, now: i64) {
        if i64::from(permits) <= self.free(now) {
            self.add(crate::permit::new_call_id(), now, permits, true);
        }
    }

    pub(super) fn give_back_of_another(&mut self, choice: u16) -> bool {
        let others: Vec<usize> = (0..self.members.len())
            .filter(|&i| self.members[i].is_anothers)
            .collect();
        if others.is_empty() {
            return false;
        }
        self.members
            .remove(others[usize::from(choice) % others.len()]);
        true
    }

    pub(super) fn take_back_all_of_others(&mut self) {
        self.members.retain(|member| !member.is_anothers);
    }

    pub(super) fn take_back_own(&mut self) {
        self.members.retain(|member| member.is_anothers);
    }

    /// The id, score and permits of each grant of this process.
    pub(super) fn granted(&self) -> impl Iterator<Item = ([u8; 16], i64, u32)> {
        let own = self.members.iter().filter(|it| !it.is_anothers);
        own.map(|it| (it.id, it.score, it.granted))
    }

    pub(super) fn in_use(&self) -> impl Iterator<Item = ([u8; 16], i64, u32)> {
        let own = self.members.iter().filter(|it| !it.is_anothers);
        own.map(|it| (it.id, it.score, it.in_use))
    }
}
