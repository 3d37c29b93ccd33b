//! The history of samples of each limiter, in bounded memory.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::commands::list::{HOT, share_in_use};
use crate::failure::Failure;
use crate::inspect::sample::{Kind, RateSample, Sample};

/// The most samples of a limiter that are kept.
const KEPT: usize = 240;

/// The result of one round of samples.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) samples: Vec<Sample>,
    /// The limiters that exist no longer.
    pub(crate) missing: Vec<String>,
    pub(crate) calls: u64,
    /// The time that the calls took, including the network.
    pub(crate) took: Duration,
    /// The first failure of a call. Other calls may have succeeded.
    pub(crate) error: Option<String>,
}

impl Round {
    pub(crate) fn note(&mut self, failure: &Failure) {
        self.error.get_or_insert_with(|| failure.to_string());
    }
}

#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) latest: RateSample,
    /// Whether `latest` is from the last round.
    pub(crate) is_new: bool,
    /// The permits that each sample found available.
    pub(crate) available: VecDeque<u64>,
    /// The permits that were granted before each sample, since the previous one.
    pub(crate) granted: VecDeque<u64>,
    /// The permits granted per second since the previous sample.
    pub(crate) per_second: f64,
    /// The number of all samples.
    samples: u64,
    /// The number of samples that found no permit available.
    empty: u64,
}

impl Watched {
    /// The share of the samples that found no permit available. It stands in for the denials, which
    /// leave no trace in Redis.
    pub(crate) fn share_empty(&self) -> f64 {
        self.empty as f64 / self.samples.max(1) as f64
    }

    fn note(&mut self, sample: RateSample) {
        let between = sample.now.saturating_sub(self.latest.now).max(1);
        self.per_second = sample.new_permits as f64 * 1_000.0 / between as f64;
        self.push(&sample);
        (self.latest, self.is_new) = (sample, true);
    }

    fn push(&mut self, sample: &RateSample) {
        self.samples += 1;
        self.empty += u64::from(sample.available == Some(0));
        for (kept, new) in [
            (&mut self.available, sample.available.unwrap_or(0)),
            (&mut self.granted, sample.new_permits),
        ] {
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(new);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Use,
    Grants,
    Name,
    Health,
}

impl Order {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Use => Self::Grants,
            Self::Grants => Self::Name,
            Self::Name => Self::Health,
            Self::Health => Self::Use,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Grants => "grants",
            Self::Name => "name",
            Self::Health => "health",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) limiters: usize,
    pub(crate) hot: usize,
    pub(crate) sick: usize,
    pub(crate) passed_over: usize,
}

/// The view that a person has chosen.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// Only limiters whose names contain this text are shown.
    pub(crate) filter: String,
    /// Whether keys are added to the filter.
    pub(crate) is_filtering: bool,
    pub(crate) is_paused: bool,
    pub(crate) has_details: bool,
    pub(crate) has_help: bool,
}

/// The limiters that are watched: the hottest that were found, at most `most`.
#[derive(Debug)]
pub(crate) struct History {
    most: usize,
    every: Duration,
    limiters: BTreeMap<String, Watched>,
    pub(crate) order: Order,
    pub(crate) view: View,
    /// The number of limiters that were found but are not watched, because others are hotter.
    pub(crate) passed_over: usize,
    selected: Option<String>,
    /// Why the last round failed, and the number of rounds that have failed in a row.
    pub(crate) error: Option<(String, u64)>,
    pub(crate) calls_per_second: f64,
    /// The share of the time in which a call was in flight, which is more than the server's load.
    pub(crate) busy: f64,
}

impl History {
    pub(crate) fn new(most: usize, every: Duration) -> Self {
        Self {
            most,
            every,
            limiters: BTreeMap::new(),
            order: Order::Use,
            view: View::default(),
            passed_over: 0,
            selected: None,
            error: None,
            calls_per_second: 0.0,
            busy: 0.0,
        }
    }

    pub(crate) fn note(&mut self, round: Round) {
        let every = self.every.as_secs_f64().max(0.001);
        self.calls_per_second = round.calls as f64 / every;
        self.busy = round.took.as_secs_f64() / every;
        // Only a round that walks over the keys finds the limiters that are passed over.
        let is_whole = round.samples.len() > self.limiters.len();
        for name in round.missing {
            self.limiters.remove(&name);
        }
        for watched in self.limiters.values_mut() {
            watched.is_new = false;
        }
        for sample in round.samples {
            let Kind::Rate(rate) = sample.kind else {
                continue;
            };
            if let Some(watched) = self.limiters.get_mut(&sample.name) {
                watched.note(*rate);
                continue;
            }
            let mut watched = Watched {
                per_second: rate.new_permits as f64 / every,
                latest: (*rate).clone(),
                is_new: true,
                available: VecDeque::new(),
                granted: VecDeque::new(),
                samples: 0,
                empty: 0,
            };
            watched.push(&rate);
            self.limiters.insert(sample.name, watched);
        }
        let found = self.limiters.len();
        self.passed_over = match found.saturating_sub(self.most) {
            0 if !is_whole => self.passed_over,
            more => more,
        };
        while self.limiters.len() > self.most
            && let Some(coolest) = self
                .in_order_of(Order::Use)
                .last()
                .map(|(name, _)| (*name).clone())
        {
            self.limiters.remove(&coolest);
        }
        self.error = round.error.map(|error| {
            let before = self.error.as_ref().map_or(0, |(_, times)| *times);
            (error, before + 1)
        });
    }

    /// The limiters to sample next, and the server's time of the last sample of each, in ms.
    pub(crate) fn targets(&self) -> Vec<(String, i64)> {
        let target = |(name, it): (&String, &Watched)| (name.clone(), it.latest.now);
        self.limiters.iter().map(target).collect()
    }

    /// The limiters whose names match the filter, in the chosen order.
    pub(crate) fn in_order(&self) -> Vec<(&String, &Watched)> {
        let mut all = self.in_order_of(self.order);
        all.retain(|(name, _)| name.contains(&self.view.filter));
        all
    }

    /// The numbers of limiters: of all, and of those that are hot, sick and not watched.
    pub(crate) fn totals(&self) -> Totals {
        let is_hot = |it: &&Watched| share_in_use(&it.latest).is_some_and(|it| it >= HOT);
        let sick = self
            .limiters
            .values()
            .filter(|it| it.latest.health.is_sick());
        Totals {
            limiters: self.limiters.len() + self.passed_over,
            hot: self.limiters.values().filter(is_hot).count(),
            sick: sick.count(),
            passed_over: self.passed_over,
        }
    }

    fn in_order_of(&self, order: Order) -> Vec<(&String, &Watched)> {
        let mut all: Vec<_> = self.limiters.iter().collect();
        let hotness = |it: &Watched| match order {
            Order::Use => share_in_use(&it.latest).unwrap_or(-1.0),
            Order::Grants => it.per_second,
            Order::Name => 0.0,
            Order::Health => -f64::from(it.latest.health.rank()),
        };
        // The sort is stable, so equally hot limiters stay in the order of their names.
        all.sort_by(|(_, one), (_, other)| hotness(other).total_cmp(&hotness(one)));
        all
    }

    /// The place of the selected limiter in the order; 0 if it is no longer shown.
    pub(crate) fn selected(&self) -> usize {
        let places = self.in_order();
        let name = self.selected.as_ref();
        places
            .iter()
            .position(|(it, _)| Some(*it) == name)
            .unwrap_or(0)
    }

    pub(crate) fn select(&mut self, step: isize) {
        let place = self.selected().saturating_add_signed(step);
        let names = self.in_order();
        let place = place.min(names.len().saturating_sub(1));
        self.selected = names.get(place).map(|(name, _)| (*name).clone());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::inspect::health::Health;
    use crate::inspect::settings::Settings;

    pub(crate) fn sample(name: &str, available: u64, new_permits: u64, now: i64) -> Sample {
        let interval = Duration::from_secs(1);
        Sample {
            name: name.to_owned(),
            kind: Kind::Rate(Box::new(RateSample {
                settings: Settings {
                    rate: "10".to_owned(),
                    interval: "1000".to_owned(),
                    rate_type: "0".to_owned(),
                    keep_alive: "0".to_owned(),
                },
                health: Health::Well,
                clients: None,
                permits: 10,
                interval,
                available: Some(available),
                grants: 1,
                next_return: Some(Duration::from_millis(250)),
                new_permits,
                now,
            })),
            lives: None,
        }
    }

    pub(crate) fn round(samples: impl IntoIterator<Item = Sample>) -> Round {
        Round {
            samples: samples.into_iter().collect(),
            calls: 3,
            took: Duration::from_millis(2),
            ..Round::default()
        }
    }

    fn names(history: &History) -> Vec<&str> {
        history
            .in_order()
            .iter()
            .map(|(name, _)| name.as_str())
            .collect()
    }

    #[test]
    fn the_hottest_limiters_are_kept_and_come_first() {
        let mut history = History::new(2, Duration::from_secs(1));
        history.note(round(
            [("a", 9), ("b", 0), ("c", 5)].map(|(name, left)| sample(name, left, 0, 0)),
        ));
        assert_eq!(names(&history), ["b", "c"]);
        history.order = Order::Name;
        history.select(1);
        assert_eq!((names(&history), history.selected()), (vec!["b", "c"], 1));
        history.note(Round {
            missing: vec!["c".to_owned()],
            ..Round::default()
        });
        assert_eq!((names(&history), history.selected()), (vec!["b"], 0));
    }

    #[test]
    fn grants_are_counted_by_the_servers_clock_and_samples_are_bounded() {
        let mut history = History::new(2, Duration::from_secs(1));
        for number in 0..1_000 {
            history.note(round([sample("a", number % 2, 3, number as i64 * 500)]));
        }
        let (_, watched) = history.in_order()[0];
        assert_eq!((watched.per_second, watched.available.len()), (6.0, KEPT));
        assert_eq!(watched.share_empty(), 0.5);
    }

    #[test]
    fn failed_rounds_are_counted_until_one_succeeds() {
        let mut history = History::new(2, Duration::from_secs(1));
        for times in 1..3 {
            history.note(Round {
                error: Some("away".to_owned()),
                ..Round::default()
            });
            assert_eq!(history.error, Some(("away".to_owned(), times)));
        }
        history.note(round([]));
        assert_eq!(history.error, None);
    }
}
