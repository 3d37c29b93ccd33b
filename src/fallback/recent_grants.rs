//! What the store recently granted to this client: it counts toward the client's share when the store goes down.

use std::collections::VecDeque;

/// The number of entries per window.
const SLOTS: i64 = 32;

/// Permits by the time of their grant, one entry for each part of the window.
#[derive(Debug, Default)]
pub(super) struct RecentGrants {
    /// The last ms of the entry's part of the window, and the permits. Times ascend.
    entries: VecDeque<(i64, u64)>,
}

impl RecentGrants {
    /// Notes a grant. `now` and the length of the window are in ms.
    pub(super) fn note(&mut self, now: i64, permits: u32, window: i64) {
        let over = |end: i64| end <= now - window;
        while self.entries.front().is_some_and(|&(end, _)| over(end)) {
            self.entries.pop_front();
        }
        let length = (window / SLOTS).max(1);
        let end = (now.div_euclid(length) + 1) * length - 1;
        match self.entries.back_mut() {
            // Permits come back no earlier than they were granted.
            Some((last, sum)) if *last >= end => *sum += u64::from(permits),
            _ => self.entries.push_back((end, permits.into())),
        }
    }

    /// Takes everything out: each entry with a time no earlier than its grants, and not in the future.
    pub(super) fn take(&mut self, now: i64) -> impl Iterator<Item = (i64, u64)> {
        let entries = std::mem::take(&mut self.entries).into_iter();
        entries.map(move |(end, permits)| (end.min(now), permits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(recent: &mut RecentGrants, now: i64) -> Vec<(i64, u64)> {
        recent.take(now).collect()
    }

    #[test]
    fn grants_of_a_part_of_the_window_are_one_entry_at_its_end() {
        let mut recent = RecentGrants::default();
        for now in [1_000, 1_001, 1_009, 1_010] {
            recent.note(now, 2, 320);
        }
        assert_eq!(take(&mut recent, 2_000), [(1_009, 6), (1_019, 2)]);
        assert_eq!(take(&mut recent, 2_000), []);
    }

    #[test]
    fn no_entry_lies_in_the_future() {
        let mut recent = RecentGrants::default();
        recent.note(1_000, 1, 320);
        assert_eq!(take(&mut recent, 1_002), [(1_002, 1)]);
    }

    #[test]
    fn a_window_has_a_bounded_number_of_entries_however_many_grants_there_are() {
        let mut recent = RecentGrants::default();
        for now in 0..100_000 {
            recent.note(now, 1, 1_000);
        }
        assert!(recent.entries.len() <= 34, "{}", recent.entries.len());
        let sum: u64 = take(&mut recent, 100_000).iter().map(|it| it.1).sum();
        assert!((1_000..=1_031).contains(&sum), "{sum}");
    }
}
