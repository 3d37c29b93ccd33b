//! What an audit has read: the grants of a limiter in pages, oldest first.
//!
//! During the audit the limiter changes at both ends: expired grants are removed at the front, new
//! ones are added at the end. How many grants were removed is known, but not how many permits they
//! had. So pages that lost all their grants are dropped, and the last call of the audit reads what
//! remains of the first page again. Other changes, such as a refund that takes permits out of a
//! grant, are noted by the scripts that make them.

use std::cmp::Ordering;
use std::collections::VecDeque;

/// The position of a grant: grants are ordered by score, then by their bytes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Position {
    score: f64,
    member: Vec<u8>,
}

impl Position {
    pub(super) fn new(score: &[u8], member: &[u8]) -> Option<Self> {
        let score: f64 = std::str::from_utf8(score).ok()?.parse().ok()?;
        (!score.is_nan()).then(|| Self {
            score,
            member: member.to_vec(),
        })
    }

    fn is_before(&self, other: &Self) -> bool {
        match self.score.partial_cmp(&other.score) {
            Some(Ordering::Equal) => self.member < other.member,
            order => order == Some(Ordering::Less),
        }
    }
}

/// Consecutive grants.
#[derive(Debug, Clone, PartialEq)]
struct Page {
    last: Position,
    count: i64,
    permits: i64,
}

/// A change of one grant by another script.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GrantChange {
    at: Position,
    /// How many permits were taken out of it.
    permits: i64,
    is_gone: bool,
}

impl GrantChange {
    /// Reads what `note_change` in `lua/shared/window.lua` wrote.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.splitn(4, |&byte| byte == b' ');
        let (score, permits) = (words.next()?, words.next()?);
        let (is_gone, member) = (words.next()?, words.next()?);
        Some(Self {
            at: Position::new(score, member)?,
            permits: std::str::from_utf8(permits).ok()?.parse().ok()?,
            is_gone: is_gone == b"1",
        })
    }
}

/// What the call that ends an audit must know.
#[derive(Debug, PartialEq)]
pub(super) struct Known<'a> {
    /// A grant.
    pub(super) first: &'a [u8],
    /// How many grants follow it, up to `last`, and their permits.
    pub(super) count: i64,
    pub(super) permits: i64,
    pub(super) last: &'a [u8],
}

/// The pages that an audit has read.
#[derive(Debug, Default)]
pub(super) struct AuditPages {
    pages: VecDeque<Page>,
}

impl AuditPages {
    /// The last grant that was read.
    pub(super) fn last(&self) -> Option<&[u8]> {
        self.pages.back().map(|page| &page.last.member[..])
    }

    /// Drops the pages at the front that lost all their grants, if `place` of the grants that were
    /// read are left.
    pub(super) fn note_place(&mut self, place: i64) {
        let mut gone = self.pages.iter().map(|page| page.count).sum::<i64>() - place;
        while let Some(first) = self.pages.front()
            && gone >= first.count
            && self.pages.len() > 1
        {
            gone -= first.count;
            self.pages.pop_front();
        }
    }

    pub(super) fn push(&mut self, last: Position, count: i64, permits: i64) {
        self.pages.push_back(Page {
            last,
            count,
            permits,
        });
    }

    /// Drops the first page, whose grants are gone. Returns `false` if it is the only one.
    pub(super) fn drop_first(&mut self) -> bool {
        self.pages.pop_front();
        !self.pages.is_empty()
    }

    /// Notes a change of a grant. Returns `false` if that is the last grant that was read: then the
    /// audit does not know where to go on.
    pub(super) fn change(&mut self, change: &GrantChange) -> bool {
        let pages = &mut self.pages;
        let place = pages.partition_point(|page| page.last.is_before(&change.at));
        let Some(page) = self.pages.get_mut(place) else {
            return true; // it is read later
        };
        page.permits -= change.permits;
        page.count -= i64::from(change.is_gone);
        if page.last != change.at {
            return true;
        }
        // The page has lost its last grant, or that grant has other bytes now.
        let Some(page) = self.pages.remove(place) else {
            return false;
        };
        match self.pages.get_mut(place) {
            Some(next) => {
                next.count += page.count;
                next.permits += page.permits;
                true
            }
            None => false,
        }
    }

    pub(super) fn known(&self) -> Option<Known<'_>> {
        let (first, last) = (self.pages.front()?, self.pages.back()?);
        let between = self.pages.iter().skip(1);
        Some(Known {
            first: &first.last.member,
            count: between.clone().map(|page| page.count).sum(),
            permits: between.map(|page| page.permits).sum(),
            last: &last.last.member,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(score: i64, member: &str) -> Position {
        Position::new(score.to_string().as_bytes(), member.as_bytes()).unwrap()
    }

    /// Three pages of ten grants with 20 permits each, up to the scores 10, 20 and 30.
    fn pages() -> AuditPages {
        let mut pages = AuditPages::default();
        for score in [10, 20, 30] {
            pages.push(at(score, "m"), 10, 20);
        }
        pages
    }

    fn change(score: i64, member: &str, is_gone: bool) -> GrantChange {
        let is_gone = u8::from(is_gone);
        GrantChange::read(format!("{score} 3 {is_gone} {member}").as_bytes()).unwrap()
    }

    fn sums(pages: &AuditPages) -> Vec<(i64, i64)> {
        let pages = pages.pages.iter();
        pages.map(|page| (page.count, page.permits)).collect()
    }

    #[test]
    fn pages_gone_at_the_front_are_dropped_and_the_first_is_read_again() {
        for (place, first) in [(30, 10), (21, 10), (20, 20), (11, 20), (10, 30), (0, 30)] {
            let mut pages = pages();
            pages.note_place(place);
            let known = pages.known().unwrap();
            let left = (30 - first) / 10;
            assert_eq!(
                (known.count, known.permits),
                (10 * left, 20 * left),
                "{place}"
            );
        }
    }

    #[test]
    fn what_was_taken_out_of_a_grant_is_taken_off_its_page() {
        let mut pages = pages();
        assert!(pages.change(&change(11, "a b", true)));
        assert!(pages.change(&change(20, "l", false)));
        assert!(pages.change(&change(20, "n", true)));
        assert!(pages.change(&change(31, "a", true)), "not read yet");
        assert_eq!(sums(&pages), [(10, 20), (9, 14), (9, 17)]);
    }

    #[test]
    fn a_page_that_lost_its_last_grant_is_merged_with_the_next() {
        let mut pages = pages();
        assert!(pages.change(&change(10, "m", true)));
        assert_eq!(sums(&pages), [(19, 37), (10, 20)]);
        assert!(pages.change(&change(20, "m", false)));
        assert_eq!(sums(&pages), [(29, 54)]);
        assert!(
            !pages.change(&change(30, "m", false)),
            "nothing to read on from"
        );
    }

    #[test]
    fn a_malformed_change_is_refused() {
        for bytes in ["", "1 2 1", "x 2 1 m", "1 x 1 m", "nan 2 1 m"] {
            assert_eq!(GrantChange::read(bytes.as_bytes()), None, "{bytes}");
        }
    }
}
