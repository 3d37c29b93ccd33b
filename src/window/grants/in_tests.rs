//! What only tests need of grants: the searches of later attempts, the other id of a member that
//! would be equal to another one, and members as Redis stores them.

use std::ops::RangeInclusive;

use bytes::Bytes;

use super::{Entry, Grants, Member};
use crate::permit::{self, CallId};
use crate::window::BOUNDS;

/// A grant that a later attempt of its call has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::window) struct FoundGrant {
    pub(in crate::window) place: usize,
    pub(in crate::window) score: i64,
    pub(in crate::window) permits: u32,
    /// By how many ms its score may be ahead; 0 for an ordinary grant.
    pub(in crate::window) ahead: i64,
}

impl Member {
    fn from_wire(bytes: &[u8]) -> Self {
        match permit::decode(bytes) {
            Some((random, permits)) => Self::new(random, permits),
            None => Self::Other(Box::new(Bytes::copy_from_slice(bytes))),
        }
    }

    fn with_number(&self, number: u32) -> Self {
        let wire = self.to_wire();
        let with_number = |(random, permits): (&[u8], u32)| {
            let start = &random[..random.len().min(16)];
            Self::new(&[start, &number.to_le_bytes()].concat(), permits)
        };
        permit::decode(&wire).map_or_else(|| self.clone(), with_number)
    }
}

impl Grants {
    /// The grants with these random bytes, in their order.
    pub(in crate::window) fn find(&self, call_id: &CallId) -> impl Iterator<Item = FoundGrant> {
        let entries = self.range(0..self.len()).enumerate();
        let named =
            entries.filter(|(_, entry)| entry.permits() > 0 && entry.member.is_named(call_id));
        named.map(|(place, entry)| FoundGrant {
            place,
            score: entry.score,
            permits: entry.permits() as u32,
            ahead: entry.score - entry.made(),
        })
    }

    /// The score of the fence of the lease with this name.
    pub(in crate::window) fn fence(&self, call_id: &CallId) -> Option<i64> {
        let fence = Member::fence(call_id);
        let mut entries = self.range(0..self.len());
        let found = entries.find(|entry| entry.member == fence);
        found.map(|entry| entry.score)
    }

    /// Whether a search of these scores finds this grant in its first call.
    pub(in crate::window) fn is_on_first_page(
        &self,
        call_id: &CallId,
        score: i64,
        scores: RangeInclusive<i64>,
    ) -> bool {
        let in_range = self
            .range(0..self.len())
            .filter(|entry| scores.contains(&entry.score));
        let page: Vec<_> = in_range.take(BOUNDS.most_read).collect();
        // If the page ends in the millisecond in which it begins, a binary search finds all grants
        // of that millisecond.
        let ends_where_it_begins = page.len() == BOUNDS.most_read
            && page
                .last()
                .is_some_and(|last| last.score == *scores.start());
        page.iter()
            .any(|entry| entry.score == score && entry.member.is_named(call_id))
            || (ends_where_it_begins && score == *scores.start())
    }

    /// This member, or if there is an equal one already, one with another id, as `shrink` in the
    /// scripts makes it.
    pub(super) fn unlike_others(&self, member: Member) -> Member {
        let is_another = |it: &Member| self.range(0..self.len()).all(|entry| entry.member != *it);
        let numbered = (1..).map(|number| member.with_number(number));
        let mut members = [member.clone()].into_iter().chain(numbered);
        members.find(is_another).unwrap_or(member)
    }

    pub(crate) fn insert_member(&mut self, score: i64, member: &[u8]) {
        let member = Member::from_wire(member);
        self.retain(|entry| entry.member != member);
        self.insert(Entry { score, member });
    }
}
