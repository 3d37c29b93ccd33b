//! A list of requests.
//!
//! A list is stored as runs of equal requests, so that the script's work does not grow with the
//! number of callers. The script answers for the whole list with the rate and the permits available
//! before it. [`Requests::served`] then computes each request's answer, by the same rule as the
//! script. For a call of which an earlier attempt was granted, the permits available are those of
//! its one member: the same requests fit into them, so the answers are the same.

use smallvec::SmallVec;

use super::Acquired;

/// `count` consecutive requests, each for `permits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) permits: u32,
    pub(crate) count: u32,
}

/// Requests in the order of their arrival.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Requests {
    pub(crate) runs: SmallVec<[Run; 1]>,
    /// Whether the first denial denies all requests behind it.
    pub(crate) fifo: bool,
    /// The share of the available permits that they may take; `None` for all.
    pub(crate) share: Option<Share>,
    /// Whether they take what they ask for in any case, because it was used already. The permits
    /// left may then be below zero.
    pub(crate) debt: bool,
}

/// A share of the available permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Thousandths of the available permits, 0 to 1000.
    pub(crate) permille: i64,
    /// Thousandths of a permit, added to that: from -2^50 to 2^50.
    pub(crate) credit: i64,
}

/// If more permits than this are available, a share is all of them.
const SHARED: i64 = 1 << 40;

impl Share {
    fn of(self, available: i64) -> i64 {
        if available > SHARED {
            return available;
        }
        let thousandths = available
            .saturating_mul(self.permille)
            .saturating_add(self.credit);
        thousandths.div_euclid(1000).min(available).max(0)
    }
}

/// The rule by which a list is served, one run after another.
struct Serving {
    rate: i64,
    left: i64,
    fifo: bool,
    debt: bool,
    is_blocked: bool,
}

impl Serving {
    /// How many of a run's requests are granted, always the first ones. Requests above the rate are
    /// skipped.
    #[inline]
    fn serve(&mut self, run: Run) -> u32 {
        if self.debt {
            return run.count;
        }
        let permits = i64::from(run.permits);
        if permits > self.rate || self.is_blocked {
            return 0;
        }
        let granted = i64::from(run.count).min(self.left.max(0) / permits);
        self.left -= granted * permits;
        self.is_blocked = self.fifo && granted < i64::from(run.count);
        granted as u32
    }
}

impl Requests {
    #[inline]
    pub(crate) fn one(permits: u32) -> Self {
        Self {
            runs: SmallVec::from_buf([Run { permits, count: 1 }]),
            ..Self::default()
        }
    }

    /// Plain requests: each is decided independently.
    pub(crate) fn plain(permits: impl Iterator<Item = u32>) -> Self {
        Self {
            runs: runs_of(permits),
            ..Self::default()
        }
    }

    /// One request for permits that were used beyond an estimate.
    pub(crate) fn debt(permits: u32) -> Self {
        Self {
            debt: true,
            ..Self::one(permits)
        }
    }

    /// Up to this many single permits, out of `permille` thousandths of what is available.
    pub(crate) fn part(permits: u32, permille: i64) -> Self {
        Self {
            runs: SmallVec::from_buf([Run {
                permits: 1,
                count: permits,
            }]),
            share: Some(Share {
                permille,
                credit: 0,
            }),
            ..Self::default()
        }
    }

    /// Requests of a queue: the first denial denies all behind it.
    pub(crate) fn fifo(permits: impl Iterator<Item = u32>, share: Option<Share>) -> Self {
        Self {
            runs: runs_of(permits),
            fifo: true,
            share,
            debt: false,
        }
    }

    /// The permits of a single request; `None` if there are several.
    #[inline]
    pub(crate) fn single(&self) -> Option<u32> {
        match self.runs[..] {
            [Run { permits, count: 1 }] => Some(permits),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn any_fits(&self, rate: i64) -> bool {
        self.debt || self.runs.iter().any(|run| i64::from(run.permits) <= rate)
    }

    /// How many requests there are.
    pub(crate) fn count(&self) -> u32 {
        self.runs.iter().map(|run| run.count).sum()
    }

    /// The permits of all requests together.
    pub(crate) fn total(&self) -> i64 {
        let runs = self.runs.iter();
        runs.map(|run| i64::from(run.permits) * i64::from(run.count))
            .sum()
    }

    /// How many permits must be left for all requests to be granted, at most the rate. A debt is
    /// granted whatever is left.
    #[inline]
    pub(crate) fn wanted(&self, rate: i64) -> i64 {
        if self.debt {
            return i64::MIN;
        }
        let total = self.total();
        match self.share {
            None => total.min(rate),
            Some(Share { permille, credit }) if permille > 0 && total <= SHARED => {
                let thousandths = total * 1000 - credit;
                let wanted = -(-thousandths).div_euclid(permille); // rounded up
                wanted.clamp(0, rate)
            }
            Some(_) => rate,
        }
    }

    /// Returns each run with the number of its requests that are granted.
    #[inline]
    pub(crate) fn served(&self, answer: &Acquired) -> impl Iterator<Item = (Run, u32)> {
        let mut serving = self.serving(answer);
        let one_more = if answer.found {
            self.one_more(answer)
        } else {
            None
        };
        let runs = self.runs.iter().enumerate();
        runs.map(move |(i, &run)| {
            let granted = serving.serve(run);
            (run, granted + u32::from(one_more == Some(i)))
        })
    }

    #[inline]
    fn serving(&self, answer: &Acquired) -> Serving {
        let (rate, left) = match self.share {
            // The rate may have been lowered since it was granted.
            _ if answer.found => (answer.rate.max(answer.available), answer.available),
            Some(share) => (answer.rate, share.of(answer.available)),
            None => (answer.rate, answer.available),
        };
        Serving {
            rate,
            left,
            fifo: self.fifo,
            debt: self.debt,
            is_blocked: false,
        }
    }

    /// A release may have taken permits out of the grant that was found. If the rest does not fit
    /// the requests exactly, one more request counts as granted, so that each permit has an owner:
    /// in a FIFO list the next one, else the smallest that holds the rest. Returns its run.
    fn one_more(&self, answer: &Acquired) -> Option<usize> {
        if self.debt {
            return None; // all are granted
        }
        let mut serving = self.serving(answer);
        let granted: SmallVec<[u32; 8]> = self.runs.iter().map(|&run| serving.serve(run)).collect();
        let left = serving.left;
        if left <= 0 {
            return None;
        }
        let runs = self.runs.iter().zip(granted).enumerate();
        let denied = runs.filter(|(_, (run, granted))| *granted < run.count);
        let denied = denied.map(|(i, (run, _))| (i, i64::from(run.permits)));
        if self.fifo {
            // A request above the rate was skipped, unless the rate was lowered since.
            denied.min_by_key(|(i, permits)| (*permits > serving.rate, *i))
        } else {
            let holds_the_rest = denied.filter(|(_, permits)| *permits >= left);
            holds_the_rest.min_by_key(|(_, permits)| *permits)
        }
        .map(|(i, _)| i)
    }

    /// The permits that the list takes.
    #[inline]
    pub(crate) fn taken(&self, answer: &Acquired) -> i64 {
        self.served(answer)
            .map(|(run, granted)| i64::from(run.permits) * i64::from(granted))
            .sum()
    }
}

/// Consecutive equal requests, as runs.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(runs: &[(u32, u32)], fifo: bool) -> Requests {
        Requests {
            runs: runs
                .iter()
                .map(|&(permits, count)| Run { permits, count })
                .collect(),
            fifo,
            ..Requests::default()
        }
    }

    fn answer(available: i64) -> Acquired {
        Acquired::new(0, 10, available, 0, 0)
    }

    fn found(held: i64) -> Acquired {
        Acquired {
            found: true,
            ..answer(held)
        }
    }

    fn granted(requests: &Requests, answer: &Acquired) -> Vec<u32> {
        requests
            .served(answer)
            .map(|(_, granted)| granted)
            .collect()
    }

    #[test]
    fn a_run_is_granted_from_its_front_as_far_as_the_balance_allows() {
        let list = requests(&[(2, 3), (1, 4)], false);
        assert_eq!(granted(&list, &answer(5)), [2, 1]);
        assert_eq!(list.taken(&answer(5)), 5);
    }

    #[test]
    fn nothing_is_granted_from_a_balance_below_zero() {
        assert_eq!(granted(&requests(&[(1, 2)], false), &answer(-3)), [0]);
    }

    #[test]
    fn a_debt_is_taken_whatever_is_left_and_whatever_was_found() {
        for permits in [1, 10, 11] {
            let debt = Requests::debt(permits);
            assert!(debt.any_fits(10));
            for answer in [answer(10), answer(-3), found(1), found(i64::from(permits))] {
                assert_eq!(debt.taken(&answer), i64::from(permits), "{answer:?}");
            }
        }
    }

    #[test]
    fn a_small_request_behind_a_large_denied_one_is_granted() {
        assert_eq!(
            granted(&requests(&[(8, 1), (1, 1)], false), &answer(5)),
            [0, 1]
        );
    }

    #[test]
    fn in_a_fifo_list_the_first_denial_denies_all_behind_it() {
        assert_eq!(
            granted(&requests(&[(8, 1), (1, 1)], true), &answer(5)),
            [0, 0]
        );
    }

    #[test]
    fn a_request_above_the_rate_is_skipped_and_blocks_no_later_one() {
        assert_eq!(
            granted(&requests(&[(11, 1), (1, 1)], true), &answer(5)),
            [0, 1]
        );
    }

    #[test]
    fn a_share_is_rounded_down_and_is_between_nothing_and_the_balance() {
        let share = |permille, credit| Share { permille, credit };
        assert_eq!(share(500, 0).of(9), 4);
        assert_eq!(share(500, 500).of(9), 5);
        assert_eq!(share(500, 100_000).of(9), 9);
        assert_eq!(share(500, -100_000).of(9), 0);
        assert_eq!(share(0, 999).of(9), 0);
        assert_eq!(share(1000, 0).of(-3), 0);
        assert_eq!(share(500, 0).of(1 << 40), 1 << 39);
        assert_eq!(share(500, 0).of((1 << 40) + 1), (1 << 40) + 1);
    }

    #[test]
    fn a_list_takes_no_more_than_its_share() {
        let list = Requests {
            share: Some(Share {
                permille: 400,
                credit: 0,
            }),
            ..requests(&[(1, 9)], true)
        };
        assert_eq!(granted(&list, &answer(10)), [4]);
        // A grant of an earlier attempt that is found counts in full, whatever the share.
        assert_eq!(granted(&list, &found(7)), [7]);
    }

    #[test]
    fn the_permits_of_a_grant_give_the_answers_that_the_balance_gave() {
        for available in 0..=10 {
            for fifo in [false, true] {
                let list = requests(&[(3, 2), (20, 1), (5, 3), (1, 4)], fifo);
                let taken = list.taken(&answer(available));
                if taken > 0 {
                    let again = granted(&list, &found(taken));
                    assert_eq!(
                        again,
                        granted(&list, &answer(available)),
                        "{available} {fifo}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_single_request_whose_grant_shrank_is_granted() {
        for held in 1..=5 {
            assert_eq!(granted(&Requests::one(5), &found(held)), [1]);
        }
    }

    #[test]
    fn the_requests_of_a_shrunk_grant_cover_it_without_denied_ones() {
        let lists = [
            &[(8, 1), (3, 1)][..],
            &[(3, 2), (2, 1)],
            &[(3, 2), (20, 1), (5, 3), (1, 4)],
            &[(1, 5), (7, 2), (2, 2)],
        ];
        for runs in lists {
            for fifo in [false, true] {
                let list = requests(runs, fifo);
                for available in 1..=10 {
                    let first = granted(&list, &answer(available));
                    for held in 1..=list.taken(&answer(available)) {
                        let again = granted(&list, &found(held));
                        let covered = list.taken(&found(held));
                        assert!(covered >= held, "{runs:?} {available} {held}: {again:?}");
                        if fifo {
                            let no_more = again.iter().zip(&first).all(|(a, b)| a <= b);
                            assert!(no_more, "{runs:?} {available} {held}: {first:?} {again:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_grant_made_before_the_rate_was_lowered_is_a_grant() {
        let lowered = Acquired {
            rate: 2,
            ..found(5)
        };
        assert_eq!(granted(&Requests::one(5), &lowered), [1]);
        assert_eq!(
            granted(&requests(&[(3, 1), (2, 1)], true), &lowered),
            [1, 1]
        );
        let shrunk = Acquired {
            available: 3,
            ..lowered
        };
        assert_eq!(granted(&Requests::one(5), &shrunk), [1]);
    }
}
