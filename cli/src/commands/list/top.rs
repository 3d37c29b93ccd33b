//! Keeps the first N samples in an order, in memory for N.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

use super::{Order, per_second, share_in_use};
use crate::inspect::sample::{Kind, Sample};

pub(super) struct Top {
    order: Order,
    most: usize,
    kept: BTreeSet<Placed>,
    names: HashSet<String>,
}

impl Top {
    pub(super) fn new(order: Order, most: usize) -> Self {
        Self {
            order,
            most,
            kept: BTreeSet::new(),
            names: HashSet::new(),
        }
    }

    pub(super) fn add(&mut self, sample: Sample) {
        // SCAN may return a key twice. If it was dropped in between, it is dropped again.
        if self.names.contains(&sample.name) {
            return;
        }
        self.names.insert(sample.name.clone());
        self.kept.insert(Placed {
            place: place(self.order, &sample),
            sample,
        });
        if self.kept.len() > self.most
            && let Some(last) = self.kept.pop_last()
        {
            self.names.remove(&last.sample.name);
        }
    }

    pub(super) fn in_order(self) -> impl Iterator<Item = Sample> {
        self.kept.into_iter().map(|it| it.sample)
    }
}

struct Placed {
    /// The position in the order: the smallest comes first, and equal ones are ordered by name.
    place: f64,
    sample: Sample,
}

fn place(order: Order, sample: &Sample) -> f64 {
    let of_rate = |number: fn(&crate::inspect::sample::RateSample) -> f64| match &sample.kind {
        Kind::Rate(it) => -number(it),
        Kind::Policy(..) => f64::INFINITY,
    };
    match order {
        Order::Name => 0.0,
        Order::Health => match &sample.kind {
            // The worst health has the lowest rank.
            Kind::Rate(it) => f64::from(it.health.rank()),
            Kind::Policy(..) => f64::INFINITY,
        },
        Order::Use => of_rate(|it| share_in_use(it).unwrap_or(-1.0)),
        Order::Rate => of_rate(per_second),
        Order::Grants => of_rate(|it| it.grants as f64),
        Order::Ttl => sample.lives.map_or(f64::INFINITY, |it| it.as_secs_f64()),
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_place = self.place.total_cmp(&other.place);
        by_place.then_with(|| self.sample.name.cmp(&other.sample.name))
    }
}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Placed {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(name: &str, seconds: Option<u64>) -> Sample {
        Sample {
            name: name.to_owned(),
            kind: Kind::Policy("token_bucket", None),
            lives: seconds.map(Duration::from_secs),
        }
    }

    #[test]
    fn the_first_of_an_order_are_kept_and_no_more_than_that() {
        let mut top = Top::new(Order::Ttl, 2);
        for (name, seconds) in [
            ("d", None),
            ("c", Some(9)),
            ("b", Some(3)),
            ("a", Some(5)),
            ("b", Some(3)),
        ] {
            top.add(sample(name, seconds));
            assert!(top.kept.len() <= 2 && top.names.len() <= 2);
        }
        let names: Vec<_> = top.in_order().map(|it| it.name).collect();
        assert_eq!(names, ["b", "a"]);
    }
}
