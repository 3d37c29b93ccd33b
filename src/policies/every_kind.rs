//! One of each algorithm, for tests of what each must show.

use std::sync::Arc;
use std::time::Duration;

use super::algorithm::Algorithm;
use super::model::Model;
use super::shared_rate::SharedRate;

macro_rules! every_kind {
    ([$one:ident] $($name:ident: $Policy:ident,)*) => {
        [$($one::<super::$Policy>(),)*]
    };
}

/// An algorithm of each kind.
pub(crate) fn every_kind(client_id: &str) -> impl Iterator<Item = Arc<Algorithm>> {
    let shared = SharedRate::as_it_is(client_id, None);
    let all = policies!(every_kind! { example }).into_iter();
    all.chain([Arc::new(shared.into())])
}

fn example<P: Model + Into<Algorithm>>() -> Arc<Algorithm> {
    Arc::new(P::example(5, Duration::from_secs(2)).into())
}
