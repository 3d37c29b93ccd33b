//! A list of requests and the answer to it.
//!
//! A list is kept as runs of equal requests, so that the script's work does not grow with the callers. It answers for
//! the whole list with the rate and the permits that were left before it; `serve` then tells each request's answer,
//! here and in the script by the same rule. For a call that was sent twice the balance is what its one member holds:
//! the same requests fit into that, so the answers are the same.

use std::time::Duration;

use smallvec::SmallVec;

/// `count` requests in a row, each for `permits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) permits: u32,
    pub(crate) count: u32,
}

/// Requests in the order of their arrival.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Requests {
    pub(crate) runs: SmallVec<[Run; 1]>,
    /// How many runs, from the front, stand in line: there the first denial denies all behind it.
    pub(crate) runs_in_line: usize,
}

/// The rule by which a list is served, one run after another.
pub(crate) struct Serving {
    rate: i64,
    left: i64,
    line_stands: bool,
}

impl Serving {
    pub(crate) fn new(balance: i64, rate: i64) -> Self {
        Self {
            rate,
            left: balance,
            line_stands: false,
        }
    }

    /// How many of a run's requests are granted, always the first ones. Requests above the rate are passed over.
    #[inline]
    pub(crate) fn serve(&mut self, run: Run, in_line: bool) -> u32 {
        let permits = i64::from(run.permits);
        if permits > self.rate || (in_line && self.line_stands) {
            return 0;
        }
        let granted = i64::from(run.count).min(self.left.max(0) / permits);
        self.left -= granted * permits;
        self.line_stands = in_line && granted < i64::from(run.count);
        granted as u32
    }
}

impl Requests {
    #[inline]
    pub(crate) fn one(permits: u32) -> Self {
        Self {
            runs: SmallVec::from_buf([Run { permits, count: 1 }]),
            runs_in_line: 0,
        }
    }

    /// Plain requests: each is decided by itself.
    pub(crate) fn plain(permits: impl Iterator<Item = u32>) -> Self {
        Self {
            runs: runs_of(permits),
            runs_in_line: 0,
        }
    }

    /// Requests in line: the first denial denies all behind it.
    pub(crate) fn in_line(permits: impl Iterator<Item = u32>) -> Self {
        let runs = runs_of(permits);
        Self {
            runs_in_line: runs.len(),
            runs,
        }
    }

    /// Whether it is one request.
    pub(crate) fn is_lone(&self) -> bool {
        matches!(self.runs[..], [Run { count: 1, .. }])
    }

    #[inline]
    pub(crate) fn any_fits(&self, rate: i64) -> bool {
        self.runs.iter().any(|run| i64::from(run.permits) <= rate)
    }

    /// Each run and how many of its requests are granted from `balance` permits.
    #[inline]
    pub(crate) fn served(&self, balance: i64, rate: i64) -> impl Iterator<Item = (Run, u32)> {
        let mut serving = Serving::new(balance, rate);
        let runs = self.runs.iter().enumerate();
        runs.map(move |(i, &run)| (run, serving.serve(run, i < self.runs_in_line)))
    }

    /// The permits that the list takes from `balance`.
    #[inline]
    pub(crate) fn taken(&self, balance: i64, rate: i64) -> i64 {
        self.served(balance, rate)
            .map(|(run, granted)| i64::from(run.permits) * i64::from(granted))
            .sum()
    }
}

/// Equal requests that follow one another, as runs.
fn runs_of(permits: impl Iterator<Item = u32>) -> SmallVec<[Run; 1]> {
    let mut runs = SmallVec::<[Run; 1]>::new();
    for permits in permits {
        match runs.last_mut() {
            Some(run) if run.permits == permits => run.count += 1,
            _ => runs.push(Run { permits, count: 1 }),
        }
    }
    runs
}

/// What one call tells about the list it carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Score of the grants made.
    pub(crate) score: i64,
    pub(crate) rate: i64,
    /// The permits left before the list.
    pub(crate) balance: i64,
    /// Milliseconds until the first of the live grants before the list are back; the interval where there is none.
    pub(super) reset: i64,
    /// By how many ms the newest grant is ahead of the call's time; 0 where it was not looked at.
    pub(crate) ahead: i64,
    /// How many live grants were summed.
    pub(crate) counted: u64,
}

impl Answer {
    pub(crate) fn new(score: i64, rate: i64, balance: i64, reset: i64) -> Self {
        Self {
            score,
            rate,
            balance,
            reset,
            ahead: 0,
            counted: 0,
        }
    }

    /// Until the first of the permits in use are back.
    pub(crate) fn reset(&self) -> Duration {
        Duration::from_millis(self.reset.max(0).unsigned_abs())
    }

    /// When a denied request is worth another call: Redisson's 3 + interval - age of the oldest grant, in ms.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_millis((self.reset + 3).max(1).unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(runs: &[(u32, u32)], runs_in_line: usize) -> Requests {
        Requests {
            runs: runs
                .iter()
                .map(|&(permits, count)| Run { permits, count })
                .collect(),
            runs_in_line,
        }
    }

    fn granted(requests: &Requests, balance: i64) -> Vec<u32> {
        requests
            .served(balance, 10)
            .map(|(_, granted)| granted)
            .collect()
    }

    #[test]
    fn a_run_is_granted_from_its_front_as_far_as_the_balance_goes() {
        let list = requests(&[(2, 3), (1, 4)], 0);
        assert_eq!(granted(&list, 5), [2, 1]);
        assert_eq!(list.taken(5, 10), 5);
    }

    #[test]
    fn a_small_request_behind_a_large_denied_one_is_granted() {
        assert_eq!(granted(&requests(&[(8, 1), (1, 1)], 0), 5), [0, 1]);
    }

    #[test]
    fn in_line_the_first_denial_denies_all_behind_it_but_not_those_out_of_line() {
        assert_eq!(
            granted(&requests(&[(8, 1), (1, 1), (1, 1)], 2), 5),
            [0, 0, 1]
        );
    }

    #[test]
    fn a_request_above_the_rate_is_passed_over_and_does_not_hold_up_the_line() {
        assert_eq!(granted(&requests(&[(11, 1), (1, 1)], 2), 5), [0, 1]);
    }

    #[test]
    fn the_sum_of_the_grants_as_balance_gives_the_same_grants() {
        for balance in 0..30 {
            for in_line in 0..=4 {
                let list = requests(&[(3, 2), (20, 1), (5, 3), (1, 4)], in_line);
                let taken = list.taken(balance, 10);
                assert_eq!(granted(&list, taken), granted(&list, balance));
            }
        }
    }
}
