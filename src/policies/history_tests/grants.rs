//! Every grant that was ever made by a limiter that never frees one before its time, and which of
//! them a version has to count.

use super::VERSIONS;

#[derive(Debug, Default)]
pub(super) struct Grants(Vec<Grant>);

#[derive(Debug)]
struct Grant {
    at: i64,
    cost: i64,
    /// The time until which its key lives at least.
    lives: i64,
    /// Whether a version knows it from its last request on. The last place is for requests of none.
    is_known: [bool; VERSIONS + 1],
}

impl Grants {
    /// Notes that a version, whose limit holds for any `span` ms, is granted `costs`. It `is_back`
    /// if its last request was so long ago that only the grants that live for other versions must
    /// still exist.
    pub(super) fn ask(
        &mut self,
        now: i64,
        version: usize,
        is_back: bool,
        (limit, span): (i64, i64),
        costs: impl Iterator<Item = i64>,
    ) {
        let mut used = 0;
        for grant in &mut self.0 {
            let is_known = &mut grant.is_known[version];
            *is_known = if is_back {
                grant.lives >= now
            } else {
                *is_known
            };
            if *is_known && grant.at > now - span {
                used += grant.cost;
                grant.lives = grant.lives.max(grant.at + span);
            }
        }
        for cost in costs {
            used += cost;
            assert!(used <= limit, "{used} of {limit} in {span} ms: {self:?}");
            self.0.push(Grant {
                at: now,
                cost,
                lives: now + span,
                is_known: [true; VERSIONS + 1],
            });
        }
    }
}
