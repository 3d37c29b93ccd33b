//! Takes samples in rounds. A round samples each limiter that is watched, and reads a few pages of
//! keys to find others.

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};

use super::history::Round;
use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::sample::{Kind, sample};
use crate::inspect::scan::{Scan, is_pattern};
use crate::report::millis;

/// The most samples at the same time: enough that those of a lost primary do not delay the others.
const AT_ONCE: usize = 64;
/// The most pages of keys that a round reads to find limiters.
const PAGES: u32 = 4;
/// A round stops reading pages when it has found about this number of limiters.
const LOOKS: usize = 200;
/// The least time between the starts of two walks over all keys.
const WALK_EVERY: Duration = Duration::from_secs(10);

pub(super) struct Sampler<'a> {
    context: &'a Context,
    pattern: String,
    every: Duration,
    /// The walk over the keys that is in progress.
    walk: Option<Scan>,
    /// The start of the last walk.
    walked: Option<Instant>,
}

impl<'a> Sampler<'a> {
    pub(super) fn new(context: &'a Context, pattern: String, every: Duration) -> Self {
        Self {
            context,
            pattern,
            every,
            walk: None,
            walked: None,
        }
    }

    /// Samples the targets, and the limiters that it finds. To find them it reads all keys if
    /// `walks_to_the_end`, and otherwise a few pages.
    pub(super) async fn round(
        &mut self,
        targets: &[(String, i64)],
        walks_to_the_end: bool,
    ) -> Round {
        let start = Instant::now();
        let mut round = Round::default();
        self.sample(targets, walks_to_the_end, &mut round).await;
        round.took = start.elapsed();
        round
    }

    async fn sample(
        &mut self,
        targets: &[(String, i64)],
        walks_to_the_end: bool,
        round: &mut Round,
    ) {
        self.look_at(targets.to_vec(), round).await;
        let found_before = round.samples.len();
        let mut pages = 0;
        while walks_to_the_end || pages < PAGES && round.samples.len() < found_before + LOOKS {
            let keys = match self.next_page().await {
                Ok(Some(keys)) => keys,
                Ok(None) => break,
                // Goes on with the other primaries, which may answer.
                Err(failure) => {
                    round.note(&failure);
                    self.walk = self.walk.take().and_then(Scan::without_this_server);
                    if self.walk.is_none() {
                        break;
                    }
                    continue;
                }
            };
            (pages, round.calls) = (pages + 1, round.calls + 1);
            let names = keys
                .into_iter()
                .filter_map(|key| String::from_utf8(key).ok());
            let new = names.filter(|name| targets.binary_search_by(|it| it.0.cmp(name)).is_err());
            let before = -i64::try_from(millis(self.every)).unwrap_or(1_000);
            let new = new.map(|name| (name, before)).collect();
            self.look_at(new, round).await;
        }
        // Only limiters that were watched are missing, not new keys that are no limiters.
        round
            .missing
            .retain(|name| targets.iter().any(|it| it.0 == *name));
    }

    async fn look_at(&self, targets: Vec<(String, i64)>, round: &mut Round) {
        let looks = targets.into_iter().map(async |(name, since)| {
            let found = sample(&self.context.client, &name, None, since).await;
            // Another program's key that a walk has found may be kept from the user of the
            // connection, or be in another slot than its siblings would be.
            let is_new = since < 0 && is_pattern(&self.pattern);
            match found {
                Err(failure) if is_new && failure.is_of_one_key() => (name, Ok(None)),
                found => (name, found),
            }
        });
        let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
        while let Some((name, found)) = looks.next().await {
            round.calls += 1;
            match found {
                Ok(Some(sample)) if matches!(sample.kind, Kind::Rate(_)) => {
                    round.samples.push(sample);
                }
                Ok(_) => round.missing.push(name),
                Err(failure) => round.note(&failure),
            }
        }
    }

    async fn next_page(&mut self) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let is_due = self
            .walked
            .is_none_or(|walked| walked.elapsed() >= WALK_EVERY);
        if self.walk.is_none() && is_due {
            self.walk = Some(Scan::new(
                &self.context.client,
                &self.pattern,
                Some("hash"),
            )?);
            self.walked = Some(Instant::now());
        }
        let Some(walk) = &mut self.walk else {
            return Ok(None);
        };
        let page = walk.next().await?;
        if page.is_none() {
            self.walk = None;
        }
        Ok(page)
    }
}
