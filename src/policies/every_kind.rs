//! One of each algorithm, for tests of what each must show.

use std::sync::Arc;
use std::time::Duration;

use super::algorithm::{AnyModel, INTERNAL, Sealed};
use super::kind::Kind;
use super::shared_rate::SharedRate;
use super::{
    FixedWindow, LeakyBucket, PenaltyTokenBucket, QuotaBucket, SlidingWindowCounter,
    SlidingWindowLog, TokenBucket,
};

/// An algorithm of each kind, with all the keys that it may have.
pub(crate) fn every_kind(client_id: &str) -> impl Iterator<Item = Arc<dyn AnyModel>> {
    Kind::ALL.iter().map(|&kind| one(kind, client_id))
}

fn one(kind: Kind, client_id: &str) -> Arc<dyn AnyModel> {
    let second = Duration::from_secs(1);
    let algorithm = match kind {
        Kind::FixedWindow => {
            let before = FixedWindow::new(5, second);
            let (moved, _) = Sealed::after(&FixedWindow::new(5, 2 * second), &before, INTERNAL);
            moved.algorithm(INTERNAL)
        }
        Kind::LeakyBucket => LeakyBucket::new(1, second).algorithm(INTERNAL),
        Kind::PenaltyTokenBucket => PenaltyTokenBucket::new(1, second).algorithm(INTERNAL),
        Kind::QuotaBucket => QuotaBucket::new(1, second).algorithm(INTERNAL),
        Kind::SharedRate => SharedRate::as_it_is(client_id, None).algorithm(INTERNAL),
        Kind::SlidingWindowCounter => SlidingWindowCounter::new(5, second).algorithm(INTERNAL),
        Kind::SlidingWindowLog => SlidingWindowLog::new(5, second).algorithm(INTERNAL),
        Kind::TokenBucket => TokenBucket::per_second(2).algorithm(INTERNAL),
    };
    assert_eq!(algorithm.0.kind(), kind);
    algorithm.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::redis::script::include;

    #[test]
    fn every_algorithm_with_a_script_is_one_of_them() {
        let kinds: BTreeSet<_> = every_kind("client").map(|it| it.kind().name()).collect();
        let scripts = include::names().filter_map(|file| file.strip_prefix("policies/"));
        let scripts = scripts.filter_map(|file| file.strip_suffix(".lua"));
        let expected: BTreeSet<_> = scripts.chain(["shared_rate"]).collect();
        assert_eq!(kinds, expected);
    }
}
