//! The requests of one call, and what its answer means for each.

use std::collections::VecDeque;

use super::desk::Request;
use crate::decision::{Decision, decision};
use crate::error::Result;
use crate::model::{Answer, Requests, Run};
use crate::permit::Random;

/// How many requests one call carries at most.
const LARGEST_CALL: usize = 4096;

/// One call's requests, the line's first.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) requests: Vec<Request>,
    /// How many of them, from the front, stand in line.
    pub(super) in_line: usize,
}

impl Batch {
    /// Moves requests over as long as they fit: a call's grants are one member, whose permits are a u32.
    pub(super) fn fill_from(&mut self, from: &mut VecDeque<Request>) {
        let mut room = u32::MAX - self.requests.iter().map(|r| r.permits).sum::<u32>();
        while let Some(next) = from.front() {
            if next.is_gone() {
                from.pop_front();
                continue;
            }
            if self.requests.len() == LARGEST_CALL || next.permits > room {
                return;
            }
            room -= next.permits;
            self.requests.extend(from.pop_front());
        }
    }

    pub(super) fn requests(&self) -> Requests {
        let mut requests = Requests::default();
        for (place, request) in self.requests.iter().enumerate() {
            // A run is either in line or not.
            let may_join = place != self.in_line;
            match requests.runs.last_mut() {
                Some(run) if may_join && run.permits == request.permits => run.count += 1,
                _ => requests.runs.push(Run {
                    permits: request.permits,
                    count: 1,
                }),
            }
            if place < self.in_line {
                requests.runs_in_line = requests.runs.len();
            }
        }
        requests
    }

    /// Each request's own answer, in order.
    pub(super) fn decisions(
        &self,
        name: &str,
        random: Random,
        answer: &Answer,
    ) -> Vec<Result<Decision>> {
        let requests = self.requests();
        let mut left = answer.balance;
        let mut decisions = Vec::with_capacity(self.requests.len());
        for (run, granted) in requests.served(answer.balance, answer.rate) {
            for place in 0..run.count {
                let is_granted = place < granted;
                if is_granted {
                    left -= i64::from(run.permits);
                }
                decisions.push(decision(
                    name,
                    random,
                    run.permits,
                    is_granted,
                    left,
                    answer,
                ));
            }
        }
        decisions
    }
}
